//! What is taken over from the private directory, and what is not.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::index::{Applied, Difference, Listed, stamp};
use super::objects::Transfer;
use super::refs::{Head, Refs};
use super::{BASE, LOG_LIMIT, PrivateGit, remove_all};
use crate::git::{Git, GitError};
use crate::untrusted_file::{Links, read};

/// What the reflogs of the repository say.
const MESSAGE: &str = "codex-mcp: taken over from Codex";

/// Where tips are kept that the repository's own refs do not get.
const ASIDE: &str = "refs/codex-mcp";

/// How many reflogs there are at the most.
const LOGS_LIMIT: usize = 10_000;

/// How long they are together at the most, in bytes.
const LOGS_BYTES: u64 = 64 * 1024 * 1024;

/// The files that commits have changed, with their modes.
const CHANGES: &[&str] = &[
    "-c",
    "log.showRoot=true",
    "log",
    "--raw",
    "-m",
    "-z",
    "--no-renames",
    "--no-show-signature",
    "--format=",
    "--stdin",
];

/// How often a takeover is begun anew because the repository's index has changed.
const ROUNDS: u32 = 5;

/// What was taken over.
#[derive(Debug)]
pub(crate) struct Taken {
    /// What the user has to know.
    pub(crate) warnings: Vec<String>,
    /// Whether the repository has all of Codex's commits on its branches.
    pub(crate) all: bool,
    /// The refs that have been changed or created.
    pub(crate) refs: Vec<String>,
}

/// What is to be done to the repository's refs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// As `git update-ref` reads them.
    updates: Vec<String>,
    /// Tips that are kept aside, as somebody else has changed the ref or works on it.
    aside: Vec<(String, String)>,
    /// What is checked out now, if that is to change.
    head: Option<String>,
    /// What the user is told.
    warnings: Vec<String>,
}

impl PrivateGit {
    /// Takes over what is new since the last time. Codex's commands must not be running.
    ///
    /// # Errors
    ///
    /// [`GitError`]. What was not taken over then is still in the private directory.
    pub(crate) async fn take_over(&mut self) -> Result<Taken, GitError> {
        self.is_half_taken = true;
        let mut refs = Vec::new();
        for _ in 0..ROUNDS {
            if let Some(mut taken) = self.take_over_once(&mut refs).await? {
                self.is_half_taken = false;
                taken.refs = refs;
                return Ok(taken);
            }
        }
        let busy = "other processes keep changing the repository's index";
        Err(io::Error::other(busy).into())
    }

    /// `None` if the repository's index has changed meanwhile: all is to be done again
    /// then. Adds to `refs` those that it changes.
    async fn take_over_once(&mut self, refs: &mut Vec<String>) -> Result<Option<Taken>, GitError> {
        let theirs = self.refs()?;
        let index = stamp(&self.path().join("index"));
        self.copy_logs()?;
        if theirs == self.synced.refs && index == self.synced.index {
            return Ok(Some(Taken {
                warnings: Vec::new(),
                all: true,
                refs: Vec::new(),
            }));
        }
        self.git.refresh()?;
        let now = Refs::of_repository(&self.git).await?;
        let (staged, difference) = self.bring_objects(&theirs, &now, index.as_deref()).await?;
        self.check_submodules(&theirs, &now, &difference).await?;
        let elsewhere = self.checked_out_elsewhere().await?;
        let mut plan = Plan::of(&self.synced.refs, &now, &theirs, &elsewhere);
        let all = self.carry_out(&mut plan).await?;
        refs.extend(plan.changed().map(str::to_owned));
        if all {
            plan.warnings.extend(difference.warning());
            let new = self.directory.join("index.new");
            if difference.apply(&self.git, &new).await? == Applied::Changed {
                return Ok(None);
            }
            self.replace(BASE, &staged.0)?;
            self.synced.refs = Refs {
                others: 0,
                ..theirs
            };
            self.synced.index = index;
            self.save()?;
        }
        Ok(Some(Taken {
            warnings: plan.warnings,
            all,
            refs: Vec::new(),
        }))
    }

