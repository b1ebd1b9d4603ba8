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

/// Every process and its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((Pid::from_raw(pid), Pid::from_raw(parent_in(&stat)?)))
        })
        .collect()
}

/// The parent in a line of `/proc/PID/stat` (proc(5)). The second field, the
/// name, is in parentheses and may hold anything, parentheses included.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_hostile_name() {
        assert_eq!(parent_in("7 (a) b) S 3 7 7 0 -1"), Some(3));
        assert_eq!(parent_in("garbage"), None);
    }

    #[test]
    fn nothing_is_its_own_descendant() {
        assert!(!descendants(Pid::this()).contains(&Pid::this()));
    }
}
