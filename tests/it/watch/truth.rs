//! Nothing that was committed is missed, nothing is told twice, and nothing that was told is taken back: whatever commits when, and whoever
//! dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::api::proto as pb;
use pb::watch_response::Item;
use sqlx::{Connection as _, PgConnection};

use super::crowd::{Stretch, agree, follow, log, roll_back, work};
use super::position;
use crate::database::{own_cluster, start};
use crate::town::{QUEUE, Seen, Town, eventually, next_number, row_held};

/// Transactions that write an event of a task of this name stop before their commit, for as long as somebody holds the lock.
const HELD_WRITERS: &str = "
    CREATE FUNCTION stop_before_commit() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '0' AS $$
    BEGIN
        IF EXISTS (SELECT FROM tasks t WHERE t.queue_id = NEW.queue_id AND t.uid = NEW.uid AND t.task_id LIKE 'held%') THEN
            PERFORM pg_advisory_xact_lock_shared(4242);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER stop_before_commit AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION stop_before_commit();
";
/// Whoever reads of what tasks the events are stops before that, for as long as somebody holds the lock. (Superusers don't.)
const HELD_READERS: &str = "
    CREATE FUNCTION stop_before_read() RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '0' AS $$
    BEGIN
        IF current_query() LIKE '%specs_by_uid%' THEN
            PERFORM pg_advisory_xact_lock_shared(4242);
        END IF;
        RETURN true;
    END $$;
    CREATE POLICY stop_before_read ON tasks USING (stop_before_read());
    ALTER TABLE tasks ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
";
const HOLD: &str = "SELECT pg_advisory_xact_lock(4242)";

impl Town {
    async fn with_held_writers() -> Town {
        let town = Town::start().await;
        sqlx::raw_sql(HELD_WRITERS).execute(town.database()).await.expect("a trigger");
        town
    }
}

#[tokio::test]
async fn a_lower_number_that_commits_last_is_delivered_and_in_its_place() {
    let town = Town::with_held_writers().await;
    town.submit("first").await;
    let mut watch = town.watch_now().await;
    for round in 0..3 {
        let (low, high) = (format!("held-{round}"), format!("free-{round}"));
        let mut held = town.hold(HOLD).await;
        let spec = town.spec(&low).spec;
        let mut tasks = town.tasks();
        let submitting = tokio::spawn(async move { tasks.submit(pb::SubmitRequest { spec: Some(spec) }).await });
        held.until_waited_for().await;
        let accepted = town.spec(&high).try_submit().await.ok();
        // Who comes now, before the lower one is there, sees both too.
        let late = {
            let (channel, cursor) = (town.server(0).channel(), watch.cursor.clone());
            let request = pb::WatchRequest {
                filter: Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() }),
                after_cursor: if cursor.is_empty() { "c1-1".into() } else { cursor },
                ..pb::WatchRequest::default()
            };
            tokio::spawn(async move { pb::task_service_client::TaskServiceClient::new(channel).watch(request).await })
        };
        held.let_go().await;
        submitting.await.unwrap().expect("it is accepted");
        let seen = watch.seen(2).await;
        assert_eq!([&seen[0].id, &seen[1].id], [&low, &high]);
        let of = async |id: &str| {
            town.sql::<i64>(format!("SELECT position FROM live JOIN tasks USING (queue_id, uid) WHERE task_id = '{id}'")).await
        };
        assert!(of(&low).await < of(&high).await, "they were numbered in the order of their commits");
        assert_eq!(position(&accepted.cursor) + 1, of(&high).await);
        let mut late = late.await.unwrap().expect("it begins").into_inner();
        for id in [&low, &high] {
            let Some(Item::Event(event)) = late.message().await.unwrap().unwrap().item else { panic!("no event") };
            assert_eq!(&Seen::from(&event).id, id);
        }
    }
    town.row_held(26, "held-0", None).await;
    town.audit().await;
}

#[tokio::test]
async fn strangers_transactions_that_stay_open_delay_nothing_while_writers_roll_back() {
    let town = Town::start().await;
    town.submit("first").await;
    // One that writes in this database, and one that even draws positions, but in a copy of it, where the sequence has the same number.
    let copy = format!("copy_{}", next_number());
    let url = town.database_url.clone();
    let schema = "CREATE TABLE foreign_rows (n int)";
    town.execute(schema).await;
    let mut here = PgConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql("BEGIN; INSERT INTO foreign_rows VALUES (1); SELECT nextval('fencing_tokens')")
        .execute(&mut here)
        .await
        .expect("a stranger");
    let mut there = elsewhere(&url, &copy).await;
    sqlx::raw_sql("BEGIN; CREATE TABLE mine (n int); SELECT nextval('positions')").execute(&mut there).await.expect("a stranger");

    let mut watch = town.watch_now().await;
    for round in 0..20 {
        // A writer that draws numbers and takes them back.
        let rolled_back = town.hold("SELECT nextval('positions')").await;
        let id = format!("m-{round}");
        town.submit(&id).await;
        rolled_back.take_back().await;
        assert_eq!(watch.seen(1).await[0].id, id);
    }
    assert_eq!(watch.seen(0).await, []);
    sqlx::raw_sql("COMMIT").execute(&mut here).await.expect("it was open all the time");
    sqlx::raw_sql("COMMIT").execute(&mut there).await.expect("it was open all the time");
    town.audit().await;
}

