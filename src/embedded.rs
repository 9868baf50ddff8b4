//! A private Postgres: finds the binaries, creates a data directory, starts `postgres` on it and stops it.
//!
//! For a server without a database of its own, and for test runs. It listens on a Unix socket in a folder of mode 0700 and nowhere
//! else; whoever may enter that folder is let in as `leasehold`. Beside the data directory `pg` lie `pg.log` (what the server says;
//! also the lock, see `lock`) and, during a first start, `pg.new`. On Linux the server shuts down in order when the process that
//! started it dies, however it dies; elsewhere it stays, and the next start says so. Everything blocks: use `spawn_blocking`.
//!
//! Deliberately not here: downloading or upgrading Postgres, creating databases and roles (SQL can), rotating the log, TCP.

#![allow(unsafe_code, reason = "what happens between fork and exec, and signals, have no safe way")]

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, sync::mpsc};

const SOCKET: &str = ".s.PGSQL.5432";
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 }; // bytes
const POLL: Duration = Duration::from_millis(2);
const READY_WAIT: Duration = Duration::from_secs(300); // recovery after a crash
const LOCK_WAIT: Duration = Duration::from_secs(3); // the orphans of a killed server may take 2 s
const FAST_WAIT: Duration = Duration::from_secs(20); // the shutdown checkpoint
const QUICK_WAIT: Duration = Duration::from_secs(7); // Postgres gives its children 5 s

/// Where Debian, PGDG's RPMs and Homebrew keep one folder per major version, up to its number.
const VERSIONED: [&str; 4] = ["/usr/lib/postgresql/", "/usr/pgsql-", "/opt/homebrew/opt/postgresql@", "/usr/local/opt/postgresql@"];

