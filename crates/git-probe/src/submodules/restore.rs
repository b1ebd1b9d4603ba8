//! Restores one submodule: what was planted is moved aside, what was there is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::{FILE_LIMIT, RepoContext};
use super::directory::{Directory, MovedAside, NoEntry};
use super::state::{
    Bytes, Entry, GitDirState, GitdirTarget, HOOKS, RestoreAction, SENSITIVE_ENTRIES,
    SubmoduleState, restore_action,
};
use super::{DOT_GIT, shown};

/// How many actions a warning names.
const ACTIONS_SHOWN: usize = 20;

/// What was found and done at one submodule.
#[derive(Debug, Default)]
pub(super) struct VisitResult {
    /// `None` where it could not be recorded, or the submodules below could not.
    pub(super) state: Option<SubmoduleState>,
    /// An index that may list submodules.
    pub(super) index: Option<Vec<u8>>,
    pub(super) actions: Vec<String>,
    pub(super) failures: Vec<String>,
}

impl VisitResult {
    pub(super) fn failed(error: &impl ToString) -> Self {
        Self {
            failures: vec![error.to_string()],
            ..Self::default()
        }
    }

    /// Returns whether it is known which submodules there are below.
    pub(super) fn take_index(&mut self, index: io::Result<Option<Vec<u8>>>) -> bool {
        match index {
            Ok(index) => {
                self.index = index;
                true
            }
            Err(error) => {
                self.failures.push(error.to_string());
                false
            }
        }
    }

    pub(super) fn warning(&self, path: &Path) -> Option<String> {
        let name = shown(path);
        let mut text = String::new();
        // Writing to a string cannot fail.
        if !self.actions.is_empty() {
            let actions: Vec<&str> = self.actions.iter().map(String::as_str).collect();
            let (first, more) = actions.split_at(actions.len().min(ACTIONS_SHOWN));
            let more = match more.len() {
                0 => String::new(),
                count => format!("; and {count} more"),
            };
            let _ = write!(
                text,
                "the git settings of the repository \"{name}\" were changed during the run, and \
                 your git would have run programs that they name: {}{more}. Do not run git with \
                 what was moved aside before you have looked through it. If it is yours, rename \
                 it back",
                first.join("; ")
            );
        }
        if !self.failures.is_empty() {
            let separator = if text.is_empty() { "" } else { ". " };
            let _ = write!(
                text,
                "{separator}the repository \"{name}\" is not protected: {}. Look at its .git \
                 before you run git in the repository",
                self.failures.join("; ")
            );
        }
        (!text.is_empty()).then_some(text)
    }

    fn moved(&mut self, path: &Path, aside: &MovedAside) {
        let mut action = format!("{} is now {}", shown(path), shown(&aside.path));
        for (path, new) in &aside.renamed {
            let _ = write!(
                action,
                ", in which {} is now {}",
                name_of(path),
                shown(Path::new(new))
            );
        }
        self.actions.push(action);
        if let Some(error) = &aside.failure {
            let path = shown(&aside.path);
            self.failures
                .push(format!("{path} may still be a repository to git ({error})"));
        }
    }
}

fn name_of(path: &Path) -> String {
    shown(Path::new(path.file_name().unwrap_or_default()))
}

/// A name in a directory, and where what lies there is moved.
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
    /// Restores a submodule. One that is not recorded had nothing.
    pub(super) fn restore(&self, path: &Path, before: Option<&SubmoduleState>) -> VisitResult {
        let absent = SubmoduleState::ABSENT;
        let before = before.unwrap_or(&absent);
        if *before == SubmoduleState::Unknown {
            return VisitResult::failed(&"its state before the run is not known");
        }
        let directory = match self.reach(path) {
            Ok(directory) => directory,
            Err(NoEntry::Gone) => return VisitResult::default(),
            Err(NoEntry::Link(_)) if *before == SubmoduleState::BehindLink => {
                return VisitResult::default();
            }
            Err(NoEntry::Link(link)) => {
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

    /// What is as before may lead elsewhere by a link on the way.
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
            // Git runs nothing because of what is not there.
            Err(NoEntry::Gone) => return,
            Err(error) => return visit.failures.push(error.to_string()),
        };
        for ((below, name), entry) in SENSITIVE_ENTRIES.iter().zip(&before.entries) {
            let directory = match below {
                None => git_dir.below(Path::new("")),
                Some(below) => git_dir.enter(OsStr::new(below)),
            };
            let directory = match directory {
                Ok(directory) => directory,
                Err(NoEntry::Gone) => continue,
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
            // A link is the one from before now.
            Err(NoEntry::Gone | NoEntry::Link(_)) => {}
            Err(error) => visit.failures.push(error.to_string()),
        }
    }

    /// Restores the hooks in a directory, one by one. They are moved to the git directory,
    /// where no hook runs them.
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
                Err(NoEntry::Gone) => {}
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
