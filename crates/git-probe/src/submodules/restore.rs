//! Restores one submodule: moves planted entries aside, and writes the earlier ones back.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::{FILE_LIMIT, RepoContext};
use super::directory::{Directory, DirectoryError};
use super::state::{
    Bytes, Entry, GitDirState, GitdirTarget, HOOKS, RestoreAction, SENSITIVE_ENTRIES,
    SubmoduleState, restore_action,
};
use super::visit::VisitResult;
use super::{DOT_GIT, shown};

/// A name in a directory, and the destination to which its entry is moved.
struct Slot<'a> {
    directory: &'a Directory,
    name: &'a OsStr,
    aside: &'a Directory,
}

impl Slot<'_> {
    fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }
}

impl RepoContext {
    /// Restores a submodule. A submodule without a record had no entries before.
    pub(super) fn restore(&self, path: &Path, before: Option<&SubmoduleState>) -> VisitResult {
        let absent = SubmoduleState::ABSENT;
        let before = before.unwrap_or(&absent);
        if *before == SubmoduleState::Unknown {
            return VisitResult::failed(&"its state before the run is not known");
        }
        let directory = match self.reach(path) {
            Ok(directory) => directory,
            Err(DirectoryError::Gone) => return VisitResult::default(),
            Err(DirectoryError::Link(_)) if *before == SubmoduleState::BehindLink => {
                return VisitResult::default();
            }
            Err(DirectoryError::Link(link)) => {
                return VisitResult::failed(&format!(
                    "{} has become a symbolic link; remove it before you run git",
                    shown(&link)
                ));
            }
            Err(error) => return VisitResult::failed(&error),
        };
        let (dot_git, git_dirs, exposed) = match before {
            SubmoduleState::Reached {
                dot_git,
                git_dirs,
                exposed,
            } => (dot_git, git_dirs.as_slice(), exposed.as_slice()),
            SubmoduleState::BehindLink | SubmoduleState::Unknown => {
                (&Entry::Missing, &[][..], &[][..])
            }
        };
        let slot = Slot {
            directory: &directory,
            name: OsStr::new(DOT_GIT),
            aside: &directory,
        };
        let mut visit = VisitResult::default();
        self.restore_entry(&mut visit, &slot, dot_git, |now| self.target(path, now));
        for git_dir in exposed {
            self.restore_git_dir(&mut visit, git_dir);
        }
        if let Err(error) = self.check_git_dirs(&mut visit, path, &slot, git_dirs) {
            visit.failures.push(error.to_string());
        }
        visit
    }

    /// Checks the git directories: an unchanged file may lead elsewhere because of a link on the
    /// way.
    fn check_git_dirs(
        &self,
        visit: &mut VisitResult,
        path: &Path,
        slot: &Slot<'_>,
        before: &[Bytes],
    ) -> io::Result<()> {
        let now = slot.directory.entry(slot.name, Some(FILE_LIMIT))?;
        let is_known = |git_dir: &PathBuf| before.contains(&Bytes::of(git_dir));
        let is_safe = self.target(path, &now) == GitdirTarget::IntoRepository
            || self.git_dirs(path, &now)?.iter().all(is_known);
        match is_safe {
            true => {
                visit.take_index(self.index_below(path, &now));
            }
            false => self.restore_entry(visit, slot, &Entry::Missing, |_| GitdirTarget::Elsewhere),
        }
        Ok(())
    }

    fn restore_git_dir(&self, visit: &mut VisitResult, before: &GitDirState) {
        let git_dir = match Directory::open(before.path.as_path()) {
            Ok(git_dir) => git_dir,
            // Git runs nothing because of a missing directory.
            Err(DirectoryError::Gone) => return,
            Err(error) => return visit.failures.push(error.to_string()),
        };
        for ((below, name), entry) in SENSITIVE_ENTRIES.iter().zip(&before.entries) {
            let directory = match below {
                None => git_dir.below(Path::new("")),
                Some(below) => git_dir.enter(OsStr::new(below)),
            };
            let directory = match directory {
                Ok(directory) => directory,
                Err(DirectoryError::Gone) => continue,
                Err(error) => {
                    visit.failures.push(error.to_string());
                    continue;
                }
            };
            let slot = Slot {
                directory: &directory,
                name: OsStr::new(name),
                aside: &git_dir,
            };
            self.restore_entry(visit, &slot, entry, |_| GitdirTarget::Elsewhere);
        }
        let Some(hooks) = &before.hooks else {
            return;
        };
        match git_dir.enter(OsStr::new(HOOKS)) {
            Ok(directory) => {
                self.restore_hooks(visit, &git_dir, &directory, Path::new(""), hooks);
            }
            // The link is the same as before: changed ones have been replaced by now.
            Err(DirectoryError::Gone | DirectoryError::Link(_)) => {}
            Err(error) => visit.failures.push(error.to_string()),
        }
    }

