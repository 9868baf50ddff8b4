//! Poolers that lend whole sessions: pgbouncer, or one of the tests' own, just large enough.
//!
//! `LEASEHOLD_TEST_POOLER` puts one between every server of the run and its database: it names a pgbouncer to start, or says `own`.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::{eventually, new_folder};

/// The socket's name in its folder, which clients expect.
const SOCKET: &str = ".s.PGSQL.5432";
pub const VARIABLE: &str = "LEASEHOLD_TEST_POOLER";
/// The pooler of the tests' own.
pub const OWN: &str = "own";

/// Whether servers of this run stand behind a pooler.
pub fn told() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|told| !told.is_empty())
}

/// Where pgbouncer is, if this machine has it.
pub fn pgbouncer() -> Option<PathBuf> {
    let told = told().filter(|told| told != OWN).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    told.or_else(|| places.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file()))
}

/// A database on a socket, by its address.
pub struct Address {
    before: String,
    socket: PathBuf,
    after: String,
}

impl Address {
    pub fn of(url: &str) -> Address {
        let (before, rest) = url.split_once("?host=").expect("a database on a socket");
        let (folder, after) = rest.split_once('&').expect("more than a folder");
        let folder = folder.replace("%2F", "/");
        Address { before: before.to_owned(), socket: Path::new(&folder).join(SOCKET), after: after.to_owned() }
    }

    pub async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.expect("the database can be reached")
    }

    fn folder(&self) -> &Path {
        self.socket.parent().expect("it is in a folder")
    }

    fn user(&self) -> &str {
        let (_, place) = self.before.split_once("://").expect("a URL");
        place.split_once('@').expect("a user").0
    }

    /// Protocol 3.0, and who wants what.
    pub fn startup(&self) -> Vec<u8> {
        let database = self.before.rsplit('/').next().expect("a database");
        let body = format!("\0\u{3}\0\0user\0{}\0database\0{database}\0\0", self.user());
        let length = u32::try_from(body.len() + 4).expect("short");
        [&length.to_be_bytes()[..], body.as_bytes()].concat()
    }

    /// The same database behind what listens in `folder`.
    fn moved(&self, folder: &Path) -> String {
        format!("{}?host={}&{}", self.before, folder.display(), self.after)
    }

    /// A socket in a folder of its own, and the URL that leads there.
    pub async fn listen(&self) -> (UnixListener, String) {
        let folder = new_folder("pooler").await;
        std::fs::create_dir(&folder).expect("the folder can be written");
        let listener = UnixListener::bind(folder.join(SOCKET)).expect("the folder can be written");
        (listener, self.moved(&folder))
    }
}

/// A pooler that gives each client a connection of its own. It passes no startup parameters on but who wants what.
pub async fn lending_sessions(url: &str) -> String {
    let address = Address::of(url);
    let (listener, url) = address.listen().await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (mut stream, startup) = (address.connect().await, address.startup());
            tokio::spawn(async move {
                let mut length = [0; 4];
                client.read_exact(&mut length).await.ok()?;
                let mut theirs = vec![0; u32::from_be_bytes(length) as usize - 4];
                client.read_exact(&mut theirs).await.ok()?;
                stream.write_all(&startup).await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut stream).await.ok()
            });
        }
    });
    url
}

/// A pgbouncer of the test's own; it ends with it.
pub struct Bouncer {
    child: Child,
    pub url: String,
}

impl Bouncer {
    /// In front of the database of this URL, with these settings beside what it needs.
    pub async fn start(program: &Path, url: &str, settings: &str) -> Bouncer {
        let address = Address::of(url);
        let folder = new_folder("pgbouncer").await;
        std::fs::create_dir(&folder).expect("the folder can be written");
        let place = folder.display();
        let config = format!(
            "[databases]\n* = host={} port=5432\n[pgbouncer]\nlisten_port = 5432\nunix_socket_dir = {place}\nauth_type = trust\n\
             auth_file = {place}/users\nlogfile = {place}/log\npidfile = {place}/pid\nmax_client_conn = 500\n{settings}\n",
            address.folder().display()
        );
        std::fs::write(folder.join("config"), config).expect("the folder can be written");
        std::fs::write(folder.join("users"), format!("\"{}\" \"\"\n", address.user())).expect("the folder can be written");
        let mut command = Command::new(program);
        command.arg("-q").arg(folder.join("config")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It refuses to be root. As whom Postgres runs may reach the socket.
        let owner = std::fs::metadata(address.folder()).expect("Postgres is there");
        if leasehold::embedded::running_as_root() {
            chown(&folder, Some(owner.uid()), Some(owner.gid())).expect("root may give a folder away");
            command.uid(owner.uid()).gid(owner.gid());
        }
        // SAFETY: between fork and exec this makes one system call, which neither allocates nor locks.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let bouncer = Bouncer { child: command.spawn().expect("pgbouncer starts"), url: address.moved(&folder) };
        let socket = folder.join(SOCKET);
        eventually("pgbouncer listens", async || UnixStream::connect(&socket).await.ok()).await;
        bouncer
    }

    /// One that lends whole sessions.
    pub async fn lending_sessions(program: &Path, url: &str) -> Bouncer {
        Bouncer::start(program, url, "pool_mode = session\ndefault_pool_size = 100").await
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The URL by which a server of this run is to know its database, and what stands in between.
pub async fn in_between(url: &str) -> (String, Option<Bouncer>) {
    match told() {
        None => (url.to_owned(), None),
        Some(told) if told == OWN => (lending_sessions(url).await, None),
        Some(program) => {
            let bouncer = Bouncer::lending_sessions(Path::new(&program), url).await;
            (bouncer.url.clone(), Some(bouncer))
        }
    }
}
