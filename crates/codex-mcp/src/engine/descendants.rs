//! The processes below a process.
#![expect(clippy::disallowed_methods, reason = "the system's own files in /proc")]

use nix::unistd::Pid;

/// All processes whose chain of parents leads to `root`, without `root`
/// itself. Empty where the system has no `/proc`.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let processes = parents();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            processes
                .iter()
                .filter(|(_, its_parent)| *its_parent == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.remove(0);
    found
}

/// The child of a process that has lived longest: what the process has started itself,
/// and not adopted later.
pub(crate) fn first_child(of: Pid) -> Option<Pid> {
    let children = parents().into_iter().filter(|(_, parent)| *parent == of);
    let began = children.filter_map(|(child, _)| {
        let stat = stat(child.as_raw())?;
        Some((started_in(&stat)?, child))
    });
    began
        .min_by_key(|(began, _)| *began)
        .map(|(_, child)| child)
}

/// Every process and its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((Pid::from_raw(pid), Pid::from_raw(parent_in(&stat(pid)?)?)))
        })
        .collect()
}

fn stat(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// The parent in a line of `/proc/PID/stat` (proc(5)). The second field, the
/// name, is in parentheses and may hold anything, parentheses included.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// When the process began, in clock ticks since the system did: field 22 of that line.
fn started_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_hostile_name() {
        assert_eq!(parent_in("7 (a) b) S 3 7 7 0 -1"), Some(3));
        assert_eq!(parent_in("garbage"), None);
        let stat = "7 (a) b) S 3 7 7 0 -1 1 2 3 4 5 6 7 8 9 10 11 12 13 4711 99";
        assert_eq!(started_in(stat), Some(4711));
    }

    #[test]
    fn nothing_is_its_own_descendant() {
        assert!(!descendants(Pid::this()).contains(&Pid::this()));
    }
}
