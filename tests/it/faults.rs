//! Faults between the parts, injected one at a time: aborted transactions, lost answers, silent connections, lost nudges.

use std::time::{Duration, Instant};

use leasehold::api::proto::{self as pb, TaskState};
use tonic::Code;

use crate::town::{Answer, PATIENCE, Recovery, SECOND, Town, eventually};

/// Ends every session that waits for what `held` holds, as if it had died there.
async fn kill_those_who_wait(town: &Town) {
    let query = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'leasehold' AND wait_event_type = 'Lock'";
    eventually("somebody who waits is ended", async || (town.sql::<i64>(query).await > 0).then_some(())).await;
}

#[tokio::test]
async fn a_submit_whose_transaction_dies_leaves_nothing() {
    let town = Town::start().await;
    town.spec("head").key("c-a").submit().await;
    // By then the new task's row is written, and not committed.
    let held = town.hold("SELECT FROM ordering_keys WHERE key = 'c-a' FOR UPDATE").await;
    let (refused, ()) = tokio::join!(town.spec("t").key("c-a").try_submit(), async {
        kill_those_who_wait(&town).await;
        held.let_go().await;
    });
    refused.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    for table in ["tasks", "live", "events"] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(town.sql::<i64>(count).await, 1, "{table} has more than the head");
    }
    town.row_held(1, "t", None).await;
    town.spec("t").key("c-a").submit().await;
    town.audit().await;
}

#[tokio::test]
async fn a_claim_whose_transaction_dies_before_its_commit_has_taken_nothing() {
    let town = Town::start().await;
    town.submit("t").await;
    // By then the lease is written, and not committed: only the log's row is missing.
    let mut held = town.hold("SELECT").await;
    held.execute("LOCK TABLE events IN SHARE MODE").await;
    let worker = town.worker("w1");
    let (refused, ()) = tokio::join!(worker.try_claim(1), kill_those_who_wait(&town));
    refused.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    held.let_go().await;
    let task = town.task("t").await;
    assert_eq!((task.state(), task.attempt, task.attempts_charged, task.fencing_token), (TaskState::Ready, 0, 0, 0));
    let lease = worker.claim_one().await;
    assert_eq!(lease.lease.attempt, 1);
    town.row_held(31, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn a_server_that_stood_still_within_a_transaction_says_that_the_database_took_it_back() {
    let town = Town::start().await;
    // A statement that takes long enough for the server to be stopped meanwhile.
    town.execute("CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); RETURN NEW; END'").await;
    town.execute("CREATE TRIGGER linger BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION linger()").await;
    let calling = {
        let (mut client, spec) = (town.tasks(), town.spec("t").spec);
        tokio::spawn(async move { client.submit(pb::SubmitRequest { spec: Some(spec) }).await })
    };
    let lingers = "SELECT min(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let session = eventually("the statement runs", async || town.sql::<Option<i32>>(lingers).await).await;
    town.server(0).signal(libc::SIGSTOP);
    let lives = format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {session})");
    eventually("the session is ended", async || (!town.sql::<bool>(lives.as_str()).await).then_some(())).await;
    town.server(0).signal(libc::SIGCONT);
    let answer: Answer<pb::SubmitResponse> = calling.await.expect("it does not panic").into();
    answer.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    town.execute("DROP TRIGGER linger ON events").await;
    town.submit("t").await;
    town.audit().await;
}

#[tokio::test]
async fn a_submit_whose_answer_was_lost_is_the_same_task_when_repeated() {
    let town = Town::start().await;
    let connection = town.server(0).connect().await;
    // A stranger holds the key, so that the client is gone before there is an answer to it.
    town.spec("head").key("c-a").submit().await;
    let mut held = town.hold("SELECT FROM ordering_keys WHERE key = 'c-a' FOR UPDATE").await;
    let spec = town.spec("t").key("c-a").spec;
    let calling = tokio::spawn({
        let spec = spec.clone();
        async move {
            let mut client = pb::task_service_client::TaskServiceClient::new(connection);
            client.submit(pb::SubmitRequest { spec: Some(spec) }).await
        }
    });
    held.until_waited_for().await;
    calling.abort();
    drop(calling.await);
    held.let_go().await;
    let accepted = async || (town.sql::<i64>("SELECT count(*) FROM tasks WHERE task_id = 't'").await == 1).then_some(());
    eventually("the Submit was carried out", accepted).await;
    let again = Answer::from(town.tasks().submit(pb::SubmitRequest { spec: Some(spec) }).await).ok();
    assert!(!again.created);
    town.row_held(3, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn what_became_ready_without_a_word_to_anybody_is_found_by_the_poll() {
    let town = Town::start().await;
    town.submit("known").await;
    town.worker("w1").claim_one().await.complete().await.applied();
    town.spec("t").start_delay(SECOND * 600).submit().await;
    let worker = town.worker("w1");
    let waiting = tokio::spawn(async move { worker.claim_one().await.lease });
    // Nobody is nudged and nothing is notified: the rows just change, as if every hint of it had been lost.
    let ready = "UPDATE live SET state = 'READY', wake = NULL, due = deadline WHERE state = 'SCHEDULED'";
    town.execute("UPDATE shares SET ready = true").await;
    assert_eq!(town.execute(ready).await, 1);
    let begin = Instant::now();
    let lease = waiting.await.expect("it does not panic");
    assert_eq!((crate::town::id_of(lease.task.as_ref().unwrap()), lease.attempt), ("t", 1));
    let recovery = Recovery { took: begin.elapsed(), budget: SECOND * 2 };
    town.row_held(30, "t", Some(recovery)).await;
}

#[tokio::test]
async fn a_silent_connection_to_postgres_fails_calls_in_time_and_the_server_goes_on_when_others_work() {
    let (town, wire) = Town::on_a_wire().await;
    town.submit("before").await;
    let lease = town.worker("w1").for_a_lease_of(SECOND * 600).claim_one().await;
    wire.silence();
    let begin = Instant::now();
    // As many calls as there are connections, and more: none of them may wait for ever.
    let calls = (0..30).map(|n| town.spec(&format!("during-{n}")).try_submit());
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), town.server(0).until_it_does_not_serve());
    for answer in answers {
        answer.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    }
    let refused_after = begin.elapsed();
    assert!(refused_after < PATIENCE, "calls waited for {refused_after:?}");
    wire.heal();
    let begin = Instant::now();
    town.server(0).until_it_serves().await;
    let answer = async || town.spec("after").try_submit().await.0.ok();
    assert!(eventually("a Submit is accepted", answer).await.created);
    lease.complete().await.applied();
    // The loops go on as well: what is due is moved, and the ear hears.
    town.spec("later").start_delay(Duration::from_millis(10)).submit().await;
    town.wait_for_state("later", TaskState::Ready).await;
    let recovery = Recovery { took: begin.elapsed(), budget: SECOND * 30 };
    town.row_held(19, "before", Some(recovery)).await;
    town.audit_database().await;
}
