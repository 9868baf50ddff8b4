//! Servers: the same workers on several servers over one database, and on one. First with shares that take turns, then with caps too:
//! what servers have to agree on. Only as many servers run as are measured.

use super::counters::precise;
use super::errors::Errors;
use super::fill::{Filler, Lying, READY};
use super::lab::Lab;
use super::leasehold::Leasehold;
use super::load::Load;
use super::measure::{Measured, Plan, closed_loop};
use super::plot::{Panel, over_time};
use super::report::Outcome;
use super::scenarios::{REST, whole};
use super::{Failure, say};

/// Where the load does not say how many.
const SHARES: u64 = 8;
/// Tasks a second that are laid in before the first turn has shown how fast it goes.
const GUESS: f64 = 4_000.0;

pub async fn run(lab: &mut Lab<'_>, plan: Plan, rounds: u32, several: usize) -> Result<Vec<Outcome>, Failure> {
    let (kept, servers) = (lab.load, lab.servers.len());
    let shares = if kept.shares == 0 { SHARES } else { kept.shares };
    let mut outcomes = Vec::new();
    for (queue, caps) in [("servers, fair", false), ("servers, fair and capped", true)] {
        lab.load = Load { shares, caps, ..kept };
        outcomes.push(compare(lab, queue, plan, rounds, several).await?);
    }
    lab.load = kept;
    lab.serve_with(servers).await?;
    Ok(outcomes)
}

async fn compare(lab: &mut Lab<'_>, queue: &'static str, plan: Plan, rounds: u32, several: usize) -> Result<Outcome, Failure> {
    let errors: [Errors; 2] = Default::default();
    let (mut samples, mut latest): ([Vec<_>; 2], [Vec<_>; 2]) = Default::default();
    let mut per_second = GUESS;
    for round in 0..rounds {
        for turn in 0..2 {
            let side = usize::from(turn != round % 2);
            let count = [several, 1][side];
            lab.serve_with(count).await?;
            lab.leasehold.cap(queue, plan.clients).await?;
            let measured = lifecycle(lab, queue, plan, per_second, &errors[side]).await?;
            per_second = per_second.max(measured.per_second());
            let sample = whole(&measured, plan)?;
            say!("bench: {queue}, round {}/{rounds}, {count} server(s): {:.0} tasks/s", round + 1, measured.per_second());
            samples[side].push(sample);
            latest[side] = measured.over_time().collect();
            tokio::time::sleep(REST).await;
        }
    }
    let name = format!("{several} servers");
    let names = [name.as_str(), "1 server"];
    let lines = names.iter().zip(latest).flat_map(|(name, values)| over_time(name, values.into_iter())).collect();
    let panel = Panel { title: format!("{queue}, latest round"), x: "s", y: "ms", log_x: false, lines };
    let several = precise(i64::try_from(several)?);
    let outcome = Outcome::new(queue, names, &samples, &[("servers", [several, 1.0])]);
    Ok(outcome.with_errors(&errors).with_panels(vec![panel]))
}

/// Claim(1) and Complete on a queue that holds more than enough.
async fn lifecycle(
    lab: &mut Lab<'_>, queue: &'static str, plan: Plan, per_second: f64, errors: &Errors,
) -> Result<Measured, Failure> {
    let leasehold: Leasehold = lab.leasehold.clone();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a guess")]
    let wanted = (per_second * (plan.warm_up + plan.window).as_secs_f64() * 1.3) as usize;
    if lab.load.keys == 0 {
        // By SQL, so that no server remembers from accepting them what they are.
        let mut filler = Filler::open(&mut lab.sql, queue).await?;
        filler.shares(lab.load.shares, None).await?;
        filler.unfinished(Lying { shares: lab.load.shares, ..READY }, wanted).await?;
    } else {
        leasehold.fill(queue, wanted).await?;
    }
    let step = move |client| {
        let leasehold = leasehold.clone();
        async move { leasehold.lifecycle(client, queue).await }
    };
    closed_loop(&mut lab.meter, errors, plan, step).await
}
