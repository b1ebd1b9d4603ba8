//! Codex's own files of sessions: `sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl` in its
//! home (0.104.0 to 0.169.0), a line for each thing that happened.

use std::fs;
use std::path::{Path, PathBuf};

use codex_mcp_protocol::codex::ThreadId;

/// How many folders are looked through: those of 20 years, a folder a day.
const FOLDERS: usize = 8000;

/// What is known of the rollout of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rollout {
    At(PathBuf),
    Missing,
    /// There is more than can be looked through.
    Unknown,
}

/// Looks for the rollout of a session in this CODEX_HOME, the newest directories first.
pub(super) fn find(codex_home: &Path, id: &ThreadId) -> Rollout {
    let mut folders = vec![codex_home.join("sessions")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        if seen > FOLDERS {
            return Rollout::Unknown;
        }
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        let first = folders.len();
        for entry in entries.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                folders.push(entry.path());
            } else if is_rollout(&entry.file_name().to_string_lossy(), id) {
                return Rollout::At(entry.path());
            }
        }
        // Their names are numbers of fixed length.
        if let Some(added) = folders.get_mut(first..) {
            added.sort();
        }
    }
    Rollout::Missing
}

fn is_rollout(name: &str, id: &ThreadId) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    stem.starts_with("rollout-") && stem.ends_with(id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_found_by_its_name() {
        let home = tempfile::tempdir().unwrap();
        let id = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
        let other = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e5").unwrap();
        assert_eq!(find(home.path(), &id), Rollout::Missing);
        let day = home.path().join("sessions/2026/11/22");
        fs::create_dir_all(&day).unwrap();
        let path = day.join(format!("rollout-2026-11-22T00-24-46-{id}.jsonl"));
        fs::write(&path, "").unwrap();
        assert_eq!(find(home.path(), &id), Rollout::At(path));
        assert_eq!(find(home.path(), &other), Rollout::Missing);
    }
}
