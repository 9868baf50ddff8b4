//! Configuration: flags = environment (`LEASEHOLD_*`) = file, in that order of precedence. One table in the README.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// What `leasehold serve` can be told.
#[derive(Args, Clone, Debug)]
pub struct ServeConfig {
    /// Address of the gRPC port; port 0 takes a free one.
    #[arg(long, env = "LEASEHOLD_LISTEN", default_value = "127.0.0.1:7233")]
    pub listen: SocketAddr,
    /// Address of the HTTP port (health); port 0 takes a free one.
    #[arg(long, env = "LEASEHOLD_HTTP_LISTEN", default_value = "127.0.0.1:7280")]
    pub http_listen: SocketAddr,
    /// The Postgres database to use. Without it the server runs a private Postgres in its data directory.
    #[arg(long, env = "LEASEHOLD_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Where the private Postgres lives. Default: `leasehold` in the user's data folder, /var/lib/leasehold for root.
    #[arg(long, env = "LEASEHOLD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// What to log, as a tracing filter, e.g. `info` or `leasehold=debug`.
    #[arg(long, env = "LEASEHOLD_LOG", default_value = "info")]
    pub log: String,
    /// Serve on other addresses than loopback although there are no credentials.
    #[arg(long, env = "LEASEHOLD_INSECURE")]
    pub insecure: bool,
    /// How long calls and streams may take to end when the server is told to stop, in seconds.
    #[arg(long, env = "LEASEHOLD_GRACE_SECONDS", default_value_t = 20)]
    pub grace_seconds: u64,
    /// Largest payload of a task, in bytes; at most 1 MiB.
    #[arg(long, env = "LEASEHOLD_PAYLOAD_LIMIT", default_value_t = crate::domain::limits::PAYLOAD_BYTES)]
    pub payload_limit: usize,
    /// Check the database's schema but leave its migration to `leasehold migrate`.
    #[arg(long, env = "LEASEHOLD_NO_MIGRATE")]
    pub no_migrate: bool,
    /// Connections to the database for the write path.
    #[arg(long, env = "LEASEHOLD_WRITE_CONNECTIONS", default_value_t = 12)]
    pub write_connections: u32,
    /// Connections to the database for reads.
    #[arg(long, env = "LEASEHOLD_READ_CONNECTIONS", default_value_t = 8)]
    pub read_connections: u32,
    /// Watches that may be open at once.
    #[arg(long, env = "LEASEHOLD_MAX_WATCHERS", default_value_t = crate::domain::limits::WATCHERS)]
    pub max_watchers: usize,
    /// How old a connection may grow, in seconds: then its client is told to open another one, its calls may finish, and its watches end so
    /// that they can be resumed. Spreads clients over servers behind a balancer of connections. Default: as old as it likes.
    #[arg(long, env = "LEASEHOLD_MAX_CONNECTION_AGE_SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub max_connection_age_seconds: Option<u32>,
    /// Calls that may be in flight at once; Claims and GetTasks that wait, and watches, are counted apart.
    #[arg(long, env = "LEASEHOLD_MAX_IN_FLIGHT", default_value_t = 4_096)]
    pub max_in_flight: usize,
    /// Claims and GetTasks that may wait at once.
    #[arg(long, env = "LEASEHOLD_MAX_WAITING", default_value_t = 20_000)]
    pub max_waiting: usize,
    /// Calls of one connection that may be in flight at once, and as many that may wait.
    #[arg(long, env = "LEASEHOLD_MAX_PER_CONNECTION", default_value_t = 1_000)]
    pub max_per_connection: usize,
    /// A TOML file with any of these settings, by the flags' names (`http-listen = "127.0.0.1:0"`).
    #[arg(long, env = "LEASEHOLD_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("can't read {path}: {error}")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{path} is not a TOML table of settings: {error}")]
    NotSettings { path: PathBuf, error: String },
    #[error(
        "{flag} {address} is not a loopback address: without credentials everybody who reaches it may do anything. Say --insecure if that is meant"
    )]
    NotLoopback { flag: &'static str, address: SocketAddr },
    #[error("--payload-limit may be at most {} bytes", crate::domain::limits::PAYLOAD_BYTES_MAX)]
    PayloadLimit,
    #[error(
        "there is no folder for the data of the private Postgres: say --data-dir, or --database-url for a database of your own"
    )]
    NoDataDir,
}

