//! Files of the working tree that git uses because a setting leads there: hooks and
//! included settings, and programs that settings name.
//!
//! Codex may write these, and the user's next git command runs them. They may be what the
//! user has asked for, so they stay: hashes from before the run tell which have changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::shown;

use crate::git::Git;
use crate::git::setting::Setting;
use crate::untrusted_file::{Links, read};

/// How many files are hashed, how deep they lie below a directory, and the longest one in
/// bytes. Of a longer one, its size and times are compared.
const FILES: usize = 1_000;
const DEPTH: usize = 2;
const LONGEST: u64 = 1024 * 1024;

/// How many changed files a warning names.
const NAMED: usize = 10;

/// Settings whose values are commands: the keys, or how they begin and end.
const COMMANDS: [(&str, &str); 12] = [
    ("core.fsmonitor", ""),
    ("core.sshcommand", ""),
    ("core.editor", ""),
    ("core.pager", ""),
    ("diff.external", ""),
    ("diff.", ".command"),
    ("diff.", ".textconv"),
    ("merge.", ".driver"),
    ("filter.", ".clean"),
    ("filter.", ".smudge"),
    ("filter.", ".process"),
    ("gpg.", "program"),
];

/// The files before the run.
#[derive(Debug, Clone)]
pub(super) struct ProgramFiles {
    top: PathBuf,
    /// Files and directories, each with the setting that leads there.
    places: BTreeMap<PathBuf, String>,
    before: BTreeMap<PathBuf, String>,
}

impl ProgramFiles {
    /// Finds the files by the settings, and hashes them.
    pub(super) fn of(git: &Git) -> Self {
        let mut found = Self {
            top: git.layout().top.clone(),
            places: BTreeMap::new(),
            before: BTreeMap::new(),
        };
        for setting in git.settings.iter() {
            for place in places(git, setting) {
                found.add(git, &place, &setting.key.to_string_lossy());
            }
        }
        found.before = found.hashes();
        found
    }

    fn add(&mut self, git: &Git, place: &Path, key: &str) {
        // A directory that is not there may be made.
        let made = || {
            Some(
                place
                    .parent()?
                    .canonicalize()
                    .ok()?
                    .join(place.file_name()?),
            )
        };
        let Some(resolved) = place.canonicalize().ok().or_else(made) else {
            return;
        };
        let layout = git.layout();
        let is_below = resolved.starts_with(&self.top) && resolved != self.top;
        let is_git = [&layout.git_dir, &layout.common_dir]
            .iter()
            .any(|git_dir| resolved.starts_with(git_dir));
        if is_below && !is_git {
            self.places.insert(resolved, key.to_owned());
        }
    }

    /// What has changed since, for the user.
    pub(super) fn changes(&self) -> Vec<String> {
        let now = self.hashes();
        let mut changed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let paths = now.keys().chain(self.before.keys());
        let differs =
            |path: &&PathBuf| now.contains_key(*path) && now.get(*path) != self.before.get(*path);
        let mut paths: Vec<&PathBuf> = paths.filter(differs).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let mut places = path.ancestors().filter_map(|above| self.places.get(above));
            if let Some(key) = places.next() {
                let name = path.strip_prefix(&self.top).unwrap_or(path);
                changed.entry(key).or_default().push(shown(name));
            }
        }
        changed
            .iter()
            .map(|(key, names)| message(key, names))
            .collect()
    }

    fn hashes(&self) -> BTreeMap<PathBuf, String> {
        let mut hashes = BTreeMap::new();
        for place in self.places.keys() {
            hash_below(place, DEPTH, &mut hashes);
        }
        hashes
    }
}

fn message(key: &str, names: &[String]) -> String {
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    format!(
        "{}{more} changed during the run, and your git uses what is there, as {key} leads to it: \
         look at it before you run git in this repository",
        names.join(", ")
    )
}

/// Where a setting leads. A relative path counts from where git takes it from.
fn places(git: &Git, setting: &Setting) -> Vec<PathBuf> {
    let layout = git.layout();
    let Some(key) = setting.key.to_str() else {
        return Vec::new();
    };
    let key = key.to_ascii_lowercase();
    let value = setting.value();
    if key == "core.hookspath" {
        let hooks = expanded(git, &layout.top, value);
        // Those of husky run what lies beside their directory.
        let beside = hooks.ends_with("_").then(|| hooks.parent()).flatten();
        return beside
            .map(Path::to_owned)
            .into_iter()
            .chain([hooks.clone()])
            .collect();
    }
    if key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path")) {
        let bases = [&layout.git_dir, &layout.common_dir];
        return bases.map(|base| expanded(git, base, value)).to_vec();
    }
    let is_command = |(begin, end): &(&str, &str)| match *end {
        "" => key == *begin,
        end => key.starts_with(begin) && key.ends_with(end),
    };
    if !COMMANDS.iter().any(is_command) {
        return Vec::new();
    }
    let words = shlex::split(&value.to_string_lossy()).unwrap_or_default();
    let paths = words
        .iter()
        .map(|word| expanded(git, &layout.top, OsStr::new(word)));
    paths.filter(|path| path.is_file()).collect()
}

/// A path as git reads it, with `~/` for the home directory.
fn expanded(git: &Git, base: &Path, value: &OsStr) -> PathBuf {
    match (value.as_bytes().strip_prefix(b"~/"), git.variable("HOME")) {
        (Some(below), Some(home)) => Path::new(&home).join(OsStr::from_bytes(below)),
        _ => base.join(value),
    }
}

fn hash_below(path: &Path, depth: usize, hashes: &mut BTreeMap<PathBuf, String>) {
    let Ok(about) = fs::metadata(path) else {
        return;
    };
    if about.is_dir() {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            hash_below(&entry.path(), depth, hashes);
        }
        return;
    }
    if hashes.len() >= FILES {
        return;
    }
    let content = match read(path, LONGEST, Links::Followed) {
        Ok(bytes) => format!("{:x?}", Sha256::digest(&bytes)),
        Err(_) => format!("{} {} {}", about.ino(), about.size(), about.ctime_nsec()),
    };
    hashes.insert(path.to_owned(), format!("{:o} {content}", about.mode()));
}
