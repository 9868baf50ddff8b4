//! The database fails over to a standby: no number is handed out twice, and the servers go on without a restart.
//!
//! Two clusters of this test's own. Servers know one address, a name for a folder with a socket; a failover makes it name the other
//! cluster's folder.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leasehold::embedded::{Cluster, Options};
use sqlx::{Connection as _, PgConnection};
use tonic::Code;

use crate::load::{Faults, Load};
use crate::town::{LEASE, Town, eventually, new_folder};

/// How far all numbers leap when the database has become another one.
const LEAP: i64 = 1 << 20;

/// A primary, a name by which servers know it, and room for a standby.
struct Pair {
    folder: PathBuf,
    primary: Option<Cluster>,
    standby: Option<Cluster>,
}

impl Pair {
    async fn start() -> Pair {
        let folder = new_folder("pair").await;
        let primary = start(folder.join("primary")).await;
        leasehold::store::create_database(&primary.url("postgres"), "leasehold").await.expect("a database");
        let pair = Pair { folder, primary: Some(primary), standby: None };
        pair.point_at(pair.primary());
        pair
    }

    fn primary(&self) -> &Cluster {
        self.primary.as_ref().expect("the primary was not killed yet")
    }

    fn standby(&self) -> &Cluster {
        self.standby.as_ref().expect("the standby was started")
    }

    /// The address that servers are given.
    fn url(&self) -> String {
        format!("postgres://leasehold@localhost:5432/leasehold?host={}&sslmode=disable", self.folder.join("now").display())
    }

    /// From now on the address leads to this cluster.
    fn point_at(&self, cluster: &Cluster) {
        let (now, next) = (self.folder.join("now"), self.folder.join("next"));
        symlink(cluster.socket_dir(), &next).expect("the folder can be written");
        std::fs::rename(next, now).expect("the folder can be written");
    }

