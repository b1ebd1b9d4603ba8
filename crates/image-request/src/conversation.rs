//! The conversation of a Codex process.
//!
//! Newer releases name it in each tool call. 0.104.0 does not, but every release keeps the
//! conversation's rollout open.

use std::fs;
use std::path::Path;

use codex_protocol::codex::ThreadId;
use nix::unistd::Pid;
use supervise::descendants::descendants;

/// The length of the id at the end of a rollout's name.
const ID_LENGTH: usize = 36;

/// The conversation of the Codex below this process. Known only on systems with `/proc`, and
/// if exactly one rollout is open.
#[must_use]
pub fn of(guard: Pid) -> Option<ThreadId> {
    let mut open: Vec<ThreadId> = descendants(guard).into_iter().flat_map(rollouts).collect();
    open.sort();
    open.dedup();
    match open.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    }
}

fn rollouts(process: Pid) -> Vec<ThreadId> {
    let files = fs::read_dir(format!("/proc/{process}/fd"));
    let files = files.into_iter().flatten().flatten();
    files
        .filter_map(|file| id(&fs::read_link(file.path()).ok()?))
        .collect()
}

/// Source of the name: `sessions/YYYY/MM/DD/rollout-DATE-ID.jsonl` in the CODEX_HOME of
/// 0.104.0 to 0.169.0.
fn id(path: &Path) -> Option<ThreadId> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let start = stem.len().checked_sub(ID_LENGTH)?;
    ThreadId::parse(stem.get(start..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";

    #[test]
    fn id_is_read_from_the_end_of_a_rollout_name() {
        let told = |name: &str| id(&Path::new("/home/.codex/sessions/2026/11/22").join(name));
        let rollout = format!("rollout-2026-11-22T10-00-00-{ID}.jsonl");
        assert_eq!(told(&rollout), ThreadId::parse(ID).ok());
        for other in [
            "rollout-.jsonl",
            "x.jsonl",
            "rollout-ü.jsonl",
            "history.jsonl",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn process_without_descendants_has_no_conversation() {
        assert_eq!(of(Pid::this()), None);
    }
}
