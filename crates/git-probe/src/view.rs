//! A git directory that we create over a repository's objects, refs and index.
//!
//! A repository's configuration may name programs (filters, hooks, a file system monitor), and may
//! change between the moment it is checked and the moment git reads it. So git never reads it when
//! it inspects a repository. Instead, git is given a view: a directory outside of every sandbox
//! that links to the repository's data and has its own configuration. That configuration contains
//! the settings that decide how files are compared and where remotes are, as they were when the
//! view was created, and nothing that git would run.
//!
//! ```text
//!  view/objects ─────► COMMON/objects      view/config  written here
//!  view/refs ────────► COMMON/refs         view/HEAD    copied before each look
//!  view/packed-refs, reftable, shallow,    view/info    copied once
//!       logs ────────► COMMON/…
//! ```
//!
//! Source: gitrepository-layout(5), git-config(1).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use common::sync::lock;
use safe_files::directory_lock::{DirectoryLock, LOCK};
use safe_files::state_directory::make_directory;
use safe_files::untrusted_file::{Links, read};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::Layout;
use super::bytes::Bytes;
use super::setting::{Scope, Setting};

/// The directory of views, below the state directory.
const VIEWS: &str = "git-views";

/// The file with the user's settings, in a view.
const USERS: &str = "config-of-user";

/// The name of a view's directory.
const PREFIX: &str = "view-";

/// The most attempts to create a view's directory, if other processes remove it before it is
/// locked.
const ATTEMPTS: usize = 5;

/// The most that is copied of a file in `info`, in bytes.
const INFO_LIMIT: u64 = 1024 * 1024;

/// The attributes that follow the repository's in a view. They disable `ident`, under which git
/// ignores any text between `$Id:` and `$` in a file.
const ATTRIBUTES: &[u8] = b"\n* -ident\n";

/// The entries that the view shares with the repository.
const SHARED: [&str; 5] = ["objects", "refs", "packed-refs", "reftable", "shallow"];

/// Settings that decide how files are compared with commits, and how commits are read.
/// `core.checkStat` and `core.trustctime` are not among them: they would let a change pass
/// unnoticed that keeps the time and length of a file.
const SETTINGS: [&str; 17] = [
    "core.abbrev",
    "core.attributesfile",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "extensions.compatobjectformat",
    "extensions.objectformat",
    "extensions.refstorage",
];

/// The settings that decide where a branch is pushed to, and which repository gh asks about (`gh
/// repo set-default`), as the beginning and end of a key. Git runs none of them where views are
/// used.
const REMOTES: [(&str, &str); 10] = [
    ("remote.", ".url"),
    ("remote.", ".pushurl"),
    ("remote.", ".fetch"),
    ("remote.", ".gh-resolved"),
    ("remote.pushdefault", ""),
    ("branch.", ".remote"),
    ("branch.", ".pushremote"),
    ("branch.", ".merge"),
    ("url.", ".insteadof"),
    ("url.", ".pushinsteadof"),
];

/// Settings of the user's that views don't have.
const NOT_RECORDED: [&[u8]; 4] = [b"include.", b"includeif.", b"filter.", b"hook."];

/// The files of `info` that decide which files git compares, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InfoFiles {
    exclude: Bytes,
    attributes: Bytes,
    sparse_checkout: Bytes,
}

impl InfoFiles {
    /// The files as they are now; a missing one is empty.
    pub(super) fn of(layout: &Layout) -> io::Result<Self> {
        let file = |directory: &Path, name: &str| match read(
            &directory.join("info").join(name),
            INFO_LIMIT,
            Links::Followed,
        ) {
            Ok(bytes) => Ok(Bytes(bytes)),
            Err(error) if error.is_not_found() => Ok(Bytes::default()),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        Ok(Self {
            exclude: file(&layout.common_dir, "exclude")?,
            attributes: file(&layout.common_dir, "attributes")?,
            sparse_checkout: file(&layout.git_dir, "sparse-checkout")?,
        })
    }
}

/// The directory of a view. It is removed when this is dropped. If the process was killed, a later
/// view removes it.
#[derive(Debug)]
pub(super) struct View {
    directory: TempDir,
    /// Released after the directory is removed.
    _lock: DirectoryLock,
    /// The refs of the private git directory from which the reflogs are; `None` if they are the
    /// repository's own.
    private_refs: Mutex<Option<BTreeMap<String, String>>>,
}

impl View {
    /// Creates a view below the state directory, with those settings that belong in one.
    pub(super) fn new(
        layout: &Layout,
        settings: &[Setting],
        info: &InfoFiles,
        state: &Path,
    ) -> io::Result<Self> {
        let all = state.join(VIEWS);
        make_directory(&all)?;
        remove_stale(&all);
        let (directory, lock) = locked(&all)?;
        let view = Self {
            directory,
            _lock: lock,
            private_refs: Mutex::default(),
        };
        for name in SHARED {
            view.link(name, &layout.common_dir.join(name))?;
        }
        view.copy_head(layout)?;
        for directory in ["info", "logs"] {
            make_directory(&view.path().join(directory))?;
        }
        view.link("logs/HEAD", &layout.git_dir.join("logs/HEAD"))?;
        view.link("logs/refs", &layout.common_dir.join("logs/refs"))?;
        view.write("info/exclude", &info.exclude.0)?;
        view.write(
            "info/attributes",
            &[&info.attributes.0, ATTRIBUTES].concat(),
        )?;
        view.write("info/sparse-checkout", &info.sparse_checkout.0)?;
        let wanted = settings.iter().filter(|setting| belongs(setting));
        view.write("config", &in_file(wanted))?;
        let users = settings.iter().filter(|setting| is_recorded(setting));
        view.write(USERS, &in_file(users))?;
        Ok(view)
    }

