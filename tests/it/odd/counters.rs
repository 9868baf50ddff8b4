//! Counters far along: nothing is as wide as the tests of a young database need.

use leasehold::api::proto::{self as pb, ErrorClass, TaskState};
use tonic::Code;

use crate::town::{Answer, LEASE, QUEUE, SECOND, Town, failed};

/// Beyond 32 bits, beyond what a double counts, and near the end of 64.
const FAR: [i64; 4] = [(1 << 31) - 3, (1 << 32) - 3, (1 << 53) - 3, (1 << 62) - 3];

/// The log's partitions are counted with 32 bits and hold five million events each: at a million a second for three hundred years.
const LAST_POSITION: i64 = (1 << 53) - 3;

/// A town whose next tokens, keys and the like come after `last`, and whose next position comes after `position`.
async fn grown_up(last: i64, position: i64) -> Town {
    let mut town = Town::with_servers(0).await;
    for sequence in ["fencing_tokens", "ordering_keys_key_id_seq", "repair_actions_number_seq"] {
        town.execute(format!("SELECT setval('{sequence}', {last})")).await;
    }
    town.execute(format!("SELECT setval('positions', {position})")).await;
    // As the loop does before the numbers come that far.
    town.execute("SELECT ensure_event_partitions()").await;
    // 32 bits wide, and never drawn from in vain.
    town.execute("SELECT setval('queues_queue_id_seq', 2147480000)").await;
    town.add_server().await;
    town
}

#[tokio::test]
async fn tokens_positions_and_cursors_go_on_past_every_width() {
    for last in FAR {
        let before = last.min(LAST_POSITION);
        let town = grown_up(last, before).await;
        let accepted = town.spec("t").key("k").retry(3, std::time::Duration::ZERO).try_submit().await.ok();
        assert_eq!(accepted.cursor, format!("c1-{before}"));
        town.spec("behind").key("k").submit().await;
        let first = town.worker("w1").claim_one().await;
        assert_eq!(first.token(), last + 1);
        town.clock.advance(LEASE + SECOND).await;
        town.wait_for_state("t", TaskState::Ready).await;
        let second = town.worker("w2").claim_one().await;
        assert!(second.token() > first.token());
        let refused = first.complete().await.refused_with("LEASE_SUPERSEDED");
        assert_eq!((refused.number("fencing_token"), refused.number("current_fencing_token")), (first.token(), second.token()));
        second.complete().await.applied();
        town.worker("w2").claim_one().await.complete().await.applied();
        let mut watch = town.watch_after(&accepted.cursor).await;
        let kinds = watch.kinds(6).await;
        assert_eq!(kinds[..3], ["SUBMITTED>READY", "SUBMITTED>BLOCKED", "LEASED>LEASED"], "from {last} on");
        let position: i64 = watch.cursor.strip_prefix("c1-").expect("a cursor").parse().expect("a number");
        assert!(position > before);
        // From there it goes on, and a list tells the same.
        town.broken(town.spec("broken")).await;
        let mut watch = town.watch_after(&watch.cursor).await;
        assert!(!watch.kinds(1).await.is_empty());
        town.assign("broken", "bob", "look").await.ok();
        assert_eq!(town.list(pb::TaskFilter::default()).await.len(), 3);
        town.audit().await;
    }
}

#[tokio::test]
async fn the_last_attempt_of_ten_thousand_is_the_last() {
    let town = Town::start().await;
    town.spec("t").retry(10_000, std::time::Duration::ZERO).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.wait_for_state("t", TaskState::Ready).await;
    assert_eq!(town.execute("UPDATE live SET attempt = 9999, charged = 9999, revision = 9223372036854775000").await, 1);
    let lease = town.worker("w1").claim_one().await;
    assert_eq!((lease.attempt(), lease.lease.attempts_left), (10_000, 0));
    let failure = pb::complete_request::Outcome::Failed(failed(ErrorClass::Transient));
    let task = lease.report(failure).await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause(), task.attempt), (TaskState::RepairRequired, pb::Cause::AttemptsExhausted, 10_000));
    let mut pages = 0;
    let mut page_token = String::new();
    loop {
        let task = Some(crate::town::task_ref("t"));
        let page = town.tasks().list_attempts(pb::ListAttemptsRequest { task, page_size: 1_000, page_token }).await;
        let page = Answer::from(page).ok();
        pages += 1;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            assert_eq!(page.attempts.last().map(|attempt| attempt.number), Some(10_000));
            break;
        }
    }
    assert_eq!(pages, 10);
}

#[tokio::test]
async fn an_etag_far_along_is_compared_to_the_last_digit() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.boundary = Some("sent".into())).await;
    let far = (1_i64 << 62) + 1;
    town.execute(format!("UPDATE queues SET etag = {far} WHERE name = '{QUEUE}'")).await;
    let put = async |etag: String| {
        let queue = pb::Queue { name: QUEUE.into(), paused: Some(false), etag, ..pb::Queue::default() };
        let request = pb::PutQueueRequest { queue: Some(queue), clear_fields: vec![], reason: "tidied".into() };
        Answer::from(town.admin().put_queue(request).await)
    };
    let read = town.admin().get_queue(pb::GetQueueRequest { name: QUEUE.into() }).await;
    let etag = Answer::from(read).ok().queue.unwrap().etag;
    // A double can't tell it from its neighbour.
    let neighbour = etag.replace(&far.to_string(), &(far - 1).to_string());
    assert_ne!(etag, neighbour, "{etag} does not have the number in it");
    put(neighbour).await.refused_as(Code::Aborted, "ETAG_MISMATCH");
    put(etag).await.ok();
    town.audit().await;
}