    /// Brings the new objects into the repository. Returns what is staged in the private
    /// directory, whose index has this stamp, and what of it has to be staged.
    async fn bring_objects(
        &self,
        theirs: &Refs,
        now: &Refs,
        index: Option<&str>,
    ) -> Result<(Listed, Difference), GitError> {
        let has_moved = now.head != self.synced.refs.head && now.head != theirs.head;
        let private = self.path();
        let transfer = Transfer::new(&self.git, &self.directory)?;
        let quarantine = transfer.quarantine(&private)?;
        let copy = self.directory.join("index.private");
        let base = Listed(fs::read(self.directory.join(BASE))?);
        let staged = match index == self.synced.index.as_deref() || has_moved {
            true => Listed(base.0.clone()),
            false => Listed::of_private(&quarantine, &private, &copy).await?,
        };
        let difference = Difference::read(&staged, &base, &self.git, self.id_length()).await?;
        let wanted = wanted(&self.synced.refs, theirs, &difference);
        transfer.bring(&wanted, now).await?;
        Ok((staged, difference))
    }

    /// Refuses submodules that were not there: git reads the settings of a directory that
    /// is one, and Codex can have written them.
    async fn check_submodules(
        &self,
        theirs: &Refs,
        now: &Refs,
        difference: &Difference,
    ) -> Result<(), GitError> {
        let new = theirs
            .all
            .values()
            .filter(|id| !now.all.values().any(|one| one == *id));
        let mut tips: BTreeSet<&str> = new.map(String::as_str).collect();
        if let Some(Head::Commit(id)) = theirs.head() {
            tips.insert(id);
        }
        let mut added = difference.submodules.first().cloned();
        if !tips.is_empty() {
            let tips = tips.iter().map(|tip| format!("{tip}\n"));
            let known = now.all.values().map(|tip| format!("^{tip}\n"));
            let input: String = tips.chain(known).collect();
            let told = self.git.told(CHANGES, input.as_bytes()).await?;
            added = added.or_else(|| added_submodule(&told));
        }
        match added {
            None => Ok(()),
            Some(path) => Err(io::Error::other(format!(
                "it adds the submodule {path:?}, whose settings your git would read; commit the \
                 files of that directory instead"
            ))
            .into()),
        }
    }

    /// Whether all was taken over.
    async fn carry_out(&self, plan: &mut Plan) -> Result<bool, GitError> {
        let git = self.git.in_repository()?;
        if !plan.updates.is_empty() {
            update(&git, &plan.updates.concat()).await?;
        }
        if !plan.aside.is_empty() {
            let run = self.directory.file_name().unwrap_or_default();
            let place = format!("{ASIDE}/{}", run.to_string_lossy());
            let lines = plan.aside.iter().map(|(name, id)| {
                let own = name.strip_prefix("refs/").unwrap_or(name);
                format!("update {place}/{own} {id}\n")
            });
            update(&git, &lines.collect::<String>()).await?;
            plan.warnings.push(format!(
                "Codex's commits are kept below {place}, since somebody else has changed or \
                 checked out {} meanwhile",
                names(&plan.aside)
            ));
            return Ok(false);
        }
        if let Some(head) = plan.head.as_deref() {
            let question = match head.strip_prefix("refs/") {
                Some(_) => vec!["symbolic-ref", "-m", MESSAGE, "HEAD", head],
                None => vec!["update-ref", "-m", MESSAGE, "--no-deref", "HEAD", head],
            };
            git.told(&question, &[]).await?;
        }
        Ok(true)
    }

    /// The branches that other working trees of the repository have checked out.
    async fn checked_out_elsewhere(&self) -> Result<BTreeSet<String>, GitError> {
        let layout = self.git.layout();
        if !layout.common_dir.join("worktrees").exists() {
            return Ok(BTreeSet::new());
        }
        let git = self.git.in_repository()?;
        let told = git.text(&["worktree", "list", "--porcelain"], &[]).await?;
        let mut branches = BTreeSet::new();
        for (number, block) in told.split("\n\n").enumerate() {
            let line = |key: &str| block.lines().find_map(|line| line.strip_prefix(key));
            let path = line("worktree ").map(PathBuf::from);
            let is_here = |path: PathBuf| path.canonicalize().is_ok_and(|it| it == layout.top);
            // The main one comes first, by its git directory if that lies elsewhere.
            let is_ours = match layout.is_linked() {
                true => path.is_some_and(is_here),
                false => number == 0,
            };
            if let (false, Some(branch)) = (is_ours, line("branch ")) {
                branches.insert(branch.to_owned());
            }
        }
        Ok(branches)
    }

