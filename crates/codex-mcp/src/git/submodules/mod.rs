//! Keeps Codex from having programs run through the submodules of a repository.
//!
//! The user's `git status` runs another git in each directory that the index lists as a
//! submodule (mode 160000), with the settings that it finds there. Codex's sandbox keeps
//! `.git` at the top from being written, and with it the git directories of submodules in
//! `.git/modules`, but neither a submodule's own `.git` nor a git directory that lies in
//! the working tree. So these are noted before Codex begins, compared while its commands
//! are stopped, and put back where they differ.
//!
//! | what git reads | may change | compared |
//! | --- | --- | --- |
//! | the index of the top, `.git/modules` | no | no |
//! | `SUBMODULE/.git`, file or directory | yes | yes |
//! | settings and hooks of a git directory in the working tree | yes | yes |
//! | its index, which can list more submodules | yes | read again each time |
//!
//! - `state`: what is compared, and what follows.
//! - `directory`: opening and renaming without following links.
//!
//! Source: gitsubmodules(7), gitrepository-layout(5), git-config(1).

mod directory;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codex_mcp_core::text::visible_line;
use tokio_util::sync::CancellationToken;

use self::directory::{Directory, NoEntry};
use self::state::{Entry, HOOKS, Leads, PARTS, Remedy, remedy};
use super::{Git, GitError, written};
use crate::off_runtime;
use crate::untrusted_file::{Links, read};

/// How many submodules are watched, those of submodules included.
const LIMIT: usize = 1000;

/// The largest index that is looked through, in bytes, and as git lists it.
const INDEX_LIMIT: u64 = 256 * 1024 * 1024;

/// How long git may take to list an index.
const PATIENCE: Duration = Duration::from_secs(10);

/// The mode of a submodule in an index, and the name of an index's part that refers to
/// another file with more entries (gitformat-index(5)).
const MARKS: [&[u8]; 2] = [&[0, 0, 0xe0, 0], b"link"];

const DOT_GIT: &str = ".git";

/// The submodules of a repository as they were before Codex began.
#[derive(Debug)]
pub(crate) struct Submodules {
    scene: Option<Scene>,
    top: Vec<PathBuf>,
    notes: BTreeMap<PathBuf, Arc<Note>>,
}

/// Where they are.
#[derive(Debug, Clone)]
struct Scene {
    git: Git,
    /// Both absolute and without links.
    top: PathBuf,
    common_dir: PathBuf,
}

/// How one submodule was.
#[derive(Debug)]
enum Note {
    /// Its path leads through a symbolic link, where git does not follow.
    BehindLink,
    /// It could be looked at.
    Seen {
        dot_git: Entry,
        /// Where its git directory is, without links.
        git_dir: Option<PathBuf>,
        /// The same, if it lies in the working tree: relative to the top, with its
        /// [`PARTS`].
        exposed: Option<(PathBuf, Vec<Entry>)>,
    },
}

/// What was found and done at one submodule.
#[derive(Debug, Default)]
struct Visit {
    note: Option<Note>,
    /// An index that may list submodules.
    index: Option<Vec<u8>>,
    actions: Vec<String>,
    failures: Vec<String>,
}

