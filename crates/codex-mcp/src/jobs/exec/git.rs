//! What git sees of a run.
//!
//! The repository is Codex's to write to, and its configuration may name programs
//! that git would run, outside the sandbox: none of them is run here. What git is
//! asked changes nothing, waits for no lock, and fetches nothing.
//!
//! Source: git-config(1), git-status(1) (porcelain format 2), gitattributes(5).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use codex_mcp_core::exec::{ChangeKind, Changes, Digest, GitState, Look};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::engine::Exit;
use crate::engine::run::{Finished, run_until};
use crate::engine::spawn::Program;
use crate::team::Repository;

/// How many filters of a repository are switched off. Git LFS has one.
const FILTERS_LIMIT: usize = 64;

/// What every question begins with.
const SAFE: &[&str] = &[
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "submodule.recurse=false",
];

const FILTERS: &[&str] = &[
    "config",
    "--null",
    "--name-only",
    "--get-regexp",
    r"^filter\..*\.(clean|smudge|process|required)$",
];

const TOP: &[&str] = &["rev-parse", "--show-toplevel"];

const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "--branch",
    "--no-ahead-behind",
    "-z",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=dirty",
];

const DIFF: &[&str] = &[
    "diff-tree",
    "-r",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--name-status",
];

const LIST: &[&str] = &["ls-tree", "-r", "-z", "--name-only"];

/// What git saw.
#[derive(Debug)]
pub(super) enum Seen {
    /// There is no repository, or nobody looked.
    Nothing,
    /// Git doesn't tell, for this reason.
    Unknown(GitError),
    /// This.
    Tree(Tree),
}

/// A working tree.
#[derive(Debug)]
pub(super) struct Tree {
    /// Its top folder.
    root: String,
    state: GitState,
    /// Whether there was more than could be looked at.
    extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Cut,
}

/// Why git doesn't tell.
#[derive(Debug, thiserror::Error)]
pub(super) enum GitError {
    #[error("git can't be run: {0}")]
    Unusable(io::Error),
    #[error("git {exit}: {words}")]
    Failed { exit: Exit, words: String },
    #[error("the repository has more than {FILTERS_LIMIT} settings of filters")]
    TooManyFilters,
}

/// Looks at the repository around `cwd`. Each question may take `patience`, and is
/// given up when `halt` is cancelled.
pub(super) async fn look(
    cwd: &Path,
    env: &[(OsString, OsString)],
    patience: Duration,
    halt: &CancellationToken,
) -> Seen {
    if Repository::around(cwd, &[]).is_none() {
        return Seen::Nothing;
    }
    match Git::begin(cwd, env, patience, halt).await {
        Ok(git) => match git.tree().await {
            Ok(tree) => Seen::Tree(tree),
            Err(error) => Seen::Unknown(error),
        },
        Err(GitError::Failed { words, .. }) if words.contains("not a git repository") => {
            Seen::Nothing
        }
        Err(error) => Seen::Unknown(error),
    }
}

/// What has changed since `before`, by git and by what Codex reported.
pub(super) async fn changes(
    cwd: &Path,
    env: &[(OsString, OsString)],
    before: &Seen,
    digest: &Digest,
    patience: Duration,
) -> Changes {
    let mut changes = Changes::default();
    let mut seen = BTreeMap::new();
    match before {
        Seen::Nothing => {}
        Seen::Unknown(error) => changes.incomplete = Some(error.to_string()),
        Seen::Tree(tree) => {
            changes.head_before.clone_from(&tree.state.head);
            match since(tree, cwd, env, patience).await {
                Ok((after, changed)) => {
                    changes.head_after = after.state.head;
                    seen = changed;
                    if [tree.extent, after.extent].contains(&Extent::Cut) {
                        let cut = "there are more files than could be looked at";
                        changes.incomplete = Some(cut.to_owned());
                    }
                }
                Err(error) => changes.incomplete = Some(error.to_string()),
            }
        }
    }
    let root = match before {
        Seen::Tree(tree) => Some(tree.root.as_str()),
        _ => None,
    };
    changes.tell(&seen, &digest.files, root);
    changes
}

async fn since(
    before: &Tree,
    cwd: &Path,
    env: &[(OsString, OsString)],
    patience: Duration,
) -> Result<(Tree, BTreeMap<String, ChangeKind>), GitError> {
    let never = CancellationToken::new();
    let git = Git::begin(cwd, env, patience, &never).await?;
    let after = git.tree().await?;
    let committed = git.committed(&before.state, &after.state).await?;
    let changed = Changes::between(&before.state, &after.state, &committed);
    Ok((after, changed))
}

/// The git program, in one repository.
struct Git<'a> {
    cwd: &'a Path,
    env: Vec<(OsString, OsString)>,
    root: String,
    patience: Duration,
    halt: &'a CancellationToken,
}

