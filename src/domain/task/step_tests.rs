//! The table of `step`, row by row, and properties that hold whatever the order of commands.

use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::event::EventKind;
use crate::domain::limits::{RECEIPTS, RELEASES_UNCHARGED};
use crate::domain::queue::OnUnknown;
use crate::domain::refusal::Refusal;
use crate::domain::report::{Failure, Report, Success};

const SECOND: i64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(5);

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * SECOND)
}

fn policy() -> Policy {
    let retry = RetryPolicy { jitter: 0.0, ..RetryPolicy::default() };
    Policy { boundary: "provider_accepted".into(), retry, ..Policy::default() }
}

fn ready() -> Standing {
    Standing::Live(Live {
        state: State::Ready,
        revision: 1,
        attempt: 0,
        charged: 0,
        max_attempts: 3,
        releases: 0,
        unknown_attempts: 0,
        token: 0,
        report: None,
        rank: 0,
        wake: None,
        deadline: at(1_000),
        lease: None,
        cancel: None,
        accepted: at(0),
        updated: at(0),
        first_lease: None,
        notes: Notes::default(),
    })
}

fn context<'a>(now: Timestamp, policy: &'a Policy) -> Context<'a> {
    Context { now, policy, retry: policy.retry, head_start: 0, stale: None, past: None, receipts: &[], chance: 0.5 }
}

fn decide_with(standing: Standing, command: &Command, now: Timestamp, policy: &Policy, past: Option<&PastAttempt>) -> Decision {
    let ctx = Context { now, policy, retry: policy.retry, head_start: 0, stale: None, past, receipts: &[], chance: 0.5 };
    step(standing, command, &ctx)
}

fn decide(standing: Standing, command: &Command, now: Timestamp) -> Decision {
    decide_with(standing, command, now, &policy(), None)
}

fn grant(token: i64, reports_effect: bool) -> Command {
    Command::Claim(Grant {
        token,
        worker: "w".into(),
        span: LEASE,
        reports_effect,
        call: Uuid::from_u128(token.unsigned_abs().into()),
        claim: None,
    })
}

fn leased(token: i64, reports_effect: bool, now: Timestamp) -> Standing {
    decide(ready(), &grant(token, reports_effect), now).after
}

fn begin(token: i64) -> Command {
    Command::BeginEffect { token, effect_ref: "call-1".into(), span: None }
}

fn succeeded() -> Report {
    Report::Succeeded(Success { receipt_ref: "r-1".into(), ..Success::default() })
}

fn failed(class: ErrorClass) -> Report {
    Report::Failed(Failure { class, code: "C".into(), message: "m".into(), effect_ref: String::new(), retry_after: Duration::ZERO })
}

fn released() -> Report {
    Report::Released { delay: Duration::ZERO, reason: String::new() }
}

fn report(token: i64, report: Report) -> Command {
    Command::Report { token, report }
}

fn cancel() -> Command {
    Command::Cancel { cause: Cause::Requested, reason: "gone".into() }
}

fn cause(standing: &Standing) -> Option<Cause> {
    match standing {
        Standing::Ended(ended) => ended.cause,
        Standing::Live(_) => None,
    }
}

#[test]
fn success_names_the_boundary_and_only_success_does() {
    let done = decide(leased(1, true, at(1)), &report(1, succeeded()), at(2));
    let Standing::Ended(ended) = &done.after else { panic!("{done:?}") };
    assert_eq!((ended.state, ended.boundary.as_str()), (State::Completed, "provider_accepted"));
    let skipped = decide(leased(1, true, at(1)), &report(1, Report::Skipped { reason: "offline".into() }), at(2));
    let Standing::Ended(ended) = &skipped.after else { panic!("{skipped:?}") };
    assert_eq!((ended.state, ended.boundary.as_str(), ended.reason.as_str()), (State::Skipped, "", "offline"));
}

#[test]
fn the_same_report_again_is_applied_once() {
    let done = decide(leased(1, true, at(1)), &report(1, succeeded()), at(2)).after;
    let again = decide(done.clone(), &report(1, succeeded()), at(100));
    assert_eq!(again.reply, Ok(Reply::AlreadyApplied));
    assert!(!again.changed && again.events.is_empty());
    let other = decide(done, &report(1, released()), at(100));
    assert_eq!(other.reply, Err(Refusal::TaskTerminal { state: State::Completed }));
    assert_eq!(other.events.len(), 1, "it is kept as late evidence");
}

