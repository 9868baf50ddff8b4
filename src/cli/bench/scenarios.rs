//! The scenarios: which subject does what, and in which order they take turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::errors::Errors;
use super::lab::Lab;
use super::leasehold::task_id;
use super::measure::{Measured, Plan, Sample, Step, closed_loop, line};
use super::naive::Place;
use super::plot::{Panel, over_time};
use super::report::{Outcome, Single};
use super::{Failure, Scenario, ceiling, pickup, say};

pub const PAYLOAD: &[u8] = &[0x2a; 100];
/// Tasks in one call of the scenario `batch`.
pub const BATCH: usize = 100;
/// Tasks in one call that fills a queue.
pub const FILL: usize = 500;
/// Tasks that lie in the queue of the scenario `batch` for each batch in flight, so that no claim comes back half empty.
const BATCH_STOCK: usize = 625;
/// A batch is in flight for each so many clients of the other scenarios.
const CLIENTS_PER_BATCH: usize = 8;
/// Windows that the stock ended earlier say too little.
const WINDOW_MIN: f64 = 0.5;
/// How long one subject has to come to rest before the other's turn.
pub const REST: Duration = Duration::from_millis(300);

/// A name that no other task of this run has.
pub fn task_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("task-{:012}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Leasehold,
    Peer,
}

/// READY tasks that wait to be used up, and how fast that goes.
struct Stock {
    left: usize,
    per_second: f64,
}

struct Turn<'a, 'b> {
    lab: &'a mut Lab<'b>,
    scenario: Scenario,
    place: Place,
    plan: Plan,
    stocks: [Stock; 2],
    errors: [Errors; 2],
    /// What the steps of the latest round took, as (second, milliseconds).
    latest: [Vec<(f64, f64)>; 2],
}

pub async fn run(lab: &mut Lab<'_>, scenario: Scenario, plan: Plan, rounds: u32) -> Result<Outcome, Failure> {
    let place = lab.naive.queue(scenario.name()).await?;
    lab.leasehold.cap(scenario.name(), plan.clients).await?;
    // Whose new rows stand for the tasks that went through.
    let table = if scenario == Scenario::Submit { "live" } else { "ended" };
    let before = [lab.meter.rows(table).await?, lab.naive_meter.rows(table).await?];
    let stocks = [Stock { left: 0, per_second: 8_000.0 }, Stock { left: 0, per_second: 3_000.0 }];
    let mut turn = Turn { lab, scenario, place, plan, stocks, errors: Default::default(), latest: Default::default() };
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..rounds {
        let order = if round % 2 == 0 { [Subject::Leasehold, Subject::Peer] } else { [Subject::Peer, Subject::Leasehold] };
        for subject in order {
            let sample = turn.take(subject).await?;
            let who = if subject == Subject::Leasehold { "leasehold" } else { peer_name(scenario) };
            say!("bench: {} round {}/{rounds}, {who}: {}", scenario.name(), round + 1, line(&sample));
            samples[subject as usize].push(sample);
            tokio::time::sleep(REST).await;
        }
    }
    // The statistics of sessions at work lag by a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let Turn { errors, latest, .. } = turn;
    lab.naive.hand_in().await?;
    let ours = lab.meter.rows(table).await?.each(before[0]);
    let theirs = lab.naive_meter.rows(table).await?.each(before[1]);
    let singles: Vec<Single> = ours.into_iter().zip(theirs).map(|((name, ours), (_, theirs))| (name, [ours, theirs])).collect();
    let names = ["leasehold", peer_name(scenario)];
    let lines = names.iter().zip(latest).flat_map(|(name, values)| over_time(name, values.into_iter())).collect();
    let panel = Panel { title: format!("{}, latest round", scenario.name()), x: "s", y: "ms", log_x: false, lines };
    let outcome = Outcome::new(scenario.name(), names, &samples, &singles).with_errors(&errors);
    Ok(if scenario == Scenario::Pickup { outcome } else { outcome.with_panels(vec![panel]) })
}

fn peer_name(scenario: Scenario) -> &'static str {
    if scenario == Scenario::Batch { "ceiling" } else { "naive" }
}

impl Turn<'_, '_> {
    async fn take(&mut self, subject: Subject) -> Result<Sample, Failure> {
        match self.scenario {
            Scenario::Submit => self.submit(subject).await,
            Scenario::Lifecycle => self.lifecycle(subject).await,
            Scenario::Pickup => self.pickup(subject).await,
            Scenario::Batch => self.batch(subject).await,
            _ => Err("this is measured elsewhere".into()),
        }
    }

    async fn submit(&mut self, subject: Subject) -> Result<Sample, Failure> {
        let (errors, plan, place, queue) = (&self.errors[subject as usize], self.plan, self.place, self.scenario.name());
        let (leasehold, naive) = (self.lab.leasehold.clone(), self.lab.naive.clone());
        let meter = if subject == Subject::Leasehold { &mut self.lab.meter } else { &mut self.lab.naive_meter };
        let measured = match subject {
            Subject::Leasehold => {
                let step = move |client| {
                    let leasehold = leasehold.clone();
                    async move { leasehold.submit(client, queue, task_name()).await.map(|()| Step::Done(1)) }
                };
                closed_loop(meter, errors, plan, step).await?
            }
            Subject::Peer => {
                let step = move |client| {
                    let naive = naive.clone();
                    async move { naive.submit(client, place, &task_name()).await.map(|()| Step::Done(1)) }
                };
                closed_loop(meter, errors, plan, step).await?
            }
        };
        self.latest[subject as usize] = measured.over_time().collect();
        Ok(measured.sample())
    }

