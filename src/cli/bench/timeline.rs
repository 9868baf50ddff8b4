//! Cliffs in time: a steady pace before, during and after something that holds the database back.

use std::time::Duration;

use sqlx::Connection as _;

use super::cliffs::{EXAMINED, Means, QUEUE};
use super::counters::precise;
use super::errors::Errors;
use super::fill::Filler;
use super::paced::{self, Cycle};
use super::plot::{Line, Panel};
use super::report::{Outcome, Single};
use super::site::Site;
use super::{Failure, say};
use crate::api::proto as pb;

/// Longest look at the calm before, and at the recovery after.
const CALM: Duration = Duration::from_secs(60);
/// The recovery is judged by its last part.
const LAST_PART: f64 = 0.25;
/// When the tasks ended that retention is to forget: long enough ago that the service trusts in it.
const LONG_AGO: f64 = 3_600.0;

/// Moments of a run, in seconds since its begin.
struct Phases {
    warm: f64,
    begin: f64,
    end: f64,
    over: f64,
}

impl Phases {
    /// Calm, then `during`, then calm again.
    fn around(means: Means<'_>, during: Duration) -> Phases {
        let calm = (during / 4).clamp(means.plan.window, CALM.max(means.plan.window)).as_secs_f64();
        let warm = means.plan.warm_up.as_secs_f64();
        let end = warm + calm + during.as_secs_f64();
        Phases { warm, begin: warm + calm, end, over: end + calm }
    }

    fn all(&self) -> Duration {
        Duration::from_secs_f64(self.over)
    }

    /// The last part of what is held back against the calm before it; then what came after against the same.
    fn outcomes(&self, what: &str, cycles: &[Cycle], errors: &Errors, singles: &[Single]) -> Vec<Outcome> {
        let between = |from: f64, until: f64| vec![paced::sample(cycles.iter().filter(|c| (from..until).contains(&c.at)))];
        let calm = || between(self.warm, self.begin);
        let late = self.end - (self.end - self.begin) * LAST_PART;
        let recovered = self.over - (self.over - self.end) * LAST_PART;
        let line = |name: &str, at: f64| Line { name: name.to_owned(), points: vec![(at, 0.0), (at, 1.0)] };
        let mut lines = paced::lines(cycles);
        lines.extend([line("begin", self.begin), line("end", self.end)]);
        let panel = Panel { title: format!("cliff {what}"), x: "s", y: "ms", log_x: false, lines };
        let errors = [errors.clone(), Errors::default()];
        let held =
            Outcome::new(format!("cliff {what}"), ["its last quarter", "before"], &[between(late, self.end), calm()], singles);
        let after =
            Outcome::new(format!("cliff {what}, over"), ["after it", "before"], &[between(recovered, self.over), calm()], &[]);
        vec![held.with_errors(&errors).with_panels(vec![panel]), after]
    }
}

/// Somebody holds a snapshot for so many seconds: what is dead meanwhile can't be cleared away.
pub async fn pinned(means: Means<'_>, seconds: u64) -> Result<Vec<Outcome>, Failure> {
    let mut site = Site::open(means.cluster, "bench_pinned", means.log).await?;
    let phases = Phases::around(means, Duration::from_secs(seconds));
    say!("bench: pinned: {seconds} s under a snapshot, {} s altogether", phases.all().as_secs());
    let errors = Errors::default();
    let Site { leasehold, sql, .. } = &mut site;
    let pin = async {
        tokio::time::sleep(Duration::from_secs_f64(phases.begin)).await;
        let mut tx = sql.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        // The first statement that reads takes the snapshot.
        sqlx::query("SELECT FROM queues LIMIT 1").execute(&mut *tx).await?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok::<(), Failure>(tx.rollback().await?)
    };
    let (cycles, pinned) = tokio::join!(paced::run(leasehold, QUEUE, means.pace, phases.all(), &errors), pin);
    pinned?;
    let outcomes = phases.outcomes("pinned", &cycles, &errors, &[]);
    site.close().await?;
    Ok(outcomes)
}

/// So many finished tasks lie there, and after a while retention is told to forget them.
pub async fn retention(means: Means<'_>, finished: u64) -> Result<Vec<Outcome>, Failure> {
    let mut site = Site::open(means.cluster, "bench_retention", means.log).await?;
    say!("bench: filling retention up to {finished}");
    Filler::open(&mut site.sql, QUEUE).await?.finished(usize::try_from(finished)?, LONG_AGO).await?;
    site.settle().await?;
    let errors = Errors::default();
    if finished <= EXAMINED {
        site.findings().await?.iter().for_each(|finding| errors.note(format!("the doctor: {finding}")));
    }
    let before = remembered(&mut site).await?;
    let phases = Phases::around(means, means.plan.window * 4);
    let soon = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let queue = pb::Queue {
        name: QUEUE.to_owned(),
        payload_retention: soon,
        result_retention: soon,
        evidence_retention: soon,
        ..Default::default()
    };
    let forget = async {
        tokio::time::sleep(Duration::from_secs_f64(phases.begin)).await;
        site.leasehold.put_queue(queue).await
    };
    let (cycles, forgetting) = tokio::join!(paced::run(&site.leasehold, QUEUE, means.pace, phases.all(), &errors), forget);
    forgetting?;
    let after = remembered(&mut site).await?;
    let singles = [("tasks remembered", [precise(after), precise(before)])];
    let outcomes = phases.outcomes("retention", &cycles, &errors, &singles);
    site.close().await?;
    Ok(outcomes)
}

/// Tasks that the filler laid in and that are known still.
async fn remembered(site: &mut Site) -> Result<i64, Failure> {
    let count = sqlx::query_scalar("SELECT count(*) FROM tasks WHERE task_id LIKE 'fill-%'").fetch_one(&mut site.sql).await?;
    Ok(count)
}
