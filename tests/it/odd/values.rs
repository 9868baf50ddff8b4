//! Names and numbers at the edge of what they can be: they come back as they went in, or are refused by their field.

use leasehold::api::proto::{self as pb, ErrorClass, TaskState};
use pb::raise_subject_request::Floor;
use tonic::Code;

use super::edges;
use crate::town::{Answer, LEASE, QUEUE, Town, failed, raise_by, succeeded, task_ref};

/// A spec that says `name` wherever it can.
fn named(name: &str) -> pb::TaskSpec {
    let short = |limit: usize| (0..=limit.min(name.len())).rev().find_map(|end| name.get(..end)).unwrap_or_default().to_owned();
    pb::TaskSpec {
        queue: name.into(),
        task_id: name.into(),
        kind: name.into(),
        payload: name.as_bytes().to_vec().into(),
        content_type: name.into(),
        target: name.into(),
        event_id: name.into(),
        subjects: vec![pb::Subject { id: name.into(), version: 1, raise_floor: false }],
        fairness_key: name.into(),
        ordering_key: name.into(),
        labels: [(short(64), name.to_owned())].into(),
        derived_from: Some(pb::TaskRef { queue: name.into(), task_id: name.into(), uid: String::new() }),
        trace_context: name.into(),
        cost: Some(1),
        ..pb::TaskSpec::default()
    }
}

/// Lists that pick by one of the task's names, each by itself.
fn filters(spec: &pb::TaskSpec, worker: &str) -> Vec<pb::TaskFilter> {
    let filter = || pb::TaskFilter { queue: spec.queue.clone(), ..pb::TaskFilter::default() };
    vec![
        pb::TaskFilter { kind: spec.kind.clone(), ..filter() },
        pb::TaskFilter { target: spec.target.clone(), ..filter() },
        pb::TaskFilter { subject_id: spec.subjects[0].id.clone(), ..filter() },
        pb::TaskFilter { fairness_key: Some(spec.fairness_key.clone()), ..filter() },
        pb::TaskFilter { ordering_key: spec.ordering_key.clone(), ..filter() },
        pb::TaskFilter { event_id: spec.event_id.clone(), ..filter() },
        pb::TaskFilter { worker_id: worker.to_owned(), ..filter() },
        pb::TaskFilter { labels: spec.labels.clone(), ..filter() },
    ]
}

/// A task of that name goes through a whole life in a queue of that name, and everything that was said of it can be found again.
async fn lives(town: &Town, name: &str) {
    let spec = named(name);
    let reference = pb::TaskRef { queue: name.into(), task_id: name.into(), uid: String::new() };
    let accepted = Answer::from(town.tasks().submit(pb::SubmitRequest { spec: Some(spec.clone()) }).await).ok();
    assert!(accepted.created, "{name:?} was taken for another name");
    let worker = town.worker(name).on_queue(name).with_request_id(name).reporting_effects();
    let lease = worker.claim_one().await;
    assert_eq!(lease.task().spec.as_ref().unwrap(), &spec);
    lease.heartbeat_with(pb::Progress { done: i64::MAX, total: Some(i64::MAX), note: name.into() }).await.ok();
    lease.begin_effect(name).await.applied();
    for filter in filters(&spec, name) {
        let request = pb::ListTasksRequest { filter: Some(filter.clone()), ..pb::ListTasksRequest::default() };
        let found = Answer::from(town.tasks().list_tasks(request).await).ok().tasks;
        assert_eq!(found.len(), 1, "{filter:?}");
        assert_eq!((found[0].worker_id.as_str(), &found[0].progress.as_ref().unwrap().note), (name, &name.to_owned()));
    }
    let failure = pb::Failed { code: name.into(), message: name.into(), effect_ref: name.into(), ..failed(ErrorClass::Permanent) };
    let task = lease.report(pb::complete_request::Outcome::Failed(failure)).await.applied().task.unwrap();
    let error = task.last_error.clone().unwrap();
    assert_eq!((task.state(), error.code.as_str(), error.message.as_str()), (TaskState::RepairRequired, name, name));
    mended(town, name, &reference).await;
    let receipt = pb::RecordReceiptRequest {
        task: Some(reference.clone()),
        kind: name.into(),
        receipt_ref: name.into(),
        effect_ref: name.into(),
        occur_time: None,
    };
    assert!(Answer::from(town.tasks().record_receipt(receipt.clone()).await).ok().created);
    assert!(!Answer::from(town.tasks().record_receipt(receipt).await).ok().created, "{name:?} was taken for another name");
    let request = pb::GetTaskRequest { task: Some(reference), ..pb::GetTaskRequest::default() };
    let task = Answer::from(town.tasks().get_task(request).await).ok().task.unwrap();
    let kept = &task.receipts[0];
    assert_eq!((kept.kind.as_str(), kept.receipt_ref.as_str(), kept.effect_ref.as_str()), (name, name, name));
}

