//! A server: a process of the real binary.

use std::cell::RefCell;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tonic::transport::{Channel, Endpoint};

use super::pooler::{Bouncer, in_between};
use super::{cluster, eventually};

pub struct Server {
    child: Child,
    grpc: String,
    http: String,
    channel: Channel,
    ready: String,
    log: PathBuf,
    ended: Option<ExitStatus>,
    /// What stands between it and its database, in runs behind a pooler.
    pooler: Option<Bouncer>,
}

impl Server {
    pub async fn start(database_url: &str, arguments: &[&str]) -> Server {
        let (database_url, pooler) = in_between(database_url).await;
        let mut server = Server::run(&[&["--database-url", &database_url], arguments].concat()).await;
        server.pooler = pooler;
        server
    }

    /// With a private Postgres in this folder.
    pub async fn start_private(data_dir: &Path) -> Server {
        Server::run(&["--data-dir", data_dir.to_str().expect("a plain path")]).await
    }

    async fn run(arguments: &[&str]) -> Server {
        let log = cluster::folder().await.join(format!("server-{}.log", super::next_number()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]).args(arguments);
        command.env_remove("LEASEHOLD_DATABASE_URL");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log).expect("a log file"));
        // It dies with the thread that starts it, the test's, however that ends.
        // SAFETY: between fork and exec this makes one system call, which neither allocates nor locks.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let mut child = command.spawn().expect("the server starts");
        let stdout = tokio::process::ChildStdout::from_std(child.stdout.take().expect("it is piped")).expect("it is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let told = |log: &PathBuf| format!("the server did not get ready:\n{}", std::fs::read_to_string(log).unwrap_or_default());
        let ready = match tokio::time::timeout(super::PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            _ => panic!("{}", told(&log)),
        };
        let value = |name: &str| {
            let found = ready.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {ready:?}")).to_owned()
        };
        let (grpc, http) = (value("grpc="), value("http="));
        let channel = Endpoint::from_shared(format!("http://{grpc}")).expect("an address").connect_lazy();
        Server { child, grpc, http, channel, ready, log, ended: None, pooler: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Host and port of the gRPC service.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// Host and port of the HTTP service.
    pub fn http(&self) -> &str {
        &self.http
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A connection of its own, to be cut by dropping it. Its calls are requests on nobody else's.
    pub async fn connect(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.grpc)).expect("an address");
        endpoint.connect().await.expect("the server accepts connections")
    }

    /// What it said when it was ready.
    pub fn ready_line(&self) -> &str {
        &self.ready
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// It dies without a chance to do anything about it.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            drop(self.child.kill());
            self.ended = self.child.wait().ok();
        }
    }

    /// It is asked to stop.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Sends it a signal, e.g. SIGSTOP.
    pub fn signal(&self, signal: i32) {
        assert!(self.ended.is_none(), "the server has ended");
        // SAFETY: no memory is involved, and the child was not reaped yet, so its pid is its own.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), signal) }, 0);
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.stopped().await
    }

    /// Waits until it has ended.
    pub async fn stopped(&mut self) -> ExitStatus {
        let child = RefCell::new(&mut self.child);
        let status = eventually("the server ends", async || child.borrow_mut().try_wait().expect("it is our child")).await;
        self.ended = Some(status);
        status
    }

    pub fn killed_by(&self) -> Option<i32> {
        self.ended.and_then(|status| status.signal())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            eprintln!("the end of the log of server {}:\n{}", self.grpc, tail.join("\n"));
        }
    }
}
