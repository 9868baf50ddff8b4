//! Places are taken, exchanged and given back to the last one.

use super::*;

const LIMITS: Limits = Limits { busy: 3, waiting: 2, per_connection: 2 };

fn calls() -> Arc<Calls> {
    InFlightLayer::new(LIMITS).0
}

fn peer(port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A call's extensions with its place, if there is one.
fn call(calls: &Arc<Calls>, port: u16) -> Result<Extensions, Refusal> {
    calls.enter(peer(port), Kind::Busy)?;
    let mut extensions = Extensions::new();
    extensions.insert(Arc::new(Place { calls: calls.clone(), peer: peer(port), kind: Mutex::new(Kind::Busy) }));
    Ok(extensions)
}

#[test]
fn one_too_many_is_refused_and_a_place_that_was_left_is_taken_again() {
    let calls = calls();
    let own = [call(&calls, 1), call(&calls, 1)];
    assert!(own.iter().all(Result::is_ok));
    assert_eq!(call(&calls, 1).err(), Some(Refusal::Overloaded), "two of one connection");
    let other = call(&calls, 2);
    assert!(other.is_ok());
    assert_eq!(call(&calls, 3).err(), Some(Refusal::Overloaded), "three in all");
    drop(own);
    assert!(call(&calls, 3).is_ok() && call(&calls, 1).is_ok());
    drop(other);
    let counts = calls.counts();
    assert_eq!((counts.0.busy, counts.0.waiting, counts.1.len()), (0, 0, 0), "nothing is remembered of who has gone");
}

#[test]
fn who_waits_leaves_room_for_the_busy_and_the_busy_for_who_waits() {
    let calls = calls();
    let waiting: Vec<_> = (1..=2).map(|port| call(&calls, port).expect("a place")).collect();
    for extensions in &waiting {
        assert_eq!(Place::waits(extensions), Ok(()));
        assert_eq!(Place::waits(extensions), Ok(()), "it waits already");
    }
    let busy: Vec<_> = (1..=3).map(|port| call(&calls, port).expect("a place")).collect();
    assert_eq!(Place::waits(&busy[0]), Err(Refusal::Overloaded));
    drop(waiting);
    assert_eq!(Place::waits(&busy[0]), Ok(()));
    assert!(call(&calls, 9).is_ok());
    drop(busy);
    let counts = calls.counts();
    assert_eq!((counts.0.busy, counts.0.waiting, counts.1.len()), (0, 0, 0));
}