impl Submodules {
    /// For work where there is no repository.
    pub(crate) fn none() -> Self {
        Self {
            scene: None,
            top: Vec::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Notes how the submodules of the repository are, with what the user has to know.
    /// Codex must not be able to write yet.
    ///
    /// # Errors
    ///
    /// [`GitError`] if git does not list them.
    pub(crate) async fn note(git: &Git) -> Result<(Self, Vec<String>), GitError> {
        let scene = Scene::of(git);
        let index = git.layout().git_dir.join("index");
        let index = off_runtime::run(move || index_of_submodules(&index)).await;
        let top = match index.map_err(io::Error::other)?? {
            Some(index) => scene.listed(index).await?,
            None => Vec::new(),
        };
        let mut noted = Self {
            scene: Some(scene.clone()),
            top,
            notes: BTreeMap::new(),
        };
        let mut notes = BTreeMap::new();
        let look = |path: PathBuf| {
            let scene = scene.clone();
            move || scene.look(&path)
        };
        let warnings = noted.walk(look, |path, note| {
            notes.insert(path, Arc::new(note));
        });
        let warnings = warnings.await;
        noted.notes = notes;
        Ok((noted, warnings))
    }

    /// Puts back what Codex has changed, so that git runs nothing of it, and tells the
    /// user. Codex's commands must not be running.
    pub(crate) async fn put_back(&self) -> Vec<String> {
        let Some(scene) = &self.scene else {
            return Vec::new();
        };
        let look = |path: PathBuf| {
            let (scene, note) = (scene.clone(), self.notes.get(&path).cloned());
            move || scene.mend(&path, note.as_deref())
        };
        self.walk(look, |_, _| {}).await
    }

    /// Visits each submodule, those of submodules too.
    async fn walk<V: FnOnce() -> Visit + Send + 'static>(
        &self,
        look: impl Fn(PathBuf) -> V,
        mut keep: impl FnMut(PathBuf, Note),
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(scene) = &self.scene else {
            return warnings;
        };
        let mut queue = VecDeque::from(self.top.clone());
        let mut seen = BTreeSet::new();
        while let Some(path) = queue.pop_front() {
            if !seen.insert(path.clone()) {
                continue;
            }
            if seen.len() > LIMIT {
                warnings.push(format!(
                    "the repository has more than {LIMIT} submodules; Codex can have changed the \
                     settings of the others: look at their .git before you run git"
                ));
                break;
            }
            let mut visit = match off_runtime::run(look(path.clone())).await {
                Ok(visit) => visit,
                Err(error) => {
                    // It would be the same for all others.
                    warnings.extend(Visit::failed(&error).warning(&path));
                    break;
                }
            };
            if let Some(index) = visit.index.take() {
                match scene.listed(index).await {
                    Ok(below) => queue.extend(below.iter().map(|one| path.join(one))),
                    Err(error) => visit
                        .failures
                        .push(format!("the submodules of it cannot be listed ({error})")),
                }
            }
            warnings.extend(visit.warning(&path));
            if let Some(note) = visit.note {
                keep(path, note);
            }
        }
        warnings
    }
}

impl Scene {
    fn of(git: &Git) -> Self {
        let mut own = git.clone();
        // It is needed also where the run is not wanted any more.
        own.invocation.bounds.halt = CancellationToken::new();
        own.invocation.bounds.patience = PATIENCE;
        own.invocation.bounds.limit = INDEX_LIMIT;
        own.invocation.has_timed_out = Some(Arc::default());
        Self {
            git: own,
            top: git.layout().top.clone(),
            common_dir: git.layout().common_dir.clone(),
        }
    }

    /// The submodules that an index lists. Git reads a copy, which nobody can change.
    async fn listed(&self, index: Vec<u8>) -> Result<Vec<PathBuf>, GitError> {
        let copy = self.git.view().join("submodules.index");
        fs::write(&copy, index)?;
        let mut git = self.git.clone();
        git.set("GIT_INDEX_FILE", &copy);
        let told = git.told(&["ls-files", "-z", "--stage"], &[]).await;
        fs::remove_file(&copy)?;
        Ok(submodules_in(&told?))
    }

    /// Notes how a submodule is.
    fn look(&self, path: &Path) -> Visit {
        let seen = match self.reach(path) {
            Ok(directory) => self.noted(path, &directory),
            Err(NoEntry::Gone) => Ok(Note::Seen {
                dot_git: Entry::Missing,
                git_dir: None,
                exposed: None,
            }),
            Err(NoEntry::Link(_)) => Ok(Note::BehindLink),
            Err(NoEntry::Refused(error)) => Err(error),
        };
        let note = match seen {
            Ok(note) => note,
            Err(error) => return Visit::failed(&error),
        };
        let index = match &note {
            Note::Seen { dot_git, .. } => self.index_below(path, dot_git),
            Note::BehindLink => Ok(None),
        };
        let mut visit = Visit::with_index(index);
        visit.note = Some(note);
        visit
    }

