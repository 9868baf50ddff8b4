//! What actions make of a repair, and what a replay makes of a spec.

use super::*;

fn spec(id: &str) -> TaskSpec {
    TaskSpec {
        queue: QueueName::parse("q").unwrap(),
        task_id: TaskId::parse(id).unwrap(),
        kind: "push".into(),
        payload: Bytes::from_static(b"old"),
        content_type: String::new(),
        target: "d-b1".into(),
        event_id: String::new(),
        subjects: Vec::new(),
        fairness_key: FairnessKey::parse("tenant").unwrap(),
        cost: 3,
        ordering_key: Some(OrderingKey::parse("c-a").unwrap()),
        priority: 2,
        labels: BTreeMap::from([("a".into(), "b".into())]),
        options: Options::default(),
    }
}

fn open() -> Standing {
    Standing {
        state: RepairState::Open,
        owner: String::new(),
        next_action: String::new(),
        receipt_ref: String::new(),
        replayed_by: None,
        last_refusal: String::new(),
    }
}

fn replay(uid: Uuid) -> Action {
    Action::Replay { uid, task_id: TaskId::parse("t~1").unwrap() }
}

#[test]
fn a_repair_is_resolved_once_and_the_same_again_is_nothing_new() {
    let resolutions = [
        (replay(Uuid::max()), replay(Uuid::nil())),
        (Action::Discard, Action::Confirm { receipt_ref: "r".into() }),
        (Action::Confirm { receipt_ref: "r".into() }, Action::Confirm { receipt_ref: "other".into() }),
    ];
    for (resolution, other) in resolutions {
        let after = act(&open(), &resolution).unwrap().unwrap();
        assert_ne!(after.state, RepairState::Open);
        assert_eq!(act(&after, &resolution), Ok(None));
        let assign = Action::Assign { owner: Some("ann".into()), next_action: None };
        for refused in [other, assign] {
            assert_eq!(act(&after, &refused), Err(Refusal::RepairResolved { state: after.state }));
        }
        assert_eq!(act(&after, &Action::Refuse { refusal: "too late".into() }), Ok(None));
    }
}

#[test]
fn an_assignment_changes_what_it_names_and_a_refusal_is_told_once() {
    let assigned = act(&open(), &Action::Assign { owner: Some("ann".into()), next_action: None }).unwrap().unwrap();
    let told = act(&assigned, &Action::Assign { owner: None, next_action: Some("ask".into()) }).unwrap().unwrap();
    assert_eq!((told.owner.as_str(), told.next_action.as_str(), told.state), ("ann", "ask", RepairState::Open));
    let refuse = Action::Refuse { refusal: "SUBJECT_STALE".into() };
    let refused = act(&told, &refuse).unwrap().unwrap();
    assert_eq!((refused.state, refused.last_refusal.as_str()), (RepairState::Open, "SUBJECT_STALE"));
    assert_eq!(act(&refused, &refuse), Ok(None));
}

#[test]
fn a_replay_is_numbered_and_only_a_replays_own_number_is_counted_on() {
    let id = |spec: &TaskSpec| replay_id(spec).map(|id| id.as_str().to_owned());
    assert_eq!(id(&spec("a")), Ok("a~1".into()));
    assert_eq!(id(&spec("a~7")), Ok("a~7~1".into()));
    let mut second = spec("a~7");
    second.options.replay_of = Some(Box::new(["a".into(), Uuid::nil().to_string()]));
    assert_eq!(id(&second), Ok("a~8".into()));
    second.task_id = TaskId::parse("named otherwise").unwrap();
    assert_eq!(id(&second), Ok("named otherwise~1".into()));
    assert!(id(&spec(&"x".repeat(254))).is_ok());
    assert!(matches!(id(&spec(&"x".repeat(255))), Err(Refusal::InvalidField(_))));
}

#[test]
fn a_replay_keeps_what_nobody_changed_and_has_a_budget_and_a_deadline_of_its_queue() {
    let mut old = spec("a");
    let own = RetryOverrides { max_attempts: Some(1), jitter: Some(0.0), ..RetryOverrides::default() };
    old.options = Options {
        start: Some(Start::At(Timestamp(5))),
        end: Some(End::At(Timestamp(9))),
        retry: Some(own),
        lease_duration: Some(Duration::from_secs(7)),
        ..Options::default()
    };
    let policy = Policy::default();
    let plain = replay_spec(&old, Uuid::max(), &Changes::default(), &policy, Duration::ZERO).unwrap();
    assert_eq!(plain.options.replay_of, Some(Box::new(["a".into(), Uuid::max().to_string()])));
    assert_eq!((plain.options.start, plain.options.end), (None, None));
    assert_eq!(plain.options.retry, Some(RetryOverrides { max_attempts: None, ..own }));
    assert_eq!(plain.options.lease_duration, old.options.lease_duration);
    assert_eq!(TaskSpec { task_id: old.task_id.clone(), options: old.options.clone(), ..plain }, old);
    let changes = Changes { payload: Some(Bytes::new()), ordering_key: Some(None), ..Changes::default() };
    let changed = replay_spec(&old, Uuid::max(), &changes, &policy, Duration::from_secs(60)).unwrap();
    assert_eq!((changed.payload.len(), changed.ordering_key), (0, None));
    assert_eq!(changed.options.start, Some(Start::After(Duration::from_secs(60))));
    assert_eq!(changed.options.end, Some(End::Within(policy.default_ttl + Duration::from_secs(60))));
}

#[test]
fn starts_are_spread_by_the_rate() {
    assert_eq!(spread(5, None), Duration::ZERO);
    assert_eq!(spread(0, Some(0.001)), Duration::ZERO);
    assert_eq!(spread(5, Some(2.0)), Duration::from_millis(2_500));
    assert_eq!(spread(1_000, Some(f64::MIN_POSITIVE)), Duration::MAX);
}
