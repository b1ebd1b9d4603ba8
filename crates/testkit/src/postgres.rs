//! A PostgreSQL server for one test, from the system's package.

use std::fs;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::directory::{copy_directory, made_once};

/// How long the server may take to start.
const STARTING: Duration = Duration::from_secs(60);

/// The user of Debian's package: the server refuses to run as root.
pub(crate) const USER: &str = "postgres";

/// Debian's directory for the programs, with one directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The port in the name of a socket.
const PORT: u16 = 5432;

/// Whether writes wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Writes are durable, as on a production server.
    Synced,
    /// Writes do not wait: for tests that do not measure time.
    Unsynced,
}

/// How a server is reached by TCP on loopback. A Unix socket admits everybody in any case.
#[derive(Debug, Clone, Copy)]
pub struct Network<'a> {
    /// The lines of `pg_hba.conf` for TCP.
    pub admitted: &'a str,
    /// The certificate for TLS.
    pub certificate: Option<&'a Certificate>,
}

/// A private server. It ends when this is dropped, and when the thread that has started it ends.
#[derive(Debug)]
pub struct Postgres {
    directory: TempDir,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Creates a server and starts it.
    ///
    /// # Panics
    /// If it is not installed or doesn't start.
    #[must_use]
    pub fn start(durability: Durability) -> Self {
        let mut server = Self::create(durability);
        server.start_again();
        server
    }

