//! Files of the working tree that git uses because of a setting: hooks, included settings, and
//! programs that settings name.
//!
//! Codex may write these files, and the user's next git command runs them. They may be what the
//! user has asked for, so they stay. Hashes from before the run show which of them have changed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::text::first_names;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::shown;

use crate::Git;
use crate::setting::Setting;
use safe_files::directory::resolved;
use safe_files::home_directory::home_directory;
use safe_files::untrusted_file::Links;
use safe_files::untrusted_file::read;

/// The most files that are hashed, how deep they may lie below a directory, and the longest one in
/// bytes. Longer files are compared by size and times.
const FILES: usize = 1_000;
const DEPTH: usize = 2;
const LONGEST: u64 = 1024 * 1024;

/// How many changed files a warning names.
const NAMED: usize = 10;

/// How many entries of one directory are read.
const ENTRIES: usize = 100_000;

/// Settings whose values are commands, by their keys, or by the beginnings and ends of keys. An
/// entry that ends with a dot is the beginning of a key.
const COMMANDS: [(&str, &str); 37] = [
    ("alias.", ""),
    ("browser.", ".cmd"),
    ("core.alternaterefscommand", ""),
    ("core.askpass", ""),
    ("core.editor", ""),
    ("core.fsmonitor", ""),
    ("core.gitproxy", ""),
    ("core.pager", ""),
    ("core.sshcommand", ""),
    ("credential", ".helper"),
    ("diff.", ".command"),
    ("diff.", ".textconv"),
    ("diff.external", ""),
    ("difftool.", ".cmd"),
    ("difftool.", ".path"),
    ("filter.", ".clean"),
    ("filter.", ".process"),
    ("filter.", ".smudge"),
    ("gpg.", "program"),
    ("gpg.ssh.defaultkeycommand", ""),
    ("guitool.", ".cmd"),
    // From git 2.54 on.
    ("hook.", ".command"),
    ("interactive.difffilter", ""),
    ("man.", ".cmd"),
    ("man.", ".path"),
    ("merge.", ".driver"),
    ("mergetool.", ".cmd"),
    ("mergetool.", ".path"),
    ("pager.", ""),
    ("remote.", ".receivepack"),
    ("remote.", ".uploadpack"),
    ("sequence.editor", ""),
    ("submodule.", ".update"),
    ("tar.", ".command"),
    ("trailer.", ".cmd"),
    ("trailer.", ".command"),
    ("uploadpack.packobjectshook", ""),
];

/// The files before the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ProgramFiles {
    #[serde(with = "crate::bytes::path")]
    top: PathBuf,
    /// Files and directories, each with the setting that leads there.
    #[serde(with = "crate::bytes::texts_by_path")]
    places: BTreeMap<PathBuf, String>,
    before: Hashes,
}

/// Files with hashes of their contents.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Hashes {
    #[serde(with = "crate::bytes::texts_by_path")]
    all: BTreeMap<PathBuf, String>,
    /// Whether there are more files than the limit.
    has_more: bool,
}

impl ProgramFiles {
    /// Finds the files by the settings, and hashes them.
    pub(super) fn of(git: &Git) -> Self {
        let mut found = Self {
            top: git.layout().top.clone(),
            places: BTreeMap::new(),
            before: Hashes::default(),
        };
        for setting in git.settings.iter() {
            for place in places(git, setting) {
                found.add(git, &place, &setting.key.to_string_lossy());
            }
        }
        found.before = found.hashes();
        found
    }

    /// Adds a file or directory of the working tree, which need not exist yet.
    fn add(&mut self, git: &Git, place: &Path, key: &str) {
        let resolved = resolved(place);
        let layout = git.layout();
        let is_below = resolved.starts_with(&self.top) && resolved != self.top;
        let is_git = [&layout.git_dir, &layout.common_dir]
            .iter()
            .any(|git_dir| resolved.starts_with(git_dir));
        if is_below && !is_git {
            self.places.insert(resolved, key.to_owned());
        }
    }

    /// The parts that are not compared, in words for the user.
    pub(super) fn warning(&self) -> Option<String> {
        self.before.has_more.then(|| incomplete(&self.places))
    }

