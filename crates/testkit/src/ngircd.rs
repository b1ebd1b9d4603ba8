//! An IRC server for one test, from the system's package, and clients of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use tempfile::TempDir;

/// How long a client waits for a line.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The user of the server if we are root.
const USER: &str = "nobody";

/// The directory of servers on Debian.
const DEBIAN: &str = "/usr/sbin";

/// The server does no lookups, and does not throttle clients.
const CONFIGURATION: &str = "\
[Global]
Name = irc.test
Info = test
AdminInfo1 = test
AdminInfo2 = test
AdminEMail = test@irc.test
MotdFile = /nowhere
[Limits]
MaxConnectionsIP = 0
MaxPenaltyTime = 0
[Options]
PAM = no
Ident = no
DNS = no
";

/// Passes the listening socket as systemd does (sd_listen_fds(3)): no other program can take the
/// port, and an early client waits.
const START: &str = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" -n -f \"$1\"";

/// A private server, without a message of the day. It ends when this is dropped, and when the
/// thread that has started it ends.
#[derive(Debug)]
pub struct Ngircd {
    directory: TempDir,
    port: u16,
    child: Child,
}

impl Ngircd {
    /// Starts one with these sections added to its configuration, see ngircd.conf(5).
    ///
    /// # Panics
    /// If it is not installed or can't be started.
    #[must_use]
    pub fn start(more: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("irc-")
            .tempdir_in("/tmp")
            .unwrap();
        let configuration = directory.path().join("ngircd.conf");
        fs::write(&configuration, format!("{CONFIGURATION}{more}")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if Uid::effective().is_root() {
            let user = User::from_name(USER).unwrap().unwrap();
            chown(directory.path(), Some(user.uid), Some(user.gid)).unwrap();
            let [uid, gid] = [user.uid.as_raw(), user.gid.as_raw()].map(|id| id.to_string());
            command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups"]);
        }
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let child = command
            .args(["sh", "-c", START])
            .arg(program())
            .arg(configuration)
            .current_dir("/")
            .stdin(OwnedFd::from(listener))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            directory,
            port,
            child,
        }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    /// Connects a client of that nickname.
    ///
    /// # Panics
    /// If the server refuses the client.
    #[must_use]
    pub fn guest(&self, nickname: &str) -> Guest {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut guest = Guest {
            log: self.directory.path().join("log"),
            stream: BufReader::new(stream),
        };
        guest.write(&format!(
            "NICK {nickname}\r\nUSER {nickname} 0 * :{nickname}"
        ));
        guest.wait_for(" 422 ");
        guest
    }

    /// Connects a client of that nickname that joins a channel.
    ///
    /// # Panics
    /// If the client cannot join.
    #[must_use]
    pub fn guest_in(&self, channel: &str, nickname: &str) -> Guest {
        let mut guest = self.guest(nickname);
        guest.write(&format!("JOIN {channel}"));
        guest.wait_for(" 366 ");
        guest
    }
}

impl Drop for Ngircd {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of the server.
#[derive(Debug)]
pub struct Guest {
    log: PathBuf,
    stream: BufReader<TcpStream>,
}

impl Guest {
    /// Sends a line.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn write(&mut self, line: &str) {
        let line = format!("{line}\r\n");
        self.stream.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// The next line, without its end.
    ///
    /// # Panics
    /// If none comes.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        let log = || fs::read_to_string(&self.log).unwrap_or_default();
        match read {
            Ok(1..) => line.trim_end_matches(['\r', '\n']).to_owned(),
            read => panic!("ngircd says nothing more ({read:?}): {}", log()),
        }
    }

    /// The next line that contains these words; earlier lines are dropped.
    ///
    /// # Panics
    /// If none comes.
    pub fn wait_for(&mut self, words: &str) -> String {
        loop {
            let line = self.next_line();
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The lines that contain these words, up to the server's answer to a ping that is sent now.
    ///
    /// # Panics
    /// If it doesn't answer.
    pub fn all_with(&mut self, words: &str) -> Vec<String> {
        self.write("PING :all");
        let mut found = Vec::new();
        loop {
            let line = self.next_line();
            match line.ends_with(":all") {
                true => return found,
                false if line.contains(words) => found.push(line),
                false => {}
            }
        }
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from(DEBIAN)]);
    let mut programs = directories.map(|directory| directory.join("ngircd"));
    let found = programs.find(|program| program.is_file());
    found.unwrap_or_else(|| {
        let place = Path::new(DEBIAN).join("ngircd");
        panic!(
            "ngircd is not installed: nothing at {}. Run `cargo xtask provision`.",
            place.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wait_until_gone;

    #[test]
    fn guests_receive_each_others_messages() {
        let server = Ngircd::start("");
        let mut listening = server.guest_in("#a", "one");
        let mut talking = server.guest_in("#a", "two");
        talking.write("PRIVMSG #a :hello");
        let heard = listening.wait_for("PRIVMSG");
        assert_eq!(heard, ":two!~two@127.0.0.1 PRIVMSG #a :hello");
        assert_eq!(listening.all_with("PRIVMSG"), [] as [&str; 0]);
    }

    #[tokio::test]
    async fn server_ends_with_the_thread_that_started_it() {
        let thread = std::thread::spawn(|| {
            let server = Ngircd::start("");
            let _guest = server.guest("one");
            server
        });
        let server = thread.join().unwrap();
        assert_eq!(wait_until_gone(&[server.child.id()], TIMEOUT).await, []);
    }
}