#[test]
fn a_repeated_failure_is_recognised_after_its_successor_was_leased() {
    let retry = decide(leased(1, true, at(1)), &report(1, failed(ErrorClass::Transient)), at(2)).after;
    let ready = decide(retry, &Command::Tick, at(10)).after;
    let second = decide(ready, &grant(2, true), at(11)).after;
    let past = PastAttempt { number: 1, report: Some(failed(ErrorClass::Transient).digest()), late: vec![] };
    let again = decide_with(second, &report(1, failed(ErrorClass::Transient)), at(12), &policy(), Some(&past));
    assert_eq!((again.reply, again.changed), (Ok(Reply::AlreadyApplied), false));
}

#[test]
fn a_late_report_changes_no_state_and_is_kept_on_its_own_attempt() {
    let expired = decide(leased(41, true, at(1)), &Command::Tick, at(6)).after;
    let again = decide(expired, &Command::Tick, at(10)).after;
    let second = decide(again, &grant(42, true), at(11)).after;
    let past = PastAttempt { number: 1, ..PastAttempt::default() };
    let late = decide_with(second.clone(), &report(41, succeeded()), at(12), &policy(), Some(&past));
    assert_eq!(late.reply, Err(Refusal::LeaseSuperseded { token: 41, current: 42, state: State::Leased }));
    assert_eq!((late.events[0].kind, late.events[0].attempt, late.events[0].token), (EventKind::LateReport, 1, 41));
    let (Standing::Live(before), Standing::Live(after)) = (&second, &late.after) else { panic!() };
    assert_eq!((after.state, after.attempt, &after.lease), (before.state, before.attempt, &before.lease));
}

#[test]
fn late_reports_are_bounded_and_each_is_kept_once() {
    let done = decide(leased(1, true, at(1)), &report(1, succeeded()), at(2)).after;
    let known = PastAttempt { number: 1, report: None, late: vec![released().digest()] };
    assert!(decide_with(done.clone(), &report(1, released()), at(3), &policy(), Some(&known)).events.is_empty());
    let full = PastAttempt { number: 1, report: None, late: (0..8).collect() };
    assert!(decide_with(done, &report(1, released()), at(3), &policy(), Some(&full)).events.is_empty());
}

#[test]
fn an_expired_lease_cannot_be_revived_even_if_nobody_took_over() {
    for command in [report(1, succeeded()), Command::Heartbeat { token: 1, span: None, progress: None }, begin(1)] {
        let late = decide(leased(1, true, at(1)), &command, at(6));
        assert!(matches!(late.reply, Err(Refusal::LeaseExpired { token: 1, since: Some(_), .. })), "{late:?}");
        assert_eq!(late.after.state(), State::RetryAt, "and its end is recorded at once");
    }
}

#[test]
fn only_a_worker_that_promised_to_report_is_known_to_have_done_nothing() {
    for (promised, begun, unknown) in [(true, false, false), (true, true, true), (false, false, true), (false, true, true)] {
        let mut task = leased(1, promised, at(1));
        if begun {
            task = decide(task, &begin(1), at(2)).after;
        }
        let over = decide(task, &Command::Tick, at(7));
        let class = if unknown { ErrorClass::Unknown } else { ErrorClass::Transient };
        assert_eq!(over.events[0].evidence.error_class, Some(class), "promised {promised}, begun {begun}");
        let Standing::Live(live) = over.after else { panic!() };
        assert_eq!((live.unknown_attempts, live.charged), (i32::from(unknown), 1));
    }
}

#[test]
fn unknown_goes_to_people_where_the_queue_says_so() {
    let policy = Policy { on_unknown: OnUnknown::Repair, ..policy() };
    let over = decide_with(leased(1, false, at(1)), &Command::Tick, at(7), &policy, None).after;
    assert_eq!((over.state(), cause(&over)), (State::RepairRequired, Some(Cause::OutcomeUnknown)));
}

