//! Odd input: whatever bytes come, the answer is one that the contract knows, nobody else is hurt, and the server goes on.
//!
//! `tests/data/odd/` keeps calls that were once a trouble, or that are worth to be made each time: a comment that says why, the method, the
//! body in hexadecimal. A property that fails prints its call as such a file.

mod call;
mod choices;
mod contract;
mod counters;
mod edges;
mod lore;
mod times;
mod values;

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tonic::transport::Channel;

use crate::town::{LEASE, Town, eventually};
use call::Call;
use choices::Choices;
use contract::Contract;
use lore::Lore;

/// Calls that a property makes in a run of the whole suite.
const CALLS: u32 = 1_000;
/// After so many calls the clock moves on, so that leases end and retries come.
const CALLS_PER_STEP: u32 = 40;

/// A town that odd calls are made to.
struct Target {
    town: Town,
    channel: Channel,
    contract: Contract,
    lore: Lore,
    calls: u32,
    accepted: u32,
}

impl Target {
    async fn start() -> Target {
        let town = Town::start().await;
        // What the calls that are kept speak of.
        town.spec("t-1").queue("odd").submit().await;
        let channel = town.server(0).connect().await;
        Target { town, channel, contract: Contract::read(), lore: Lore::default(), calls: 0, accepted: 0 }
    }

    async fn judge(&mut self, call: &Call) -> Result<(), String> {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_PER_STEP) {
            self.town.clock.advance(LEASE / 2).await;
        }
        self.accepted += u32::from(call.judged(&self.channel, &self.contract, &mut self.lore).await?.is_none());
        Ok(())
    }

    /// Nothing has gone wrong behind the answers either, and who comes next is served.
    async fn unharmed(&self) {
        let town = &self.town;
        town.submit("afterwards").await;
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), "afterwards");
        lease.complete().await.applied();
        let serves = async || town.server(0).http_status("/readyz").await.filter(|status| *status == 200);
        eventually("the server is ready", serves).await;
        let log = town.server(0).log();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("(code ") || line.contains("panicked")).collect();
        assert!(told.is_empty(), "the database or the server complained:\n{}", told.join("\n"));
        town.audit().await;
    }

    /// The calls that are kept, before any others.
    async fn kept(&mut self) -> usize {
        let calls = kept_calls();
        for (name, call) in &calls {
            self.judge(call).await.unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        calls.len()
    }
}

fn kept_calls() -> Vec<(String, Call)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/odd");
    let files = std::fs::read_dir(folder).expect("there are calls that are kept").map(|entry| entry.expect("a file").path());
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a text");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), Call::parse(&text))
    };
    let mut calls: Vec<_> = files.map(read).collect();
    calls.sort_by(|(one, _), (other, _)| one.cmp(other));
    calls
}

/// Makes calls of what `strategy` gives: as many as a run of the suite has time for, or for as long as `LEASEHOLD_TEST_SECONDS` says.
fn make_calls<S: Strategy>(strategy: &S, call: impl Fn(&Target, &S::Value) -> Call) -> u32 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut target = runtime.block_on(Target::start());
    assert!(runtime.block_on(target.kept()) > 0, "no call is kept");
    let target = std::cell::RefCell::new(target);
    let seconds = std::env::var("LEASEHOLD_TEST_SECONDS").ok().map(|told| told.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    loop {
        // A call that is made again, or shrunk, is made to another town than before; it is printed instead, to be kept.
        let config = Config { cases: CALLS, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        let made = TestRunner::new(config).run(strategy, |value| {
            let mut target = target.borrow_mut();
            let call = call(&target, &value);
            runtime.block_on(target.judge(&call)).map_err(TestCaseError::fail)
        });
        if let Err(error) = made {
            panic!("{error}\n{}", target.borrow().town.server(0).log());
        }
        if Instant::now() >= end {
            break;
        }
    }
    let target = target.into_inner();
    runtime.block_on(target.unharmed());
    println!("{} calls, {} of them accepted", target.calls, target.accepted);
    target.accepted
}

#[test]
fn whatever_bytes_come_the_answer_is_one_of_the_contract_and_the_server_goes_on() {
    let strategy = (any::<usize>(), any::<bool>(), vec(any::<u8>(), 0..300));
    make_calls(&strategy, |target, (method, framed, bytes)| {
        let methods = &target.contract.methods;
        let method = &methods[method % methods.len()].name;
        if *framed { Call::new(method, bytes) } else { Call { method: method.clone(), body: bytes.clone() } }
    });
}

#[test]
fn whatever_a_field_says_the_answer_is_one_of_the_contract_and_the_server_goes_on() {
    let strategy = (any::<usize>(), vec(any::<u8>(), 0..400));
    let accepted = make_calls(&strategy, |target, (method, bytes)| {
        let methods = &target.contract.methods;
        let method = &methods[method % methods.len()];
        let message = choices::message(&target.contract, &method.input, &mut Choices::of(bytes), &target.lore);
        Call::new(&method.name, &message)
    });
    // Else nothing came past the door, and the engine was not asked.
    assert!(accepted >= CALLS / 10, "only {accepted} calls were accepted");
}

#[tokio::test]
async fn what_is_no_text_is_refused_in_every_field_of_every_request() {
    let mut target = Target::start().await;
    let mut fields = 0;
    for method in (0..target.contract.methods.len()).filter(|at| !target.contract.methods[*at].name.starts_with("Schedule")) {
        let (name, input) = {
            let method = &target.contract.methods[method];
            (method.name.clone(), method.input.clone())
        };
        for (path, numbers) in target.contract.texts(&input, 3) {
            for bad in edges::NO_TEXTS {
                let message = numbers.iter().rev().fold(bad.to_vec(), |inner, number| {
                    let mut outer = Vec::new();
                    contract::put_bytes(*number, &inner, &mut outer);
                    outer
                });
                let call = Call::new(&name, &message);
                let answer = call.judged(&target.channel, &target.contract, &mut target.lore).await;
                assert_eq!(answer, Ok(Some(tonic::Code::InvalidArgument)), "{name}: {path}");
            }
            fields += 1;
        }
    }
    assert!(fields > 100, "the contract has more texts than {fields}");
    target.unharmed().await;
}

#[tokio::test]
async fn a_body_that_is_no_message_is_refused_and_the_connection_goes_on() {
    let mut target = Target::start().await;
    assert!(target.kept().await > 0);
    for method in ["TaskService/Submit", "TaskService/Watch", "WorkerService/Claim", "AdminService/ListQueues"] {
        let frame = |head: [u8; 5], rest: &[u8]| Call { method: method.to_owned(), body: [&head[..], rest].concat() };
        let whole = frame([0, 0, 0, 0, 0], &[]);
        for call in [
            frame([0, 0, 0, 0, 9], &[1, 2, 3]),
            frame([0, 0xff, 0xff, 0xff, 0xff], &[]),
            frame([0, 0, 0x80, 0, 1], &[0; 100]),
            frame([1, 0, 0, 0, 3], &[1, 2, 3]),
            frame([7, 0, 0, 0, 0], &[]),
            Call { method: method.to_owned(), body: Vec::new() },
            Call { method: method.to_owned(), body: vec![0, 0] },
            Call { method: method.to_owned(), body: [whole.body.clone(), whole.body].concat() },
        ] {
            target.judge(&call).await.unwrap_or_else(|why| panic!("{method}: {why}"));
        }
    }
    target.unharmed().await;
}
