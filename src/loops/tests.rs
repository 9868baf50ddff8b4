//! What the runner makes of loops that fail, hang, die, and are told to end.

use super::*;

/// What a loop of these tests does at its first tick.
enum Does {
    Dies,
    Fails,
    Works,
}

struct Plain(Does);
struct Needed(Does);

fn done(does: &Does) -> Tick {
    match does {
        Does::Dies => panic!("as a fault of ours would"),
        Does::Fails => Tick::Failed,
        Does::Works => Tick::Rest(SILENCE),
    }
}

impl Loop for Plain {
    const NAME: &'static str = "plain";

    async fn tick(&mut self) -> Tick {
        done(&self.0)
    }
}

impl Loop for Needed {
    const NAME: &'static str = "needed";
    const MUST_WORK: bool = true;

    async fn tick(&mut self) -> Tick {
        done(&self.0)
    }
}

/// A server that serves, as far as its loops are concerned.
fn town() -> (Pulse, watch::Receiver<bool>, CancellationToken) {
    let (serving, serves) = watch::channel(true);
    (Pulse::new(serving), serves, CancellationToken::new())
}

/// The sign of life of this loop is from so long ago.
fn long_ago(pulse: &Pulse, name: &'static str, ago: Duration) {
    let mut loops = pulse.0.loops.lock().unwrap();
    let Some(Heart::Beats { last, .. }) = loops.get_mut(name) else { panic!("{name} does not live") };
    *last = last.checked_sub(ago).expect("the machine has been up for longer");
}

#[tokio::test]
async fn a_loop_that_has_died_is_never_fit_again_and_the_server_is_told_at_once() {
    let (pulse, mut serves, shutdown) = town();
    assert!(tokio::spawn(run(Plain(Does::Dies), pulse.clone(), shutdown.clone())).await.is_err(), "it panics");
    assert_eq!(pulse.silent(), ["plain"]);
    assert!(!*serves.borrow_and_update(), "nobody else need be alive to say so");
    // What is over when the server ends is not what died.
    shutdown.cancel();
    assert_eq!(pulse.silent(), ["plain"]);
}

#[tokio::test]
async fn a_loop_that_was_told_to_end_has_not_died() {
    let (pulse, serves, shutdown) = town();
    let running = tokio::spawn(run(Plain(Does::Works), pulse.clone(), shutdown.clone()));
    shutdown.cancel();
    running.await.expect("it ends");
    assert_eq!(pulse.silent(), [""; 0]);
    assert!(*serves.borrow());
}

#[tokio::test]
async fn a_loop_that_must_work_is_unfit_when_it_fails_for_long_and_another_when_it_hangs() {
    let (pulse, _serves, shutdown) = town();
    let loops = [
        tokio::spawn(run(Needed(Does::Fails), pulse.clone(), shutdown.clone())),
        tokio::spawn(run(Plain(Does::Works), pulse.clone(), shutdown.clone())),
    ];
    while pulse.0.loops.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(pulse.silent(), [""; 0], "they have only just begun");
    long_ago(&pulse, "needed", SILENCE + STUCK);
    long_ago(&pulse, "plain", SILENCE);
    assert_eq!(pulse.silent(), ["needed"]);
    long_ago(&pulse, "plain", HANGS);
    assert_eq!(pulse.silent().len(), 2);
    shutdown.cancel();
    for running in loops {
        running.await.expect("it ends");
    }
}