    /// Creates a server that can also be reached by TCP, and starts it.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn start_on_tcp(durability: Durability, network: &Network<'_>) -> Self {
        let mut server = Self::create(durability);
        server.port = free_port();
        server.set("listen_addresses", "127.0.0.1");
        server.admit(network.admitted);
        if let Some(certificate) = network.certificate {
            server.use_certificate(certificate);
        }
        server.start_again();
        server
    }

    /// A server without data.
    fn empty() -> Self {
        // Not below the target directory: the path of a socket has 107 bytes at most.
        let directory = tempfile::Builder::new()
            .prefix("pg-")
            .tempdir_in("/tmp")
            .unwrap();
        if let Some((uid, gid)) = owner() {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        Self {
            directory,
            port: PORT,
            settings: Vec::new(),
            child: None,
        }
    }

    /// Creates a server, which is not started.
    fn create(durability: Durability) -> Self {
        let mut server = Self::empty();
        copy_directory(&first_data(), &server.data());
        give_to_owner(&server.data());
        fs::set_permissions(server.data(), Permissions::from_mode(0o700)).unwrap();
        let sync = match durability {
            Durability::Synced => "on",
            Durability::Unsynced => "off",
        };
        server.set("listen_addresses", "");
        server.set("fsync", sync);
        server
    }

    /// Starts a standby of this server, reached by TCP as the server is. From now on, a commit
    /// waits until the standby has it.
    ///
    /// # Panics
    /// If it can't be made or doesn't start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let mut standby = Self::empty();
        let made = as_user("pg_basebackup")
            .args(self.reached())
            .args(["--username", USER, "--no-sync", "--checkpoint=fast"])
            .args(["--write-recovery-conf", "--pgdata"])
            .arg(standby.data())
            .status()
            .unwrap();
        assert!(made.success(), "pg_basebackup: {made}");
        standby.port = free_port();
        standby.set("listen_addresses", "127.0.0.1");
        standby.set("fsync", "off");
        standby.start_again();
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        standby
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    /// If that fails.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote()");
    }

    /// The directory of the server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// Changes a setting when the server starts again.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push(format!("{name}={value}"));
    }

    /// Admits clients by TCP with these lines of `pg_hba.conf`, when the server starts again.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn admit(&self, lines: &str) {
        let all = format!("local all all trust\nlocal replication all trust\n{lines}\n");
        fs::write(self.data().join("pg_hba.conf"), all).unwrap();
    }

    /// Uses this certificate when the server starts again.
    ///
    /// # Panics
    /// If it can't be copied.
    pub fn use_certificate(&mut self, certificate: &Certificate) {
        certificate.install(&self.data(), owner());
        self.set("ssl", "on");
    }

    /// The port, by TCP and in the name of the socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Starts the server again after [`Postgres::stop`].
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn start_again(&mut self) {
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let settings = self.settings.iter().flat_map(|setting| ["-c", setting]);
        let child = as_user("postgres")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string()])
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let until = Instant::now() + STARTING;
        while !self.is_ready() {
            assert!(Instant::now() < until, "PostgreSQL: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server at once, as if the machine had crashed: connections are not closed.
    ///
    /// # Panics
    /// If the server cannot be stopped.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = Pid::from_raw(child.id().try_into().unwrap());
            kill(pid, Signal::SIGQUIT).unwrap();
            child.wait().unwrap();
        }
    }

    /// Makes a database, and returns its URL.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE \"{name}\""));
        let (directory, port) = (self.directory.path().display(), self.port);
        format!("postgres://{USER}@localhost:{port}/{name}?host={directory}")
    }

    /// The URL of a database by TCP. `user` may have a password, after a colon.
    #[must_use]
    pub fn url(&self, user: &str, host: &str, rest: &str) -> String {
        format!("postgres://{user}@{host}:{}/{rest}", self.port)
    }

    /// Runs a statement in the database `postgres`, with psql.
    ///
    /// # Panics
    /// If that fails.
    pub fn sql(&self, statement: &str) {
        self.sql_in("postgres", statement);
    }

    /// Runs statements in a database, with psql.
    ///
    /// # Panics
    /// If one fails.
    pub fn sql_in(&self, database: &str, statements: &str) {
        assert!(self.accepts_sql_in(database, statements), "{}", self.log());
    }

    /// Runs statements in a database, with psql. Returns whether all succeed.
    ///
    /// # Panics
    /// If psql can't be run.
    #[must_use]
    pub fn accepts_sql_in(&self, database: &str, statements: &str) -> bool {
        let done = Command::new(program("psql"))
            .args(self.reached())
            .args(["--username", USER, "--no-psqlrc", "--quiet"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", database])
            .args(["--command", statements])
            .stdout(Stdio::null())
            .status();
        done.unwrap().success()
    }

    /// The options with which programs of PostgreSQL reach the server.
    fn reached(&self) -> [String; 4] {
        let directory = self.directory.path().to_str().unwrap();
        let port = self.port.to_string();
        ["--host", directory, "--port", &port].map(str::to_owned)
    }

    fn is_ready(&self) -> bool {
        let asked = Command::new(program("pg_isready"))
            .arg("--quiet")
            .args(self.reached())
            .status();
        asked.unwrap().success()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The data of a server before its first start. `initdb` takes a second of a processor, so it is
/// run once, and each server gets a copy.
fn first_data() -> PathBuf {
    let initdb = program("initdb");
    let version = initdb.ancestors().nth(2).unwrap().file_name().unwrap();
    made_once(crate::target_dir().join("postgres").join(version), |data| {
        let server = Postgres::empty();
        let made = as_user("initdb")
            .args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"])
            .args(["--username", USER, "--pgdata"])
            .arg(server.data())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        copy_directory(&server.data(), data);
    })
}

/// Gives a file, or a directory with all that it holds, to the user of the server.
fn give_to_owner(path: &Path) {
    let Some((uid, gid)) = owner() else {
        return;
    };
    std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_to_owner(&entry.unwrap().path());
        }
    }
}

/// The user and group of the server, if we are root.
pub(crate) fn owner() -> Option<(u32, u32)> {
    Uid::effective().is_root().then(|| {
        let user = User::from_name(USER).unwrap();
        let user = user.expect("there is no user postgres. Run `cargo xtask provision`.");
        (user.uid.as_raw(), user.gid.as_raw())
    })
}

/// A port of loopback that nobody uses.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A program of the server, not run as root, which ends when we do.
fn as_user(name: &str) -> Command {
    // This signal makes the server end fast: SIGKILL would leave its children.
    unprivileged(&program(name), "QUIT")
}

/// A program that is not run as root, and gets this signal when we end.
pub(crate) fn unprivileged(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]);
    if Uid::effective().is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    // The program keeps its working directory, which that user may not be allowed to enter.
    command.current_dir("/").arg(program);
    command
}

fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin").join(name)))
        })
        .filter(|(_, program)| program.is_file())
        .collect();
    found.sort();
    let (_, program) = found.pop().unwrap_or_else(|| missing(name));
    program
}

fn missing(name: &str) -> ! {
    let place = Path::new(DEBIAN).join("*/bin").join(name);
    panic!(
        "PostgreSQL is not installed: nothing at {}. Run `cargo xtask provision`.",
        place.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Process, wait_until_gone};

    #[test]
    fn server_can_be_stopped_and_started() {
        let mut server = Postgres::start(Durability::Unsynced);
        let _url = server.database("a");
        server.stop();
        assert!(!server.is_ready());
        server.start_again();
        server.sql("DROP DATABASE a");
    }

    #[tokio::test]
    async fn server_ends_with_the_thread_that_started_it() {
        let thread = std::thread::spawn(|| {
            let mut server = Postgres::start(Durability::Unsynced);
            let child = server.child.take().unwrap();
            assert!(Process::read(child.id()).is_some());
            child
        });
        let mut child = thread.join().unwrap();
        assert_eq!(wait_until_gone(&[child.id()], STARTING).await, []);
        child.wait().unwrap();
    }
}
