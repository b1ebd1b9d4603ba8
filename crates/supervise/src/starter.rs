//! Ends this process when the process that started it has died.
//!
//! The npm package starts the program by a script in Node, which stays between the program and the
//! script's caller. If that script is killed, nobody would know of the program any more. So the
//! script names itself in a variable, and the program asks the system for a signal when its starter
//! dies: SIGTERM, which still lets the program interrupt its work. Outside Linux, where there is no
//! such signal, a thread checks every second whether the starter still exists.
//!
//! The variable is meant for this process only, and is [withheld](super::spawn) from all others.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

/// The variable with the process ID of the starter with which this process ends.
pub(crate) const STARTER: &str = "CODEX_MCP_STARTER";

/// Sent to this process when its starter dies.
const SIGNAL: Signal = Signal::SIGTERM;

/// The state of a starter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starter {
    /// It is our parent.
    Parent,
    /// It has died.
    Dead,
    /// Another process, which has not started us: a program in between has passed the variable on.
    Other,
}

/// Ties the life of this process to that of its starter, if a variable names one.
///
/// # Errors
///
/// If the system does not signal the starter's death.
pub fn end_with_starter() -> io::Result<()> {
    let variable = std::env::var(STARTER).ok();
    let Some(starter) = variable.as_deref().and_then(process_id) else {
        return Ok(());
    };
    match state(starter, getppid(), exists(starter)) {
        Starter::Other => Ok(()),
        Starter::Dead => Ok(kill(Pid::this(), SIGNAL)?),
        Starter::Parent => {
            tie_to_parent(starter)?;
            // The starter may have died before the signal was requested.
            if getppid() != starter {
                kill(Pid::this(), SIGNAL)?;
            }
            Ok(())
        }
    }
}

/// A process ID that can belong to one process.
fn process_id(text: &str) -> Option<Pid> {
    let id = text.parse().ok().filter(|id: &i32| *id > 0);
    id.map(Pid::from_raw)
}

fn state(starter: Pid, parent: Pid, exists: bool) -> Starter {
    match (starter == parent, exists) {
        (true, _) => Starter::Parent,
        (false, false) => Starter::Dead,
        (false, true) => Starter::Other,
    }
}

fn exists(process: Pid) -> bool {
    kill(process, None) != Err(Errno::ESRCH)
}

#[cfg(all(target_os = "linux", not(portable)))]
fn tie_to_parent(_parent: Pid) -> io::Result<()> {
    // Node starts programs from its main thread, which lives as long as the process.
    Ok(nix::sys::prctl::set_pdeathsig(SIGNAL)?)
}

#[cfg(not(all(target_os = "linux", not(portable))))]
fn tie_to_parent(parent: Pid) -> io::Result<()> {
    use std::thread;
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_secs(1);

    let watch = move || {
        while getppid() == parent {
            thread::sleep(INTERVAL);
        }
        // It cannot fail: the process is our own.
        let _ = kill(Pid::this(), SIGNAL);
    };
    thread::Builder::new()
        .name("starter".to_owned())
        .spawn(watch)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_names_no_process_is_ignored() {
        for text in ["", "0", "-1", "x", "1 ", "99999999999"] {
            assert_eq!(process_id(text), None, "{text:?}");
        }
        assert_eq!(process_id("7"), Some(Pid::from_raw(7)));
    }

    #[test]
    fn only_a_dead_starter_ends_a_process_that_it_has_not_started() {
        let [one, other] = [7, 8].map(Pid::from_raw);
        assert_eq!(state(one, one, true), Starter::Parent);
        assert_eq!(state(one, other, true), Starter::Other);
        assert_eq!(state(one, other, false), Starter::Dead);
    }

    #[test]
    fn own_process_exists() {
        assert!(exists(Pid::this()));
    }
}
