//! Replacing a file that others write too.
//!
//! The new text goes into a draft beside the file, and the two change places in one
//! step: whoever opens the file at any time finds all of the old or all of the new
//! text, also after a crash. What was taken away is then compared with what the new
//! text was made from. Where it is something else, somebody has written in spite of
//! the locks; the two are merged, and the same is done again.
//!
//! Where places can't be changed in one step (not on Linux, or on a file system that
//! can't), the file is read once more just before the draft is given its name.
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

use super::MailError;
use super::file::{Contents, read};

/// How often in a row somebody may write in spite of the locks.
const ROUNDS: usize = 100;

/// How long a file may be half written by somebody who doesn't replace it as a
/// whole.
const SETTLING: Duration = Duration::from_millis(500);

/// Between two looks at such a file.
const PAUSE: Duration = Duration::from_millis(5);

/// A file that is new.
const MODE: u32 = 0o600;

/// What a new text is made from.
pub(super) enum Seen<'a> {
    /// The file as it is; empty if there is none.
    Now(&'a [u8]),
    /// Somebody wrote in spite of the locks.
    Collision {
        /// What we thought was there.
        before: &'a [u8],
        /// What we put in its place, and what is there now.
        ours: &'a [u8],
        /// What we took away.
        found: &'a [u8],
    },
}

