//! Whether Codex has a session, for releases that don't say.

use std::fs;
use std::path::Path;

use codex_mcp_protocol::codex::ThreadId;

/// How many folders are looked through: those of 20 years, a folder a day.
const FOLDERS: usize = 8000;

/// Whether there is a rollout of the session in this CODEX_HOME:
/// `sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl` (0.104.0). Where there is more
/// than can be looked through, there may be one.
pub(super) fn has(codex_home: &Path, id: &ThreadId) -> bool {
    let mut folders = vec![codex_home.join("sessions")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        seen += 1;
        if seen > FOLDERS {
            return true;
        }
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                folders.push(entry.path());
            } else if is_rollout(&entry.file_name().to_string_lossy(), id) {
                return true;
            }
        }
    }
    false
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
        assert!(!has(home.path(), &id));
        let day = home.path().join("sessions/2026/11/22");
        fs::create_dir_all(&day).unwrap();
        fs::write(
            day.join(format!("rollout-2026-11-22T00-24-46-{id}.jsonl")),
            "",
        )
        .unwrap();
        assert!(has(home.path(), &id));
        assert!(!has(home.path(), &other));
    }
}
