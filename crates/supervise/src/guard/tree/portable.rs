//! The tree without a subreaper. A process that has lost its parent does not become a child of the
//! guard. The guard knows the processes that `ps` has listed below it so far, and the process group
//! of the program. A process in another group whose parent ends before a listing is lost.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The pause between checks whether processes have ended, and the number of checks: one second in
/// total.
const PAUSE: Duration = Duration::from_millis(20);
const CHECKS: usize = 50;

/// The command that lists all processes, see ps(1p).
const LIST: [&str; 4] = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid="];

/// The processes below this one, a guard.
#[derive(Debug)]
pub(in crate::guard) struct Tree {
    /// The processes that were listed, with their groups.
    known: BTreeMap<Pid, Pid>,
}

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    pid: Pid,
    parent: Pid,
    group: Pid,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut pid = || numbers.next()?.ok().map(Pid::from_raw);
        Some(Self {
            pid: pid()?,
            parent: pid()?,
            group: pid()?,
        })
    }
}

impl Tree {
    pub(in crate::guard) fn new() -> Self {
        Self {
            known: BTreeMap::new(),
        }
    }

    /// The current processes, as far as they are known. Processes start and end during the scan.
    pub(in crate::guard) fn processes(&mut self) -> Vec<Pid> {
        self.note(Pid::this(), &list());
        self.known.keys().copied().collect()
    }

    /// Always empty: a process that has lost its parent does not become a child of the guard.
    pub(in crate::guard) fn children(&self) -> Vec<Pid> {
        Vec::new()
    }

    /// Notes the processes below the guard, and below those that were listed before.
    fn note(&mut self, guard: Pid, all: &[Listed]) {
        let is_known = |one: &&Listed| self.known.get(&one.pid) == Some(&one.group);
        let mut found: Vec<Listed> = all.iter().filter(is_known).copied().collect();
        let mut next = vec![guard];
        next.extend(found.iter().map(|known| known.pid));
        while let Some(parent) = next.pop() {
            for child in all.iter().filter(|one| one.parent == parent) {
                if !found.contains(child) {
                    found.push(*child);
                    next.push(child.pid);
                }
            }
        }
        self.known = found.iter().map(|one| (one.pid, one.group)).collect();
    }

    /// Ends the rest of the tree: with SIGTERM first, with SIGKILL a second later. The program, the
    /// leader of this group, has just been reaped.
    ///
    /// The numbers cannot belong to other processes or groups yet: a number is not given to a new
    /// process as long as it is that of a group (POSIX.1-2017, "Process ID Reuse"), and numbers are
    /// assigned in order, so a freed number is not reused at once.
    pub(in crate::guard) fn end_left(&self, group: Pid) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if !self.signal(group, Some(signal)) || self.has_ended_soon(group) {
                return;
            }
        }
    }

    /// Waits for up to a second. The processes are not our children, so their ends must be polled.
    fn has_ended_soon(&self, group: Pid) -> bool {
        (0..CHECKS).any(|_| {
            thread::sleep(PAUSE);
            !self.signal(group, None)
        })
    }

    /// Sends a signal, or none, to the remaining processes. Returns whether any could be signalled.
    fn signal(&self, group: Pid, signal: Option<Signal>) -> bool {
        let mut is_any = killpg(group, signal).is_ok();
        for pid in self.known.keys().filter(|pid| **pid != group) {
            is_any |= kill(*pid, signal).is_ok();
        }
        is_any
    }
}

/// All processes but the one that lists them; none if there is no `ps`.
#[expect(
    clippy::disallowed_methods,
    reason = "it is read to its end at once, and has no process below it"
)]
fn list() -> Vec<Listed> {
    let [program, args @ ..] = LIST;
    let mut ps = Command::new(program);
    ps.args(args).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(ps) = ps.stdout(Stdio::piped()).spawn() else {
        return Vec::new();
    };
    let this = ps.id();
    let output = ps.wait_with_output().map(|output| output.stdout);
    let output = output.unwrap_or_default();
    let lines = String::from_utf8_lossy(&output);
    let all = lines.lines().filter_map(Listed::parse);
    all.filter(|one| u32::try_from(one.pid.as_raw()) != Ok(this))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Vec<Listed> {
        text.lines().filter_map(Listed::parse).collect()
    }

    fn known(tree: &Tree) -> Vec<i32> {
        tree.known.keys().map(|pid| pid.as_raw()).collect()
    }

    #[test]
    fn process_that_has_lost_its_parent_stays_known() {
        let mut tree = Tree::new();
        let guard = Pid::from_raw(10);
        tree.note(
            guard,
            &listed("1 0 1\n10 9 10\n11 10 11\n12 11 12\n20 1 20\nx"),
        );
        assert_eq!(known(&tree), [11, 12]);
        // 11 has ended, and 12 has started another process.
        tree.note(guard, &listed("1 0 1\n10 9 10\n12 1 12\n13 12 12\n20 1 20"));
        assert_eq!(known(&tree), [12, 13]);
        // The number 12 is that of another process.
        tree.note(guard, &listed("1 0 1\n10 9 10\n12 1 20\n20 1 20"));
        assert_eq!(known(&tree), [] as [i32; 0]);
    }

    #[test]
    fn own_process_is_listed() {
        assert!(list().iter().any(|one| one.pid == Pid::this()));
    }
}
