//! How commands reach a server, and how they say that they can't or that it said no.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::Failure;

const CONNECT: Duration = Duration::from_secs(3);

/// A connection to the server at `address`, e.g. `http://127.0.0.1:7233` (the scheme may be left out), whose calls take at most
/// `patience`. If nobody answers, the failure tells how to start one.
pub(super) async fn connect(address: &str, patience: Duration) -> Result<Channel, Failure> {
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let endpoint =
        Endpoint::from_shared(url).map_err(|_| format!("{address} is not a server's address, as in http://127.0.0.1:7233"))?;
    endpoint.connect_timeout(CONNECT).timeout(patience).connect().await.map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        format!("no server answers at {address} ({cause}): start one with `leasehold serve`, or name another with --server").into()
    })
}

/// The reason that the server gave with a refusal. Empty: none.
pub(super) fn reason(status: &Status) -> String {
    status.get_details_error_info().map_or_else(String::new, |info| info.reason)
}

/// A refusal that a command can't go on after.
pub(super) fn refused(call: &'static str) -> impl FnOnce(Status) -> Failure {
    move |status| match (status.code(), reason(&status)) {
        (Code::Unimplemented, _) => format!("this server does not offer {call}").into(),
        (code, reason) if reason.is_empty() => format!("{call} failed: {code:?}: {}", status.message()).into(),
        (_, reason) => format!("{call} was refused: {reason}: {}", status.message()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(address: &str) -> String {
        let connected = super::super::block_on(connect(address, CONNECT));
        connected.err().map_or_else(String::new, |failure| failure.to_string())
    }

    #[test]
    fn who_finds_no_server_is_told_how_to_start_one() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_or(1, |at| at.port());
        for address in [format!("http://127.0.0.1:{port}"), format!("127.0.0.1:{port}")] {
            let said = fails(&address);
            assert!(said.starts_with(&format!("no server answers at {address} (")), "{said}");
            assert!(said.contains("leasehold serve"), "{said}");
        }
        assert!(fails("http://").contains("is not a server's address"));
    }
}
