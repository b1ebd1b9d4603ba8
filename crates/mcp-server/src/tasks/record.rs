//! The files of tasks: one for each task of a call that waits for a turn.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use codex_protocol::codex::ThreadId;
use common::text::hex;
use rmcp::model::JsonObject;
use safe_files::off_runtime::{self, OffRuntimeError};
use safe_files::state_file::{self, FileError};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest file of a task, in bytes. A result has at most some MiB.
const LONGEST: u64 = 64 << 20;

/// How long a task without an end is kept after its last change. A host that still works on it
/// renews it; another one may have been killed.
const KEPT_UNENDED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The extension of the files.
const EXTENSION: &str = "json";

/// The key of a task in this program: the SHA-256 digest of its ID in hexadecimal digits. Anyone
/// who knows an ID could answer the task's questions, so the files contain only keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TaskKey(String);

impl TaskKey {
    pub(super) fn of(id: &str) -> Self {
        Self(hex(&Sha256::digest(id)))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for TaskKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is stored of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskRecord {
    /// The host that has it, by its key.
    pub(super) host: String,
    /// The call that it answers, by its name in the engine.
    pub(super) call: String,
    pub(super) created: SystemTime,
    /// The thread, once it is open.
    pub(super) thread: Option<ThreadId>,
    /// The warnings for the caller.
    pub(super) warnings: Vec<String>,
    /// The time limit of the turn, without the time that a question is open.
    pub(super) limit: Option<Duration>,
    /// Whether it was cancelled before it ended.
    pub(super) is_cancelled: bool,
    pub(super) ended: Option<EndedTask>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndedTask {
    pub(super) at: SystemTime,
    pub(super) result: JsonObject,
}

/// The fields of a record that are needed to find the tasks of a host. Results are not parsed, as
/// they may be long.
#[derive(Deserialize)]
struct RecordHead {
    host: String,
    call: String,
    ended: Option<IgnoredAny>,
}

/// A task of a host, as the next host finds it.
pub(super) struct FoundTask {
    pub(super) key: TaskKey,
    /// The call that it answers, by its name in the engine.
    pub(super) call: String,
    /// The record, if the task has not ended.
    pub(super) open: Option<TaskRecord>,
}

/// A failure to store or to find a task.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreFailure {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        error: serde_json::Error,
    },
    #[error(transparent)]
    OffRuntime(#[from] OffRuntimeError),
}

/// The directory of the files.
#[derive(Debug, Clone)]
pub(super) struct TaskFiles {
    directory: PathBuf,
    /// How long a task is kept after its end.
    kept: Duration,
}

impl TaskFiles {
    pub(super) fn new(directory: PathBuf, kept: Duration) -> Self {
        Self { directory, kept }
    }

    fn path(&self, key: &TaskKey) -> PathBuf {
        self.directory.join(key.as_str()).with_extension(EXTENSION)
    }

    /// Stores a task. It is on the disk afterwards. Only the host that has the task may do this,
    /// and only once at a time.
    pub(super) async fn write(
        &self,
        key: &TaskKey,
        record: &TaskRecord,
    ) -> Result<(), StoreFailure> {
        let path = self.path(key);
        let unreadable = |error| StoreFailure::Unreadable {
            path: path.clone(),
            error,
        };
        let bytes = serde_json::to_vec(record).map_err(unreadable)?;
        let directory = self.directory.clone();
        Ok(off_runtime::run(move || {
            state_file::make_directory(&directory)?;
            state_file::replace(&path, &bytes).map(drop)
        })
        .await??)
    }

    /// A task; `None` if there is none, or no longer.
    pub(super) async fn read(&self, key: &TaskKey) -> Result<Option<TaskRecord>, StoreFailure> {
        let path = self.path(key);
        off_runtime::run(move || read(&path)).await?
    }

    /// Removes tasks whose retention time is over. Renews the files of `live`, the tasks of this
    /// host that have not ended, so that other hosts keep them.
    pub(super) async fn remove_old(&self, live: HashSet<TaskKey>) -> Result<(), StoreFailure> {
        let Self { directory, kept } = self.clone();
        Ok(off_runtime::run(move || {
            for path in files(&directory)? {
                let is_live = key_of(&path).is_some_and(|key| live.contains(&key));
                let (done, failure) = match is_live {
                    true => (renew(&path), "cannot renew a live task"),
                    false if is_old(&path, kept) => {
                        (state_file::remove(&path), "cannot remove an old task")
                    }
                    false => continue,
                };
                if let Err(error) = done {
                    // The others are removed all the same.
                    tracing::warn!("{failure}: {error}");
                }
            }
            Ok::<_, FileError>(())
        })
        .await??)
    }

    /// The tasks of a host.
    pub(super) async fn of_host(&self, host: &str) -> Result<Vec<FoundTask>, StoreFailure> {
        let (directory, host) = (self.directory.clone(), host.to_owned());
        off_runtime::run(move || {
            let mut found = Vec::new();
            for path in files(&directory)? {
                let Some(key) = key_of(&path) else {
                    continue;
                };
                match find(&path, key, &host) {
                    Ok(task) => found.extend(task),
                    // The others are found all the same.
                    Err(error) => tracing::warn!("a task cannot be read: {error}"),
                }
            }
            Ok(found)
        })
        .await?
    }
}

/// The files of the tasks, including the remains of interrupted writes.
fn files(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(state_file::about(directory))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: io::Result<_> = paths.collect();
    paths.map_err(state_file::about(directory))
}

/// The task of a file; `None` for one that an interrupted write has left.
fn key_of(path: &Path) -> Option<TaskKey> {
    let is_task = path.extension()? == EXTENSION;
    let name = path.file_stem()?.to_str()?;
    is_task.then(|| TaskKey(name.to_owned()))
}

/// Marks the file of a task as changed just now.
fn renew(path: &Path) -> Result<(), FileError> {
    match state_file::open(path)? {
        Some(file) => file
            .set_modified(SystemTime::now())
            .map_err(state_file::about(path)),
        None => Ok(()),
    }
}

fn is_old(path: &Path, kept: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|about| about.modified());
    let Some(age) = changed.ok().and_then(|changed| changed.elapsed().ok()) else {
        return false;
    };
    let is_unended = || matches!(read::<RecordHead>(path), Ok(Some(head)) if head.ended.is_none());
    age >= kept.max(KEPT_UNENDED) || (age >= kept && !is_unended())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreFailure> {
    let Some(file) = state_file::open(path)? else {
        return Ok(None);
    };
    let bytes = state_file::read(&file, path, LONGEST)?;
    let record = serde_json::from_slice(&bytes);
    let record = record.map_err(|error| StoreFailure::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    Ok(Some(record))
}

/// The task of a file, if this host has it.
fn find(path: &Path, key: TaskKey, host: &str) -> Result<Option<FoundTask>, StoreFailure> {
    let head: Option<RecordHead> = read(path)?;
    let Some(RecordHead { call, ended, .. }) = head.filter(|head| head.host == host) else {
        return Ok(None);
    };
    let open = match ended {
        Some(IgnoredAny) => None,
        None => read(path)?,
    };
    Ok(Some(FoundTask { key, call, open }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

    fn record(host: &str) -> TaskRecord {
        TaskRecord {
            host: host.to_owned(),
            call: "c 1".to_owned(),
            created: SystemTime::now(),
            thread: None,
            warnings: vec!["w".to_owned()],
            limit: None,
            is_cancelled: false,
            ended: Some(EndedTask {
                at: SystemTime::now(),
                result: JsonObject::new(),
            }),
        }
    }

    #[tokio::test]
    async fn task_is_found_by_its_id_and_by_its_host() {
        let directory = tempfile::tempdir().unwrap();
        let files = TaskFiles::new(directory.path().join("tasks"), KEPT);
        assert!(files.of_host("h").await.unwrap().is_empty());
        let (key, other) = (TaskKey::of("id"), TaskKey::of("other"));
        assert_eq!(files.read(&key).await.unwrap(), None);
        files.write(&key, &record("h")).await.unwrap();
        files.write(&other, &record("i")).await.unwrap();
        let read = files.read(&key).await.unwrap().unwrap();
        assert_eq!((read.host.as_str(), read.warnings.len()), ("h", 1));
        let found = files.of_host("h").await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].key, found[0].call.as_str()), (&key, "c 1"));
        assert!(found[0].open.is_none());
        let path = files.path(&key);
        assert!(!path.to_str().unwrap().contains("/id"));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    fn make_older_than(path: &Path, age: Duration) {
        let file = fs::File::options().write(true).open(path);
        let changed = SystemTime::now() - age - Duration::from_secs(1);
        file.unwrap().set_modified(changed).unwrap();
    }

    #[tokio::test]
    async fn live_task_is_kept_by_other_hosts() {
        let directory = tempfile::tempdir().unwrap();
        let files = TaskFiles::new(directory.path().to_owned(), KEPT);
        let live = TaskKey::of("live");
        let record = TaskRecord {
            ended: None,
            ..record("h")
        };
        files.write(&live, &record).await.unwrap();
        make_older_than(&files.path(&live), KEPT_UNENDED);
        let of_its_host = HashSet::from([live.clone()]);
        files.remove_old(of_its_host).await.unwrap();
        let of_another_host = HashSet::new();
        files.remove_old(of_another_host).await.unwrap();
        assert_eq!(files.read(&live).await.unwrap(), Some(record));
    }

    #[tokio::test]
    async fn old_tasks_are_removed_and_torn_ones_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let files = TaskFiles::new(directory.path().to_owned(), KEPT);
        let [old, torn, whole, live] = ["old", "torn", "whole", "live"].map(TaskKey::of);
        let [unended, abandoned] = ["unended", "abandoned"].map(TaskKey::of);
        for key in [&old, &whole, &live] {
            files.write(key, &record("h")).await.unwrap();
        }
        for key in [&unended, &abandoned] {
            let record = TaskRecord {
                ended: None,
                ..record("h")
            };
            files.write(key, &record).await.unwrap();
        }
        let ages = [(&old, KEPT), (&live, KEPT), (&unended, KEPT)];
        for (key, age) in ages.into_iter().chain([(&abandoned, KEPT_UNENDED)]) {
            make_older_than(&files.path(key), age);
        }
        files
            .remove_old(HashSet::from([live.clone()]))
            .await
            .unwrap();
        fs::write(files.path(&torn), "{").unwrap();
        let found = files.of_host("h").await.unwrap();
        let open = found.iter().filter(|task| task.open.is_some());
        assert_eq!(open.map(|task| &task.key).collect::<Vec<_>>(), [&unended]);
        let found: HashSet<_> = found.into_iter().map(|task| task.key).collect();
        assert_eq!(found, HashSet::from([whole, live, unended]));
        assert_eq!(files.read(&old).await.unwrap(), None);
        let failed = files.read(&torn).await.unwrap_err();
        assert!(matches!(failed, StoreFailure::Unreadable { .. }));
    }
}
