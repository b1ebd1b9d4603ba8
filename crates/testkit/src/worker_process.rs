//! Worker processes of a test, which work in parallel or are killed: the test's own executable
//! again, with a test that is ignored otherwise.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The prefix of the line that a worker prints after each step.
const DONE: &str = "done: ";

/// The line with which the test harness begins when one test has the name.
const ONE_TEST: &str = "running 1 test";

/// A worker process.
pub struct WorkerProcess {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Whether the harness has said that it runs exactly one test.
    is_one_test: bool,
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
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdout,
            is_one_test: false,
        }
    }

    /// Waits until the worker has done `wanted` steps; returns the number of steps, which is less
    /// if it has ended. Fails if it has ended and has not run exactly one test.
    pub fn until(&mut self, wanted: u64) -> u64 {
        let mut done = 0;
        while done < wanted {
            let Some(Ok(line)) = self.stdout.next() else {
                assert!(
                    self.is_one_test,
                    "no single test has the name of the process"
                );
                break;
            };
            self.is_one_test |= line == ONE_TEST;
            if let Some((_, number)) = line.split_once(DONE) {
                done = number.parse().unwrap();
            }
        }
        done
    }

    /// Kills the worker, and returns the number of its last step since the last wait, if there
    /// was one.
    pub fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let lines = self.stdout.map_while(Result::ok);
        let numbers = lines.filter_map(|line| {
            let (_, number) = line.split_once(DONE)?;
            number.parse().ok()
        });
        numbers.last()
    }

    /// Waits until the worker exits, which must be with success.
    pub fn wait(mut self) {
        self.until(u64::MAX);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Reports the number of steps done to the test that has started this process.
pub fn done(number: u64) {
    let mut out = io::stdout().lock();
    writeln!(out, "{DONE}{number}").unwrap();
    out.flush().unwrap();
}

/// A variable of the test that has started this process.
pub fn variable(name: &str) -> PathBuf {
    env::var_os(name).unwrap().into()
}