/// What makes a new text from what was seen; `None` if nothing is to be written.
pub(super) trait Change: FnMut(Seen<'_>) -> Result<Option<Vec<u8>>, MailError> {}

impl<F: FnMut(Seen<'_>) -> Result<Option<Vec<u8>>, MailError>> Change for F {}

/// Replaces a file, which the caller has locked, by what `change` makes of it. It is
/// tried again for a moment if it can't be understood: somebody may be at it.
pub(super) fn replace(path: &Path, limit: u64, mut change: impl Change) -> Result<(), MailError> {
    let file = Replaced { path, limit };
    for _ in 0..ROUNDS {
        let (before, ours) = settled(|| {
            let before = read(path, limit)?;
            let bytes = before.as_ref().map_or(&[][..], |before| &before.bytes);
            let ours = change(Seen::Now(bytes))?;
            Ok((before, ours))
        })?;
        let Some(ours) = ours else { return Ok(()) };
        let mode = before.as_ref().map_or(MODE, |before| before.mode);
        let draft = file.draft(0);
        file.write(&draft, &ours, mode)?;
        match file.put(&draft, before.as_ref())? {
            Put::Done => return sync_directory(path),
            Put::Exchanged => {
                let before = before.map_or_else(Vec::new, |before| before.bytes);
                file.settle(before, ours, mode, &mut change)?;
                return sync_directory(path);
            }
            Put::Changed => {}
        }
    }
    let _ = fs::remove_file(file.draft(0));
    Err(MailError::Unsettled {
        path: path.to_owned(),
        kept: path.to_owned(),
    })
}

/// Tries again for a moment while a file can't be understood.
pub(super) fn settled<T>(look: impl FnMut() -> Result<T, MailError>) -> Result<T, MailError> {
    let mut look = look;
    let begin = Instant::now();
    loop {
        match look() {
            Err(MailError::BadInbox { .. } | MailError::BadRoster { .. })
                if begin.elapsed() < SETTLING =>
            {
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// What became of a draft.
enum Put {
    /// It is the file.
    Done,
    /// It is the file, and what was the file is the draft.
    Exchanged,
    /// Somebody has made, removed or changed the file.
    Changed,
}

struct Replaced<'a> {
    path: &'a Path,
    limit: u64,
}

impl Replaced<'_> {
    /// A draft; there are two by turns. The names don't end as inboxes do, and are
    /// always the same, so that the next writer clears up after one that died.
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

    /// Writes a draft, unless nobody would read it afterwards.
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

    fn put(&self, draft: &Path, before: Option<&Contents>) -> Result<Put, MailError> {
        let step = match before {
            Some(_) => step::exchange(draft, self.path),
            None => step::give_name(draft, self.path),
        };
        match (step, before) {
            (Ok(()), Some(_)) => Ok(Put::Exchanged),
            (Ok(()), None) => Ok(Put::Done),
            (Err(step::Failure::Changed), _) => Ok(Put::Changed),
            (Err(step::Failure::Unable), _) => self.put_carefully(draft, before),
            (Err(step::Failure::Other(error)), _) => Err(MailError::of(self.path)(error)),
        }
    }

    fn put_carefully(&self, draft: &Path, before: Option<&Contents>) -> Result<Put, MailError> {
        if read(self.path, self.limit)?.as_ref() != before {
            return Ok(Put::Changed);
        }
        fs::rename(draft, self.path).map_err(MailError::of(self.path))?;
        Ok(Put::Done)
    }

    /// Merges until what was taken away is what was thought to be there.
    fn settle(
        &self,
        mut before: Vec<u8>,
        mut ours: Vec<u8>,
        mode: u32,
        change: &mut impl Change,
    ) -> Result<(), MailError> {
        for round in 0..ROUNDS {
            let taken = self.draft(round);
            let merged = settled(|| {
                let found = read(&taken, self.limit)?.map_or_else(Vec::new, |found| found.bytes);
                if found == before {
                    return Ok(None);
                }
                let (before, ours, found) = (&before[..], &ours[..], &found[..]);
                change(Seen::Collision {
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
                Ok(None) => return fs::remove_file(&taken).map_err(MailError::of(&taken)),
                Err(error) => {
                    // It can't be merged, so it is put back as it was.
                    let _ = step::exchange(&taken, self.path);
                    let _ = fs::remove_file(&taken);
                    return Err(error);
                }
            };
            match step::exchange(&draft, self.path) {
                Ok(()) => {}
                // Somebody has removed the file with all that was in it.
                Err(step::Failure::Changed) => {
                    fs::rename(&draft, self.path).map_err(MailError::of(self.path))?;
                    return fs::remove_file(&taken).map_err(MailError::of(&taken));
                }
                Err(step::Failure::Unable) => return Err(self.unsettled(round)),
                Err(step::Failure::Other(error)) => return Err(MailError::of(self.path)(error)),
            }
            fs::remove_file(&taken).map_err(MailError::of(&taken))?;
            before = ours;
            ours = merged;
        }
        Err(self.unsettled(ROUNDS))
    }

    fn unsettled(&self, round: usize) -> MailError {
        MailError::Unsettled {
            path: self.path.to_owned(),
            kept: self.draft(round),
        }
    }
}

/// Writes a draft down to the disk.
fn write(draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // What one who died has left may be of another mode, or a link.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(draft)?;
    fill(file, bytes, mode).inspect_err(|_| {
        // On a full disk it is in the way; should it stay, the next one removes it.
        let _ = fs::remove_file(draft);
    })
}

fn fill(mut file: File, bytes: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(bytes)?;
    if mode != MODE {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.sync_data()
}

/// The names in a directory are on the disk only after this.
fn sync_directory(path: &Path) -> Result<(), MailError> {
    let directory = path.parent().unwrap_or(path);
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(MailError::of(directory))
}

/// One step of the file system.
mod step {
    use std::io;

    #[cfg_attr(
        not(all(target_os = "linux", target_env = "gnu")),
        expect(dead_code, reason = "nothing is tried there")
    )]
    pub(super) enum Failure {
        /// The file isn't there, or there already.
        Changed,
        /// The system or the file system can't do that.
        Unable,
        Other(io::Error),
    }

    pub(super) use system::{exchange, give_name};

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    mod system {
        use std::path::Path;

        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

        use super::Failure;

        pub(in super::super) fn exchange(draft: &Path, file: &Path) -> Result<(), Failure> {
            rename(draft, file, RenameFlags::RENAME_EXCHANGE)
        }

        pub(in super::super) fn give_name(draft: &Path, file: &Path) -> Result<(), Failure> {
            rename(draft, file, RenameFlags::RENAME_NOREPLACE)
        }

        fn rename(draft: &Path, file: &Path, flags: RenameFlags) -> Result<(), Failure> {
            renameat2(AT_FDCWD, draft, AT_FDCWD, file, flags).map_err(|errno| match errno {
                Errno::ENOENT | Errno::EEXIST => Failure::Changed,
                Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP => Failure::Unable,
                errno => Failure::Other(errno.into()),
            })
        }
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    mod system {
        use std::path::Path;

        use super::Failure;

        pub(in super::super) fn exchange(_: &Path, _: &Path) -> Result<(), Failure> {
            Err(Failure::Unable)
        }

        pub(in super::super) fn give_name(_: &Path, _: &Path) -> Result<(), Failure> {
            Err(Failure::Unable)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Appends our letter, and then another for each collision; `meanwhile` is done
    /// after the file has been read and each time it has been merged.
    fn run(path: &Path, mut meanwhile: impl FnMut(usize)) -> (usize, Result<(), MailError>) {
        let mut collisions = 0;
        let replaced = replace(path, LIMIT, |seen| {
            let text = match seen {
                Seen::Now(now) => [now, b"o"].concat(),
                Seen::Collision { found, .. } => {
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
    fn a_file_is_made_and_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        // What one who died has left.
        fs::write(directory.path().join(".f.new"), "half").unwrap();
        run(&path, |_| {}).1.unwrap();
        run(&path, |_| {}).1.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "oo");
        replace(&path, LIMIT, |_| Ok(None)).unwrap();
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_somebody_wrote_in_between_is_merged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "").unwrap();
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

    #[test]
    fn a_file_that_comes_or_goes_in_between_is_looked_at_again() {
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
    fn without_an_exchange_the_file_is_looked_at_once_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let draft = directory.path().join("d");
        fs::write(&path, "before").unwrap();
        let before = read(&path, LIMIT).unwrap();
        let file = Replaced {
            path: &path,
            limit: LIMIT,
        };
        for (now, is_put) in [("they", false), ("before", true)] {
            fs::write(&path, now).unwrap();
            fs::write(&draft, "ours").unwrap();
            let put = file.put_carefully(&draft, before.as_ref()).unwrap();
            assert_eq!(matches!(put, Put::Done), is_put);
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_cannot_be_merged_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "they").unwrap();
        let replaced = replace(&path, LIMIT, |seen| match seen {
            Seen::Now(_) => {
                fs::write(&path, "odd").unwrap();
                Ok(Some(b"ours".to_vec()))
            }
            Seen::Collision { .. } => Err(MailError::NoFile { path: path.clone() }),
        });
        replaced.unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "odd");
        assert_eq!(names(directory.path()), ["f"]);
    }

    #[test]
    fn nothing_is_written_that_is_too_large_to_be_read() {
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
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn who_never_stops_writing_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "").unwrap();
        let mut number = 0;
        let (_, replaced) = run(&path, |_| {
            number += 1;
            fs::write(&path, number.to_string()).unwrap();
        });
        let Err(MailError::Unsettled { kept, .. }) = replaced else {
            panic!("{replaced:?}");
        };
        assert_eq!(fs::read_to_string(kept).unwrap(), (ROUNDS + 1).to_string());
    }
}