#[test]
fn the_budget_counts_the_first_attempt() {
    let mut task = ready();
    for n in 1..=3 {
        task = decide(task, &grant(n, true), at(n * 100)).after;
        task = decide(task, &report(n, failed(ErrorClass::Transient)), at(n * 100 + 1)).after;
        if n < 3 {
            assert_eq!(task.state(), State::RetryAt);
            task = decide(task, &Command::Tick, at(n * 100 + 50)).after;
        }
    }
    assert_eq!((task.state(), cause(&task), task.attempt()), (State::RepairRequired, Some(Cause::AttemptsExhausted), 3));
}

#[test]
fn with_one_attempt_the_first_failure_is_the_last() {
    let Standing::Live(mut live) = leased(1, true, at(1)) else { panic!() };
    live.max_attempts = 1;
    let over = decide(Standing::Live(live), &report(1, failed(ErrorClass::Transient)), at(2)).after;
    assert_eq!(cause(&over), Some(Cause::AttemptsExhausted));
}

#[test]
fn a_retry_that_could_not_begin_before_the_deadline_is_not_planned() {
    let Standing::Live(mut live) = leased(1, true, at(1)) else { panic!() };
    live.deadline = Timestamp(at(2).0 + SECOND);
    let over = decide(Standing::Live(live.clone()), &report(1, failed(ErrorClass::Transient)), at(2)).after;
    assert_eq!(cause(&over), Some(Cause::DeadlinePassed));
    live.deadline = Timestamp(at(2).0 + SECOND + 1);
    let planned = decide(Standing::Live(live.clone()), &report(1, failed(ErrorClass::Transient)), at(2)).after;
    assert_eq!(planned.state(), State::RetryAt);
    let margin = Policy { deadline_margin: Duration::from_secs(1), ..policy() };
    let over = decide_with(Standing::Live(live), &report(1, failed(ErrorClass::Transient)), at(2), &margin, None).after;
    assert_eq!(cause(&over), Some(Cause::DeadlinePassed));
}

#[test]
fn permanent_errors_are_never_retried() {
    let over = decide(leased(1, true, at(1)), &report(1, failed(ErrorClass::Permanent)), at(2)).after;
    assert_eq!((over.state(), cause(&over)), (State::RepairRequired, Some(Cause::PermanentError)));
}

#[test]
fn retry_after_is_a_lower_bound() {
    let Report::Failed(mut failure) = failed(ErrorClass::Transient) else { panic!() };
    failure.retry_after = Duration::from_secs(60);
    let Standing::Live(live) = decide(leased(1, true, at(1)), &report(1, Report::Failed(failure)), at(2)).after else { panic!() };
    assert_eq!(live.wake, Some(at(62)));
}

#[test]
fn released_work_goes_back_to_its_old_rank_uncharged_at_most_twenty_times() {
    let mut task = ready();
    for n in 1..=i64::from(RELEASES_UNCHARGED) {
        task = decide(task, &grant(n, true), at(n)).after;
        task = decide(task, &report(n, released()), at(n)).after;
        let Standing::Live(live) = &task else { panic!() };
        assert_eq!((live.state, live.charged, live.rank, i64::from(live.attempt)), (State::Ready, 0, 0, n));
    }
    task = decide(task, &grant(21, true), at(21)).after;
    let Standing::Live(live) = decide(task, &report(21, released()), at(21)).after else { panic!() };
    assert_eq!(live.charged, 1);
}

#[test]
fn what_has_begun_cannot_be_released() {
    let begun = decide(leased(1, true, at(1)), &begin(1), at(2)).after;
    let refused = decide(begun, &report(1, released()), at(3));
    assert_eq!(refused.reply, Err(Refusal::EffectBegun { effect_ref: "call-1".into() }));
    assert!(!refused.changed);
}

#[test]
fn an_effect_begins_once_under_one_reference() {
    let begun = decide(leased(1, true, at(1)), &begin(1), at(2)).after;
    assert_eq!(decide(begun.clone(), &begin(1), at(3)).reply, Ok(Reply::AlreadyApplied));
    let other = Command::BeginEffect { token: 1, effect_ref: "call-2".into(), span: None };
    assert!(matches!(decide(begun, &other, at(3)).reply, Err(Refusal::EffectBegun { .. })));
}