/// Somebody who comes while the tail is at events that nobody had wanted: it passes them over, so they are found in the log.
#[tokio::test]
async fn who_comes_while_the_tail_passes_over_what_nobody_wanted_misses_none_of_it() {
    let mut town = Town::empty().await;
    let url = town.database_url.clone();
    town.add_server_told(&url, &[]).await;
    sqlx::raw_sql(HELD_READERS).execute(town.database()).await.expect("a policy");
    let accepted = town.spec("before").try_submit().await.ok();
    let mut watch = town.watch_after(&accepted.cursor).await;
    assert_eq!(watch.seen(1).await[0].id, "before");
    let begin = watch.cursor.clone();
    drop(watch);
    eventually("nobody watches", async || (town.watchers(0).await == 0).then_some(())).await;
    town.put_queue(|queue| queue.name = "other".into()).await;
    let in_other = |request: &mut pb::WatchRequest| request.filter.as_mut().expect("a filter").queue = "other".into();
    let mut other = town
        .watch_with(|request| {
            in_other(request);
            request.start = pb::WatchStart::Now as i32;
        })
        .await
        .ok();
    town.spec("o-1").queue("other").submit().await;
    assert_eq!(other.seen(1).await[0].id, "o-1", "the log is stable behind the cursor");
    // Both of these stand behind a number that is drawn, so the tail finds them at once; then it stops before it can tell of o-2.
    let gap = town.hold("SELECT nextval('positions')").await;
    town.submit("m-1").await;
    town.spec("o-2").queue("other").submit().await;
    let mut held = town.hold(HOLD).await;
    gap.take_back().await;
    held.until_waited_for().await;
    let mut watch = town
        .watch_with(|request| {
            request.after_cursor = begin;
            request.bookmark_interval = Some(crate::town::span(crate::town::SECOND));
        })
        .await
        .ok();
    assert!(matches!(watch.next().await, Item::Bookmark(_)), "up to here there is nothing for it");
    held.let_go().await;
    assert_eq!(other.seen(1).await[0].id, "o-2");
    assert_eq!(watch.seen(1).await[0].id, "m-1");
    town.audit().await;
}

/// A database beside the town's, with a sequence of the same name.
async fn elsewhere(url: &str, name: &str) -> PgConnection {
    let mut admin = PgConnection::connect(url).await.expect("a connection");
    let create = format!("CREATE DATABASE {name} TEMPLATE template_town");
    sqlx::query(sqlx::AssertSqlSafe(create)).execute(&mut admin).await.expect("the template can be copied");
    let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL");
    PgConnection::connect_with(&options.database(name)).await.expect("the copy answers")
}

