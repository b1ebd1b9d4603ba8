//! Programs that run in a terminal of their own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use testkit::process;
use testkit::wait::wait_until_readable;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;

/// A program whose streams are a terminal, and its output there.
pub(crate) struct Terminal {
    child: Child,
    screen: File,
    pub(crate) seen: String,
}

impl Terminal {
    /// Runs a program in a terminal that does not report its size.
    pub(crate) fn runs(command: impl Into<Command>) -> Self {
        Self::with_columns(0, command)
    }

    /// Runs a program in a terminal of this width.
    pub(crate) fn with_columns(columns: u16, command: impl Into<Command>) -> Self {
        let size = Winsize {
            ws_row: 0,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = command
            .into()
            .env("TERM", "xterm-256color")
            .stdin(end(&pty.slave))
            .stdout(end(&pty.slave))
            .stderr(end(&pty.slave))
            .spawn()
            .unwrap();
        Self {
            child,
            screen: pty.master.into(),
            seen: String::new(),
        }
    }

    /// Reads until this text was shown; on a thread of its own, as the model answers on this one.
    pub(crate) async fn shows(mut self, words: &'static str) -> Self {
        let read = move || {
            while !self.seen.contains(words) {
                assert!(self.read(), "it ended without {words:?}: {}", self.seen);
            }
            self
        };
        spawn_blocking(read).await.unwrap()
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.screen.write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.child.id().unwrap(), signal);
    }

    /// The whole output, and the exit code.
    pub(crate) async fn ends(mut self) -> (String, Option<i32>) {
        let read = move || {
            while self.read() {}
            self
        };
        let mut ended = spawn_blocking(read).await.unwrap();
        (ended.seen, ended.child.wait().await.unwrap().code())
    }

    fn read(&mut self) -> bool {
        wait_until_readable("something in the terminal", &self.screen);
        let mut bytes = [0; 4096];
        // Linux returns EIO once the other end is closed.
        let length = self.screen.read(&mut bytes).unwrap_or(0);
        self.seen
            .push_str(&String::from_utf8_lossy(&bytes[..length]));
        length > 0
    }
}
