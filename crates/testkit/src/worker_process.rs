//! Processes that a test starts to do its own work in parallel, or to be killed: its own
//! executable again, with a test that is ignored otherwise.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// What a process that does one thing after the other says after each.
const DONE: &str = "done: ";

/// A process that works.
pub struct WorkerProcess {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    /// Starts the test of this name with these variables.
    pub fn start(test: &str, variables: &[(&str, &OsStr)]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                test,
                "--exact",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    /// Waits until it has done so much; returns how much it has done, which is less
    /// if it has ended.
    pub fn until(&mut self, wanted: u64) -> u64 {
        let mut done = 0;
        while done < wanted {
            let Some(Ok(line)) = self.said.next() else {
                break;
            };
            if let Some((_, number)) = line.split_once(DONE) {
                done = number.parse().unwrap();
            }
        }
        done
    }

    /// Kills it, and returns how much more it has done, if anything.
    pub fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let lines = self.said.map_while(Result::ok);
        let numbers = lines.filter_map(|line| {
            let (_, number) = line.split_once(DONE)?;
            number.parse().ok()
        });
        numbers.last()
    }

    /// Waits for its end, which must be a good one.
    pub fn wait(mut self) {
        self.until(u64::MAX);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Tells the test that has started this process how much is done.
pub fn done(number: u64) {
    let mut out = io::stdout().lock();
    writeln!(out, "{DONE}{number}").unwrap();
    out.flush().unwrap();
}

/// A variable of the test that has started this process.
pub fn variable(name: &str) -> PathBuf {
    env::var_os(name).unwrap().into()
}
