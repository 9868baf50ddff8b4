//! Who is taken into a batch, and when.

use super::*;

fn stand(line: &Line, claim: Option<u128>, slots: usize) -> oneshot::Receiver<Result<Leases, Refusal>> {
    let (answer, answered) = oneshot::channel();
    let claim = claim.map(Uuid::from_u128);
    let call = Call { id: Uuid::now_v7(), claim, worker: "w".into(), slots, span: None, reports_effect: false };
    held(&line.calls).push_back(Waiting { call, patient: Arc::new(AtomicBool::new(true)), answer });
    answered
}

fn waiting(line: &Line) -> usize {
    held(&line.calls).len()
}

#[test]
fn who_comes_while_a_transaction_waits_for_its_turn_is_taken_in_and_who_comes_later_is_not() {
    let line = Line::default();
    let _first = stand(&line, None, 1);
    let mut batch = Batch::of(&line, false);
    let _others = [stand(&line, None, 1), stand(&line, None, 1)];
    assert_eq!(line.under_way.load(Ordering::Relaxed), 0, "nobody may leave beside one that takes in whoever comes");
    assert_eq!(batch.close().len(), 3);
    assert_eq!(line.under_way.load(Ordering::Relaxed), 3);
    let _late = stand(&line, None, 1);
    assert_eq!((batch.waiting.len(), waiting(&line)), (3, 1));
    let mut beside = Batch::of(&line, true);
    assert_eq!((beside.close().len(), line.under_way.load(Ordering::Relaxed)), (1, 3), "who runs beside it is measured by it");
}

#[test]
fn a_batch_takes_each_claim_id_once_no_more_than_a_transaction_leases_and_nobody_who_has_gone() {
    let line = Line::default();
    let most = crate::domain::limits::BATCH;
    let _first = stand(&line, Some(7), 1);
    let mut batch = Batch::of(&line, false);
    let _repeated = stand(&line, Some(7), 1);
    drop(stand(&line, None, 1));
    let _fits = stand(&line, None, most - 1);
    let _too_many = stand(&line, None, 1);
    let slots: Vec<usize> = batch.close().iter().map(|call| call.slots).collect();
    assert_eq!(slots, [1, most - 1]);
    assert_eq!(waiting(&line), 2, "the repetition and the one too many wait for the next one");
}
