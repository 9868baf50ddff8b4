//! A share's policy, in and out.

use super::budget::{budgets, to_rate};
use super::clears::{Clears, Field, cleared};
use crate::api::fields::{Fields, read};
use crate::api::proto as pb;
use crate::domain::limits::{ID_BYTES, WEIGHT_MAX, WEIGHT_MIN};
use crate::domain::names::{FairnessKey, QueueName};
use crate::domain::refusal::Refusal;
use crate::domain::share::ShareEdit;
use crate::engine::{PutShareCommand, Share};

fn fields(share: &pb::Share) -> [Field; 4] {
    let field = |name, given| Field { name, given };
    [
        field("weight", share.weight.is_some()),
        field("max_in_flight", share.max_in_flight.is_some()),
        field("rate_limit", share.rate_limit.is_some()),
        field("max_unfinished", share.max_unfinished.is_some()),
    ]
}

pub fn put_share(request: pb::PutShareRequest) -> Result<PutShareCommand, Refusal> {
    read(|f| {
        let reason = f.reason(request.reason, false);
        let share = f.required("share", request.share)?;
        let cleared = cleared(f, &fields(&share), request.clear_fields);
        let mut f = f.inside("share");
        let queue = f.name("queue", &share.queue, QueueName::parse);
        let key = f.name("fairness_key", &share.fairness_key, FairnessKey::parse);
        let etag = f.text("etag", share.etag.clone(), ID_BYTES);
        let edit = edit(&mut f, &share, &Clears(cleared.as_deref().unwrap_or_default()));
        cleared?;
        let etag = Some(etag?).filter(|etag| !etag.is_empty());
        Some(PutShareCommand { queue: queue?, key: key?, edit: edit?, etag, reason: reason? })
    })
}

fn edit(f: &mut Fields<'_>, share: &pb::Share, clears: &Clears<'_>) -> Option<ShareEdit> {
    let weight = f.optional_number("weight", share.weight, WEIGHT_MIN..=WEIGHT_MAX);
    let budgets = budgets(f, clears, share.max_in_flight, share.rate_limit, share.max_unfinished);
    Some(ShareEdit { weight: clears.or_set("weight", weight?), budgets: budgets? })
}

pub fn list_shares(request: pb::ListSharesRequest) -> Result<(QueueName, i32, String), Refusal> {
    read(|f| {
        let queue = f.name("queue", &request.queue, QueueName::parse);
        let page = f.page(request.page_size, request.page_token);
        let ((size, token), queue) = page.zip(queue)?;
        Some((queue, size, token))
    })
}

pub fn to_share(share: Share) -> pb::Share {
    let Share { queue, key, policy, etag } = share;
    pb::Share {
        queue: queue.as_str().to_owned(),
        fairness_key: key.as_str().to_owned(),
        weight: Some(policy.weight),
        max_in_flight: policy.budgets.max_in_flight.map(i32::unsigned_abs),
        rate_limit: policy.budgets.rate.map(to_rate),
        max_unfinished: policy.budgets.max_unfinished.map(i32::unsigned_abs),
        etag: etag.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::budget::Rate;
    use crate::domain::queue::Edit;
    use crate::domain::share::SharePolicy;

    fn told() -> pb::Share {
        pb::Share {
            queue: "q".to_owned(),
            fairness_key: String::new(),
            weight: Some(2.5),
            max_in_flight: Some(0),
            rate_limit: Some(pb::RateLimit { per_second: 1.5, burst: None }),
            max_unfinished: Some(1_000_000_000),
            etag: "7".to_owned(),
        }
    }

    fn put(share: pb::Share, clear: &[&str]) -> Result<PutShareCommand, Refusal> {
        let clear_fields = clear.iter().map(|name| (*name).to_owned()).collect();
        put_share(pb::PutShareRequest { share: Some(share), clear_fields, reason: String::new() })
    }

    #[test]
    fn what_is_told_comes_back_and_what_is_not_told_keeps() {
        let command = put(told(), &[]).unwrap();
        assert_eq!(command.etag.as_deref(), Some("7"));
        let policy = SharePolicy::default().edited(&command.edit);
        assert_eq!(policy.budgets.rate, Some(Rate { per_second: 1.5, burst: 2 }));
        let shown = to_share(Share { queue: command.queue, key: command.key, policy, etag: 7 });
        assert_eq!(shown, pb::Share { rate_limit: Some(pb::RateLimit { per_second: 1.5, burst: Some(2) }), ..told() });
        let nothing = put(pb::Share { queue: "q".to_owned(), ..pb::Share::default() }, &[]).unwrap();
        assert_eq!(policy.edited(&nothing.edit), policy);
    }

    #[test]
    fn every_field_can_be_cleared_by_its_name() {
        let policy = SharePolicy::default().edited(&put(told(), &[]).unwrap().edit);
        let bare = pb::Share { queue: "q".to_owned(), ..pb::Share::default() };
        let all = put(bare.clone(), &["weight", "max_in_flight", "rate_limit", "max_unfinished"]).unwrap();
        assert_eq!(policy.edited(&all.edit), SharePolicy::default());
        assert_eq!(put(bare, &["weight"]).unwrap().edit, ShareEdit { weight: Edit::Clear, ..ShareEdit::default() });
    }

    #[test]
    fn all_bad_fields_are_told_at_once() {
        let share = pb::Share {
            queue: String::new(),
            fairness_key: "x".repeat(ID_BYTES + 1),
            weight: Some(0.009),
            max_in_flight: Some(1_000_001),
            rate_limit: Some(pb::RateLimit { per_second: f64::NAN, burst: Some(0) }),
            max_unfinished: Some(1_000_000_001),
            etag: "\0".to_owned(),
        };
        let Err(Refusal::InvalidField(mut bad)) = put(share, &["weight", "queue"]) else { panic!() };
        bad.sort_by(|a, b| a.path.cmp(&b.path));
        let paths: Vec<&str> = bad.iter().map(|field| field.path.as_str()).collect();
        let expected = [
            "clear_fields[0]",
            "clear_fields[1]",
            "share.etag",
            "share.fairness_key",
            "share.max_in_flight",
            "share.max_unfinished",
            "share.queue",
            "share.rate_limit.burst",
            "share.rate_limit.per_second",
            "share.weight",
        ];
        assert_eq!(paths, expected);
    }
}