/// What people do with it, and its replay, which a worker completes.
async fn mended(town: &Town, name: &str, reference: &pb::TaskRef) {
    let assign = pb::AssignRepairRequest {
        task: Some(reference.clone()),
        owner: Some(name.into()),
        next_action: Some(name.into()),
        reason: name.into(),
        actor: name.into(),
    };
    Answer::from(town.repairs().assign_repair(assign).await).ok();
    let filter = pb::TaskFilter { queue: name.into(), ..pb::TaskFilter::default() };
    let list = pb::ListRepairsRequest { filter: Some(filter), owner: Some(name.into()), ..pb::ListRepairsRequest::default() };
    assert_eq!(Answer::from(town.repairs().list_repairs(list).await).ok().repairs.len(), 1);
    let replay = pb::Replay { new_task_id: "again".into(), ..pb::Replay::default() };
    let resolve = pb::ResolveRepairRequest {
        task: Some(reference.clone()),
        resolution: Some(pb::resolve_repair_request::Resolution::Replay(replay)),
        reason: name.into(),
        actor: name.into(),
    };
    Answer::from(town.repairs().resolve_repair(resolve).await).ok();
    let found = town.repairs().get_repair(pb::GetRepairRequest { task: Some(reference.clone()) }).await;
    let repair = Answer::from(found).ok().repair.unwrap();
    let told = [&repair.owner, &repair.next_action, &repair.resolved_by, &repair.reason, &repair.kind, &repair.ordering_key];
    assert_eq!(told, [name; 6]);
    assert_eq!((repair.actions[0].actor.as_str(), repair.actions[0].reason.as_str()), (name, name));
    let lease = town.worker(name).on_queue(name).claim_one().await;
    assert_eq!(lease.id(), "again");
    let success = pb::Succeeded {
        receipt_ref: name.into(),
        effect_ref: name.into(),
        result_ref: name.into(),
        result_digest: name.into(),
        result_size: Some(i64::MAX),
        result: name.as_bytes().to_vec().into(),
    };
    let task = lease.report(pb::complete_request::Outcome::Succeeded(success)).await.applied().task.unwrap();
    assert_eq!((task.result_ref.as_str(), task.receipt_ref.as_str(), task.result_size), (name, name, Some(i64::MAX)));
}

