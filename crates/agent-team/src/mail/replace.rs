//! Replaces a file that other programs also write.
//!
//! The new text is written to a draft next to the file, and the two are exchanged atomically: a
//! reader finds the whole old or the whole new text at any time, also after a crash. The replaced
//! text is then compared with the text on which the new one was based. If they differ, another
//! program has written in spite of the locks; the two are merged, and the exchange is repeated.
//!
//! If the system or the file system does not support the exchange, the file is read once more just
//! before the draft is renamed to it.
#![expect(
    clippy::disallowed_methods,
    reason = "new files beside the one that they replace, and directories"
)]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use safe_files::state_file::set_aside;

use super::MailError;
use super::file::{Contents, read};

/// The most concurrent writes in a row that are merged.
const MAX_ROUNDS: usize = 100;

/// The longest time for which a file may be empty or incomplete while another program writes it in
/// place.
pub(super) const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause between two reads of such a file.
const PAUSE: Duration = Duration::from_millis(5);

/// The mode of a new file.
const NEW_FILE_MODE: u32 = 0o600;

/// The state of the file from which a new text is made.
pub(super) enum FileState<'a> {
    /// The file as it is; empty if there is none.
    Current(&'a [u8]),
    /// Another program wrote in spite of the locks.
    Collision {
        /// The text that we read.
        before: &'a [u8],
        /// The text that we wrote, which is in the file now.
        ours: &'a [u8],
        /// The text that we replaced.
        found: &'a [u8],
    },
}