#[test]
fn cancel_ends_what_waits_and_asks_what_runs() {
    assert_eq!(decide(ready(), &cancel(), at(1)).after.state(), State::Canceled);
    let asked = decide(leased(1, true, at(1)), &cancel(), at(2));
    assert_eq!((asked.after.state(), asked.reply.clone()), (State::Leased, Ok(Reply::Applied)));
    assert_eq!(decide(asked.after.clone(), &cancel(), at(3)).reply, Ok(Reply::AlreadyApplied));

    let told = decide(asked.after.clone(), &Command::Heartbeat { token: 1, span: None, progress: None }, at(3));
    assert_eq!(told.reply, Ok(Reply::Stop { cause: Cause::Requested, reason: "gone".into() }));
    let (Standing::Live(before), Standing::Live(after)) = (&asked.after, &told.after) else { panic!() };
    assert_eq!(before.lease.as_ref().unwrap().expire, after.lease.as_ref().unwrap().expire, "not extended");
    assert!(matches!(decide(asked.after, &begin(1), at(3)).reply, Err(Refusal::CancelRequested { .. })));
}

#[test]
fn success_after_a_cancel_request_is_refused_and_remembered() {
    let asked = decide(leased(1, true, at(1)), &cancel(), at(2)).after;
    let refused = decide(asked.clone(), &report(1, succeeded()), at(3));
    assert!(matches!(refused.reply, Err(Refusal::CancelRequested { .. })));
    assert_eq!(refused.after.state(), State::Canceled);
    assert_eq!(refused.events[0].evidence.receipt_ref.as_deref(), Some("r-1"));
    let again = decide(refused.after, &report(1, succeeded()), at(4));
    assert!(
        matches!(again.reply, Err(Refusal::CancelRequested { .. })) && !again.changed,
        "whoever lost the answer is refused again"
    );
    for other in [failed(ErrorClass::Permanent), Report::Skipped { reason: String::new() }, released()] {
        let agreed = decide(asked.clone(), &report(1, other), at(3));
        assert_eq!((agreed.after.state(), agreed.reply), (State::Canceled, Ok(Reply::Applied)));
    }
}

#[test]
fn whatever_a_worker_reports_after_a_cancel_request_ends_in_canceled_also_a_release_of_what_has_begun() {
    let begun = decide(leased(1, true, at(1)), &begin(1), at(2)).after;
    let asked = decide(begun, &cancel(), at(3)).after;
    let released = decide(asked, &report(1, released()), at(4));
    assert_eq!((released.after.state(), released.reply), (State::Canceled, Ok(Reply::Applied)));
    assert_eq!(released.events[0].evidence.effect_ref.as_deref(), Some("call-1"), "and the effect stays on record");
}

#[test]
fn of_several_things_due_at_once_cancel_comes_first_then_the_deadline_then_attempts_then_the_lease_end() {
    let Standing::Live(mut live) = leased(1, true, at(1)) else { panic!() };
    live.max_attempts = 1;
    let lease_end = decide(Standing::Live(Live { max_attempts: 3, ..live.clone() }), &Command::Tick, at(6)).after;
    assert_eq!(lease_end.state(), State::RetryAt);
    let attempts = decide(Standing::Live(live.clone()), &Command::Tick, at(6)).after;
    assert_eq!(cause(&attempts), Some(Cause::AttemptsExhausted));
    live.deadline = at(6);
    let deadline = decide(Standing::Live(live.clone()), &Command::Tick, at(6)).after;
    assert_eq!(cause(&deadline), Some(Cause::DeadlinePassed));
    live.cancel = Some(CancelRequest { cause: Cause::Requested, reason: String::new() });
    let canceled = decide(Standing::Live(live), &Command::Tick, at(6)).after;
    assert_eq!((canceled.state(), cause(&canceled)), (State::Canceled, Some(Cause::Requested)));
}

#[test]
fn a_report_past_the_deadline_is_told_so() {
    let Standing::Live(mut live) = leased(1, true, at(1)) else { panic!() };
    live.deadline = at(3);
    live.lease.as_mut().unwrap().expire = at(3);
    let late = decide(Standing::Live(live), &report(1, succeeded()), at(3));
    assert_eq!(late.reply, Err(Refusal::TaskDeadlinePassed { deadline: at(3) }));
    assert_eq!(late.events.len(), 2, "the end, and the late report");
}

