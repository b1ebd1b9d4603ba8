//! Determines the conversation of a Codex process.
//!
//! Newer releases name it in each tool call. 0.104.0 does not, but every release keeps the
//! conversation's rollout open. Codex's commands can also write requests, and name any conversation
//! of the user in them, so a named conversation counts only if Codex itself has its rollout open.

use std::iter;
use std::path::Path;
use std::{fs, io};

use codex_protocol::codex::ThreadId;
use nix::unistd::Pid;
use supervise::descendants::Processes;

/// The length of the id at the end of a rollout's name.
const ID_LENGTH: usize = 36;

/// The conversation of the Codex below this process: the one that a request names, if Codex has its
/// rollout open, or else the only conversation whose rollout is open.
///
/// If the system cannot list open files, as without `/proc`, the `known` conversation is returned,
/// or the named one if none is known.
#[must_use]
pub fn of(guard: Pid, named: Option<ThreadId>, known: Option<&ThreadId>) -> Option<ThreadId> {
    choose(named, known, open_rollouts(guard))
}

fn choose(
    named: Option<ThreadId>,
    known: Option<&ThreadId>,
    open: Option<Vec<ThreadId>>,
) -> Option<ThreadId> {
    let Some(mut open) = open else {
        return known.cloned().or(named);
    };
    open.sort();
    open.dedup();
    match (named.filter(|named| open.contains(named)), open.as_slice()) {
        (Some(named), _) => Some(named),
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
    }
}

/// The rollouts that Codex has open; `None` if they cannot be determined. Codex is the oldest child
/// of its guard, or if that child is a script, the oldest process below it. Codex's commands are
/// further down, or, if they have lost their parent, younger children of the guard.
fn open_rollouts(guard: Pid) -> Option<Vec<ThreadId>> {
    let processes = Processes::read()?;
    let oldest = processes.first_child(guard);
    for process in iter::successors(oldest, |above| processes.first_child(above.pid)) {
        let open = rollouts(process.pid).ok()?;
        if !open.is_empty() {
            return Some(open);
        }
    }
    Some(Vec::new())
}

fn rollouts(process: Pid) -> io::Result<Vec<ThreadId>> {
    let files = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let rollouts = files.filter_map(|file| id(&fs::read_link(file.path()).ok()?));
    Ok(rollouts.collect())
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
    fn named_conversation_counts_only_if_its_rollout_is_open() {
        let [ours, other, third] = ["3", "4", "5"].map(|last| {
            let id = format!("{}{last}", ID.strip_suffix('3').unwrap());
            ThreadId::parse(&id).unwrap()
        });
        let chosen = |named: Option<&ThreadId>, open: &[&ThreadId]| {
            let open = open.iter().copied().cloned().collect();
            choose(named.cloned(), None, Some(open))
        };
        assert_eq!(chosen(Some(&other), &[&ours]), Some(ours.clone()));
        assert_eq!(chosen(Some(&other), &[&ours, &third]), None);
        assert_eq!(chosen(Some(&other), &[]), None);
        assert_eq!(chosen(Some(&ours), &[&other, &ours]), Some(ours.clone()));
        assert_eq!(chosen(None, &[&ours, &ours]), Some(ours.clone()));
        assert_eq!(chosen(None, &[&ours, &other]), None);
    }

    #[test]
    fn first_named_conversation_stays_where_open_files_are_not_known() {
        let [named, known] =
            [ID, "0199a213-81c0-7800-8aa1-bbab2a035a54"].map(|id| ThreadId::parse(id).unwrap());
        let chosen = |known| choose(Some(named.clone()), known, None);
        assert_eq!(chosen(None), Some(named.clone()));
        assert_eq!(chosen(Some(&known)), Some(known.clone()));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(portable)))]
    fn guard_without_a_child_has_no_conversation() {
        let no_process = Pid::from_raw(i32::MAX);
        let [named, known] =
            [ID, "0199a213-81c0-7800-8aa1-bbab2a035a54"].map(|id| ThreadId::parse(id).unwrap());
        assert_eq!(of(no_process, Some(named), Some(&known)), None);
    }
}