    /// The reflogs tell what was made here and what was fetched.
    fn copy_logs(&self) -> io::Result<()> {
        let (from, to) = (self.path().join("logs"), self.logs());
        let new = self.directory.join("logs.new");
        let mut left = Budget {
            files: LOGS_LIMIT,
            bytes: LOGS_BYTES,
        };
        remove_all(&new)?;
        copy_files(&from, &new, &mut left)?;
        remove_all(&to)?;
        fs::rename(new, to)
    }

    /// Where they are copied to.
    pub(super) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }
}

impl Plan {
    /// The names of the refs that the repository gets.
    fn changed(&self) -> impl Iterator<Item = &str> {
        let names = self.updates.iter().map(|line| line.split(' ').nth(1));
        names.flatten()
    }

    /// `before` is what both had when they were last the same. `elsewhere` are branches
    /// that other working trees have checked out.
    fn of(before: &Refs, now: &Refs, theirs: &Refs, elsewhere: &BTreeSet<String>) -> Self {
        let mut plan = Self::default();
        let names: BTreeSet<&String> = before.all.keys().chain(theirs.all.keys()).collect();
        for name in names {
            let (old, new) = (before.all.get(name), theirs.all.get(name));
            let here = now.all.get(name);
            if old == new || here == new {
                continue;
            }
            let is_users_tag = old.is_some() && name.starts_with("refs/tags/");
            match (old, new) {
                (old, Some(id)) if here == old && !is_users_tag && !elsewhere.contains(name) => {
                    plan.updates.push(change(name, old, id));
                }
                (_, Some(id)) => plan.aside.push((name.clone(), id.clone())),
                // It may be the only way to the user's commits.
                (_, None) => plan
                    .warnings
                    .push(format!("{name}, which Codex has deleted, is still here")),
            }
        }
        if theirs.head != before.head && theirs.head != now.head {
            plan.check_out(before, now, theirs, elsewhere);
        }
        plan
    }

    fn check_out(
        &mut self,
        before: &Refs,
        now: &Refs,
        theirs: &Refs,
        elsewhere: &BTreeSet<String>,
    ) {
        match theirs.head() {
            Some(Head::Branch(name)) if now.head == before.head && !elsewhere.contains(name) => {
                self.head = Some(name.to_owned());
            }
            Some(Head::Commit(id)) if now.head == before.head => self.head = Some(id.to_owned()),
            Some(Head::Commit(id)) => self.aside.push(("refs/detached".to_owned(), id.to_owned())),
            Some(_) => self.warnings.push(
                "what Codex has checked out is not checked out here, since somebody else has \
                 checked out something meanwhile"
                    .to_owned(),
            ),
            None => self
                .warnings
                .push("what Codex has checked out is nothing that git knows".to_owned()),
        }
    }
}

/// The objects that the repository has to have.
fn wanted<'a>(before: &Refs, theirs: &'a Refs, difference: &'a Difference) -> BTreeSet<&'a str> {
    let changed = theirs
        .all
        .iter()
        .filter(|(name, id)| before.all.get(*name) != Some(*id));
    let mut wanted: BTreeSet<&str> = changed.map(|(_, id)| id.as_str()).collect();
    if let Some(Head::Commit(id)) = theirs.head() {
        wanted.insert(id);
    }
    wanted.extend(difference.objects.iter().map(String::as_str));
    wanted
}

fn change(name: &str, old: Option<&String>, new: &str) -> String {
    match old {
        None => format!("create {name} {new}\n"),
        Some(old) => format!("update {name} {new} {old}\n"),
    }
}

