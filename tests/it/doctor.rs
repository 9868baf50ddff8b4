//! `leasehold doctor`: nobody has to run for it to look, it names what differs, and it tells when it could not look.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use leasehold::api::proto::ErrorClass;

use crate::town::{QUEUE, SECOND, Town, replayed};

async fn doctor(url: &str, more: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["doctor", "--database-url", url]).args(more).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("the doctor runs")
}

/// What was said, and how it ended.
async fn says(url: &str, more: &[&str]) -> (String, Option<i32>) {
    let output = doctor(url, more).await;
    let said = [output.stdout, output.stderr].map(|part| String::from_utf8(part).expect("text")).concat();
    (said, output.status.code())
}

/// The findings of each rule by its name, and how many there are.
async fn findings(town: &Town) -> BTreeMap<String, (i64, Vec<String>)> {
    let (said, code) = says(&town.database_url, &["--json"]).await;
    assert_eq!(code, Some(1), "{said}");
    let rule = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["promise"].as_str().is_some_and(|promise| !promise.is_empty()), "{line}");
        let told = object["findings"].as_array().expect("its findings").iter().map(|text| text.as_str().unwrap().to_owned());
        (object["rule"].as_str().expect("its name").to_owned(), (object["count"].as_i64().expect("a count"), told.collect()))
    };
    said.lines().map(rule).collect()
}

/// A town in which something of everything has happened, and whose server has gone.
async fn after_work() -> Town {
    let mut town = Town::start().await;
    town.put_queue(|queue| queue.max_unfinished = Some(100)).await;
    town.put_share("tenant", |share| (share.max_in_flight, share.max_unfinished) = (Some(5), Some(50))).await;
    let worker = town.worker("w1");
    for id in ["done", "released"] {
        town.spec(id).share("tenant").about("m-9", 1).payload(b"private").submit().await;
        let lease = worker.claim_one().await;
        if id == "done" {
            lease.complete().await.applied()
        } else {
            lease.release().await.applied()
        };
    }
    assert!(town.receipt("done", "device_received", "r-1").await);
    worker.claim_one().await.fail(ErrorClass::Permanent).await.applied();
    replayed(town.replay("released").await);
    worker.claim_one().await.complete().await.applied();
    town.broken(town.spec("broken").key("k")).await;
    town.spec("retries").retry(3, SECOND * 60).submit().await;
    worker.claim_one().await.fail(ErrorClass::Unknown).await.applied();
    for id in ["head", "behind"] {
        town.spec(id).key("k").share("tenant").submit().await;
    }
    town.spec("waits").share("tenant").submit().await;
    town.raise("m-9", 2).await;
    town.audit().await;
    town.server_mut(0).stop().await;
    town
}

#[tokio::test]
async fn the_doctor_finds_nothing_in_a_database_that_has_worked_and_names_everything_that_was_changed_behind_its_back() {
    let town = after_work().await;
    let (said, code) = says(&town.database_url, &[]).await;
    assert_eq!(code, Some(0), "{said}");
    let (rules, sum) = said.trim_end().rsplit_once('\n').expect("lines");
    assert!(rules.lines().count() > 30 && rules.lines().all(|line| line.starts_with("ok: ")), "{said}");
    assert!(sum.ends_with("0 are broken, 0 could not be asked"), "{said}");

    let of = |id: &str| format!("uid = (SELECT uid FROM tasks WHERE task_id = '{id}')");
    let changes = [
        ("share_asleep", "UPDATE shares SET ready = false".to_owned(), format!("{QUEUE}: the share tenant sleeps")),
        (
            "event_numbers",
            format!("DELETE FROM events WHERE revision = 2 AND {}", of("done")),
            format!("{QUEUE}/done has revision 3 at place 2"),
        ),
        (
            "free_key",
            format!("UPDATE live SET state = 'BLOCKED' WHERE {}", of("head")),
            format!("{QUEUE}: the key k is free, and 2 are blocked behind it"),
        ),
        (
            "attempt_counts",
            format!("UPDATE live SET charged = 0 WHERE {}", of("retries")),
            format!("{QUEUE}/retries: attempt 1 charged 0 unknown 1"),
        ),
        (
            "room",
            "UPDATE rooms SET room = 98 WHERE share_id = 0".to_owned(),
            format!("{QUEUE}: the queue has room for 98, its limit is 100"),
        ),
        ("repair", format!("DELETE FROM repairs WHERE {}", of("broken")), format!("{QUEUE}/broken has no repair")),
        ("receipt", "DELETE FROM receipts".to_owned(), format!("{QUEUE}/done device_received r-1 has no receipt")),
        ("subjects", format!("DELETE FROM task_subjects WHERE {}", of("done")), format!("{QUEUE}/done lacks m-9 1")),
        (
            "numbers",
            "INSERT INTO forgotten SELECT queue_id, 1000000 FROM queues".to_owned(),
            format!("{QUEUE}: the log is said to be forgotten up to 1000000"),
        ),
        ("one_standing", format!("DELETE FROM ended WHERE {}", of("released~1")), format!("{QUEUE}/released~1 is in neither")),
        (
            "unreadable",
            format!("UPDATE tasks SET options = '{{\"retry\": 7}}' WHERE {}", of("waits")),
            format!("{QUEUE}/waits has options of a shape that nobody knows"),
        ),
        (
            "queue",
            "INSERT INTO dispatch (queue_id) VALUES (77)".to_owned(),
            "1 a virtual time of a queue 77 that is not there".to_owned(),
        ),
    ];
    for (_, change, _) in &changes {
        assert!(town.execute(change).await > 0, "{change}");
    }
    town.execute("INSERT INTO payloads SELECT queue_id, gen_random_uuid(), '' FROM queues, generate_series(1, 30)").await;
    let found = findings(&town).await;
    for (rule, _, finding) in &changes {
        let (count, told) = &found[*rule];
        assert!(*count > 0 && told.iter().any(|text| text.starts_with(finding)), "{rule}: {finding:?} is not in {told:?}");
    }
    let (count, told) = &found["forgotten_task"];
    assert_eq!((*count, told.len()), (30, 20), "many are counted and some of them told");
    assert_eq!(found["one_token"], (0, Vec::new()));

    let (said, code) = says(&town.database_url, &[]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("1 finding: a share that has READY tasks is awake\n    notify: the share tenant sleeps\n"), "{said}");
}

#[tokio::test]
async fn a_doctor_that_could_not_look_says_so_and_looks_at_the_rest() {
    let town = Town::start().await;
    town.submit("t").await;
    let mut held = town.database().begin().await.expect("the database answers");
    sqlx::query("LOCK TABLE rooms").execute(&mut *held).await.expect("it can be locked");
    let (said, code) = says(&town.database_url, &["--timeout-seconds", "1"]).await;
    assert_eq!(code, Some(2), "{said}");
    let unasked: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok: ")).collect();
    assert_eq!(unasked.len(), 3, "{said}");
    assert!(unasked[..2].iter().all(|line| line.starts_with("could not look: ") && line.contains("statement timeout")), "{said}");
    assert!(unasked[2].ends_with("0 are broken, 2 could not be asked"), "{said}");
    held.rollback().await.expect("it is let go");
    let (said, code) = says("postgres://nobody@127.0.0.1:1/none", &[]).await;
    assert!(code == Some(2) && said.contains("can't be reached"), "{said}");
    let (said, code) = says(&Town::empty().await.database_url, &[]).await;
    assert!(code == Some(2) && said.contains("run `leasehold migrate`"), "{said}");
}