    /// The changes since the run began, in words for the user.
    pub(super) fn changes(&self) -> Vec<String> {
        let now = self.hashes_now();
        let mut changed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let differs =
            |(path, hash): &(&PathBuf, &String)| self.before.all.get(*path) != Some(*hash);
        for (path, _) in now.all.iter().filter(differs) {
            let mut places = path.ancestors().filter_map(|above| self.places.get(above));
            if let Some(key) = places.next() {
                let name = path.strip_prefix(&self.top).unwrap_or(path);
                changed.entry(key).or_default().push(shown(name));
            }
        }
        let incomplete = (now.has_more && !self.before.has_more).then(|| incomplete(&self.places));
        let changed = changed.iter().map(|(key, names)| message(key, names));
        changed.chain(incomplete).collect()
    }

    /// Single files come before those in directories, which may be too many.
    fn hashes(&self) -> Hashes {
        let mut hashes = Hashes::default();
        let (directories, files): (Vec<_>, Vec<_>) =
            self.places.keys().partition(|place| place.is_dir());
        for place in files.into_iter().chain(directories) {
            hashes.add_below(place, DEPTH);
        }
        hashes
    }

    /// The current hashes of the earlier files, and of new ones. If not all files were hashed
    /// before the run, new files are left out, as they cannot be told from earlier ones.
    fn hashes_now(&self) -> Hashes {
        let mut known = Hashes::default();
        for path in self.before.all.keys() {
            known.add_below(path, 0);
        }
        if self.before.has_more {
            return known;
        }
        let now = self.hashes();
        known.has_more = now.has_more;
        known.all.extend(now.all);
        known
    }
}

fn incomplete(places: &BTreeMap<PathBuf, String>) -> String {
    let mut keys: Vec<&str> = places.values().map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.truncate(NAMED);
    format!(
        "settings of git ({}) lead to more than {FILES} files of the working tree, of which the \
         others are not compared: what Codex changes in them is not named",
        keys.join(", ")
    )
}

fn message(key: &str, names: &[String]) -> String {
    format!(
        "{} changed during the run, and your git uses what is there, as {key} leads to it: \
         look at it before you run git in this repository",
        first_names(names, NAMED)
    )
}

/// The paths in a setting. Relative ones are resolved as git does.
fn places(git: &Git, setting: &Setting) -> Vec<PathBuf> {
    let layout = git.layout();
    let expanded = |base: &Path, value: &OsStr| expanded(base, value, |name| git.variable(name));
    let Some(key) = setting.key.to_str() else {
        return Vec::new();
    };
    let key = key.to_ascii_lowercase();
    let value = setting.value();
    if key == "core.hookspath" {
        let hooks = expanded(&layout.top, value);
        // Hooks of husky run files next to their directory.
        let beside = hooks.ends_with("_").then(|| hooks.parent()).flatten();
        return beside
            .map(Path::to_owned)
            .into_iter()
            .chain([hooks.clone()])
            .collect();
    }
    if key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path")) {
        let bases = [&layout.git_dir, &layout.common_dir];
        return bases.map(|base| expanded(base, value)).to_vec();
    }
    if !is_command(&key) {
        return Vec::new();
    }
    // Where git takes the name of a program or a shell command, a shell command begins with `!`.
    let value = value.to_string_lossy();
    let command = value.trim_start_matches('!');
    let words = shlex::split(command).unwrap_or_else(|| vec![command.to_owned()]);
    let words = words.iter().filter_map(|word| word.rsplit('=').next());
    let paths = words.filter_map(|word| {
        let path = expanded(&layout.top, OsStr::new(word));
        let is_path = word.contains(['/', '.']) && !word.starts_with('-');
        (is_path || path.is_file()).then_some(path)
    });
    paths.collect()
}

fn is_command(key: &str) -> bool {
    COMMANDS.iter().any(|(begin, end)| match *end {
        "" if begin.ends_with('.') => key.starts_with(begin),
        "" => key == *begin,
        end => key.starts_with(begin) && key.ends_with(end),
    })
}

