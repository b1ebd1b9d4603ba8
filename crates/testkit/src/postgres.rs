//! A PostgreSQL server for one test, from the system's package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use tempfile::TempDir;

/// How long the server may take to start.
const STARTING: Duration = Duration::from_secs(60);

/// The user of Debian's package: the server refuses to run as root.
const USER: &str = "postgres";

/// Debian's directory for the programs, with one directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Whether writes wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Writes are durable, as on a production server.
    Synced,
    /// Writes do not wait: for tests that do not measure time.
    Unsynced,
}

/// A private server. It ends when this is dropped, and when the thread that has started it ends.
#[derive(Debug)]
pub struct Postgres {
    directory: TempDir,
    durability: Durability,
    child: Option<Child>,
}

impl Postgres {
    /// Creates a server and starts it.
    ///
    /// # Panics
    /// If it is not installed or doesn't start.
    #[must_use]
    pub fn start(durability: Durability) -> Self {
        // Not below the target directory: the path of a socket has 107 bytes at most.
        let directory = tempfile::Builder::new()
            .prefix("pg-")
            .tempdir_in("/tmp")
            .unwrap();
        if Uid::effective().is_root() {
            let user = User::from_name(USER).unwrap();
            let user = user.expect("there is no user postgres. Run `cargo xtask provision`.");
            chown(directory.path(), Some(user.uid), Some(user.gid)).unwrap();
        }
        let data = directory.path().join("data");
        let made = as_user("initdb")
            .args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"])
            .args(["--username", USER, "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        let mut server = Self {
            directory,
            durability,
            child: None,
        };
        server.start_again();
        server
    }

    /// Starts the server again after [`Postgres::stop`].
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn start_again(&mut self) {
        let sync = match self.durability {
            Durability::Synced => "fsync=on",
            Durability::Unsynced => "fsync=off",
        };
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let child = as_user("postgres")
            .arg("-D")
            .arg(self.directory.path().join("data"))
            .arg("-k")
            .arg(self.directory.path())
            .args(["-c", "listen_addresses=", "-c", sync])
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
        let directory = self.directory.path().display();
        format!("postgres://{USER}@localhost/{name}?host={directory}")
    }

    /// Runs a statement in the database `postgres`, with psql.
    ///
    /// # Panics
    /// If that fails.
    pub fn sql(&self, statement: &str) {
        let done = Command::new(program("psql"))
            .arg("--host")
            .arg(self.directory.path())
            .args(["--username", USER, "--no-psqlrc", "--quiet"])
            .args(["--set", "ON_ERROR_STOP=1", "--command", statement])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "psql: {done}: {}", self.log());
    }

    fn is_ready(&self) -> bool {
        let asked = Command::new(program("pg_isready"))
            .arg("--quiet")
            .arg("--host")
            .arg(self.directory.path())
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

/// A program of the server, not run as root, which ends when we do.
fn as_user(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    // This signal makes the server end fast: SIGKILL would leave its children.
    command.args(["--pdeathsig", "QUIT"]);
    if Uid::effective().is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    // The program keeps its working directory, which that user may not be allowed to enter.
    command.current_dir("/").arg(program(name));
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
            assert!(Process::look(child.id()).is_some());
            child
        });
        let mut child = thread.join().unwrap();
        assert_eq!(wait_until_gone(&[child.id()], STARTING).await, []);
        child.wait().unwrap();
    }
}
