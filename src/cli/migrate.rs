//! `leasehold migrate`.

use clap::Args;

use super::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    /// The Postgres database to bring to this version's schema.
    #[arg(long, env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async move { Ok(crate::store::migrate(&arguments.database_url).await?) })
}
