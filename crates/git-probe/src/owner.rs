//! Checks whether a repository belongs to the user.
//!
//! Git makes this check only for repositories that it finds by itself. Here git is told the
//! location of the repository, so the check is repeated.
//!
//! Source: git-config(1), `safe.directory`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use safe_files::home_directory::home_directory;

use super::setting::{Scope, Setting};
use super::{GitError, Layout};

/// The variable with which git's own tests make every repository count as another user's.
const PRETENDED: &str = "GIT_TEST_ASSUME_DIFFERENT_OWNER";

/// Refuses the repository of another user, unless the user has named it in
/// `safe.directory`.
pub(super) fn check(
    layout: &Layout,
    settings: &[Setting],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), GitError> {
    let dot_git = layout.top.join(".git");
    let parts = [&layout.top, &dot_git, &layout.git_dir, &layout.common_dir];
    let pretended = variable(PRETENDED).is_some();
    if !pretended && parts.into_iter().all(|path| is_ours(path)) {
        return Ok(());
    }
    match is_safe(&layout.top, settings, home_directory(variable).as_deref()) {
        true => Ok(()),
        false => Err(GitError::Others(layout.top.clone())),
    }
}

fn is_ours(path: &Path) -> bool {
    let user = geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|about| about.uid() == user)
}

/// An empty value revokes the values before it.
fn is_safe(top: &Path, settings: &[Setting], home: Option<&Path>) -> bool {
    let named = settings
        .iter()
        .filter(|set| set.scope == Scope::User && set.key == "safe.directory");
    let mut safe = false;
    for setting in named {
        let value = setting.value();
        safe = match value.as_bytes() {
            b"" => false,
            b"*" => true,
            _ => safe || names(value, top, home),
        };
    }
    safe
}

fn names(value: &OsStr, top: &Path, home: Option<&Path>) -> bool {
    let path = Path::new(value);
    let path = match (path.strip_prefix("~"), home) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    };
    match (path.ends_with("*"), path.parent()) {
        (true, Some(all)) => top.starts_with(all) && top != all,
        _ => path == top,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user(values: &[&str]) -> Vec<Setting> {
        let setting = |value: &&str| Setting {
            is_of_environment: false,
            scope: Scope::User,
            key: "safe.directory".into(),
            value: Some(value.into()),
        };
        values.iter().map(setting).collect()
    }

    fn safe(values: &[&str]) -> bool {
        let top = Path::new("/srv/repo");
        is_safe(top, &of_user(values), Some(Path::new("/srv")))
    }

    #[test]
    fn safe_directory_is_read_as_git_reads_it() {
        for values in [
            &["*"][..],
            &["/srv/repo"],
            &["~/repo"],
            &["/srv/*"],
            &["", "/other", "/srv/repo"],
        ] {
            assert!(safe(values), "{values:?}");
        }
        for values in [
            &[][..],
            &["/srv"],
            &["/srv/repo/sub"],
            &["*", ""],
            &["/srv/repo/*"],
        ] {
            assert!(!safe(values), "{values:?}");
        }
    }

    #[test]
    fn safe_directory_is_found_in_the_home_of_the_account_without_home() {
        // The user of a container may have no account.
        let Some(account) = home_directory(|_| None) else {
            return;
        };
        let top = account.join("repo");
        let layout = Layout {
            git_dir: top.join(".git"),
            common_dir: top.join(".git"),
            top,
        };
        let variable = |name: &str| (name == PRETENDED).then(OsString::new);
        assert!(check(&layout, &of_user(&["~/other"]), variable).is_err());
        assert!(check(&layout, &of_user(&["~/repo"]), variable).is_ok());
    }

    #[test]
    fn repository_cannot_name_itself_safe() {
        let setting = Setting {
            is_of_environment: false,
            scope: Scope::Repository,
            key: "safe.directory".into(),
            value: Some("*".into()),
        };
        assert!(!is_safe(Path::new("/srv/repo"), &[setting], None));
    }
}