/// Makes a new text from the state of the file; `None` writes nothing.
pub(super) trait Change: FnMut(FileState<'_>) -> Result<Option<Vec<u8>>, MailError> {}

impl<F: FnMut(FileState<'_>) -> Result<Option<Vec<u8>>, MailError>> Change for F {}

/// Replaces a file, which the caller has locked, by the text that `change` makes of it. A file that
/// can't be parsed is read again for a moment, as another program may be writing it.
pub(super) fn replace(path: &Path, limit: u64, change: impl Change) -> Result<(), MailError> {
    let replacement = Replacement {
        path,
        limit,
        settle_timeout: SETTLE_TIMEOUT,
    };
    replacement.perform(change)
}

/// Sets aside the drafts of a dead writer if they contain messages that the file lacks: after an
/// exchange, only the draft contains what another program wrote. `has_lost` looks for such messages
/// in the texts of the file and of a draft. Other drafts are left in place, as the next writes
/// replace them. The caller must have locked the file. If a draft cannot be set aside, this fails,
/// and the file must not be written.
pub(super) fn keep_lost_drafts(
    path: &Path,
    limit: u64,
    has_lost: impl Fn(&[u8], &[u8]) -> Result<bool, MailError>,
) -> Result<(), MailError> {
    let replacement = Replacement {
        path,
        limit,
        settle_timeout: SETTLE_TIMEOUT,
    };
    for draft in [replacement.draft(0), replacement.draft(1)] {
        // No exchange leaves a draft that can't be read.
        let Ok(Some(left)) = replacement.read_settled(&draft) else {
            continue;
        };
        let is_needed = retry_while_malformed(|| {
            let current = replacement.read_settled(path)?;
            let current = current.map_or_else(Vec::new, |current| current.bytes);
            has_lost(&current, &left.bytes)
        })?;
        if is_needed {
            let kept = set_aside(&draft)
                .map_err(|error| MailError::of(&draft)(io::Error::other(error)))?;
            tracing::warn!(
                "a process ended while it wrote {}: its draft has messages that are missing there, \
                 which another program wrote or which were not sent. It is kept in {}",
                path.display(),
                kept.display()
            );
        }
    }
    Ok(())
}

/// Tries again for a moment while a file can't be parsed.
pub(super) fn retry_while_malformed<T>(
    look: impl FnMut() -> Result<T, MailError>,
) -> Result<T, MailError> {
    let mut look = look;
    let begin = Instant::now();
    loop {
        match look() {
            Err(MailError::BadInbox { .. } | MailError::BadRoster { .. })
                if begin.elapsed() < SETTLE_TIMEOUT =>
            {
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Reads a file; `None` if there is none. An empty file is read again for `settle_timeout` after its
/// last change: a program that writes a file in place empties it first.
pub(super) fn read_settled(
    path: &Path,
    limit: u64,
    settle_timeout: Duration,
) -> Result<Option<Contents>, MailError> {
    let begin = Instant::now();
    loop {
        let contents = read(path, limit)?;
        let is_empty = contents.as_ref().is_some_and(|now| now.bytes.is_empty());
        let is_late = begin.elapsed() >= settle_timeout;
        if !is_empty || is_late || !was_changed(path, settle_timeout) {
            return Ok(contents);
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a file was modified less than `within` ago. After the clock was set back, a modification
/// time in the future counts as now.
fn was_changed(path: &Path, within: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|about| about.modified());
    changed.is_ok_and(|changed| changed.elapsed().unwrap_or_default() < within)
}

/// The result of installing a draft.
enum DraftOutcome {
    /// The draft is the file now.
    Installed,
    /// The draft and the file were exchanged.
    Exchanged,
    /// Another program has created, removed or changed the file.
    FileChanged,
}

struct Replacement<'a> {
    path: &'a Path,
    limit: u64,
    /// For how long an empty file is read again before the inbox counts as empty.
    settle_timeout: Duration,
}

impl Replacement<'_> {
    fn perform(&self, mut change: impl Change) -> Result<(), MailError> {
        for _ in 0..MAX_ROUNDS {
            let (before, ours) = retry_while_malformed(|| {
                let before = self.read_settled(self.path)?;
                let bytes = before.as_ref().map_or(&[][..], |before| &before.bytes);
                let ours = change(FileState::Current(bytes))?;
                Ok((before, ours))
            })?;
            let Some(ours) = ours else { return Ok(()) };
            let mode = before.as_ref().map_or(NEW_FILE_MODE, |before| before.mode);
            let draft = self.draft(0);
            self.write(&draft, &ours, mode)?;
            match self.install(&draft, before.as_ref())? {
                DraftOutcome::Installed => return sync_directory(self.path),
                DraftOutcome::Exchanged => {
                    let before = before.map_or_else(Vec::new, |before| before.bytes);
                    self.merge_collisions(before, ours, mode, &mut change)?;
                    return sync_directory(self.path);
                }
                DraftOutcome::FileChanged => {}
            }
        }
        let _ = fs::remove_file(self.draft(0));
        Err(MailError::Unsettled {
            path: self.path.to_owned(),
            kept: self.path.to_owned(),
        })
    }

    /// Reads the file or a draft.
    fn read_settled(&self, path: &Path) -> Result<Option<Contents>, MailError> {
        read_settled(path, self.limit, self.settle_timeout)
    }

    /// The path of a draft; two alternate. The names do not have the extension of inboxes, and are
    /// always the same, so that the next writer cleans up after one that died.
    fn draft(&self, round: usize) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(if round.is_multiple_of(2) {
            ".new"
        } else {
            ".newer"
        });
        self.path.with_file_name(name)
    }

    /// Writes a draft, unless it is too large to be read afterwards.
    fn write(&self, draft: &Path, bytes: &[u8], mode: u32) -> Result<(), MailError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match length > self.limit {
            true => Err(MailError::TooLarge {
                path: self.path.to_owned(),
                bytes: length,
                limit: self.limit,
            }),
            false => write(draft, bytes, mode).map_err(MailError::of(draft)),
        }
    }

    fn install(&self, draft: &Path, before: Option<&Contents>) -> Result<DraftOutcome, MailError> {
        let step = match before {
            Some(_) => step::exchange(draft, self.path),
            None => step::give_name(draft, self.path),
        };
        match (step, before) {
            (Ok(()), Some(_)) => Ok(DraftOutcome::Exchanged),
            (Ok(()), None) => Ok(DraftOutcome::Installed),
            (Err(step::StepError::Changed), _) => Ok(DraftOutcome::FileChanged),
            (Err(step::StepError::Unsupported), _) => self.install_by_rename(draft, before),
            (Err(step::StepError::Other(error)), _) => Err(MailError::of(self.path)(error)),
        }
    }

    fn install_by_rename(
        &self,
        draft: &Path,
        before: Option<&Contents>,
    ) -> Result<DraftOutcome, MailError> {
        if self.read_settled(self.path)?.as_ref() != before {
            return Ok(DraftOutcome::FileChanged);
        }
        fs::rename(draft, self.path).map_err(MailError::of(self.path))?;
        Ok(DraftOutcome::Installed)
    }

    /// Merges until the replaced text is the one that was read.
    fn merge_collisions(
        &self,
        mut before: Vec<u8>,
        mut ours: Vec<u8>,
        mode: u32,
        change: &mut impl Change,
    ) -> Result<(), MailError> {
        for round in 0..MAX_ROUNDS {
            let previous = self.draft(round);
            let merged = retry_while_malformed(|| {
                let found = self.read_settled(&previous)?;
                let found = found.map_or_else(Vec::new, |found| found.bytes);
                if found == before {
                    return Ok(None);
                }
                let (before, ours, found) = (&before[..], &ours[..], &found[..]);
                change(FileState::Collision {
                    before,
                    ours,
                    found,
                })
            });
            let draft = self.draft(round + 1);
            let merged = merged.and_then(|merged| {
                let bytes = merged.as_ref();
                bytes.map_or(Ok(()), |bytes| self.write(&draft, bytes, mode))?;
                Ok(merged)
            });
            let merged = match merged {
                Ok(Some(merged)) => merged,
                Ok(None) => return fs::remove_file(&previous).map_err(MailError::of(&previous)),
                Err(error) => return Err(self.restore(round, &ours, error)),
            };
            match step::exchange(&draft, self.path) {
                Ok(()) => {}
                // Another program has removed the file.
                Err(step::StepError::Changed) => {
                    fs::rename(&draft, self.path).map_err(MailError::of(self.path))?;
                    return fs::remove_file(&previous).map_err(MailError::of(&previous));
                }
                Err(why) => {
                    if let step::StepError::Other(error) = why {
                        tracing::warn!("cannot replace {}: {error}", self.path.display());
                    }
                    // If it stays, the next writer sets it aside too.
                    let _ = fs::remove_file(&draft);
                    return Err(self.unsettled(round));
                }
            }
            fs::remove_file(&previous).map_err(MailError::of(&previous))?;
            before = ours;
            ours = merged;
        }
        Err(self.unsettled(MAX_ROUNDS))
    }

    /// Restores the replaced text, which can't be merged, and returns `why`. If another program has
    /// replaced our text meanwhile, its text is kept.
    fn restore(&self, round: usize, ours: &[u8], why: MailError) -> MailError {
        let previous = self.draft(round);
        if step::exchange(&previous, self.path).is_err() {
            return self.unsettled(round);
        }
        match self.read_settled(&previous) {
            Ok(Some(replaced)) if replaced.bytes == ours => {
                // If it stays, the next writer removes it.
                let _ = fs::remove_file(&previous);
                why
            }
            _ => self.unsettled(round),
        }
    }

    /// Keeps the text that was not merged under a name that no writer of drafts uses.
    fn unsettled(&self, round: usize) -> MailError {
        let draft = self.draft(round);
        MailError::Unsettled {
            path: self.path.to_owned(),
            kept: set_aside(&draft).unwrap_or(draft),
        }
    }
}

/// Writes a draft and syncs it.
fn write(draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // The draft of a writer that died may have another mode, or be a link.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(NEW_FILE_MODE)
        .open(draft)?;
    write_content(file, bytes, mode).inspect_err(|_| {
        // The draft takes space on a full disk. If it stays, the next writer removes it.
        let _ = fs::remove_file(draft);
    })
}

fn write_content(mut file: File, bytes: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(bytes)?;
    if mode != NEW_FILE_MODE {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.sync_data()
}

/// Syncs the directory, so that the new name of the file is on the disk.
fn sync_directory(path: &Path) -> Result<(), MailError> {
    let directory = path.parent().unwrap_or(path);
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(MailError::of(directory))
}

/// One step of the file system.
mod step {
    use std::io;
    use std::path::Path;

    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    pub(super) enum StepError {
        /// The file is missing, or exists already.
        Changed,
        /// The system or the file system does not support the step.
        Unsupported,
        Other(io::Error),
    }

    pub(super) fn exchange(draft: &Path, file: &Path) -> Result<(), StepError> {
        rename(draft, file, RenameFlags::EXCHANGE)
    }

    pub(super) fn give_name(draft: &Path, file: &Path) -> Result<(), StepError> {
        rename(draft, file, RenameFlags::NOREPLACE)
    }

    /// The names of an unsupported step: Linux says `INVAL` or `NOSYS`, macOS `NOTSUP`.
    const UNSUPPORTED: [Errno; 4] = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP];

    fn rename(draft: &Path, file: &Path, flags: RenameFlags) -> Result<(), StepError> {
        renameat_with(CWD, draft, CWD, file, flags).map_err(|errno| match errno {
            Errno::NOENT | Errno::EXIST => StepError::Changed,
            errno if UNSUPPORTED.contains(&errno) => StepError::Unsupported,
            errno => StepError::Other(errno.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::is_still;

    const LIMIT: u64 = 1000;

    /// Longer than a thread of a test waits for the processor.
    const LONG_SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

    fn replacement(path: &Path) -> Replacement<'_> {
        Replacement {
            path,
            limit: LIMIT,
            settle_timeout: LONG_SETTLE_TIMEOUT,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Appends our letter, and then another for each collision; `meanwhile` is done
    /// after the file has been read and each time it has been merged.
    fn run(path: &Path, mut meanwhile: impl FnMut(usize)) -> (usize, Result<(), MailError>) {
        let mut collisions = 0;
        let replaced = replacement(path).perform(|state| {
            let text = match state {
                FileState::Current(now) => [now, b"o"].concat(),
                FileState::Collision { found, .. } => {
                    collisions += 1;
                    [found, b"m"].concat()
                }
            };
            meanwhile(collisions);
            Ok(Some(text))
        });
        (collisions, replaced)
    }

    #[test]
    fn file_is_created_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        // Left behind by a writer that died.
        fs::write(directory.path().join(".f.new"), "half").unwrap();
        run(&path, |_| {}).1.unwrap();
        run(&path, |_| {}).1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "oo");
        replace(&path, LIMIT, |_| Ok(None)).unwrap();
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn concurrent_write_is_merged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "before").unwrap();
        let (collisions, replaced) = run(&path, |collisions| {
            if collisions < 3 {
                fs::write(&path, format!("they{collisions}")).unwrap();
            }
        });
        replaced.unwrap();
        assert_eq!(collisions, 3);
        assert_eq!(fs::read_to_string(&path).unwrap(), "they2m");
        assert_eq!(names(directory.path()), ["f"]);
    }

    /// Empties a file as a program does that writes in place, and writes it once `may_write`.
    fn write_in_place<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        path: &Path,
        may_write: impl Fn(&File) -> bool + Send + 'scope,
    ) {
        let mut file = File::create(path).unwrap();
        scope.spawn(move || {
            while !may_write(&file) {
                thread::yield_now();
            }
            thread::sleep(4 * PAUSE);
            file.write_all(b"they").unwrap();
        });
    }

    #[test]
    fn file_that_is_written_in_place_is_read_once_it_is_not_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "before").unwrap();
        let (collisions, replaced) = thread::scope(|scope| {
            write_in_place(scope, &path, |_| true);
            run(&path, |_| {})
        });
        replaced.unwrap();
        assert_eq!(collisions, 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "theyo");
    }

    /// Another program has emptied the file when it is replaced, and writes on into the replaced
    /// one.
    #[test]
    fn replaced_file_that_is_written_in_place_is_merged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for before in ["", "before"] {
            fs::write(&path, before).unwrap();
            // Else we would wait for the end of the empty file.
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(std::time::SystemTime::now() - LONG_SETTLE_TIMEOUT)
                .unwrap();
            let (collisions, replaced) = thread::scope(|scope| {
                let is_replaced = |file: &File| !is_still(file, &path).unwrap();
                run(&path, |collisions| {
                    if collisions == 0 {
                        write_in_place(scope, &path, is_replaced);
                    }
                })
            });
            replaced.unwrap();
            assert_eq!(collisions, 1, "{before}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "theym", "{before}");
            assert_eq!(names(directory.path()), ["f"]);
        }
    }

    /// A reader does not wait for a file that stays empty.
    #[test]
    fn only_a_new_empty_file_may_be_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::create(&path).unwrap();
        let now = std::time::SystemTime::now();
        for (changed, is_new) in [
            (now - SETTLE_TIMEOUT, false),
            (now + Duration::from_secs(3600), true),
        ] {
            file.set_modified(changed).unwrap();
            assert_eq!(was_changed(&path, SETTLE_TIMEOUT), is_new);
        }
        let none = directory.path().join("none");
        assert!(!was_changed(&none, SETTLE_TIMEOUT));
        let contents = read_settled(&path, LIMIT, SETTLE_TIMEOUT);
        let contents = contents.unwrap().unwrap();
        assert_eq!(contents.bytes, b"");
    }

    #[test]
    fn file_created_or_removed_meanwhile_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let mut first = true;
        let (_, replaced) = run(&path, |_| {
            if std::mem::take(&mut first) {
                fs::write(&path, "they").unwrap();
            }
        });
        replaced.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "theyo");
        let mut first = true;
        let (_, replaced) = run(&path, |_| {
            if std::mem::take(&mut first) {
                fs::remove_file(&path).unwrap();
            }
        });
        replaced.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "o");
    }

    #[test]
    fn file_is_read_again_where_exchange_is_unsupported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let draft = directory.path().join("d");
        fs::write(&path, "before").unwrap();
        let before = read(&path, LIMIT).unwrap();
        let file = replacement(&path);
        for (now, is_put) in [("they", false), ("before", true)] {
            fs::write(&path, now).unwrap();
            fs::write(&draft, "ours").unwrap();
            let install = file.install_by_rename(&draft, before.as_ref()).unwrap();
            assert_eq!(matches!(install, DraftOutcome::Installed), is_put);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
    }

    #[test]
    fn unmergeable_content_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "they").unwrap();
        let replaced = replace(&path, LIMIT, |state| match state {
            FileState::Current(_) => {
                fs::write(&path, "odd").unwrap();
                Ok(Some(b"ours".to_vec()))
            }
            FileState::Collision { .. } => Err(MailError::NoFile { path: path.clone() }),
        });
        replaced.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "odd");
        assert_eq!(names(directory.path()), ["f"]);
    }

    /// Another program has written twice: the first text can't be merged, and the second one was
    /// written in place of ours.
    #[test]
    fn content_that_cannot_be_restored_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "they").unwrap();
        let replaced = replace(&path, LIMIT, |state| match state {
            FileState::Current(_) => {
                fs::write(&path, "odd").unwrap();
                Ok(Some(b"ours".to_vec()))
            }
            FileState::Collision { .. } => {
                fs::write(&path, "newer").unwrap();
                Err(MailError::NoFile { path: path.clone() })
            }
        });
        let Err(MailError::Unsettled { kept, .. }) = replaced else {
            panic!("{replaced:?}");
        };
        assert_eq!(fs::read_to_string(&path).unwrap(), "odd");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "newer");
        // The next writers do not remove it.
        run(&path, |_| {}).1.unwrap();
        run(&path, |_| {}).1.unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "newer");
    }

    #[test]
    fn content_over_the_read_limit_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let replaced = replace(&path, LIMIT, |_| Ok(Some(vec![b'x'; 1001])));
        assert!(matches!(
            replaced,
            Err(MailError::TooLarge { bytes: 1001, .. })
        ));
        assert_eq!(names(directory.path()), [] as [&str; 0]);
    }

    #[test]
    fn endless_concurrent_writes_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "before").unwrap();
        let mut number = 0;
        let (_, replaced) = run(&path, |_| {
            number += 1;
            fs::write(&path, number.to_string()).unwrap();
        });
        let Err(MailError::Unsettled { kept, .. }) = replaced else {
            panic!("{replaced:?}");
        };
        assert_eq!(
            fs::read_to_string(kept).unwrap(),
            (MAX_ROUNDS + 1).to_string()
        );
    }
}