/// The path of the first entry that has become a submodule. A record is
/// `:OLD-MODE NEW-MODE OLD-ID NEW-ID STATUS NUL PATH NUL`.
fn added_submodule(told: &[u8]) -> Option<String> {
    let mut records = told.split(|byte| *byte == 0);
    while let Some(record) = records.next() {
        let record = String::from_utf8_lossy(record);
        let Some((_, record)) = record.split_once(':') else {
            continue;
        };
        let path = records.next()?;
        let mut modes = record.split(' ');
        if let (Some(old), Some("160000")) = (modes.next(), modes.next())
            && old != "160000"
        {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    None
}

fn names(aside: &[(String, String)]) -> String {
    let names: Vec<&str> = aside.iter().map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

async fn update(git: &Git, input: &str) -> Result<(), GitError> {
    let question = ["update-ref", "--create-reflog", "-m", MESSAGE, "--stdin"];
    git.told(&question, input.as_bytes()).await.map(drop)
}

/// How much may still be copied.
struct Budget {
    files: usize,
    bytes: u64,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let left = (self.files.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(files), Some(bytes)) = left else {
            return Err(io::Error::other("the reflogs are too many or too long"));
        };
        *self = Self { files, bytes };
        Ok(())
    }
}

/// Copies a directory of small files; a missing one is empty. What is something else than
/// a file or a directory is left out.
fn copy_files(from: &Path, to: &Path, left: &mut Budget) -> io::Result<()> {
    fs::create_dir(to)?;
    if !from.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            left.take(0)?;
            copy_files(&entry.path(), &target, left)?;
        } else if kind.is_file() {
            let bytes = read(&entry.path(), LOG_LIMIT, Links::Refused);
            let bytes = bytes.map_err(io::Error::other)?;
            left.take(bytes.len())?;
            fs::write(target, bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(head: &str, all: &[(&str, &str)]) -> Refs {
        Refs {
            head: format!("ref: refs/heads/{head}\n"),
            all: all
                .iter()
                .map(|(name, id)| (format!("refs/heads/{name}"), (*id).to_owned()))
                .collect(),
            others: 0,
        }
    }

    #[test]
    fn submodule_that_was_none_is_found() {
        let changed = b":100644 100644 a b M\0x\0:160000 160000 a b M\0old\0";
        assert_eq!(added_submodule(changed), None);
        let added = b":100644 100644 a b M\0:x\0\n:000000 160000 0 b A\0sub\0";
        assert_eq!(added_submodule(added).as_deref(), Some("sub"));
        assert_eq!(added_submodule(b""), None);
    }

    fn none() -> BTreeSet<String> {
        BTreeSet::new()
    }

    #[test]
    fn what_only_codex_has_changed_is_taken_over() {
        let before = refs("main", &[("main", "1"), ("old", "1"), ("kept", "1")]);
        let theirs = refs("new", &[("main", "2"), ("new", "3"), ("kept", "1")]);
        let plan = Plan::of(&before, &before, &theirs, &none());
        assert_eq!(
            plan.updates,
            ["update refs/heads/main 2 1\n", "create refs/heads/new 3\n"]
        );
        assert_eq!(plan.head.as_deref(), Some("refs/heads/new"));
        assert_eq!(plan.aside, vec![]);
        let told = ["refs/heads/old, which Codex has deleted, is still here"];
        assert_eq!(plan.warnings, told);
    }

    #[test]
    fn what_somebody_else_has_changed_or_checked_out_is_kept_aside() {
        let before = refs("main", &[("main", "1"), ("side", "1"), ("gone", "1")]);
        let now = refs("main", &[("main", "9"), ("side", "1"), ("gone", "9")]);
        let theirs = refs("main", &[("main", "2"), ("side", "2")]);
        let side = BTreeSet::from(["refs/heads/side".to_owned()]);
        let plan = Plan::of(&before, &now, &theirs, &side);
        assert_eq!(plan.updates, [] as [&str; 0]);
        let aside: Vec<_> = plan.aside.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(aside, ["refs/heads/main", "refs/heads/side"]);
        let both = Plan::of(&before, &theirs, &theirs, &none());
        assert_eq!(both, Plan::default(), "taken over already");
    }

    #[test]
    fn checkout_of_somebody_else_stays() {
        let before = refs("main", &[]);
        let plan = Plan::of(&before, &refs("other", &[]), &refs("new", &[]), &none());
        assert_eq!(plan.head, None);
        assert_eq!(plan.warnings.len(), 1);
    }
}
