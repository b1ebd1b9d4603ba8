//! The commit that the program is built from.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How many digits of a commit's hash are kept.
const DIGITS: usize = 8;

/// A commit, and the files that change when another one is checked out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The first digits of its hash.
    pub(crate) hash: String,
    /// The files, all of which exist: cargo would run a build script again and again for one that
    /// does not.
    pub(crate) files: Vec<PathBuf>,
}

/// The beginning of a hash as somebody gives it; `None` if it is none.
pub(crate) fn shortened(hash: &str) -> Option<String> {
    let hash = hash.trim();
    let is_hash = hash.len() >= DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.chars().take(DIGITS).collect())
}

/// The commit that is checked out at `root`; `None` if that is not the top of a checkout, such as
/// an unpacked archive in somebody's repository, or if there is no git.
pub(crate) fn checked_out(root: &Path) -> Option<Commit> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let hash = shortened(&git(root, &["rev-parse", "HEAD"])?)?;
    // HEAD names a branch, whose file changes with each commit, or is a file among packed refs
    // and appears with the next commit; the log of HEAD grows in each case.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let names = ["HEAD", "logs/HEAD", "packed-refs"].into_iter();
    let files = names
        .chain(branch.as_deref())
        .filter_map(|name| git(root, &["rev-parse", "--git-path", name]))
        .map(|path| root.join(path))
        .filter(|path| path.exists())
        .collect();
    Some(Commit { hash, files })
}

/// The first line that git prints. Its own variables, which a hook has, could name another
/// repository.
#[expect(
    clippy::disallowed_methods,
    reason = "a build script, which has none of our crates"
)]
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let ran = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(args)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .ok()?;
    let text = String::from_utf8(ran.stdout).ok()?;
    let line = text.lines().next()?.to_owned();
    ran.status.success().then_some(line)
}