impl ServeConfig {
    /// Refuses what must not be served.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (flag, address) in [("--listen", self.listen), ("--http-listen", self.http_listen)] {
            if !self.insecure && !address.ip().is_loopback() {
                return Err(ConfigError::NotLoopback { flag, address });
            }
        }
        if self.payload_limit > crate::domain::limits::PAYLOAD_BYTES_MAX { Err(ConfigError::PayloadLimit) } else { Ok(()) }
    }

    /// Where the private Postgres lives.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigError> {
        if let Some(dir) = &self.data_dir {
            return Ok(dir.clone());
        }
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if crate::embedded::running_as_root() {
            return Ok(PathBuf::from("/var/lib/leasehold"));
        }
        let folder = of("XDG_DATA_HOME").or_else(|| of("HOME").map(|home| home.join(".local/share")));
        folder.map(|folder| folder.join("leasehold")).ok_or(ConfigError::NoDataDir)
    }
}

/// Adds the settings of the configuration file to the arguments of `leasehold serve`: those that neither a flag nor the environment
/// gives.
pub fn with_file(arguments: Vec<OsString>) -> Result<Vec<OsString>, ConfigError> {
    let serves = arguments.get(1).is_some_and(|command| command == "serve");
    let Some(path) = file_of(&arguments).filter(|_| serves) else { return Ok(arguments) };
    let text = std::fs::read_to_string(&path).map_err(|error| ConfigError::Unreadable { path: path.clone(), error })?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| ConfigError::NotSettings { path: path.clone(), error: error.to_string() })?;
    let mut arguments = arguments;
    for (name, value) in table {
        let flag = format!("--{name}");
        let given = |argument: &OsString| {
            argument.to_str().is_some_and(|text| text == flag || text.strip_prefix(&flag).is_some_and(|rest| rest.starts_with('=')))
        };
        let variable = format!("LEASEHOLD_{}", name.replace('-', "_").to_uppercase());
        if arguments.iter().any(given) || std::env::var_os(variable).is_some() {
            continue;
        }
        match value {
            toml::Value::Boolean(false) => {}
            toml::Value::Boolean(true) => arguments.push(flag.into()),
            toml::Value::String(text) => arguments.push(format!("{flag}={text}").into()),
            toml::Value::Integer(number) => arguments.push(format!("{flag}={number}").into()),
            _ => {
                return Err(ConfigError::NotSettings {
                    path,
                    error: format!("{name} is neither a text, a number nor a truth value"),
                });
            }
        }
    }
    Ok(arguments)
}

fn file_of(arguments: &[OsString]) -> Option<PathBuf> {
    let texts: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let flag = texts.iter().enumerate().find_map(|(i, text)| match text.strip_prefix("--config") {
        Some("") => texts.get(i + 1).map(PathBuf::from),
        Some(rest) => rest.strip_prefix('=').map(PathBuf::from),
        None => None,
    });
    flag.or_else(|| std::env::var_os("LEASEHOLD_CONFIG").map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    enum Command {
        Serve(Box<ServeConfig>),
    }

    fn parse(arguments: &[&str]) -> ServeConfig {
        let arguments = ["leasehold", "serve"].iter().chain(arguments).map(OsString::from).collect();
        let Command::Serve(serve) =
            Command::try_parse_from(with_file(arguments).unwrap()).unwrap_or_else(|error| panic!("{error}"));
        *serve
    }

    #[test]
    fn other_commands_know_nothing_of_the_file() {
        let arguments: Vec<OsString> = ["leasehold", "health", "--config", "/nowhere"].iter().map(OsString::from).collect();
        assert_eq!(with_file(arguments.clone()).unwrap(), arguments);
    }

    #[test]
    fn a_file_gives_what_flags_do_not() {
        let path = std::env::temp_dir().join(format!("leasehold-config-{}.toml", std::process::id()));
        std::fs::write(&path, "http-listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\ngrace-seconds = 3\ninsecure = true\n")
            .unwrap();
        let serve = parse(&["--config", path.to_str().unwrap(), "--listen=127.0.0.1:9"]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((serve.listen.port(), serve.http_listen.port(), serve.grace_seconds, serve.insecure), (9, 1, 3, true));
    }

    #[test]
    fn only_loopback_is_served_without_being_told() {
        assert!(parse(&[]).check().is_ok());
        assert!(parse(&["--listen", "[::1]:0"]).check().is_ok());
        assert!(matches!(parse(&["--listen", "0.0.0.0:1"]).check(), Err(ConfigError::NotLoopback { .. })));
        assert!(matches!(parse(&["--http-listen", "10.0.0.1:1"]).check(), Err(ConfigError::NotLoopback { .. })));
        assert!(parse(&["--listen", "0.0.0.0:1", "--insecure"]).check().is_ok());
    }
}