#[test]
fn a_lease_ends_at_the_deadline_and_a_heartbeat_never_shortens_it() {
    let Standing::Live(mut live) = ready() else { panic!() };
    live.deadline = at(4);
    let Standing::Live(live) = decide(Standing::Live(live), &grant(1, true), at(1)).after else { panic!() };
    assert_eq!(live.lease.as_ref().unwrap().expire, at(4));
    let beat = |span| Command::Heartbeat { token: 1, span: Some(Duration::from_secs(span)), progress: None };
    let Standing::Live(short) = decide(leased(1, true, at(1)), &beat(1), at(2)).after else { panic!() };
    assert_eq!(short.lease.unwrap().expire, at(6));
    let Standing::Live(long) = decide(leased(1, true, at(1)), &beat(60), at(2)).after else { panic!() };
    assert_eq!(long.lease.unwrap().expire, at(62));
}

#[test]
fn a_lease_is_given_back_only_by_the_call_that_it_was_handed_to() {
    let task = leased(7, true, at(1));
    let back = decide(task.clone(), &Command::GiveBack { token: 7, call: Uuid::from_u128(7) }, at(2)).after;
    let Standing::Live(live) = &back else { panic!() };
    assert_eq!((live.state, live.charged, live.attempt), (State::Ready, 0, 1));
    for (token, call) in [(7, 8), (6, 7)] {
        let other = decide(task.clone(), &Command::GiveBack { token, call: Uuid::from_u128(call) }, at(2));
        assert!(!other.changed);
    }
    let told = decide(task.clone(), &Command::Cancel { cause: Cause::Requested, reason: "recalled".into() }, at(2)).after;
    let Standing::Ended(ended) = decide(told, &Command::GiveBack { token: 7, call: Uuid::from_u128(7) }, at(3)).after else {
        panic!()
    };
    assert_eq!((ended.state, ended.charged, ended.evidence.charged), (State::Canceled, 0, Some(false)));
    let begun = decide(task, &begin(7), at(2)).after;
    assert!(!decide(begun, &Command::GiveBack { token: 7, call: Uuid::from_u128(7) }, at(3)).changed);
}

#[test]
fn a_stale_version_is_neither_begun_nor_completed() {
    let stale = Stale { cause: Cause::Superseded, subject: "m-9".into(), version: 1, floor: Some(2), reason: "edited".into() };
    let policy = policy();
    let ctx = |now| Context { stale: Some(&stale), ..context(now, &policy) };
    assert!(matches!(
        step(leased(1, true, at(1)), &begin(1), &ctx(at(2))).reply,
        Err(Refusal::SubjectStale { floor: Some(2), .. })
    ));
    let done = step(leased(1, true, at(1)), &report(1, succeeded()), &ctx(at(2)));
    assert!(matches!(done.reply, Err(Refusal::SubjectStale { .. })));
    assert_eq!((done.after.state(), cause(&done.after)), (State::Canceled, Some(Cause::Superseded)));
    assert_eq!(cause(&step(ready(), &grant(1, true), &ctx(at(2))).after), Some(Cause::Superseded));
}

#[test]
fn a_floor_says_the_same_no_before_its_walk_and_after_it() {
    let stale = Stale { cause: Cause::Superseded, subject: "m-9".into(), version: 1, floor: Some(2), reason: "edited".into() };
    let policy = policy();
    let ctx = |now| Context { stale: Some(&stale), ..context(now, &policy) };
    let walk = Command::Cancel { cause: Cause::Superseded, reason: "edited".into() };
    let told = step(leased(1, true, at(1)), &walk, &ctx(at(2)));
    assert_eq!(told.reply, Ok(Reply::Applied));
    assert_eq!(step(told.after.clone(), &walk, &ctx(at(2))).reply, Ok(Reply::AlreadyApplied));
    for standing in [leased(1, true, at(1)), told.after] {
        assert!(matches!(step(standing.clone(), &begin(1), &ctx(at(2))).reply, Err(Refusal::SubjectStale { .. })));
        let done = step(standing, &report(1, succeeded()), &ctx(at(2)));
        assert!(matches!(done.reply, Err(Refusal::SubjectStale { .. })));
        let again = step(done.after, &report(1, succeeded()), &ctx(at(3)));
        assert!(matches!((again.reply, again.changed), (Err(Refusal::SubjectStale { .. }), false)));
    }
    // What waits is canceled by the walk, and counted as its doing; so is a lease that has run out meanwhile.
    for standing in [ready(), leased(1, true, at(1))] {
        let canceled = step(standing, &walk, &ctx(at(60)));
        assert_eq!((canceled.reply, cause(&canceled.after)), (Ok(Reply::Applied), Some(Cause::Superseded)));
    }
    // Asked for by somebody, it stays a cancel whatever the floor says later.
    let asked = decide(leased(1, true, at(1)), &cancel(), at(2)).after;
    assert!(matches!(step(asked, &begin(1), &ctx(at(3))).reply, Err(Refusal::CancelRequested { .. })));
}