    /// The file with the user's settings as they were. Git reads it in place of the user's files,
    /// since one of these may lie in the working tree, as with dotfiles.
    pub(super) fn users(&self) -> PathBuf {
        self.path().join(USERS)
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Copies `HEAD` from the repository. Git does not accept a link for `HEAD`.
    pub(super) fn copy_head(&self, layout: &Layout) -> io::Result<()> {
        let head = layout.head().map_err(io::Error::other)?;
        let new = self.path().join("HEAD.new");
        fs::write(&new, head)?;
        fs::rename(&new, self.path().join("HEAD"))
    }

    /// Reads the reflogs of a private git directory, which has these refs, from now on.
    pub(super) fn take_logs_from(
        &self,
        logs: &Path,
        refs: &BTreeMap<String, String>,
    ) -> io::Result<()> {
        for name in ["HEAD", "refs"] {
            let link = format!("logs/{name}");
            fs::remove_file(self.path().join(&link))?;
            self.link(&link, &logs.join(name))?;
        }
        *lock(&self.private_refs) = Some(refs.clone());
        Ok(())
    }

    /// Notes the refs that the private git directory has now, if the reflogs are read from there.
    pub(super) fn note_private_refs(&self, refs: &BTreeMap<String, String>) {
        if let Some(noted) = &mut *lock(&self.private_refs) {
            noted.clone_from(refs);
        }
    }

    pub(super) fn private_refs(&self) -> Option<BTreeMap<String, String>> {
        lock(&self.private_refs).clone()
    }

    fn link(&self, name: &str, target: &Path) -> io::Result<()> {
        symlink(target, self.path().join(name))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path().join(name))?;
        file.write_all(bytes)
    }
}

/// Creates and locks the directory of a view.
fn locked(all: &Path) -> io::Result<(TempDir, DirectoryLock)> {
    for _ in 0..ATTEMPTS {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(all)?;
        match DirectoryLock::try_take(directory.path()) {
            Ok(Some(lock)) => return Ok((directory, lock)),
            // Another process has mistaken the directory for an abandoned one, and removed it.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("other processes keep removing it"))
}

/// How long a view without a lock is left alone (one day). An older version of this program, which
/// took no lock, may still use it.
const UNLOCKED_AGE: Duration = Duration::from_hours(24);

/// Removes the views of killed processes. A failure is ignored.
fn remove_stale(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else {
        return;
    };
    for entry in entries.flatten() {
        let is_view = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        if !is_view || is_new_without_lock(&entry.path()) {
            continue;
        }
        if let Ok(Some(_lock)) = DirectoryLock::try_take(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a view has no lock and has changed recently. Each use changes it.
fn is_new_without_lock(view: &Path) -> bool {
    let age = || {
        view.symlink_metadata()
            .ok()?
            .modified()
            .ok()?
            .elapsed()
            .ok()
    };
    let has_lock = view.join(LOCK).symlink_metadata().is_ok();
    !has_lock && age().is_none_or(|age| age < UNLOCKED_AGE)
}

/// Whether a setting belongs in a view. Git reads most of the user's settings by itself, but not
/// those that depend on the location of the repository (`includeIf`).
fn belongs(setting: &Setting) -> bool {
    let key = setting.key.as_bytes();
    let is_known = SETTINGS.iter().any(|known| key == known.as_bytes());
    let is_remote = REMOTES
        .iter()
        .any(|(begin, end)| key.starts_with(begin.as_bytes()) && key.ends_with(end.as_bytes()));
    match setting.scope {
        Scope::Repository => is_known || is_remote,
        Scope::User => is_known && key.starts_with(b"core."),
    }
}

/// Whether a setting of the user is recorded. Not recorded are settings of the environment, which
/// git reads by itself; includes, whose settings are in the list already; filters, which would
/// receive the contents of the repository's files; and hooks, which may be scripts in the working
/// tree.
fn is_recorded(setting: &Setting) -> bool {
    let key = setting.key.as_bytes();
    let is_left_out = NOT_RECORDED.iter().any(|begin| key.starts_with(begin));
    setting.scope == Scope::User && !setting.is_of_environment && !is_left_out
}

/// Settings as a configuration file has them.
pub(super) fn in_file<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<u8> {
    let mut text = Vec::new();
    for Setting { key, value, .. } in settings {
        let key = key.as_bytes();
        let first = key.iter().position(|byte| *byte == b'.');
        let last = key.iter().rposition(|byte| *byte == b'.');
        let (Some(first), Some(last)) = (first, last) else {
            continue;
        };
        text.push(b'[');
        text.extend(key.get(..first).unwrap_or_default());
        if let Some(subsection) = key.get(first + 1..last) {
            text.push(b' ');
            text.extend(quoted(subsection));
        }
        text.extend(b"]\n\t");
        text.extend(key.get(last + 1..).unwrap_or_default());
        if let Some(value) = value {
            text.extend(b" = ");
            text.extend(quoted(value.as_bytes()));
        }
        text.push(b'\n');
    }
    text
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in text {
        match byte {
            b'\n' => quoted.extend(b"\\n"),
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::SystemTime;

    use super::*;

    fn setting(key: &str, value: Option<&str>) -> Setting {
        Setting {
            scope: Scope::Repository,
            is_of_environment: false,
            key: key.into(),
            value: value.map(OsString::from),
        }
    }

    #[test]
    fn view_of_a_killed_process_is_removed_by_the_next() {
        let all = tempfile::tempdir().unwrap();
        let (live, _lock) = locked(all.path()).unwrap();
        let (left, lock) = locked(all.path()).unwrap();
        let left = left.keep();
        drop(lock);
        fs::create_dir(all.path().join("other")).unwrap();
        remove_stale(all.path());
        assert!(live.path().exists());
        assert!(!left.exists());
        assert!(all.path().join("other").exists());
    }

    /// The age counts from now, and not by a date.
    #[test]
    fn view_without_a_lock_is_removed_once_it_is_a_day_old() {
        let all = tempfile::tempdir().unwrap();
        let [new, old] = ["view-new", "view-old"].map(|name| all.path().join(name));
        for view in [&new, &old] {
            fs::create_dir(view).unwrap();
        }
        let before = SystemTime::now() - UNLOCKED_AGE - Duration::from_secs(60);
        fs::File::open(&old).unwrap().set_modified(before).unwrap();
        remove_stale(all.path());
        assert!(new.exists());
        assert!(!old.exists());
    }

    #[test]
    fn only_settings_that_name_no_program_belong_to_a_view() {
        for (key, expected) in [
            ("core.filemode", true),
            ("core.fsmonitor", false),
            ("core.hookspath", false),
            ("core.sshcommand", false),
            ("core.worktree", false),
            ("core.gitproxy", false),
            ("filter.x.clean", false),
            ("include.path", false),
            ("credential.helper", false),
            ("alias.status", false),
            ("diff.x.textconv", false),
            ("remote.a.b.url", true),
            ("remote.a.gh-resolved", true),
            ("remote.a.uploadpack", false),
            ("remote.a.vcs", false),
            ("remote.a.promisor", false),
            ("extensions.partialclone", false),
            ("extensions.worktreeconfig", false),
            ("branch.x.remote", true),
            ("url.a.insteadof", true),
        ] {
            let setting = setting(key, None);
            assert_eq!(belongs(&setting), expected, "{key}");
        }
    }

    #[test]
    fn filters_and_hooks_of_the_user_are_not_recorded() {
        for (key, expected) in [
            ("user.name", true),
            ("filter.x.clean", false),
            ("hook.x.command", false),
            ("hook.x.event", false),
        ] {
            let setting = Setting {
                scope: Scope::User,
                ..setting(key, None)
            };
            assert_eq!(is_recorded(&setting), expected, "{key}");
        }
    }

    #[test]
    fn settings_are_written_so_that_git_reads_the_same() {
        let settings = [
            setting("core.filemode", None),
            setting("remote.a \"b.url", Some("x\\y\n# z")),
        ];
        let text = in_file(settings.iter());
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "[core]\n\tfilemode\n[remote \"a \\\"b\"]\n\turl = \"x\\\\y\\n# z\"\n"
        );
    }
}
