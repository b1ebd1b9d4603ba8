//! The mark of a process tree. If the guard of the tree is killed, the tree is ended by this mark.
//!
//! When a guard is killed, the system also kills the program, but not the processes that the
//! program has started. Those have lost their parent then. The owner of the guard finds them by a
//! variable in the environment of the tree, and kills them. A process whose environment was
//! replaced, such as an MCP server of Codex, does not have the variable. If the variables of
//! processes cannot be read (outside Linux), nothing is found.

use std::io;
#[cfg(all(target_os = "linux", not(portable)))]
use std::path::Path;
use std::time::Duration;

use common::text::hex;
use nix::sys::signal::{Signal, kill};
use safe_files::off_runtime;
use tokio::time::sleep;

use crate::descendants::Processes;

/// The variable.
pub(crate) const TREE: &str = "CODEX_MCP_TREE";

/// The number of random bytes that distinguish a tree from all others.
const RANDOM_BYTES: usize = 8;

/// The pause between checks whether all processes have ended, and the number of checks.
const PAUSE: Duration = Duration::from_millis(20);
const CHECKS: usize = 100;

/// The number of consecutive checks that must find no process: while a process executes another
/// program, its environment is empty for a moment.
const EMPTY_CHECKS: usize = 3;

/// The mark of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeMark(String);

impl TreeMark {
    /// A mark that no other tree has.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub(crate) fn random() -> io::Result<Self> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Self(hex(&random)))
    }

    /// The mark of the tree that is taken over through this socket. The next owner can derive it,
    /// too.
    #[cfg(all(target_os = "linux", not(portable)))]
    pub(crate) fn of_socket(adoption: &Path) -> Self {
        Self(adoption.to_string_lossy().into_owned())
    }

    /// The variable and its value.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (TREE, &self.0)
    }

    /// Kills the remaining processes of the tree, and waits for up to 2 s until they have ended.
    pub(crate) async fn end(&self) {
        let variable = format!("{TREE}={}", self.0);
        let mut empty = 0;
        for _ in 0..CHECKS {
            let variable = variable.clone();
            // Reading the environment of a process can block.
            match off_runtime::run(move || kill_all_with(&variable)).await {
                Ok(0) => empty += 1,
                Ok(_) => empty = 0,
                Err(error) => return tracing::error!("processes may be left: {error}"),
            }
            if empty == EMPTY_CHECKS {
                return;
            }
            sleep(PAUSE).await;
        }
        tracing::error!("processes of a Codex whose guard was killed do not end");
    }
}

/// Kills the processes with this variable; returns how many there were. Processes start and end
/// during the scan; a missed one is found by the next.
fn kill_all_with(variable: &str) -> usize {
    let left = Processes::scan().with_variable(variable);
    for process in &left {
        // It may have ended.
        let _ = kill(process.pid, Signal::SIGKILL);
    }
    left.len()
}

#[cfg(all(test, target_os = "linux", not(portable)))]
mod tests {
    use std::process::Stdio;

    use tokio::process::Command;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a process without a guard")]
    fn process_of(mark: &TreeMark) -> tokio::process::Child {
        let (name, value) = mark.variable();
        let mut command = Command::new("cat");
        command.env(name, value).stdin(Stdio::piped());
        command.kill_on_drop(true).spawn().unwrap()
    }

    #[tokio::test]
    async fn only_the_processes_of_the_tree_are_ended() {
        let (ours, other) = (TreeMark::random().unwrap(), TreeMark::random().unwrap());
        let mut stray = process_of(&ours);
        let mut another = process_of(&other);
        ours.end().await;
        assert!(!stray.wait().await.unwrap().success());
        assert_eq!(another.try_wait().unwrap(), None);
    }
}
