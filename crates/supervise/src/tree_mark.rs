//! The mark of a process tree, by which it is ended when its guard was killed.
//!
//! If a guard is killed, the system kills the program too, but not the processes that the program
//! has started. Those are nobody's children then. They are found by a variable in the environment
//! of the tree, and killed by the owner of the guard. A process whose environment was chosen anew,
//! such as an MCP server of Codex, does not have the variable. Where the variables of a process
//! cannot be read (outside Linux), nothing is found.

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

/// How many random bytes tell a tree from all others.
const RANDOM_BYTES: usize = 8;

/// The pause before it is checked whether all processes have ended, and how often.
const PAUSE: Duration = Duration::from_millis(20);
const CHECKS: usize = 100;

/// How many checks in a row have to find no process: the environment of one that begins another
/// program is empty for a moment.
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

    /// The mark of the tree that is taken over by this socket. The next owner knows it, too.
    #[cfg(all(target_os = "linux", not(portable)))]
    pub(crate) fn of_socket(adoption: &Path) -> Self {
        Self(adoption.to_string_lossy().into_owned())
    }

    /// The variable and its value.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (TREE, &self.0)
    }

    /// Kills the processes that are left of the tree. Waits until they have ended, 2 s at most.
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
