//! Process trees, read from `/proc` (Linux).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::wait_for;

/// The polling interval of waits. The kernel reports the end of a process to its parent only, so
/// a wait for another process must poll.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process at the moment it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The number of its parent.
    pub parent: u32,
    /// Its state as one letter, from `/proc/PID/stat`: `Z` is a process that has
    /// ended and was not waited for.
    pub state: char,
    /// Its command line; its short name in parentheses if that can't be read.
    pub command: String,
}

impl Process {
    /// Reads the state of a process; `None` if there is none of that number.
    #[must_use]
    pub fn read(pid: u32) -> Option<Self> {
        // The process name in it may hold any bytes.
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name is in parentheses and may itself hold spaces and parentheses.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            command: command_line(pid).unwrap_or_else(|| format!("({name})")),
        })
    }

    /// Whether the process has ended and waits to be reaped by its parent.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// All processes below this one, parents before their children. Zombies count: a
/// test may want to know that a child was waited for.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in pids().filter_map(Process::read) {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend_from_slice(&below);
        next.extend(below);
    }
    found
}

/// Proportional set size of one process in KiB: its own memory, plus its share of
/// the memory that it shares with others. `None` if it is gone.
#[must_use]
pub fn pss_kib(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The most memory that a process has had in use at once, in KiB (`VmHWM`).
#[must_use]
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Proportional set size in KiB of a process and all below it.
#[must_use]
pub fn tree_pss_kib(pid: u32) -> u64 {
    let below = descendants(pid);
    [pid]
        .iter()
        .chain(&below)
        .copied()
        .filter_map(pss_kib)
        .sum()
}

/// How long a process has had a processor, in user and in system mode. `None` if
/// it is gone. In steps of 10 ms (USER_HZ is 100 on Linux, see proc(5)).
#[must_use]
pub fn cpu_time(pid: u32) -> Option<Duration> {
    // The process name in it may hold any bytes.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, in parentheses, may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// Waits until none of these processes runs any more and returns those that still
/// do at the end of the time: `assert_eq!(wait_until_gone(…).await, [])`.
///
/// A zombie counts as gone: in a container, nobody may ever wait for a process
/// whose parent has died.
pub async fn wait_until_gone(pids: &[u32], limit: Duration) -> Vec<Process> {
    let end = Instant::now() + limit;
    loop {
        let left: Vec<Process> = pids
            .iter()
            .filter_map(|&pid| Process::read(pid))
            .filter(|process| !process.is_zombie())
            .collect();
        if left.is_empty() || Instant::now() >= end {
            return left;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Sends a signal to a process that the test has started.
///
/// # Panics
/// If there is no such process.
#[track_caller]
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// The kernel function in which the main thread of a process sleeps, from `/proc/PID/wchan`. Empty
/// if there is no such process, and `0` if the thread runs.
#[must_use]
pub fn wait_channel(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

/// Waits until the main thread of a process sleeps in `open` of a named pipe, which nobody has
/// opened at the other end.
///
/// # Panics
/// If that takes too long.
#[track_caller]
pub fn wait_for_pipe_open(pid: u32) -> impl Future<Output = ()> {
    // The compiler of the kernel may inline the first.
    let functions = ["wait_for_partner", "fifo_open"];
    wait_for("the open of a named pipe blocks", async move || {
        functions
            .contains(&wait_channel(pid).as_str())
            .then_some(())
    })
}

/// Every live process (no zombies) that was started with this environment
/// variable at this value, whatever its parent, process group or session.
/// Processes of other users can't be seen.
#[must_use]
pub fn processes_with_env(key: &str, value: impl AsRef<OsStr>) -> Vec<Process> {
    processes_with_any_env(&[(key, value.as_ref())])
}

/// The same for several variables, one of which is enough.
#[must_use]
pub fn processes_with_any_env(variables: &[(&str, &OsStr)]) -> Vec<Process> {
    let wanted: Vec<Vec<u8>> = variables
        .iter()
        .map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    let has_one = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            environ
                .split(|&byte| byte == 0)
                .any(|pair| wanted.iter().any(|wanted| pair == wanted))
        })
    };
    pids()
        .filter(has_one)
        .filter_map(Process::read)
        .filter(|process| !process.is_zombie())
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}

fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::wait::wait_for_blocking;

    const LIMIT: Duration = Duration::from_secs(10);

    fn start(program: &str, args: &[&str], marker: &str) -> Child {
        Command::new(program)
            .args(args)
            .env("TESTKIT_PROCESS_TEST", marker)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn marked(marker: &str) -> Vec<Process> {
        processes_with_env("TESTKIT_PROCESS_TEST", marker)
    }

    fn unique(name: &str) -> String {
        format!("{name}-{}", std::process::id())
    }

    #[test]
    fn process_tree_lists_parents_first() {
        let mut shell = start("sh", &["-c", "sleep 600; true"], &unique("tree"));
        let is_sleep = |pid: &u32| Process::read(*pid).is_some_and(|p| p.command == "sleep 600");
        let sleep = wait_for_blocking("the process of sleep", || {
            descendants(shell.id()).into_iter().find(is_sleep)
        });

        let below = descendants(std::process::id());
        let place = |pid| below.iter().position(|&found| found == pid).unwrap();
        assert!(place(shell.id()) < place(sleep));
        assert_eq!(Process::read(sleep).unwrap().parent, shell.id());
        assert!(tree_pss_kib(shell.id()) > pss_kib(shell.id()).unwrap());

        shell.kill().unwrap();
        shell.wait().unwrap();
        end_all(&unique("tree"));
    }

    #[tokio::test]
    async fn process_in_its_own_session_is_found_by_environment() {
        let marker = unique("session");
        let mut shell = start("sh", &["-c", "setsid sleep 600 & true"], &marker);
        shell.wait().unwrap();

        let left = marked(&marker);
        assert_eq!(left.len(), 1, "{left:?}");
        assert_ne!(left[0].parent, std::process::id());
        assert_eq!(
            wait_until_gone(&[left[0].pid], Duration::ZERO).await.len(),
            1
        );

        end_all(&marker);
        assert_eq!(wait_until_gone(&[left[0].pid], LIMIT).await, []);
        assert_eq!(marked(&marker), []);
    }

    #[test]
    fn unreaped_process_is_a_zombie() {
        let mut child = start("true", &[], &unique("zombie"));
        wait_for_blocking("the end of the process", || {
            let is_zombie = Process::read(child.id()).unwrap().is_zombie();
            is_zombie.then_some(())
        });

        assert_eq!(marked(&unique("zombie")), []);
        assert!(descendants(std::process::id()).contains(&child.id()));
        assert_eq!(pss_kib(child.id()), None);
        child.wait().unwrap();
        assert_eq!(Process::read(child.id()), None);
    }

    fn end_all(marker: &str) {
        for process in marked(marker) {
            signal(process.pid, Signal::SIGKILL);
        }
    }
}