impl<'a> Git<'a> {
    async fn begin(
        cwd: &'a Path,
        env: &[(OsString, OsString)],
        patience: Duration,
        halt: &'a CancellationToken,
    ) -> Result<Self, GitError> {
        let mut git = Self {
            cwd,
            env: env.to_vec(),
            root: String::new(),
            patience,
            halt,
        };
        let plain = [
            ("LC_ALL", "C"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ];
        git.env
            .extend(plain.map(|(name, value)| (name.into(), value.into())));
        let (top, filters) = futures::join!(git.ask(TOP, &[]), git.ask(FILTERS, &[]));
        git.root = told(top?)?.trim_end_matches('\n').to_owned();
        git.switch_off(&filters?.stdout)?;
        Ok(git)
    }

    /// Filters are programs of the repository's choice, and git runs them to see
    /// whether a file has changed. They are set to nothing by variables: a
    /// filter's name may hold what an argument can't.
    fn switch_off(&mut self, filters: &str) -> Result<(), GitError> {
        let names: Vec<&str> = filters.split_terminator('\0').collect();
        if names.len() > FILTERS_LIMIT {
            return Err(GitError::TooManyFilters);
        }
        let count = names.len().to_string();
        for (number, name) in names.into_iter().enumerate() {
            let nothing = if name.ends_with(".required") {
                "false"
            } else {
                ""
            };
            let variables = [("GIT_CONFIG_KEY_", name), ("GIT_CONFIG_VALUE_", nothing)];
            self.env.extend(
                variables
                    .map(|(variable, text)| (format!("{variable}{number}").into(), text.into())),
            );
        }
        self.env.push(("GIT_CONFIG_COUNT".into(), count.into()));
        Ok(())
    }

    async fn ask(&self, question: &[&str], about: &[&str]) -> Result<Finished, GitError> {
        let args = SAFE.iter().chain(question).chain(about);
        let mut program = Program::new(Path::new("git"), args);
        program.cwd = Some(self.cwd.to_owned());
        program.env.clone_from(&self.env);
        let end = async {
            let _ = timeout(self.patience, self.halt.cancelled()).await;
        };
        run_until(&program, end).await.map_err(GitError::Unusable)
    }

    async fn tree(&self) -> Result<Tree, GitError> {
        let status = told(self.ask(STATUS, &[]).await?)?;
        let extent = match status.is_empty() || status.ends_with('\0') {
            true => Extent::Whole,
            false => Extent::Cut,
        };
        let state = state(&status, Path::new(&self.root));
        Ok(Tree {
            root: self.root.clone(),
            state,
            extent,
        })
    }

    /// The files that differ between the two commits.
    async fn committed(
        &self,
        before: &GitState,
        after: &GitState,
    ) -> Result<BTreeMap<String, ChangeKind>, GitError> {
        let (Some(new), true) = (&after.head, before.head != after.head) else {
            return Ok(BTreeMap::new());
        };
        let Some(old) = &before.head else {
            let all = told(self.ask(LIST, &[new]).await?)?;
            let names = all.split_terminator('\0');
            return Ok(names
                .map(|name| (name.to_owned(), ChangeKind::Added))
                .collect());
        };
        let differences = told(self.ask(DIFF, &[old, new]).await?)?;
        let mut parts = differences.split_terminator('\0');
        let mut files = BTreeMap::new();
        while let (Some(status), Some(path)) = (parts.next(), parts.next()) {
            files.insert(path.to_owned(), kind(status));
        }
        Ok(files)
    }
}

fn told(finished: Finished) -> Result<String, GitError> {
    match finished.succeeded() {
        true => Ok(finished.stdout),
        false => Err(GitError::Failed {
            exit: finished.exit,
            words: finished
                .stderr
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        }),
    }
}

fn kind(status: &str) -> ChangeKind {
    match status {
        _ if status.contains('D') => ChangeKind::Deleted,
        _ if status.contains(['A', '?']) => ChangeKind::Added,
        _ => ChangeKind::Modified,
    }
}

/// Reads `git status`. A record that was cut off is left out.
fn state(status: &str, root: &Path) -> GitState {
    let mut state = GitState::default();
    let whole = status.rsplit_once('\0').map_or("", |(whole, _)| whole);
    for record in whole.split('\0') {
        if let Some(head) = record.strip_prefix("# branch.oid ") {
            state.head = (head != "(initial)").then(|| head.to_owned());
        } else if let Some((what, path)) = parts(record) {
            let look = Look {
                kind: kind(what.split(' ').nth(1).unwrap_or(what)),
                stamp: format!("{what} {}", stamp(&root.join(path))),
            };
            state.dirty.insert(path.to_owned(), look);
        }
    }
    state
}

/// What git says of a file, and its path, which may have spaces in it.
fn parts(record: &str) -> Option<(&str, &str)> {
    let fields = match record.chars().next()? {
        '?' => 1,
        '1' => 8,
        'u' => 10,
        _ => return None,
    };
    let (end, _) = record.match_indices(' ').nth(fields - 1)?;
    Some((record.get(..end)?, record.get(end + 1..)?))
}

/// What differs when a file is written to.
fn stamp(path: &Path) -> String {
    let Ok(metadata) = path.symlink_metadata() else {
        return String::new();
    };
    let modified = metadata.modified().ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!(
        "{} {}",
        metadata.len(),
        since.unwrap_or_default().as_nanos()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "# branch.oid abc\0# branch.head main\0\
            1 .M N... 100644 100644 100644 h1 h2 a file\0\
            1 .D N... 100644 100644 000000 h1 h2 gone\0\
            1 A. N... 000000 100644 100644 h1 h2 new\nline\0\
            u UU N... 100644 100644 100644 100644 h1 h2 h3 both\0\
            ? un tracked\0\
            ? cut o";
        let state = state(status, Path::new("/nowhere"));
        assert_eq!(state.head.as_deref(), Some("abc"));
        let kinds: Vec<(&str, ChangeKind)> = state
            .dirty
            .iter()
            .map(|(path, look)| (path.as_str(), look.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a file", ChangeKind::Modified),
                ("both", ChangeKind::Modified),
                ("gone", ChangeKind::Deleted),
                ("new\nline", ChangeKind::Added),
                ("un tracked", ChangeKind::Added),
            ]
        );
        let fresh = super::state("# branch.oid (initial)\0", Path::new("/"));
        assert_eq!(fresh, GitState::default());
    }
}