#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error("no Postgres {0} in {1:?}: `apt-get install postgresql`, or let LEASEHOLD_POSTGRES_BIN name a folder that has it")]
    NotInstalled(String, Vec<PathBuf>),
    #[error("root runs Postgres as the user `postgres`, who is missing here: `useradd --system postgres`")]
    NoUser,
    #[error("uid {0}, who runs Postgres, may not enter {1}: `chmod o+x` (or `chown`) it, or choose another place")]
    NotEnterable(u32, PathBuf),
    #[error("another server is running on {0} or creating it (postmaster.pid says {1})")]
    InUse(PathBuf, i32),
    #[error("{0}; the end of {1}:\n{2}")]
    Failed(&'static str, PathBuf, String),
    #[error("cannot {0} {1}: {2}")]
    Io(&'static str, PathBuf, #[source] io::Error),
}

fn cannot(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EmbeddedError {
    move |error| EmbeddedError::Io(action, path.to_owned(), error)
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Reused, or created when absent or empty: beside its place, so in a writable parent, and not onto a mount point.
    pub data_dir: PathBuf,
    /// The folder with `postgres` and `initdb`; `None` looks where they usually are.
    pub bin_dir: Option<PathBuf>,
    /// `false` turns fsync off: a power cut may cost the data directory. For tests only.
    pub durable: bool,
    /// Names and values as in postgresql.conf; they win over the defaults here, not over "socket only".
    pub settings: Vec<(String, String)>,
}

/// A private Postgres server run for one Leasehold server or one test run. Dropping it stops it.
#[derive(Debug)]
pub struct Cluster {
    pid: i32,
    /// Runs as long as the process: who asks it first signals no pid that has become a stranger's.
    keeper: JoinHandle<io::Result<ExitStatus>>,
    socket_dir: PathBuf,
}

impl Cluster {
    /// Creates or reuses the data directory and returns once the server is ready (a standby: for reads): at first after a second or so,
    /// later after 40 ms.
    pub fn start(options: &Options) -> Result<Cluster, EmbeddedError> {
        let absolute = std::path::absolute(&options.data_dir).map_err(cannot("find", &options.data_dir))?;
        let data_dir = absolute.canonicalize().unwrap_or(absolute);
        let parent = data_dir.parent().unwrap_or(&data_dir);
        fs::create_dir_all(parent).map_err(cannot("create", parent))?;
        let log_path = data_dir.with_added_extension("log");
        let mut append = OpenOptions::new();
        append.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let log = append.open(&log_path).map_err(cannot("open", &log_path))?;
        lock(&log, &data_dir)?;
        let version = match fs::read_to_string(data_dir.join("PG_VERSION")) {
            Ok(version) => Some(version.trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(cannot("read PG_VERSION in", &data_dir)(error)),
        };
        let bin_dir = find_binaries(options.bin_dir.clone(), version.as_deref())?;
        let launch = Launch { account: account(&data_dir)?, data_dir, bin_dir, log_path, log };
        version.map_or_else(|| launch.create(options.durable), |_| launch.clear_leftovers())?;
        launch.run(options)
    }

    /// The URL of one of its databases, for sqlx and libpq alike. `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        let (name, folder) = (percent(database), percent(&self.socket_dir.to_string_lossy()));
        format!("postgres://leasehold@localhost:5432/{name}?host={folder}&sslmode=disable")
    }

    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Shuts down fast (open transactions roll back), harsher when that takes too long. Does nothing when it has ended already.
    pub fn stop(&mut self) {
        let steps = [(libc::SIGINT, FAST_WAIT), (libc::SIGQUIT, QUICK_WAIT), (libc::SIGKILL, QUICK_WAIT)];
        let _ = steps.into_iter().any(|(signal, wait)| self.end(signal, wait));
        let _ = fs::remove_dir(&self.socket_dir); // only a short one is empty now; the data directory never is
    }

    /// A crash, for tests of recovery: SIGKILL to the postmaster. Then `start` again.
    pub fn kill(&mut self) {
        self.end(libc::SIGKILL, QUICK_WAIT);
    }

    fn end(&self, signal: i32, wait: Duration) -> bool {
        if !self.keeper.is_finished() {
            // SAFETY: no memory is involved, and the keeper, who reaps the child, still runs.
            unsafe { libc::kill(self.pid, signal) };
        }
        self.ended_within(wait)
    }

    fn ended_within(&self, wait: Duration) -> bool {
        let begin = Instant::now();
        while !self.keeper.is_finished() && begin.elapsed() < wait {
            thread::sleep(POLL);
        }
        self.keeper.is_finished()
    }

    /// Spawns from a thread that lives as long as the child: the parent-death signal fires when the forking *thread* ends.
    fn spawn(mut command: Command, socket_dir: PathBuf) -> io::Result<Cluster> {
        let (started, starting) = mpsc::channel();
        let keeper = thread::Builder::new().name("postgres-keeper".into()).spawn(move || {
            let spawned = command.spawn();
            drop(command); // and our copies of the log with it: only the server shall hold its lock
            let mut child = spawned?;
            let _ = started.send(child.id().cast_signed());
            child.wait()
        })?;
        match starting.recv() {
            Ok(pid) => Ok(Cluster { pid, keeper, socket_dir }),
            Err(_) => Err(keeper.join().expect("spawning does not panic").expect_err("only an error sends no pid")),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether this process runs as root, whose private server runs as somebody else.
pub fn running_as_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Uid and gid for Postgres, which refuses to be root: the data directory's, else those of `postgres`. `None`: our own.
fn account(data_dir: &Path) -> Result<Option<(u32, u32)>, EmbeddedError> {
    match fs::metadata(data_dir) {
        _ if !running_as_root() => return Ok(None),
        Ok(data) if data.uid() != 0 => return Ok(Some((data.uid(), data.gid()))),
        _ => {}
    }
    let (mut buffer, mut found) = ([0; 16384], std::ptr::null_mut());
    // SAFETY: passwd is plain data, all pointers outlive the call, and only integers of the answer are read.
    let ids = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        libc::getpwnam_r(c"postgres".as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found);
        (entry.pw_uid, entry.pw_gid)
    };
    if found.is_null() { Err(EmbeddedError::NoUser) } else { Ok(Some(ids)) }
}

/// Locks the data directory by its log, which every process of the server inherits as stderr: the kernel holds the lock until the
/// last one is gone, orphans of a killed postmaster included, in whatever container they run. A pid file can promise none of this.
fn lock(log: &File, data_dir: &Path) -> Result<(), EmbeddedError> {
    let begin = Instant::now();
    loop {
        match log.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(cannot("lock the log of", data_dir)(error)),
            Err(TryLockError::WouldBlock) => thread::sleep(POLL),
        }
        let (pid, status) = pid_file(data_dir).unwrap_or_default();
        let patience = if status == "stopping" { FAST_WAIT } else { LOCK_WAIT };
        if begin.elapsed() > patience {
            return Err(EmbeddedError::InUse(data_dir.to_owned(), pid));
        }
    }
}

/// What one start works with.
struct Launch {
    data_dir: PathBuf,
    bin_dir: PathBuf,
    account: Option<(u32, u32)>,
    log_path: PathBuf,
    log: File,
}

impl Launch {
    /// Creates the data directory beside its place, then renames it: a crash half-way leaves nothing half-made.
    fn create(&self, durable: bool) -> Result<(), EmbeddedError> {
        let staging = self.data_dir.with_added_extension("new");
        let _ = fs::remove_dir_all(&staging);
        self.make_dir(&staging)?;
        let mut command = self.command("initdb", &staging, &staging)?;
        command.args(["-U", "leasehold", "-E", "UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]);
        let status = command.arg(if durable { "--data-checksums" } else { "--no-sync" }).status();
        let status = status.map_err(|error| self.not_run(&staging, error))?;
        if !status.success() {
            return Err(self.failed("initdb failed"));
        }
        fs::rename(&staging, &self.data_dir).map_err(cannot("move the new data directory to", &self.data_dir))?;
        let parent = self.data_dir.parent().filter(|_| durable).map_or(Ok(()), |parent| File::open(parent)?.sync_all());
        parent.map_err(cannot("sync the folder of", &self.data_dir))
    }

    fn make_dir(&self, folder: &Path) -> Result<(), EmbeddedError> {
        let (uid, gid) = self.account.unzip();
        DirBuilder::new().mode(0o700).create(folder).and_then(|()| lchown(folder, uid, gid)).map_err(cannot("create", folder))
    }

    /// Removes the lock files of a killed server, which Postgres believes while *any* process has their pid: a zombie or, in a new
    /// container, ourselves. We hold the lock, so only a server started by hand can be alive; the data directory would be its
    /// working directory. Where we may not look, Postgres judges.
    fn clear_leftovers(&self) -> Result<(), EmbeddedError> {
        let Some((pid, _)) = pid_file(&self.data_dir) else { return Ok(()) };
        match fs::read_link(format!("/proc/{pid}/cwd")) {
            Ok(folder) if folder == self.data_dir => return Err(EmbeddedError::InUse(folder, pid)),
            Err(error) if error.kind() != ErrorKind::NotFound || cfg!(not(target_os = "linux")) => return Ok(()),
            _ => {}
        }
        let _ = fs::remove_file(self.data_dir.join(format!("{SOCKET}.lock")));
        let _ = fs::remove_file(self.data_dir.join("postmaster.pid"));
        Ok(())
    }

    /// Starts `postgres` itself; it is ready when its own pid file says so.
    fn run(&self, options: &Options) -> Result<Cluster, EmbeddedError> {
        let folder = socket_dir(&self.data_dir, &env::temp_dir());
        if folder != self.data_dir {
            self.make_dir(&folder)?;
        }
        let mut command = self.command("postgres", &self.data_dir, &folder)?;
        let hasty = if options.durable { "" } else { "-c fsync=off -c full_page_writes=off" };
        command.args(format!("-c max_connections=100 -c shared_buffers=128MB {hasty}").split_whitespace());
        command.args(options.settings.iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]));
        // The last of two settings wins. A logging collector would take over stderr, and our lock with it.
        command.args("-c listen_addresses= -c port=5432 -c unix_socket_permissions=0700 -c logging_collector=off".split(' '));
        command.arg("-c").arg(format!("unix_socket_directories=\"{}\"", folder.to_string_lossy().replace('"', "\"\"")));
        let cluster = Cluster::spawn(command, folder.clone()).map_err(|error| self.not_run(&folder, error))?;
        let (pid, begin) = (cluster.pid, Instant::now());
        while !cluster.ended_within(POLL) && begin.elapsed() < READY_WAIT {
            if pid_file(&self.data_dir).is_some_and(|(its, status)| its == pid && ["ready", "standby"].contains(&&*status)) {
                return Ok(cluster);
            }
        }
        Err(self.failed("postgres did not become ready"))
    }

    /// A program as the right user, in a folder that user must be able to enter, without what it heeds of our environment.
    fn command(&self, program: &str, data_dir: &Path, folder: &Path) -> Result<Command, EmbeddedError> {
        let log = || self.log.try_clone().map_err(cannot("share", &self.log_path));
        let mut command = Command::new(self.bin_dir.join(program));
        command.arg("-D").arg(data_dir).current_dir(folder).stdin(Stdio::null()).stdout(log()?).stderr(log()?);
        command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("NOTIFY_SOCKET");
        command.env_remove("PGDATESTYLE").env_remove("PGCLIENTENCODING").process_group(0); // a terminal's Ctrl-C is ours to handle
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        #[cfg(target_os = "linux")]
        end_with_us(&mut command);
        Ok(command)
    }

    /// Names the topmost folder on the way to the binaries or the data whose mode shuts the account out.
    fn not_run(&self, folder: &Path, error: io::Error) -> EmbeddedError {
        let (uid, gid) = self.account.unwrap_or_default();
        let class = |at: &fs::Metadata| if at.uid() == uid { 6 } else { 3 * u32::from(at.gid() == gid) };
        let shut = |at: &&Path| fs::metadata(at).is_ok_and(|at| at.mode() >> class(&at) & 1 == 0);
        match self.bin_dir.ancestors().chain(folder.ancestors()).filter(shut).last() {
            Some(at) if uid != 0 && error.kind() == ErrorKind::PermissionDenied => EmbeddedError::NotEnterable(uid, at.into()),
            _ => cannot("run Postgres in", folder)(error),
        }
    }

    fn failed(&self, what: &'static str) -> EmbeddedError {
        let log = String::from_utf8_lossy(&fs::read(&self.log_path).unwrap_or_default()).into_owned();
        let tail: Vec<_> = log.lines().skip(log.lines().count().saturating_sub(12)).collect();
        EmbeddedError::Failed(what, self.log_path.clone(), tail.join("\n"))
    }
}

/// SIGINT, the fast shutdown, when we die. Comes after the change of uid, which would clear it.
#[cfg(target_os = "linux")]
pub fn end_with_us(command: &mut Command) {
    let us = std::process::id();
    // SAFETY: between fork and exec this makes two system calls, and neither allocates nor locks.
    unsafe {
        command.pre_exec(move || match (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT), libc::getppid()) {
            (0, parent) if parent.cast_unsigned() == us => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        });
    }
}

fn pid_file(data_dir: &Path) -> Option<(i32, String)> {
    parse_pid_file(&fs::read_to_string(data_dir.join("postmaster.pid")).ok()?)
}

/// Lines 1 and 8: the pid (a single-user server negates it) and the status (empty until Postgres writes it).
fn parse_pid_file(text: &str) -> Option<(i32, String)> {
    Some((text.lines().next()?.trim_start_matches('-').parse().ok()?, text.lines().nth(7).unwrap_or_default().trim().into()))
}

/// The first folder with both programs, of the wanted major version if there is one.
fn find_binaries(given: Option<PathBuf>, wanted: Option<&str>) -> Result<PathBuf, EmbeddedError> {
    let given = given.or_else(|| env::var_os("LEASEHOLD_POSTGRES_BIN").map(PathBuf::from));
    let folders = given.map_or_else(usual_folders, |folder| vec![folder]);
    let fits = |folder: &PathBuf| {
        let version = || Command::new(folder.join("postgres")).arg("--version").output().map(|said| said.stdout);
        let right = |major| version().is_ok_and(|said| said.starts_with(format!("postgres (PostgreSQL) {major}").as_bytes()));
        folder.join("postgres").is_file() && folder.join("initdb").is_file() && wanted.is_none_or(right)
    };
    let mut there = folders.iter().filter_map(|folder| folder.canonicalize().ok());
    there.find(fits).ok_or_else(|| EmbeddedError::NotInstalled(wanted.unwrap_or("server").to_owned(), folders))
}

/// Beside the executable, the versioned folders newest first, PATH.
fn usual_folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = env::current_exe().iter().filter_map(|us| Some(us.parent()?.to_owned())).collect();
    for (parent, prefix) in VERSIONED.iter().filter_map(|path| path.rsplit_once('/')) {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let names = newest_first(prefix, entries.filter_map(|entry| entry.file_name().into_string().ok()));
        folders.extend(names.map(|name| Path::new(parent).join(name).join("bin")));
    }
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    folders
}

fn newest_first(prefix: &str, names: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let versions = names.filter_map(|name| Some((name.strip_prefix(prefix)?.parse::<u32>().ok()?, name)));
    versions.collect::<BTreeMap<_, _>>().into_values().rev()
}

/// The data directory itself, whose mode is 0700; a new short folder when a socket's path would not fit.
fn socket_dir(data_dir: &Path, temp_dir: &Path) -> PathBuf {
    let fits = data_dir.join(SOCKET).as_os_str().len() <= SOCKET_PATH_MAX;
    let short = || temp_dir.join(format!("leasehold-{:016x}", RandomState::new().hash_one(data_dir)));
    if fits { data_dir.to_owned() } else { short() }
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_8_of_the_pid_file_is_the_status_and_a_shorter_file_has_none() {
        let text = "4711\n/srv/pg\n1700000000\n5432\n/srv/pg\n\n  1234  5\nready   \n";
        assert_eq!(parse_pid_file(text), Some((4711, "ready".into())));
        assert_eq!((parse_pid_file("-4711\n/srv/pg\n"), parse_pid_file("")), (Some((4711, String::new())), None));
    }

    #[test]
    fn the_newest_version_comes_first_and_17_is_newer_than_9() {
        let sorted = |prefix, names: &[&str]| newest_first(prefix, names.iter().map(|name| name.to_string())).collect::<Vec<_>>();
        assert_eq!(sorted("", &["9", "17", "lost+found", "15"]), ["17", "15", "9"]);
        assert_eq!(sorted("pgsql-", &["pgsql-16", "bin", "pgsql-18"]), ["pgsql-18", "pgsql-16"]);
    }

    #[test]
    fn a_socket_path_that_would_not_fit_moves_to_the_temporary_folder() {
        let folder = |length: usize| PathBuf::from(format!("/{}", "d".repeat(length - 1)));
        let longest = SOCKET_PATH_MAX - 1 - SOCKET.len();
        assert_eq!(socket_dir(&folder(longest), Path::new("/tmp")), folder(longest));
        assert!(socket_dir(&folder(longest + 1), Path::new("/tmp")).starts_with("/tmp"));
    }

    #[test]
    fn a_url_keeps_a_path_with_odd_characters() {
        assert_eq!(percent("/srv/a b&c=ä"), "/srv/a%20b%26c%3D%C3%A4");
    }
}