/// A path as git reads it, with `~/` for the home directory.
fn expanded(base: &Path, value: &OsStr, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let below_home = value
        .as_bytes()
        .strip_prefix(b"~/")
        .and_then(|below| Some(home_directory(variable)?.join(OsStr::from_bytes(below))));
    below_home.unwrap_or_else(|| base.join(value))
}

impl Hashes {
    /// Adds a file, or the files in a directory down to `depth` levels, in the order of their
    /// names.
    fn add_below(&mut self, path: &Path, depth: usize) {
        let Ok(about) = fs::metadata(path) else {
            return;
        };
        if about.is_dir() {
            let Some(depth) = depth.checked_sub(1) else {
                return;
            };
            for path in self.listed(path) {
                self.add_below(&path, depth);
            }
            return;
        }
        if self.all.len() >= FILES {
            self.has_more = true;
            return;
        }
        let content = match read(path, LONGEST, Links::Followed) {
            Ok(bytes) => format!("{:x?}", Sha256::digest(&bytes)),
            Err(_) => format!("{} {} {}", about.ino(), about.size(), about.ctime_nsec()),
        };
        let hash = format!("{:o} {content}", about.mode());
        self.all.insert(path.to_owned(), hash);
    }

    fn listed(&mut self, directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .take(ENTRIES + 1)
            .map(|entry| entry.path())
            .collect();
        self.has_more |= paths.len() > ENTRIES;
        paths.sort();
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_name_programs_are_known() {
        for (key, expected) in [
            ("alias.go", true),
            ("credential.helper", true),
            ("credential.https://x.helper", true),
            ("core.askpass", true),
            ("sequence.editor", true),
            ("pager.log", true),
            ("interactive.difffilter", true),
            ("mergetool.x.cmd", true),
            ("gpg.ssh.defaultkeycommand", true),
            ("gpg.x509.program", true),
            ("uploadpack.packobjectshook", true),
            ("hook.lint.command", true),
            ("hook.lint.event", false),
            ("core.askpassx", false),
            ("credential.username", false),
            ("user.name", false),
        ] {
            assert_eq!(is_command(key), expected, "{key}");
        }
    }

    /// The user's own git has HOME, also where a client has passed none on to us.
    #[test]
    fn path_is_expanded_as_the_users_git_does() {
        let path = |value: &str, home: Option<&str>| {
            let variable = |_: &str| home.map(OsString::from);
            expanded(Path::new("/repo"), OsStr::new(value), variable)
        };
        assert_eq!(path("hooks", Some("/h")), Path::new("/repo/hooks"));
        assert_eq!(path("/hooks", Some("/h")), Path::new("/hooks"));
        assert_eq!(path("~/hooks", Some("/h")), Path::new("/h/hooks"));
        if let Some(account) = home_directory(|_| None) {
            assert_eq!(path("~/hooks", None), account.join("hooks"));
        }
    }

    /// Files with names that come before the others do not take their place.
    #[test]
    fn files_that_were_hashed_before_are_compared_whatever_is_added() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let hooks = top.join("hooks");
        fs::create_dir(&hooks).unwrap();
        fs::write(hooks.join("z"), "before").unwrap();
        let missing = top.join("tools/missing");
        let mut programs = ProgramFiles {
            top: top.clone(),
            places: [
                (hooks.clone(), "core.hookspath".to_owned()),
                (missing.clone(), "alias.go".to_owned()),
            ]
            .into(),
            before: Hashes::default(),
        };
        programs.before = programs.hashes();
        assert_eq!((programs.changes(), programs.warning()), (vec![], None));

        fs::create_dir(top.join("tools")).unwrap();
        fs::write(&missing, "new").unwrap();
        fs::write(hooks.join("z"), "after").unwrap();
        for number in 0..FILES {
            fs::write(hooks.join(format!("a{number}")), "").unwrap();
        }
        let output = programs.changes().join("\n");
        for words in [
            "tools/missing changed during the run",
            "and 990 more changed during the run",
            "lead to more than 1000 files",
        ] {
            assert!(output.contains(words), "{words}: {output}");
        }
        programs.before = programs.hashes();
        assert!(programs.before.has_more && programs.warning().is_some());
        assert_eq!(programs.changes(), [] as [String; 0]);
    }
}