    fn noted(&self, path: &Path, directory: &Directory) -> io::Result<Note> {
        let dot_git = directory.entry(DOT_GIT)?;
        let exposed = match self.exposed(path, &dot_git) {
            Some(place) => match self.reach(&place) {
                Ok(git_dir) => Some((place, parts(&git_dir)?)),
                Err(_) => None,
            },
            None => None,
        };
        Ok(Note::Seen {
            git_dir: self.git_dir(path, &dot_git),
            dot_git,
            exposed,
        })
    }

    /// Puts a submodule back as it was. One that was not known had nothing.
    fn mend(&self, path: &Path, before: Option<&Note>) -> Visit {
        let directory = match self.reach(path) {
            Ok(directory) => directory,
            Err(NoEntry::Gone) => return Visit::default(),
            Err(NoEntry::Link(_)) if matches!(before, Some(Note::BehindLink)) => {
                return Visit::default();
            }
            Err(NoEntry::Link(link)) => {
                return Visit::failed(&format!(
                    "{} has become a symbolic link; remove it before you run git",
                    shown(&link)
                ));
            }
            Err(NoEntry::Refused(error)) => return Visit::failed(&error),
        };
        let missing = Entry::Missing;
        let (dot_git, git_dir, exposed) = match before {
            Some(Note::Seen {
                dot_git,
                git_dir,
                exposed,
            }) => (dot_git, git_dir.as_ref(), exposed.as_ref()),
            Some(Note::BehindLink) | None => (&missing, None, None),
        };
        let mut visit = Visit::default();
        let leads = match directory.entry(DOT_GIT) {
            Ok(now) => self.leads(path, &now),
            Err(_) => Leads::Elsewhere,
        };
        visit.put_back(&directory, DOT_GIT, dot_git, leads);
        if let Some((place, parts)) = exposed
            && let Ok(git_dir) = self.reach(place)
        {
            visit.put_parts_back(&git_dir, parts);
        }
        match directory.entry(DOT_GIT) {
            // A link on the way to it leads elsewhere.
            Ok(now @ Entry::File { .. })
                if self.leads(path, &now) == Leads::Elsewhere
                    && self.git_dir(path, &now).as_ref() != git_dir =>
            {
                visit.put_back(&directory, DOT_GIT, &missing, Leads::Elsewhere);
            }
            Ok(now) => match self.index_below(path, &now) {
                Ok(index) => visit.index = index,
                Err(error) => visit.failures.push(error.to_string()),
            },
            Err(error) => visit.failures.push(error.to_string()),
        }
        visit
    }

    fn reach(&self, path: &Path) -> Result<Directory, NoEntry> {
        let top = Directory::open(&self.top).map_err(NoEntry::Refused)?;
        top.below(path)
    }

    /// The git directory of a submodule.
    fn git_dir(&self, path: &Path, dot_git: &Entry) -> Option<PathBuf> {
        let submodule = self.top.join(path);
        match dot_git {
            Entry::Directory => Some(submodule.join(DOT_GIT)),
            Entry::File { bytes, .. } => {
                let named = bytes.strip_prefix(b"gitdir:")?.trim_ascii();
                submodule.join(OsStr::from_bytes(named)).canonicalize().ok()
            }
            Entry::Missing | Entry::Tree(_) | Entry::Other { .. } => None,
        }
    }

