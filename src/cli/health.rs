//! `leasehold health`: the health check of containers.

use std::time::Duration;

use clap::Args;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::Failure;
use super::connection::{connect, refused};

#[derive(Args)]
pub(super) struct Arguments {
    /// The server's gRPC address.
    #[arg(long, env = "LEASEHOLD_SERVER", default_value = "http://127.0.0.1:7233")]
    server: String,
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async move {
        let mut client = HealthClient::new(connect(&arguments.server, Duration::from_secs(3)).await?);
        let answer = client.check(HealthCheckRequest::default()).await.map_err(refused("the health check"))?.into_inner();
        if answer.status() == ServingStatus::Serving { Ok(()) } else { Err("the server does not serve".into()) }
    })
}
