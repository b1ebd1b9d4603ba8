//! Git outside of the repository, with what the user has set for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::Git;
use super::invocation::COUNT;
use super::setting::{Scope, Setting};

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
    pub(crate) fn outside(&self) -> Self {
        let mut git = self.clone();
        let users = self.settings.iter().filter(|one| is_own(one));
        git.invocation.overrides = users.map(pair).collect();
        git.invocation.cwd = PathBuf::from("/");
        git.invocation.forget_repository();
        git.invocation.allow_protocols();
        git.invocation.has_timed_out = None;
        // Else one around that directory would be found.
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
