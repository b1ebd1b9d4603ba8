//! The processes below a process.

use std::collections::{BTreeSet, HashMap};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::platform;

/// A process at the moment of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its process ID.
    pub pid: Pid,
    parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// Its state as one letter.
    state: char,
    /// When it began, in clock ticks since the system did.
    began: u64,
}

/// All processes, by their parents. Empty where the system has no `/proc`.
#[derive(Debug, Default)]
pub struct Processes(HashMap<Pid, Vec<Process>>);

/// All processes whose chain of parents leads to `root`, without `root` itself. Empty
/// where the system has no `/proc`.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let below = Processes::scan().below(root);
    below.into_iter().map(|process| process.pid).collect()
}

/// Whether any of these processes is still running. Zombies do not count, and neither do threads,
/// whose numbers are not process IDs. If the system has no `/proc`, both count.
pub fn is_any_running(pids: &BTreeSet<Pid>) -> bool {
    match Processes::read() {
        Some(Processes(by_parent)) => {
            let mut all = by_parent.values().flatten();
            all.any(|process| pids.contains(&process.pid) && !process.has_ended())
        }
        None => pids.iter().any(|pid| kill(*pid, None) != Err(Errno::ESRCH)),
    }
}

impl Processes {
    /// Reads the list of all processes that this user may see.
    #[must_use]
    pub fn scan() -> Self {
        Self::read().unwrap_or_default()
    }

    /// Like [`Self::scan`], but `None` if the system has no `/proc`.
    #[must_use]
    pub fn read() -> Option<Self> {
        let mut by_parent: HashMap<Pid, Vec<Process>> = HashMap::new();
        for (pid, stat) in platform::processes()? {
            // The name in the line can contain any bytes.
            if let Some(process) = Process::parse(pid, &String::from_utf8_lossy(&stat)) {
                by_parent.entry(process.parent).or_default().push(process);
            }
        }
        Some(Self(by_parent))
    }

    /// The processes whose chain of parents leads to `root`, without `root` itself.
    pub fn below(&self, root: Pid) -> Vec<Process> {
        let mut found = self.children(root).to_vec();
        let mut next = 0;
        while let Some(parent) = found.get(next).map(|process| process.pid) {
            found.extend(self.children(parent));
            next += 1;
        }
        found
    }

    /// The oldest child of a process: one that it started itself, not one that it adopted
    /// later.
    pub fn first_child(&self, of: Pid) -> Option<Process> {
        let children = self.children(of).iter();
        children.min_by_key(|child| child.began).copied()
    }

    /// The processes that run with this variable, `NAME=VALUE`.
    pub fn with_variable(&self, variable: &str) -> Vec<Process> {
        let all = self.0.values().flatten();
        all.filter(|process| !process.has_ended() && process.has_variable(variable))
            .copied()
            .collect()
    }

    fn children(&self, of: Pid) -> &[Process] {
        self.0.get(&of).map_or(&[], Vec::as_slice)
    }
}

impl Process {
    /// Reads a line of `/proc/PID/stat` (proc(5)). The second field, the name, is in
    /// parentheses and may hold anything, parentheses included.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut id = || fields.next()?.parse().ok().map(Pid::from_raw);
        Some(Self {
            pid: Pid::from_raw(pid),
            parent: id()?,
            group: id()?,
            session: id()?,
            state,
            // Field 22 of the line.
            began: fields.nth(15)?.parse().ok()?,
        })
    }

    /// Whether it was started with this variable, `NAME=VALUE`. `false` if its variables
    /// cannot be read.
    pub fn has_variable(&self, variable: &str) -> bool {
        platform::environment(self.pid)
            .split(|byte| *byte == 0)
            .any(|one| one == variable.as_bytes())
    }

    /// Whether the process can execute its own code: it has not ended, is not stopped, and does not
    /// wait uninterruptibly in the kernel.
    pub fn is_running(&self) -> bool {
        !matches!(self.state, 'T' | 't' | 'D') && !self.has_ended()
    }

    /// Whether it has ended, and at most waits for its parent to notice.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(all(test, target_os = "linux", not(portable)))]
#[expect(clippy::disallowed_methods, reason = "the test starts a program")]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn process_with_hostile_name_is_read() {
        let stat = "7 (a) b) T 3 5 6 0 -1 1 2 3 4 5 6 7 8 9 10 11 12 13 4711 99";
        let process = Process::parse(7, stat).unwrap();
        let ids = [process.pid, process.parent, process.group, process.session];
        assert_eq!(ids, [7, 3, 5, 6].map(Pid::from_raw));
        assert_eq!((process.state, process.began), ('T', 4711));
        assert!(!process.is_running() && !process.has_ended());
        assert_eq!(Process::parse(7, "garbage"), None);
    }

    #[test]
    fn process_with_non_utf8_name_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
        let program = directory.path().join(name);
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let seen = descendants(Pid::this());
        child.kill().unwrap();
        child.wait().unwrap();
        // The control.
        assert!(String::from_utf8(stat).is_err());
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        assert!(seen.contains(&pid));
    }

    #[test]
    fn thread_id_is_no_running_process() {
        let thread = std::thread::spawn(|| {
            let thread = nix::unistd::gettid();
            is_any_running(&BTreeSet::from([thread]))
        });
        assert!(!thread.join().unwrap());
        assert!(is_any_running(&BTreeSet::from([Pid::this()])));
    }

    #[test]
    fn process_is_not_its_own_descendant() {
        assert!(!descendants(Pid::this()).contains(&Pid::this()));
    }
}
