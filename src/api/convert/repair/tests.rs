//! What RepairService is asked, at its edges.

use super::*;

const UID: &str = "0190b5a0-0000-7000-8000-000000000001";

fn named() -> Option<pb::TaskRef> {
    Some(pb::TaskRef { queue: "q".into(), task_id: String::new(), uid: UID.into() })
}

fn filter() -> Option<pb::TaskFilter> {
    Some(pb::TaskFilter { queue: "q".into(), ..pb::TaskFilter::default() })
}

fn paths<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Vec<String> {
    match result {
        Err(Refusal::InvalidField(bad)) => bad.into_iter().map(|field| field.path).collect(),
        other => panic!("not an INVALID_FIELD: {other:?}"),
    }
}

#[test]
fn every_write_gives_a_reason_and_names_its_task() {
    assert_eq!(paths(assign_repair(pb::AssignRepairRequest::default())), ["task", "owner", "reason"]);
    assert_eq!(paths(resolve_repair(pb::ResolveRepairRequest::default(), 9)), ["task", "resolution", "reason"]);
    assert_eq!(paths(replay_repairs(pb::ReplayRepairsRequest::default())), ["filter", "reason"]);
    assert_eq!(paths(get_repair(pb::GetRepairRequest { task: None })), ["task"]);
}

#[test]
fn a_replays_fields_are_read_by_their_paths_and_absence_is_not_emptiness() {
    let asked = |replay| pb::ResolveRepairRequest {
        task: named(),
        resolution: Some(resolve_repair_request::Resolution::Replay(replay)),
        reason: "why".into(),
        actor: String::new(),
    };
    let changes = |replay| match resolve_repair(asked(replay), 9) {
        Ok((_, Resolution::Replay(changes), _)) => changes,
        other => panic!("{other:?}"),
    };
    assert_eq!(changes(pb::Replay::default()), Changes::default());
    let emptied = pb::Replay {
        payload: Some(bytes::Bytes::new()),
        fairness_key: Some(String::new()),
        ordering_key: Some(String::new()),
        ..pb::Replay::default()
    };
    let emptied = changes(emptied);
    assert_eq!((emptied.payload.map(|payload| payload.len()), emptied.ordering_key), (Some(0), Some(None)));
    assert_eq!(emptied.fairness_key.map(|key| key.as_str().len()), Some(0));
    let bad = pb::Replay {
        new_task_id: "a\0".into(),
        subjects: vec![pb::Subject { id: String::new(), version: -1, raise_floor: false }],
        fairness_key: Some("x".repeat(257)),
        ordering_key: Some("\0".into()),
        labels: [(String::new(), String::new())].into(),
        ..pb::Replay::default()
    };
    let whole = ["new_task_id", "subjects[0].id", "subjects[0].version", "fairness_key", "ordering_key", "labels[\"\"]"];
    assert_eq!(paths(resolve_repair(asked(bad), 9)), whole.map(|path| format!("replay.{path}")));
    let large = pb::Replay { payload: Some(vec![0; 10].into()), ..pb::Replay::default() };
    assert!(matches!(resolve_repair(asked(large), 9), Err(Refusal::TooLarge { limit: 9, .. })));
}

#[test]
fn many_replays_are_bounded_in_number_and_in_time() {
    let asked = |max_tasks, rate| {
        let request = pb::ReplayRepairsRequest { filter: filter(), max_tasks, rate, reason: "why".into(), ..Default::default() };
        replay_repairs(request)
    };
    assert!(asked(None, None).is_ok_and(|command| command.max_tasks == 100 && command.rate.is_none()));
    assert!(asked(Some(1_000), Some(1_000_000.0)).is_ok());
    assert!(asked(Some(1), Some(f64::MIN_POSITIVE)).is_ok(), "one alone is not spread");
    for (max_tasks, rate, path) in [
        (Some(0), None, "max_tasks"),
        (Some(1_001), None, "max_tasks"),
        (None, Some(0.0), "rate"),
        (None, Some(f64::NAN), "rate"),
        (None, Some(1_000_001.0), "rate"),
        (Some(1_000), Some(999.0 / SPREAD.as_secs_f64() * 0.99), "rate"),
    ] {
        assert_eq!(paths(asked(max_tasks, rate)), [path]);
    }
}

#[test]
fn a_list_is_of_tasks_that_need_repair() {
    let asked = |states: Vec<i32>, causes: Vec<i32>| {
        let filter = pb::TaskFilter { states, ..filter().unwrap() };
        list_repairs(pb::ListRepairsRequest { filter: Some(filter), causes, states: vec![9, 0], ..Default::default() })
    };
    let repair_required = pb::TaskState::RepairRequired as i32;
    assert_eq!(paths(asked(vec![repair_required], vec![1])), ["states[0]", "states[1]"]);
    assert_eq!(paths(asked(vec![4], vec![0])), ["filter.states", "states[0]", "states[1]", "causes[0]"]);
    let plain = list_repairs(pb::ListRepairsRequest { filter: filter(), owner: Some(String::new()), ..Default::default() });
    assert!(plain.is_ok_and(|command| command.owner.as_deref() == Some("") && command.page_size == 100));
}