    /// Copies the primary as it is now, as a standby that is not started yet. `following`: it will ask the primary for what comes.
    async fn copy(&self, following: bool) {
        let programs = std::fs::read_link(format!("/proc/{}/exe", self.primary().pid())).expect("the server runs");
        let (copy, from) = (self.folder.join("standby"), self.primary().socket_dir().to_owned());
        let owner = std::fs::metadata(self.folder.join("primary")).expect("it is there");
        std::fs::DirBuilder::new().mode(0o700).create(&copy).expect("the folder can be written");
        chown(&copy, Some(owner.uid()), Some(owner.gid())).expect("it is ours");
        let mut command = Command::new(programs.with_file_name("pg_basebackup"));
        command
            .args(["-U", "leasehold", "-c", "fast", "-h"])
            .arg(from)
            .arg("-D")
            .arg(&copy)
            .current_dir(&copy)
            .stdin(Stdio::null());
        if following {
            command.arg("-R");
        }
        if leasehold::embedded::running_as_root() {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let done =
            tokio::task::spawn_blocking(move || command.output()).await.expect("it does not panic").expect("pg_basebackup runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(copy.join("standby.signal"), "").expect("the copy can be written");
        // Our sockets lie among the data, and the lock of the primary's was copied with it.
        std::fs::remove_file(copy.join(".s.PGSQL.5432.lock")).expect("the copy can be written");
    }

    async fn start_standby(&mut self) {
        self.standby = Some(start(self.folder.join("standby")).await);
    }

    async fn kill_primary(&mut self) {
        let mut primary = self.primary.take().expect("the primary was not killed yet");
        tokio::task::spawn_blocking(move || primary.kill()).await.expect("it does not panic");
    }

    async fn promote_standby(&self) {
        let mut standby = PgConnection::connect(&self.standby().url("postgres")).await.expect("the standby answers");
        let promoted: bool = sqlx::query_scalar("SELECT pg_promote()").fetch_one(&mut standby).await.expect("it can be promoted");
        assert!(promoted, "the standby was not promoted within a minute");
    }
}

async fn start(data_dir: PathBuf) -> Cluster {
    let options = Options { data_dir, bin_dir: None, durable: true, settings: vec![("wal_keep_size".into(), "256MB".into())] };
    let started = tokio::task::spawn_blocking(move || Cluster::start(&options)).await.expect("it does not panic");
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Every number of this kind that the log knows to have been handed out.
async fn numbers(town: &Town, query: &str) -> BTreeSet<i64> {
    let found = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_all(town.database()).await;
    found.expect("the log can be read").into_iter().collect()
}

const TOKENS: &str = "SELECT token FROM events WHERE kind = 'LEASED'";
const POSITIONS: &str = "SELECT position FROM events";

/// Two histories that begin as one hand out different numbers from where they part, and the second one leapt once.
#[track_caller]
fn part_without_a_number_in_common(what: &str, common: &BTreeSet<i64>, lost: &BTreeSet<i64>, kept: &BTreeSet<i64>) {
    let highest = lost.difference(common).last().unwrap_or_else(|| panic!("{what}: nothing was lost"));
    let new: BTreeSet<i64> = kept - common;
    let (first, last) = new.first().zip(new.last()).unwrap_or_else(|| panic!("{what}: nothing came after the failover"));
    assert!(first > highest, "{what} {first} came after {highest} was handed out");
    assert!(*last < highest + 2 * LEAP, "{what} leapt more than once: from {highest} to {last}");
}

#[tokio::test]
async fn a_standby_that_lacks_the_last_commits_hands_out_no_number_again() {
    let mut pair = Pair::start().await;
    let mut town = Town::on(pair.url()).await;
    town.add_server().await;
    for id in ["held", "claimed later", "untouched"] {
        town.submit(id).await;
    }
    let held = town.worker("w1").for_a_lease_of(LEASE * 20).claim_one().await;
    assert_eq!(held.id(), "held");
    let common = (numbers(&town, TOKENS).await, numbers(&town, POSITIONS).await);
    pair.copy(false).await;

    // All of this the standby will never hear of.
    let lost_lease = town.worker("w2").for_a_lease_of(LEASE * 20).claim_one().await;
    assert_eq!(lost_lease.id(), "claimed later");
    for number in 0..50 {
        town.spec(&format!("lost-{number}")).at(number % 2).submit().await;
    }
    let lost = town.worker_at(1, "w3").claim_all(20).await;
    for lease in &lost {
        lease.complete().await.applied();
    }
    town.spec("lost too").queue("lost queue").submit().await;
    let lost_queue = "SELECT queue_id FROM queues WHERE name = 'lost queue'";
    let lost_number: i32 = town.sql(lost_queue).await;
    let gone = (numbers(&town, TOKENS).await, numbers(&town, POSITIONS).await);

    pair.kill_primary().await;
    pair.start_standby().await;
    pair.point_at(pair.standby());
    // A standby only reads.
    eventually("the servers find the standby", async || (town.sql::<bool>("SELECT pg_is_in_recovery()").await).then_some(())).await;
    for server in 0..2 {
        town.server(server).until_it_does_not_serve().await;
        let refused = town.spec("during").at(server).try_submit().await;
        refused.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
        town.worker_at(server, "w4").try_claim(1).await.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    }
    pair.promote_standby().await;

    // Both servers go on, each at once.
    town.server(0).until_it_serves().await;
    town.server(1).until_it_serves().await;
    let (one, two) = tokio::join!(resubmitted(&town, 0, "lost-0"), resubmitted(&town, 1, "lost-1"));
    assert!(one && two, "what was lost is new");
    assert!(town.spec("lost too").queue("lost queue").at(1).try_submit().await.ok().created);
    assert!(!town.spec("lost too").queue("lost queue").at(0).try_submit().await.ok().created);
    assert_ne!(town.sql::<i32>(lost_queue).await, lost_number, "the lost queue's number names another queue");

    // A lease that the standby knew of is as good as before. One that it never heard of is nobody's, then somebody else's.
    held.complete().await.applied();
    lost_lease.complete().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let successor = town.worker_at(1, "w5").claim_one().await;
    assert_eq!(successor.id(), "claimed later");
    lost_lease.complete().await.refused_with("LEASE_SUPERSEDED");
    lost_lease.heartbeat().await.refused_with("LEASE_SUPERSEDED");
    successor.complete().await.applied();
    lost[19].complete().await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    for lease in town.worker("w6").claim_all(3).await {
        lease.complete().await.applied();
    }
    let kept = (numbers(&town, TOKENS).await, numbers(&town, POSITIONS).await);
    part_without_a_number_in_common("a token", &common.0, &gone.0, &kept.0);
    part_without_a_number_in_common("a position", &common.1, &gone.1, &kept.1);
    town.audit().await;
}

/// Submits until the server has found the database again; whether the task was new.
async fn resubmitted(town: &Town, server: usize, id: &str) -> bool {
    let again = async || town.spec(id).at(server).try_submit().await.0.ok();
    eventually("the server has found the database", again).await.created
}

#[tokio::test]
async fn with_synchronous_replication_a_failover_loses_nothing_that_was_acknowledged() {
    let mut pair = Pair::start().await;
    let town = Town::on(pair.url()).await;
    pair.copy(true).await;
    pair.start_standby().await;
    let mut primary = PgConnection::connect(&pair.primary().url("postgres")).await.expect("the primary answers");
    sqlx::raw_sql("ALTER SYSTEM SET synchronous_standby_names = '*'").execute(&mut primary).await.expect("it can be set");
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut primary).await.expect("it can be read anew");
    eventually("the standby is waited for", async || {
        let state = "SELECT coalesce(bool_or(sync_state = 'sync'), false) FROM pg_stat_replication";
        sqlx::query_scalar::<_, bool>(state).fetch_one(&mut primary).await.expect("the primary answers").then_some(())
    })
    .await;
    let load = Load::start(vec![town.server(0).channel()], Faults { servers: false, database: true });
    load.until_answered(200).await;
    let before = load.failures();
    pair.kill_primary().await;
    pair.promote_standby().await;
    unfollowed(&pair).await;
    pair.point_at(pair.standby());
    load.until_answered(200).await;
    assert!(load.failures() > before, "nobody called meanwhile");
    load.settle(&town).await;
    town.audit().await;
}

/// The setting was copied with everything else; now nobody follows.
async fn unfollowed(pair: &Pair) {
    let mut standby = PgConnection::connect(&pair.standby().url("postgres")).await.expect("the standby answers");
    sqlx::raw_sql("ALTER SYSTEM RESET synchronous_standby_names").execute(&mut standby).await.expect("it can be set");
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut standby).await.expect("it can be read anew");
}