    /// Restores the hooks in a directory, one by one. Planted hooks are moved to the git directory,
    /// where git does not run them.
    fn restore_hooks(
        &self,
        visit: &mut VisitResult,
        git_dir: &Directory,
        directory: &Directory,
        path: &Path,
        before: &BTreeMap<Bytes, Entry>,
    ) {
        let names = match directory.names() {
            Ok(names) => names,
            Err(error) => {
                let directory = shown(directory.path());
                let failure = format!("{directory} cannot be compared ({error})");
                return visit.failures.push(failure);
            }
        };
        let mut names: BTreeSet<OsString> = names.into_iter().collect();
        let recorded = before.keys().map(Bytes::as_path);
        let recorded = recorded.filter(|one| one.parent() == Some(path));
        names.extend(recorded.filter_map(|one| Some(one.file_name()?.to_owned())));
        for name in names {
            let below = path.join(&name);
            let entry = before.get(below.as_os_str().as_bytes());
            let slot = Slot {
                directory,
                name: &name,
                aside: git_dir,
            };
            let entry = entry.unwrap_or(&Entry::Missing);
            self.restore_entry(visit, &slot, entry, |_| GitdirTarget::Elsewhere);
            if *entry != Entry::Directory {
                continue;
            }
            match directory.enter(&name) {
                Ok(directory) => self.restore_hooks(visit, git_dir, &directory, &below, before),
                Err(DirectoryError::Gone) => {}
                Err(error) => visit.failures.push(error.to_string()),
            }
        }
    }

    fn restore_entry(
        &self,
        visit: &mut VisitResult,
        slot: &Slot<'_>,
        before: &Entry,
        target: impl FnOnce(&Entry) -> GitdirTarget,
    ) {
        if let Err(error) = self.try_to_restore(visit, slot, before, target) {
            let path = shown(&slot.path());
            let failure = format!("{path} cannot be restored ({error})");
            visit.failures.push(failure);
        }
    }

    fn try_to_restore(
        &self,
        visit: &mut VisitResult,
        slot: &Slot<'_>,
        before: &Entry,
        target: impl FnOnce(&Entry) -> GitdirTarget,
    ) -> io::Result<()> {
        let path = slot.path();
        // A file that was not kept is compared by its stamp.
        let limit = match (before, slot.name == DOT_GIT) {
            (Entry::Other { .. }, false) => None,
            _ => Some(FILE_LIMIT),
        };
        let now = slot.directory.entry(slot.name, limit)?;
        let is_unwritten = self.unwritten().contains(&path);
        match restore_action(before, &now, target(&now), is_unwritten) {
            RestoreAction::Leave => {}
            RestoreAction::MoveAside => {
                let aside = slot.directory.move_aside(slot.name, slot.aside)?;
                visit.moved(&path, &aside);
            }
            RestoreAction::WriteBack(bytes, mode) => {
                let replaced = slot.directory.replace(slot.name, slot.aside, bytes, mode);
                let aside = match &replaced {
                    Ok(aside) => aside.as_ref(),
                    Err(error) => error.moved.as_ref(),
                };
                if let Some(aside) = aside {
                    visit.moved(&path, aside);
                }
                if let Err(error) = replaced {
                    if error.moved.is_some() {
                        self.unwritten().insert(path);
                    }
                    return Err(io::Error::other(error));
                }
                visit
                    .actions
                    .push(format!("{} is written as it was before", shown(&path)));
            }
        }
        self.unwritten().remove(&path);
        Ok(())
    }
}
