//! Commands of the model as calls to a server, and what was answered, in the model's words.

use leasehold::api::proto::complete_request::Outcome;
use leasehold::api::proto::{self as pb, Directive, ErrorClass, TaskState};

use super::UNIT;
use super::words::{Answer, Command, Named, Said};
use crate::town::{Answer as Told, Lease, Town, failed, released, span, succeeded};

/// `least`: so many tasks are there to be claimed, and nobody else claims.
pub async fn perform(town: &Town, server: usize, command: &Command, leases: &[Lease], least: usize) -> (Answer, Vec<Lease>) {
    let held = |named: &Named| {
        let lease = leases.iter().find(|lease| lease.id() == named.id && lease.token() == named.token).expect("it was given");
        lease.at(&town.worker_at(server, "w"))
    };
    let done = |answer: pb::CompleteResponse| Answer::Done { already: answer.already_applied };
    let answer = match command {
        Command::Submit(wish) => {
            let spec = town.spec(&wish.id).at(server).ttl(UNIT * wish.ttl).retry(wish.max_attempts, UNIT * wish.backoff);
            let spec = if wish.delay > 0 { spec.start_delay(UNIT * wish.delay) } else { spec };
            let spec = wish.key.map_or(spec.clone(), |key| spec.key(&format!("c-{key}")));
            let spec = match wish.subject {
                Some((subject, version)) if wish.raises => spec.superseding(&format!("m-{subject}"), version),
                Some((subject, version)) => spec.about(&format!("m-{subject}"), version),
                None => spec,
            };
            heard(spec.try_submit().await, |answer| Answer::Accepted { created: answer.created })
        }
        Command::Claim { slots, lease, reports_effect, request } => {
            let worker = town.worker_at(server, "w").for_a_lease_of(UNIT * *lease);
            let worker = if *reports_effect { worker.reporting_effects() } else { worker };
            let worker = request.map_or(worker.clone(), |request| worker.with_request_id(&format!("r-{request}")));
            // One that repeats another may be given less than there is.
            let least = if request.is_some() { 0 } else { least };
            let mut given = worker.claim(*slots as i32).await;
            while given.len() < least.min(*slots) {
                given.extend(worker.claim_all(1).await);
            }
            let named = |lease: &Lease| (Named { id: lease.id().to_owned(), token: lease.token() }, lease.attempt());
            return (Answer::Leases(given.iter().map(named).collect()), given);
        }
        Command::Raise { subject, version } => {
            let floor = pb::raise_subject_request::Floor::MinVersion(*version);
            heard(crate::town::raise_by(town.tasks_at(server), &format!("m-{subject}"), floor).await, |_| Answer::Raised)
        }
        Command::Walk(_) => Answer::Raised,
        Command::Heartbeat { lease, span } => {
            let cancel = |held: pb::LeaseHeld| Answer::Held { cancel: held.directive() == Directive::Cancel };
            heard(held(lease).heartbeat_for(UNIT * *span).await, cancel)
        }
        Command::BeginEffect { lease, effect } => {
            heard(held(lease).begin_effect(effect).await, |answer| Answer::Done { already: answer.already_applied })
        }
        Command::Report { lease, said } => heard(held(lease).report(outcome(said)).await, done),
        Command::Cancel(id) => {
            let request = pb::CancelRequest { task: Some(crate::town::task_ref(id)), reason: "recalled".into() };
            let told: Told<pb::CancelResponse> = town.tasks_at(server).cancel(request).await.into();
            heard(told, |answer| {
                let task = answer.task.expect("an answer has a task");
                assert!(task.state() == TaskState::Canceled || task.cancel_requested, "{task:?}");
                Answer::Canceled
            })
        }
    };
    (answer, Vec::new())
}

fn heard<T>(told: Told<T>, answer: impl FnOnce(T) -> Answer) -> Answer {
    match told.0 {
        Ok(given) => answer(given),
        Err(status) => {
            let details = tonic_types::StatusExt::get_error_details(&status);
            let info = details.error_info().unwrap_or_else(|| panic!("a refusal without ErrorInfo: {status:?}"));
            let current = info.metadata.get("current_fencing_token").map(|token| token.parse().expect("a token"));
            Answer::Refused { reason: info.reason.clone(), current }
        }
    }
}

fn outcome(said: &Said) -> Outcome {
    match said {
        Said::Succeeded(number) => Outcome::Succeeded(pb::Succeeded { receipt_ref: format!("receipt-{number}"), ..succeeded() }),
        Said::Transient => Outcome::Failed(failed(ErrorClass::Transient)),
        Said::Permanent => Outcome::Failed(failed(ErrorClass::Permanent)),
        Said::Unknown => Outcome::Failed(failed(ErrorClass::Unknown)),
        Said::Skipped => Outcome::Skipped(pb::Skipped { reason: "offline".into() }),
        Said::Canceled => Outcome::Canceled(pb::Canceled { reason: "quiet hours".into() }),
        Said::Released => Outcome::Released(released(None)),
        Said::ReleasedFor(delay) => Outcome::Released(pb::Released { delay: Some(span(UNIT * *delay)), reason: String::new() }),
    }
}
