//! Which conversation a Codex has.
//!
//! Newer releases tell it with each call of a tool. 0.104.0 doesn't, but there, as in
//! all others, Codex has the conversation's rollout open.

use std::fs;
use std::path::Path;

use codex_protocol::codex::ThreadId;
use nix::unistd::Pid;
use supervise::descendants::descendants;

/// How long the id at the end of a rollout's name is.
const ID_LENGTH: usize = 36;

/// The conversation of the Codex below this process, if that can be told: where the
/// system has a `/proc`, and only one is open.
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
    fn an_id_is_the_end_of_a_rollouts_name() {
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
    fn nobody_below_has_none() {
        assert_eq!(of(Pid::this()), None);
    }
}