#[test]
fn a_receipt_is_an_event_and_nothing_else_and_is_kept_once() {
    let receipt = |n: usize| Receipt { kind: "read".into(), receipt_ref: n.to_string(), effect_ref: String::new(), occurred: None };
    let policy = policy();
    let ended = decide(leased(1, true, at(1)), &report(1, succeeded()), at(2)).after;
    // The lease of the second one has run out, which a receipt does not decide.
    for (standing, now) in [(ready(), 2), (leased(1, true, at(1)), 60), (ended, 60)] {
        let new = step(standing.clone(), &Command::Record(receipt(0)), &context(at(now), &policy));
        assert_eq!((&new.reply, new.after.state(), new.events.len()), (&Ok(Reply::Applied), standing.state(), 1));
        assert_eq!((new.events[0].kind, new.events[0].attempt, new.events[0].token), (EventKind::Receipt, 0, 0));
        assert_eq!(new.after.revision(), standing.revision() + 1);
        let kept: Vec<Receipt> = (0..RECEIPTS).map(receipt).collect();
        let full = Context { receipts: &kept, ..context(at(now), &policy) };
        let again = step(standing.clone(), &Command::Record(receipt(5)), &full);
        assert_eq!((again.reply, again.changed), (Ok(Reply::AlreadyApplied), false));
        let more = step(standing, &Command::Record(receipt(RECEIPTS)), &full);
        assert_eq!((more.reply, more.changed), (Err(Refusal::ReceiptsFull { limit: RECEIPTS }), false));
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let token = 1i64..6;
    prop_oneof![
        3 => any::<bool>().prop_map(|promised| grant(0, promised)),
        2 => token.clone().prop_map(|token| Command::Heartbeat { token, span: None, progress: None }),
        2 => token.clone().prop_map(begin),
        3 => (token.clone(), prop_oneof![
            Just(succeeded()), Just(failed(ErrorClass::Transient)), Just(failed(ErrorClass::Unknown)),
            Just(failed(ErrorClass::Permanent)), Just(released()), Just(Report::Canceled { reason: String::new() }),
        ]).prop_map(|(token, told)| report(token, told)),
        1 => token.prop_map(|token| Command::GiveBack { token, call: Uuid::from_u128(token.unsigned_abs().into()) }),
        1 => Just(cancel()),
        3 => Just(Command::Tick),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_terminal_is_final_and_tokens_attempts_and_revisions_only_rise(
        commands in proptest::collection::vec((any_command(), 0i64..4), 1..60),
    ) {
        let (mut task, mut now, mut next_token, mut revision) = (ready(), 1, 1, 1);
        for (command, passed) in commands {
            now += passed;
            let command = match command {
                Command::Claim(_) if task.state() != State::Ready => Command::Tick,
                Command::Claim(grant) => {
                    next_token += 1;
                    let token = next_token - 1;
                    Command::Claim(Grant { token, call: Uuid::from_u128(token.unsigned_abs().into()), ..grant })
                }
                other => other,
            };
            let decision = decide(task.clone(), &command, at(now));
            for event in &decision.events {
                revision += 1;
                prop_assert_eq!(event.revision, revision, "revisions have no holes");
            }
            prop_assert_eq!(decision.after.revision(), revision);
            prop_assert!(decision.after.token() >= task.token());
            prop_assert!(decision.after.attempt() >= task.attempt());
            if task.state().terminal() {
                prop_assert_eq!(decision.after.state(), task.state());
            }
            let moved = decision.after.state() != task.state();
            prop_assert!(!moved || !decision.events.is_empty(), "every change of state is in the log");
            if let Standing::Live(live) = &decision.after {
                prop_assert_eq!(live.lease.is_some(), live.state == State::Leased);
                prop_assert!(live.charged <= live.max_attempts && live.charged <= live.attempt && live.charged >= 0);
                prop_assert!(live.due() <= live.deadline);
            }
            task = decision.after;
        }
    }
}
