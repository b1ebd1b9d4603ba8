//! Rollouts: Codex's own files of sessions, `sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl` in its
//! home (0.104.0 to 0.169.0), with one line for each item.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use codex_protocol::codex::ThreadId;
use safe_files::untrusted_file::{self, Links};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The directory of rollouts, in Codex's home.
const SESSIONS: &str = "sessions";

/// The directory of archived rollouts, in Codex's home.
const ARCHIVED: &str = "archived_sessions";

/// The most directories that are searched, one for each day: about 20 years.
const DIRECTORIES: usize = 8000;

/// The longest first line that is read, in bytes. It holds instructions, too.
const LONGEST_FIRST_LINE: u64 = 4 * 1024 * 1024;

/// The length of the ID at the end of a rollout's name.
const ID_LENGTH: usize = 36;

/// The result of a search for the rollout of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollout {
    /// The path of the rollout.
    At(PathBuf),
    /// There is no rollout.
    Missing,
    /// There are more directories than the search visits.
    Unknown,
}

/// The sessions with a certain ID prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// All sessions with the prefix, in order.
    All(Vec<ThreadId>),
    /// There are more directories than the search visits.
    TooMany,
}

/// The directory in which a session was begun, according to its rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartDirectory {
    /// The directory.
    In(PathBuf),
    /// There is no rollout.
    Missing,
    /// The rollout does not name it, or there are more directories than the search visits.
    Unknown,
}

/// The first line of a rollout, with the fields that are used.
#[derive(Deserialize)]
struct FirstLine<T> {
    payload: T,
}

/// The directory in which the session was begun.
#[derive(Deserialize)]
struct DirectoryPayload {
    cwd: PathBuf,
}

/// The model provider that the session began with, which it keeps.
#[derive(Deserialize)]
struct ProviderPayload {
    #[serde(default)]
    model_provider: Option<String>,
}

/// The tools that a client gave the session.
#[derive(Deserialize)]
struct ToolsPayload {
    #[serde(default)]
    dynamic_tools: Option<Vec<Tool>>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
}

/// The directory in which a session in this CODEX_HOME was begun. Codex resumes it there
/// (0.104.0 to 0.169.0), unless it is given another directory.
pub(crate) fn start_directory(codex_home: &Path, id: &ThreadId) -> StartDirectory {
    let found = walk(codex_home, &[ARCHIVED, SESSIONS], |path, one| {
        (one == *id).then(|| path.to_owned())
    });
    match found {
        Walk::Found(path) => directory(&path).map_or(StartDirectory::Unknown, StartDirectory::In),
        Walk::AllSeen => StartDirectory::Missing,
        Walk::TooMany => StartDirectory::Unknown,
    }
}

fn directory(rollout: &Path) -> Option<PathBuf> {
    let DirectoryPayload { cwd } = first_line(rollout)?;
    Some(cwd).filter(|cwd| cwd.is_absolute())
}

/// The names of the tools that a client gave the session; `None` if they are not known.
pub(super) fn tools(rollout: &Path) -> Option<Vec<String>> {
    let ToolsPayload { dynamic_tools } = first_line(rollout)?;
    let tools = dynamic_tools.unwrap_or_default();
    Some(tools.into_iter().map(|tool| tool.name).collect())
}

/// The model provider of a session, if its rollout names it.
pub fn provider(codex_home: &Path, id: &ThreadId) -> Option<String> {
    match find(codex_home, id) {
        Rollout::At(path) => first_line::<ProviderPayload>(&path)?.model_provider,
        Rollout::Missing | Rollout::Unknown => None,
    }
}

fn first_line<T: DeserializeOwned>(rollout: &Path) -> Option<T> {
    let file = untrusted_file::open(rollout, Links::Followed).ok()?;
    let mut line = Vec::new();
    let mut file = BufReader::new(file.take(LONGEST_FIRST_LINE));
    file.read_until(b'\n', &mut line).ok()?;
    let FirstLine { payload } = serde_json::from_slice(&line).ok()?;
    Some(payload)
}

/// Looks for the rollout of a session in this CODEX_HOME, the newest directories first.
pub fn find(codex_home: &Path, id: &ThreadId) -> Rollout {
    let found = walk(codex_home, &[SESSIONS], |path, one| {
        (one == *id).then(|| Rollout::At(path.to_owned()))
    });
    match found {
        Walk::Found(rollout) => rollout,
        Walk::AllSeen => Rollout::Missing,
        Walk::TooMany => Rollout::Unknown,
    }
}