#[tokio::test]
async fn with_eight_writers_rollbacks_kills_and_resumes_at_any_cursor_everyone_sees_the_log() {
    let mut town = Town::with_servers(2).await;
    let begin = town.spec("first").try_submit().await.ok().cursor;
    let (stop_writing, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let lasting = town.server(1).channel();
    let mut following = Vec::new();
    let mut writing = Vec::new();
    let rolling = tokio::spawn(roll_back(town.database_url.clone(), stop.clone()));
    for life in 0..3 {
        let channels = vec![town.server(0).channel(), lasting.clone()];
        following.extend((0..2).map(|_| tokio::spawn(follow(channels.clone(), begin.clone(), stop.clone()))));
        writing.extend((0..8).map(|writer| tokio::spawn(work(channels.clone(), life * 8 + writer, 40, stop_writing.clone()))));
        let goal = town.sql::<i64>("SELECT count(*) FROM events").await + 400;
        eventually("it goes on", async || (town.sql::<i64>("SELECT count(*) FROM events").await >= goal).then_some(())).await;
        town.server_mut(0).kill();
        town.restart_server(0).await;
    }
    for writer in writing {
        writer.await.expect("a writer");
    }
    stop.store(true, Ordering::Relaxed);
    rolling.await.expect("a stranger");
    let mut stretches = Vec::new();
    for watcher in following {
        stretches.extend(watcher.await.expect("a watcher"));
    }
    let log = log(&town).await;
    agree(&log, &stretches);
    let told: usize = stretches.iter().map(|stretch| stretch.seen.len()).sum();
    assert!(told > log.len() && stretches.len() > 20, "{told} events in {} watches, the log has {}", stretches.len(), log.len());
    row_held(25, &format!("{told} events told in {} watches, none missed or twice", stretches.len()), None);
    town.audit().await;
}

#[tokio::test]
async fn a_snapshot_and_what_follows_equal_the_tables_wherever_in_a_random_run_they_begin() {
    let town = Town::with_servers(2).await;
    let stop = Arc::new(AtomicBool::new(false));
    let channels = vec![town.server(0).channel(), town.server(1).channel()];
    town.submit("first").await;
    let writing: Vec<_> = (0..8).map(|writer| tokio::spawn(work(channels.clone(), writer, 40, stop.clone()))).collect();
    let rolling = tokio::spawn(roll_back(town.database_url.clone(), stop.clone()));
    let mut watches = Vec::new();
    while !writing.iter().all(tokio::task::JoinHandle::is_finished) {
        let mut watch = town.watch_at(watches.len() % 2, |_| {}).await.ok();
        watches.push((watch.snapshot().await, watch));
        let more = town.sql::<i64>("SELECT count(*) FROM events").await + 100;
        let enough = async || {
            let over = writing.iter().all(tokio::task::JoinHandle::is_finished);
            (over || town.sql::<i64>("SELECT count(*) FROM events").await >= more).then_some(())
        };
        eventually("it goes on", enough).await;
    }
    for writer in writing {
        writer.await.expect("a writer");
    }
    stop.store(true, Ordering::Relaxed);
    rolling.await.expect("a stranger");
    town.submit("last").await;
    let end = town.standings().await;
    assert!(watches.len() > 3, "only {} watches", watches.len());
    for (mut tasks, mut watch) in watches {
        // Time moves tasks on by itself: what is seen is compared when the last event of the run is.
        while !tasks.contains_key("last") {
            apply(&mut tasks, &watch.event().await);
        }
        let behind: BTreeMap<_, _> = end
            .iter()
            .filter(|(id, standing)| {
                tasks.get(*id).is_none_or(|seen| seen.0 > standing.0 || (seen.0 == standing.0 && seen.1 != standing.1))
            })
            .collect();
        assert!(behind.is_empty(), "{behind:?}");
        for (id, standing) in &end {
            while tasks[id].0 < standing.0 {
                apply(&mut tasks, &watch.event().await);
            }
        }
        let moved = tasks.iter().filter(|(id, seen)| **seen != end[*id] && seen.0 <= end[*id].0).count();
        assert_eq!(moved, 0);
    }
    town.audit().await;
}

/// Applies an event to what is known of the tasks: it must be the next one.
fn apply(tasks: &mut BTreeMap<String, (i64, String)>, event: &pb::TaskEvent) {
    let seen = Seen::from(event);
    let state = seen.what.split('>').nth(1).expect("a state").to_owned();
    let before = tasks.insert(seen.id.clone(), (seen.revision, state)).map_or(0, |(revision, _)| revision);
    assert_eq!(seen.revision, before + 1, "{} goes from {before} to {}", seen.id, seen.revision);
}

#[tokio::test]
async fn what_was_delivered_before_postgres_is_killed_is_in_the_log_afterwards() {
    let (options, mut cluster) = own_cluster().await;
    let town = Town::on(cluster.url("leasehold")).await;
    town.submit("first").await;
    let mut cursor = String::from("c1-0");
    let mut delivered: Vec<Seen> = Vec::new();
    for life in 0..6 {
        let stop = Arc::new(AtomicBool::new(false));
        let writing: Vec<_> = (0..6)
            .map(|writer| tokio::spawn(work(vec![town.server(0).channel()], life * 6 + writer, 1_000, stop.clone())))
            .collect();
        let mut watch =
            eventually("the watch begins", async || town.watch_with(|request| request.after_cursor = cursor.clone()).await.0.ok())
                .await;
        let wanted = 100 + fastrand::usize(..100);
        for _ in 0..wanted {
            match watch.try_next().await {
                Ok(Some(Item::Event(event))) => delivered.push(Seen::from(&event)),
                Ok(other) => assert!(matches!(other, Some(Item::Bookmark(_))), "{other:?}"),
                Err(_) => break,
            }
        }
        cursor = if watch.cursor.is_empty() { cursor } else { watch.cursor.clone() };
        cluster.kill();
        stop.store(true, Ordering::Relaxed);
        drop(cluster);
        cluster = start(&options).await;
        for writer in writing {
            writer.await.expect("a writer");
        }
        town.server(0).until_it_serves().await;
    }
    // The same server, whose tail has gone through it all, and the table say the same.
    let log = log(&town).await;
    agree(&log, &[Stretch { after: 0, seen: delivered }]);
    town.audit().await;
    drop(town);
    drop(cluster);
}
