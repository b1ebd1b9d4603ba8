//! Git outside of the repository, with the user's settings for that repository.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::Git;
use super::invocation::COUNT;
use super::setting::{Scope, Setting};

/// Settings that already had their effect, and must not apply twice: included files, which were
/// read, and rewritten addresses.
const DONE: &[&[u8]] = &[b"include.", b"includeif.", b"url."];

/// Variables that keep git from reading the settings a second time.
const FILES: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_PARAMETERS", ""),
    (COUNT, "0"),
];

impl Git {
    /// Git outside of any repository, with the settings that the user has made for this one: on the
    /// machine, in the user's files, and in the environment.
    pub(crate) fn outside(&self) -> Self {
        let mut git = self.clone();
        let users = self.settings.iter().filter(|one| is_own(one));
        git.invocation.overrides = users.map(pair).collect();
        git.invocation.cwd = PathBuf::from("/");
        git.invocation.forget_repository();
        git.invocation.allow_protocols();
        git.invocation.has_timed_out = None;
        // Otherwise git would find a repository around that directory.
        git.set("GIT_DIR", "/dev/null");
        for (name, value) in FILES {
            git.set(name, value);
        }
        git
    }

    /// The last value of a setting that the user has made.
    pub(crate) fn setting(&self, key: &str) -> Option<&OsStr> {
        let mut settings = self.settings.iter().rev();
        let set = settings.find(|set| set.scope == Scope::User && set.key == key);
        set.map(Setting::value)
    }
}

fn pair(setting: &Setting) -> (OsString, OsString) {
    (setting.key.clone(), setting.value().to_owned())
}

fn is_own(setting: &Setting) -> bool {
    let key = setting.key.as_bytes();
    setting.scope == Scope::User && !DONE.iter().any(|done| key.starts_with(done))
}
