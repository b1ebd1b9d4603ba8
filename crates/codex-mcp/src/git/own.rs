//! What the user has set, without what the repository has.
//!
//! Git itself tells what is whose in the repository at hand, so that what the user's
//! own files include for it (`includeIf`) counts.
//!
//! Source: git-config(1): scopes, `include`; git(1): GIT_CONFIG_GLOBAL and the like.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{COUNT, Git, GitError, leads_elsewhere};

/// How many settings a user has at the most.
const SETTINGS_LIMIT: usize = 5000;

const ALL: &[&str] = &["config", "--null", "--show-scope", "--list"];

/// What has been read already, or has had its effect: included files, and what
/// addresses are rewritten to.
const DONE: &[&[u8]] = &[b"include.", b"includeif.", b"url."];

/// Where settings would be read from a second time.
const FILES: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_PARAMETERS", ""),
    (COUNT, "0"),
];

impl Git {
    /// The same outside of any repository, with what the user has set for this one:
    /// for the machine, for themselves, and in the environment.
    pub(crate) async fn outside(&self) -> Result<Self, GitError> {
        let told = self.told(ALL, &[]).await?;
        let settings = own(&told);
        if settings.len() > SETTINGS_LIMIT {
            return Err(GitError::TooMuch);
        }
        let mut git = self.clone();
        git.settings = settings;
        git.cwd = PathBuf::from("/");
        git.env.retain(|(name, _)| !leads_elsewhere(name));
        // Else one around that folder would be found.
        git.set("GIT_DIR", "/dev/null");
        for (name, value) in FILES {
            git.set(name, value);
        }
        Ok(git)
    }

    /// The last value of a setting that was made from outside of the repository's
    /// files.
    pub(crate) fn setting(&self, key: &str) -> Option<&OsStr> {
        let mut settings = self.settings.iter().rev();
        let set = settings.find(|(known, _)| known == key);
        set.map(|(_, value)| value.as_os_str())
    }
}

/// Reads `SCOPE NUL KEY LF VALUE NUL`; a key alone is true.
fn own(told: &[u8]) -> Vec<(OsString, OsString)> {
    let mut records = told.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let (Some(scope), Some(setting)) = (records.next(), records.next()) {
        let mut parts = setting.splitn(2, |byte| *byte == b'\n');
        let (key, value) = (parts.next().unwrap_or_default(), parts.next());
        let is_own = matches!(scope, b"system" | b"global" | b"command");
        if is_own && !DONE.iter().any(|done| key.starts_with(done)) {
            let value = OsStr::from_bytes(value.unwrap_or(b"true"));
            settings.push((OsString::from_vec(key.to_owned()), value.to_owned()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_settings_are_taken() {
        let told = b"system\0a.b\n1\0global\0include.path\n/x\0global\0http.proxy\np\nq\0\
            local\0http.proxy\nevil\0worktree\0http.proxy\nworse\0global\0c.d\0\
            global\0url.x.insteadof\ny\0command\0a.b\n\xff\0";
        let expected: [(&str, &[u8]); 4] = [
            ("a.b", b"1"),
            ("http.proxy", b"p\nq"),
            ("c.d", b"true"),
            ("a.b", b"\xff"),
        ];
        let expected = expected.map(|(key, value)| (key.into(), OsStr::from_bytes(value).into()));
        assert_eq!(own(told), expected);
        assert_eq!(own(b""), []);
    }
}