    fn leads(&self, path: &Path, dot_git: &Entry) -> Leads {
        match (dot_git, self.git_dir(path, dot_git)) {
            (Entry::File { .. }, Some(git_dir)) if git_dir.starts_with(&self.common_dir) => {
                Leads::IntoRepository
            }
            _ => Leads::Elsewhere,
        }
    }

    /// The git directory of a submodule relative to the top, if Codex can write it.
    fn exposed(&self, path: &Path, dot_git: &Entry) -> Option<PathBuf> {
        let git_dir = self.git_dir(path, dot_git)?;
        if git_dir.starts_with(&self.common_dir) {
            return None;
        }
        Some(git_dir.strip_prefix(&self.top).ok()?.to_owned())
    }

    fn index_below(&self, path: &Path, dot_git: &Entry) -> io::Result<Option<Vec<u8>>> {
        match self.git_dir(path, dot_git) {
            Some(git_dir) => index_of_submodules(&git_dir.join("index")),
            None => Ok(None),
        }
    }
}

impl Visit {
    fn failed(error: &impl ToString) -> Self {
        Self {
            failures: vec![error.to_string()],
            ..Self::default()
        }
    }

    fn with_index(index: io::Result<Option<Vec<u8>>>) -> Self {
        match index {
            Ok(index) => Self {
                index,
                ..Self::default()
            },
            Err(error) => Self::failed(&error),
        }
    }

    fn put_parts_back(&mut self, git_dir: &Directory, before: &[Entry]) {
        for ((below, name), before) in PARTS.iter().zip(before) {
            match below {
                None => self.put_back(git_dir, name, before, Leads::Elsewhere),
                Some(below) => {
                    if let Ok(below) = git_dir.below(Path::new(below)) {
                        self.put_back(&below, name, before, Leads::Elsewhere);
                    }
                }
            }
        }
    }

    fn put_back(&mut self, directory: &Directory, name: &str, before: &Entry, leads: Leads) {
        if let Err(error) = self.try_to_put_back(directory, name, before, leads) {
            let path = directory.path().join(name);
            let failure = format!("{} cannot be put back ({error})", shown(&path));
            self.failures.push(failure);
        }
    }

    fn try_to_put_back(
        &mut self,
        directory: &Directory,
        name: &str,
        before: &Entry,
        leads: Leads,
    ) -> io::Result<()> {
        let now = part(directory, name)?;
        let remedy = remedy(before, &now, leads);
        if remedy == Remedy::Leave {
            return Ok(());
        }
        let path = shown(&directory.path().join(name));
        let aside = directory.move_aside(name)?;
        self.actions
            .push(format!("{path} is now {}", shown(&aside)));
        if let Remedy::WriteBack(bytes, mode) = remedy {
            directory.write(name, bytes, mode)?;
            self.actions
                .push(format!("{path} is written as it was before"));
        }
        Ok(())
    }

    fn warning(&self, path: &Path) -> Option<String> {
        let name = shown(path);
        let mut text = String::new();
        if !self.actions.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "the git settings of the submodule \"{name}\" were changed during the run, and \
                 your git would have run programs that they name: {}. Do not run git with what \
                 was moved aside; remove it when you need nothing of it",
                self.actions.join("; ")
            );
        }
        if !self.failures.is_empty() {
            let separator = if text.is_empty() { "" } else { ". " };
            let _ = write!(
                text,
                "{separator}the submodule \"{name}\" is not protected: {}. Look at its .git \
                 before you run git in the repository",
                self.failures.join("; ")
            );
        }
        (!text.is_empty()).then_some(text)
    }
}

fn parts(git_dir: &Directory) -> io::Result<Vec<Entry>> {
    let entry = |(below, name): &(Option<&str>, &str)| match below {
        None => part(git_dir, name),
        Some(below) => match git_dir.below(Path::new(below)) {
            Ok(below) => part(&below, name),
            Err(_) => Ok(Entry::Missing),
        },
    };
    PARTS.iter().map(entry).collect()
}