    async fn lifecycle(&mut self, subject: Subject) -> Result<Sample, Failure> {
        let time = (self.plan.warm_up + self.plan.window).as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a guess")]
        let wanted = (self.stocks[subject as usize].per_second * time * 1.3) as usize;
        self.fill(subject, wanted).await?;
        let (errors, plan, place, queue) = (&self.errors[subject as usize], self.plan, self.place, self.scenario.name());
        let (leasehold, naive) = (self.lab.leasehold.clone(), self.lab.naive.clone());
        let meter = if subject == Subject::Leasehold { &mut self.lab.meter } else { &mut self.lab.naive_meter };
        let measured = match subject {
            Subject::Leasehold => {
                let step = move |client| {
                    let leasehold = leasehold.clone();
                    async move { leasehold.lifecycle(client, queue).await }
                };
                closed_loop(meter, errors, plan, step).await?
            }
            Subject::Peer => {
                let step = move |client| {
                    let naive = naive.clone();
                    async move { naive.lifecycle(client, place).await }
                };
                closed_loop(meter, errors, plan, step).await?
            }
        };
        let stock = &mut self.stocks[subject as usize];
        stock.left = stock.left.saturating_sub(usize::try_from(measured.total)?);
        stock.per_second = measured.per_second();
        self.latest[subject as usize] = measured.over_time().collect();
        whole(&measured, plan)
    }

    async fn batch(&mut self, subject: Subject) -> Result<Sample, Failure> {
        let plan = Plan { clients: self.plan.clients.div_ceil(CLIENTS_PER_BATCH), ..self.plan };
        self.fill(subject, BATCH_STOCK * plan.clients).await?;
        let (errors, place, queue) = (&self.errors[subject as usize], self.place, self.scenario.name());
        let (leasehold, naive) = (self.lab.leasehold.clone(), self.lab.naive.clone());
        let meter = if subject == Subject::Leasehold { &mut self.lab.meter } else { &mut self.lab.naive_meter };
        let measured = match subject {
            Subject::Leasehold => {
                let step = move |client| {
                    let leasehold = leasehold.clone();
                    async move { leasehold.batch(client, queue).await }
                };
                closed_loop(meter, errors, plan, step).await?
            }
            Subject::Peer => {
                let step = move |client| {
                    let naive = naive.clone();
                    async move { ceiling::batch(&naive, client, place).await }
                };
                closed_loop(meter, errors, plan, step).await?
            }
        };
        self.latest[subject as usize] = measured.over_time().collect();
        whole(&measured, plan)
    }

    async fn pickup(&mut self, subject: Subject) -> Result<Sample, Failure> {
        let (errors, plan, place, queue) = (&self.errors[subject as usize], self.plan, self.place, self.scenario.name());
        let meter = if subject == Subject::Leasehold { &mut self.lab.meter } else { &mut self.lab.naive_meter };
        match subject {
            Subject::Leasehold => {
                let (producer, worker) = (self.lab.leasehold.clone(), self.lab.leasehold.clone());
                let submit = move |number, name| {
                    let producer = producer.clone();
                    async move { producer.submit(number, queue, name).await }
                };
                let work = move |number, board: pickup::Board| {
                    let worker = worker.clone();
                    async move {
                        for lease in worker.claim(number, queue, 1, Some(Duration::from_secs(10))).await? {
                            board.leased(&task_id(&lease));
                            worker.complete(number, lease).await?;
                        }
                        Ok(())
                    }
                };
                pickup::run(meter, errors, plan, submit, work).await
            }
            Subject::Peer => {
                let (producer, worker) = (self.lab.naive.clone(), self.lab.naive.clone());
                let others = producer.clients().saturating_sub(pickup::WORKERS).max(1);
                let submit = move |number: usize, name: String| {
                    let producer = producer.clone();
                    async move { producer.submit(pickup::WORKERS + number % others, place, &name).await }
                };
                let work = move |number, board: pickup::Board| {
                    let worker = worker.clone();
                    async move {
                        match worker.claim(number, place).await? {
                            Some(held) => {
                                board.leased(&held.task_id);
                                worker.complete(number, place, &held).await?;
                            }
                            None => tokio::time::sleep(pickup::POLL).await,
                        }
                        Ok(())
                    }
                };
                pickup::run(meter, errors, plan, submit, work).await
            }
        }
    }

    /// Fills a subject's queue up to `wanted` tasks.
    async fn fill(&mut self, subject: Subject, wanted: usize) -> Result<(), Failure> {
        let left = self.stocks[subject as usize].left;
        let Some(missing) = wanted.checked_sub(left).filter(|missing| *missing > 0) else { return Ok(()) };
        match subject {
            Subject::Leasehold => self.lab.leasehold.fill(self.scenario.name(), missing).await?,
            Subject::Peer => ceiling::fill(&self.lab.naive, self.place, missing).await?,
        }
        // Fillers work in whole parts, so there may be a few more.
        self.stocks[subject as usize].left = wanted;
        Ok(())
    }
}

pub fn whole(measured: &Measured, plan: Plan) -> Result<Sample, Failure> {
    if measured.seconds < WINDOW_MIN.min(plan.window.as_secs_f64()) {
        return Err(format!("the queue was empty after {:.2} s: too early to say anything", measured.seconds).into());
    }
    Ok(measured.sample())
}
