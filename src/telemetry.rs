//! Logs. Payloads never appear in them: nothing here or elsewhere formats one.

use tracing_subscriber::EnvFilter;

/// Starts logging to the standard error stream, by a tracing filter such as `info` or `leasehold=debug`.
pub fn start(filter: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init()
}
