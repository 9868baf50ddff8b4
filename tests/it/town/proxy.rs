//! A connection to Postgres that a test can silence or cut.

use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::{Server, Town, cluster, new_folder};

/// The socket's name in its folder, which clients expect.
const SOCKET: &str = ".s.PGSQL.5432";

#[derive(Clone, Copy, Default, PartialEq)]
struct Wire {
    /// Nothing comes through any more, and nobody is told.
    silent: bool,
    /// How often it was cut.
    cuts: u32,
}

/// Stands between a server and its Postgres.
pub struct Proxy {
    wire: watch::Sender<Wire>,
    folder: PathBuf,
}

impl Proxy {
    /// In front of the Postgres whose socket is in `postgres`.
    async fn start(postgres: &Path) -> Proxy {
        let folder = new_folder("wire").await;
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let listener = UnixListener::bind(folder.join(SOCKET)).expect("the socket can be made");
        let (wire, watched) = watch::channel(Wire::default());
        let postgres = postgres.join(SOCKET);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (watched, postgres) = (watched.clone(), postgres.clone());
                tokio::spawn(async move {
                    if let Ok(server) = UnixStream::connect(postgres).await {
                        carry(client, server, watched).await;
                    }
                });
            }
        });
        Proxy { wire, folder }
    }

    /// In front of the Postgres that this URL leads to; and the URL that leads through it.
    pub async fn before(url: &str) -> (Proxy, String) {
        let host = url.split(['?', '&']).find_map(|part| part.strip_prefix("host=")).expect("tests speak over a socket");
        let proxy = Proxy::start(Path::new(&host.replace("%2F", "/"))).await;
        let through = url.replace(host, &proxy.folder.display().to_string());
        (proxy, through)
    }

    /// Connections go silent, those to come too.
    pub fn silence(&self) {
        self.wire.send_modify(|wire| wire.silent = true);
    }

    /// New connections work. Those that were silenced stay so, as after a router that forgot them.
    pub fn heal(&self) {
        self.wire.send_modify(|wire| wire.silent = false);
    }

    /// Connections break, and both sides are told. New ones work.
    pub fn cut(&self) {
        self.wire.send_modify(|wire| wire.cuts += 1);
    }
}

async fn carry(mut client: UnixStream, mut server: UnixStream, mut wire: watch::Receiver<Wire>) {
    let cuts = wire.borrow_and_update().cuts;
    let silenced = tokio::select! {
        biased;
        changed = wire.wait_for(|wire| wire.silent || wire.cuts != cuts) => changed.is_ok_and(|wire| wire.silent),
        _ = copy_bidirectional(&mut client, &mut server) => false,
    };
    // Held open until the test is over, or whoever waits gives up.
    while silenced && wire.changed().await.is_ok() {}
}

impl Town {
    /// One server that reaches its database over a wire of the test's own.
    pub async fn on_a_wire() -> (Town, Proxy) {
        let (url, database) = cluster::new_database().await;
        let (proxy, through) = Proxy::before(&url).await;
        let servers = vec![Server::start(&through, &[]).await];
        (Town::of_parts(url, database, servers), proxy)
    }
}