#[tokio::test]
async fn names_of_every_kind_of_unicode_come_back_byte_by_byte() {
    let town = Town::start().await;
    let names = edges::names();
    for name in &names {
        lives(&town, name).await;
        let floor = pb::RaiseSubjectRequest {
            queue: name.clone(),
            subject_id: name.clone(),
            floor: Some(Floor::MinVersion(2)),
            reason: name.clone(),
        };
        let floor = Answer::from(town.tasks().raise_subject(floor).await).ok().subject.unwrap();
        assert_eq!((&floor.subject_id, &floor.reason), (name, name));
        let share = pb::Share { queue: name.clone(), fairness_key: name.clone(), weight: Some(2.0), ..pb::Share::default() };
        let put = pb::PutShareRequest { share: Some(share), clear_fields: vec![], reason: name.clone() };
        let put = Answer::from(town.admin().put_share(put).await).ok();
        assert_eq!((put.created, &put.share.unwrap().fairness_key), (false, name));
    }
    let queues =
        Answer::from(town.admin().list_queues(pb::ListQueuesRequest { page_size: 1_000, page_token: String::new() }).await);
    let listed: std::collections::BTreeSet<String> = queues.ok().queues.into_iter().map(|queue| queue.name).collect();
    assert_eq!(listed, names.iter().cloned().collect());
    // Pages are cut by names, whatever stands in them.
    let (mut paged, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = Answer::from(town.admin().list_queues(pb::ListQueuesRequest { page_size: 1, page_token }).await).ok();
        paged.extend(page.queues.into_iter().map(|queue| queue.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    paged.sort();
    assert_eq!(paged, listed.into_iter().collect::<Vec<_>>());
    town.audit().await;
}

#[tokio::test]
async fn numbers_at_their_maxima_are_kept_or_refused_and_none_wraps() {
    let town = Town::start().await;
    let (most, least) = (i64::MAX, i64::MIN);
    town.spec("largest").about("m-9", most).with(|spec| (spec.cost, spec.priority) = (Some(1_000), 10)).submit().await;
    town.spec("smallest").about("m-8", 0).with(|spec| (spec.cost, spec.priority) = (Some(1), -10)).submit().await;
    let raised = raise_by(town.tasks(), "m-9", Floor::MinVersion(most)).await.ok();
    assert_eq!(raised.subject.unwrap().min_version, Some(most));
    assert_eq!(town.states(&["largest", "smallest"]).await, ["READY", "READY"]);
    town.spec("old").about("m-9", most - 1).try_submit().await.refused_with("SUBJECT_STALE");
    for bad in [-1, least] {
        raise_by(town.tasks(), "m-8", Floor::MinVersion(bad)).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
        town.spec("bad").about("m-8", bad).try_submit().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.id(), "largest");
    let own = lease.lease.lease_ref.clone().unwrap();
    let report = async |fencing_token: i64| {
        let other = pb::LeaseRef { fencing_token, ..own.clone() };
        let outcome = Some(pb::complete_request::Outcome::Succeeded(succeeded()));
        Answer::from(town.worker("w1").client().complete(pb::CompleteRequest { lease: Some(other), outcome }).await)
    };
    for token in [0, -1, least] {
        report(token).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    // A token that was never handed out is no lease of this task.
    assert!(report(most).await.0.is_err());
    assert_eq!(town.states(&["largest"]).await, ["LEASED"]);
    lease.complete().await.applied();
    for (attempts, good) in [(10_000, true), (10_001, false), (i32::MAX, false), (0, false), (i32::MIN, false)] {
        let answer = town.spec(&format!("attempts-{attempts}")).retry(attempts, LEASE).try_submit().await;
        assert_eq!(answer.0.is_ok(), good, "{attempts}");
    }
    for count in [0, -1, 501, i32::MAX, i32::MIN] {
        town.worker("w1").try_claim(count).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    for cursor in [format!("c1-{most}"), "c1-4611686018427387904".to_owned()] {
        let refused = town.watch_task("smallest", |request| request.after_cursor = cursor.clone()).await;
        refused.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    for token in ["2147483647", "-2147483648", "0"] {
        let request = pb::ListAttemptsRequest { task: Some(task_ref("largest")), page_size: 1_000, page_token: token.into() };
        Answer::from(town.tasks().list_attempts(request).await).ok();
    }
    town.audit().await;
}

#[tokio::test]
async fn rates_and_weights_at_their_edges_never_stop_a_queue_for_others() {
    let town = Town::start().await;
    for (number, rate) in [5e-324, f64::MIN_POSITIVE, 1e-300, 1e-13, 1e-9, 1_000_000.0].into_iter().enumerate() {
        let share = format!("s-{number}");
        town.put_share(&share, |share| share.rate_limit = Some(pb::RateLimit { per_second: rate, burst: Some(1) })).await;
        for task in ["first", "second"] {
            town.spec(&format!("{task}-{number}")).share(&share).submit().await;
        }
        town.spec(&format!("free-{number}")).share("free").submit().await;
    }
    // One of each share, what the fastest one gives, and all that has no rate; what waits for its rate for ever hurts nobody.
    let leases = town.worker("w1").claim_all(13).await;
    for lease in &leases {
        lease.complete().await.applied();
    }
    for number in 0..5 {
        let id = format!("second-{number}");
        assert_eq!(town.task(&id).await.state(), TaskState::Ready, "{id}");
        assert!(!town.explain(&id).await.is_empty());
    }
    let stats = pb::GetStatsRequest { queue: QUEUE.into(), ..pb::GetStatsRequest::default() };
    Answer::from(town.admin().get_stats(stats).await).ok();
    town.audit().await;
}