fn part(directory: &Directory, name: &str) -> io::Result<Entry> {
    match name {
        HOOKS => directory.tree(name),
        _ => directory.entry(name),
    }
}

/// The contents of an index, unless it lists no submodule for sure.
fn index_of_submodules(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let index = match read(path, INDEX_LIMIT, Links::Refused) {
        Ok(index) => index,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    let has = |mark: &&[u8]| index.windows(mark.len()).any(|part| part == *mark);
    Ok(MARKS.iter().any(has).then_some(index))
}

/// Reads `MODE ID STAGE TAB PATH NUL`. A path that leads elsewhere is none.
fn submodules_in(told: &[u8]) -> Vec<PathBuf> {
    let records = told.split(|byte| *byte == 0);
    let submodules = records.filter(|record| record.starts_with(b"160000 "));
    let paths = submodules.filter_map(|record| {
        let tab = record.iter().position(|byte| *byte == b'\t')?;
        Some(OsString::from_vec(record.get(tab + 1..)?.to_owned()))
    });
    paths.map(PathBuf::from).collect()
}

/// A path as a part of a line for people.
fn shown(path: &Path) -> String {
    visible_line(&written(path.as_os_str().as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn submodules_are_read_from_the_list_of_an_index() {
        let told = b"100644 1 0\ta\x00160000 2 0\tsub\x00160000 3 1\tx\ty\n\0";
        assert_eq!(submodules_in(told), ["sub", "x\ty\n"].map(PathBuf::from));
    }

    #[test]
    fn index_without_submodules_is_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index");
        assert_eq!(index_of_submodules(&path).unwrap(), None);
        fs::write(&path, b"DIRC\0\0\x81\xa4").unwrap();
        assert_eq!(index_of_submodules(&path).unwrap(), None);
        for text in [&b"DIRC\0\0\xe0\0"[..], b"DIRClink"] {
            fs::write(&path, text).unwrap();
            assert_eq!(index_of_submodules(&path).unwrap().unwrap(), text);
        }
    }

    #[test]
    fn entry_moved_aside_is_no_repository_and_file_is_written_with_its_mode() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().canonicalize().unwrap();
        let git_dir = top.join("sub/.git");
        fs::create_dir_all(&git_dir).unwrap();
        fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let before = Entry::File {
            bytes: b"gitdir: x".to_vec(),
            mode: 0o640,
        };
        let directory = Directory::open(&top)
            .unwrap()
            .below(Path::new("sub"))
            .unwrap();
        let mut visit = Visit::default();
        visit.put_back(&directory, DOT_GIT, &before, Leads::Elsewhere);
        assert_eq!(visit.failures, [] as [&str; 0]);
        assert_eq!(directory.entry(DOT_GIT).unwrap(), before);
        let aside = fs::read_dir(top.join("sub")).unwrap().flatten();
        let aside: Vec<PathBuf> = aside
            .map(|entry| entry.path())
            .filter(|path| *path != git_dir)
            .collect();
        assert_eq!(aside.len(), 1);
        assert!(!aside[0].join("HEAD").exists());
        let warning = visit.warning(Path::new("sub\u{1b}")).unwrap();
        assert!(warning.contains("sub\\u{1b}"), "{warning}");
        assert!(warning.contains(aside[0].to_str().unwrap()), "{warning}");
    }

    #[test]
    fn link_in_the_path_is_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/sub")).unwrap();
        symlink("real", top.join("link")).unwrap();
        let directory = Directory::open(&top).unwrap();
        let below = |path: &str| directory.below(Path::new(path));
        assert!(below("real/sub").is_ok());
        let refused = below("link/sub").unwrap_err();
        assert!(matches!(refused, NoEntry::Link(path) if path == top.join("link")));
        assert!(matches!(below("real/none"), Err(NoEntry::Gone)));
        assert!(matches!(below("../x"), Err(NoEntry::Gone)));
    }
}
