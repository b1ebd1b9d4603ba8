//! A pgbouncer before a server of PostgreSQL for one test, from the system's package.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::postgres::{self, Postgres, USER};

/// How long it may take to start.
const STARTING: Duration = Duration::from_secs(60);

/// The directory of servers on Debian.
const DEBIAN: &str = "/usr/sbin";

/// A pooler in transaction mode, reached by TCP on loopback. It ends when this is dropped, and
/// when the thread that has started it ends.
#[derive(Debug)]
pub struct Pgbouncer {
    _directory: TempDir,
    port: u16,
    child: Child,
}

impl Pgbouncer {
    /// Starts one before a server, with so many connections to it for each database, and these
    /// lines added to its configuration.
    ///
    /// # Panics
    /// If it is not installed or doesn't start.
    #[must_use]
    pub fn start(server: &Postgres, connections: usize, more: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pgb-")
            .tempdir_in("/tmp")
            .unwrap();
        let port = postgres::free_port();
        let path = |name| directory.path().join(name);
        let (host, server_port) = (server.socket().display(), server.port());
        let users = path("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).unwrap();
        let configuration = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 500\n{more}\n",
            users.display()
        );
        fs::write(path("ini"), configuration).unwrap();
        if let Some((uid, gid)) = postgres::owner() {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let log = fs::File::create(path("log")).unwrap();
        let child = command()
            .arg(path("ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let until = Instant::now() + STARTING;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(path("log")).unwrap_or_default();
            assert!(Instant::now() < until, "pgbouncer: {log}");
            sleep(Duration::from_millis(20));
        }
        Self {
            _directory: directory,
            port,
            child,
        }
    }

    /// The URL of a database of the server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@localhost:{}/{database}", self.port)
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}

/// pgbouncer refuses to run as root.
fn command() -> Command {
    let program = Path::new(DEBIAN).join("pgbouncer");
    assert!(
        program.is_file(),
        "pgbouncer is not installed: nothing at {}. Run `cargo xtask provision`.",
        program.display()
    );
    postgres::unprivileged(&program, "TERM")
}