/// The sessions in this CODEX_HOME with this ID prefix.
pub fn starting_with(codex_home: &Path, prefix: &str) -> Matches {
    let mut ids = BTreeSet::new();
    let whole = ThreadId::parse(prefix).ok();
    let walked = walk(codex_home, &[SESSIONS], |_, id| {
        let is_whole = whole.as_ref() == Some(&id);
        if id.as_str().starts_with(prefix) {
            ids.insert(id);
        }
        is_whole.then_some(())
    });
    match walked {
        Walk::TooMany => Matches::TooMany,
        Walk::Found(()) | Walk::AllSeen => Matches::All(ids.into_iter().collect()),
    }
}

/// The result of a walk through the rollouts.
enum Walk<T> {
    Found(T),
    AllSeen,
    TooMany,
}

/// Calls `look` for each rollout below these directories, the newest first, until it
/// returns a result.
fn walk<T>(
    codex_home: &Path,
    roots: &[&str],
    mut look: impl FnMut(&Path, ThreadId) -> Option<T>,
) -> Walk<T> {
    let mut directories: Vec<_> = roots.iter().map(|root| codex_home.join(root)).collect();
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        seen += 1;
        if seen > DIRECTORIES {
            return Walk::TooMany;
        }
        let Ok(entries) = fs::read_dir(directory) else {
            continue;
        };
        let first = directories.len();
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
                continue;
            }
            let id = id(&entry.file_name().to_string_lossy());
            if let Some(found) = id.and_then(|id| look(&entry.path(), id)) {
                return Walk::Found(found);
            }
        }
        // Their names are numbers of fixed length.
        if let Some(added) = directories.get_mut(first..) {
            added.sort();
        }
    }
    Walk::AllSeen
}

/// The session ID in the name of a rollout.
fn id(name: &str) -> Option<ThreadId> {
    let stem = name.split('.').next()?.strip_prefix("rollout-")?;
    let start = stem.len().checked_sub(ID_LENGTH)?;
    ThreadId::parse(stem.get(start..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollout_is_found_by_its_file_name() {
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
        for prefix in ["01a200a4", id.as_str()] {
            assert_eq!(
                starting_with(home.path(), prefix),
                Matches::All(vec![id.clone()])
            );
        }
        fs::write(
            day.join(format!("rollout-2026-11-22T00-24-47-{other}.jsonl")),
            "",
        )
        .unwrap();
        let both = Matches::All(vec![id.clone(), other]);
        assert_eq!(starting_with(home.path(), "01a200a4-af16"), both);
        assert_eq!(
            starting_with(home.path(), "01a200a5"),
            Matches::All(Vec::new())
        );
    }

    #[test]
    fn tools_are_read_from_the_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let rollout = directory.path().join("rollout.jsonl");
        let tools = |text: &str| {
            fs::write(&rollout, text).unwrap();
            tools(&rollout)
        };
        let with = r#"{"type":"session_meta","payload":{"id":"x","dynamic_tools":[
            {"name":"a","description":"","inputSchema":{}},{"name":"b"}]}}"#;
        let with = with.replace('\n', "");
        assert_eq!(tools(&format!("{with}\n{{}}\n")).unwrap(), ["a", "b"]);
        let without = r#"{"type":"session_meta","payload":{"id":"x"}}"#;
        assert_eq!(tools(without).unwrap(), [""; 0]);
        assert_eq!(tools("nothing"), None);
        assert_eq!(super::tools(&directory.path().join("missing")), None);
    }

    #[test]
    fn directory_of_a_session_is_read_from_the_first_line() {
        let home = tempfile::tempdir().unwrap();
        let id = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
        for day in ["sessions/2026/11/22", "archived_sessions"] {
            let day = home.path().join(day);
            assert_eq!(start_directory(home.path(), &id), StartDirectory::Missing);
            fs::create_dir_all(&day).unwrap();
            let path = day.join(format!("rollout-2026-11-22T00-24-46-{id}.jsonl"));
            for (text, expected) in [
                (
                    "{\"type\":\"session_meta\",\"payload\":{\"cwd\":\"/work\"}}\n{}\n",
                    StartDirectory::In("/work".into()),
                ),
                (
                    "{\"payload\":{\"cwd\":\"work\"}}\n",
                    StartDirectory::Unknown,
                ),
                (
                    "{\"payload\":{}}\n{\"payload\":{\"cwd\":\"/x\"}}\n",
                    StartDirectory::Unknown,
                ),
            ] {
                fs::write(&path, text).unwrap();
                assert_eq!(start_directory(home.path(), &id), expected, "{text}");
            }
            fs::remove_file(&path).unwrap();
        }
    }
}
