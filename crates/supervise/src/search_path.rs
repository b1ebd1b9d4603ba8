//! The directories in which programs and libraries are looked up for the processes that we start
//! outside of Codex's sandbox.
//!
//! Codex's commands can write in the working directory and in temporary directories, for example in
//! an active `.venv/bin`. Neither we nor Codex, whose process runs git and `bwrap` outside of the
//! sandbox, may find a program such as `git` there. So search paths are passed on without
//!
//! - entries that are relative or empty,
//! - those in the working directory of the process and in the repository around it,
//! - those in a temporary directory,
//! - those in the working tree of any git repository, as one app-server serves threads in many
//!   directories. Exceptions are HOME, directories `~/.NAME`, `/usr`, `/opt` and Homebrew's:
//!   package managers are installed there as repositories (nvm, pyenv, asdf, Homebrew), and the
//!   `.git` of a HOME belongs to dotfiles.
//!
//! Codex's commands get the unchanged PATH, see `confinement`.
//!
//! Source: ld.so(8) for the separators.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use safe_files::home_directory::home_directory;

/// The variable that lists the directories of programs.
pub const PATH: &str = "PATH";

/// The variable with the directories at and above which git looks for no repository.
pub const CEILINGS: &str = "GIT_CEILING_DIRECTORIES";

/// Further variables that list paths from which code is loaded, each with its separators.
const CODE: [(&str, &[u8]); 6] = [
    ("GIT_EXEC_PATH", b":"),
    ("LD_LIBRARY_PATH", b":;"),
    ("LD_PRELOAD", b": "),
    ("LD_AUDIT", b":"),
    ("DYLD_LIBRARY_PATH", b":"),
    ("DYLD_INSERT_LIBRARIES", b":"),
];

/// The PATH used when no entry is left: an empty PATH would mean the working directory.
const NOWHERE: &str = "/nonexistent";

/// Directories that every sandbox with `workspace-write` can write.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Directories in which programs are installed, also as git repositories.
const INSTALLED: [&str; 3] = ["/usr", "/opt", "/home/linuxbrew/.linuxbrew"];

/// Decides which entries of search paths are kept.
#[derive(Debug)]
pub struct SearchPaths {
    /// Directories that Codex's commands can write, with and without links.
    writable: Vec<PathBuf>,
    home: Option<PathBuf>,
    /// Directories at and above which no repository is looked for.
    ceilings: Vec<PathBuf>,
}

impl SearchPaths {
    /// The search paths of a process in this directory, with these variables. Our own directory
    /// also counts as writable for Codex's commands, unless HOME lies in it. `cwd` counts as
    /// writable even then, unlike in [`SearchPaths::of_client`], since the commands work in it.
    pub fn of_process(cwd: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let home = home_directory(&variable);
        let ceilings = ceilings_in(&variable(CEILINGS).unwrap_or_default());
        let mut paths = Self {
            writable: Vec::new(),
            home,
            ceilings,
        };
        let top = cwd.and_then(|cwd| paths.tree_around(cwd));
        let workplaces = [cwd.map(Path::to_owned), own_directory(&paths)];
        let set = variable("TMPDIR").map(PathBuf::from);
        let temporary = TEMPORARY.map(PathBuf::from).into_iter();
        let directories = temporary
            .chain([env::temp_dir()])
            .chain(set)
            .chain(workplaces.into_iter().flatten());
        for directory in directories.chain(top) {
            // With the root directory as writable, no entry would be left.
            if directory.is_absolute() && directory.parent().is_some() {
                paths.writable.push(resolved(&directory));
                paths.writable.push(directory);
            }
        }
        paths
    }

    /// The search paths of a client in this directory. The directory counts as writable unless HOME
    /// lies in it, and so does our own directory.
    pub fn of_client(directory: Option<&Path>) -> Self {
        let paths = Self::of_process(None, our_variable);
        match directory.filter(|directory| !paths.has_home_in(directory)) {
            None => paths,
            directory => Self::of_process(directory, our_variable),
        }
    }

    fn has_home_in(&self, directory: &Path) -> bool {
        let home = self.home.as_deref().map(resolved);
        home.is_some_and(|home| home.starts_with(resolved(directory)))
    }

    /// A PATH without the entries that commands can write to; `None` if the PATH has no such
    /// entries.
    pub fn without_writable(&self, path: &OsStr) -> Option<OsString> {
        let counts = |entry: &Path| entry.is_absolute() && !self.is_writable(entry);
        filtered(path, b":", counts).map(not_empty)
    }

    /// The variables of [`CODE`] with entries that commands can write to, each without these
    /// entries; `None` for a variable of which nothing is left.
    pub(crate) fn code(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, Option<OsString>)> {
        let changed = CODE.iter().filter_map(|(name, separators)| {
            let counts = |entry: &Path| {
                // A library without a directory is looked up among the installed ones.
                let is_name = separators.contains(&b' ') && is_bare(entry);
                is_name || entry.is_absolute() && !self.is_writable(entry)
            };
            let rest = filtered(&variable(name)?, separators, counts)?;
            Some((*name, (!rest.is_empty()).then_some(rest)))
        });
        changed.collect()
    }

    /// Whether Codex's commands may write in a directory, or at a path.
    pub(crate) fn is_writable(&self, path: &Path) -> bool {
        let is_in_tree = |path: &PathBuf| {
            let top = self.tree_around(path);
            top.is_some_and(|top| !self.is_for_tools(&top))
        };
        self.is_in_workplace(path) || [path.to_owned(), resolved(path)].iter().any(is_in_tree)
    }

    /// Whether a path lies in the directory of the process, or in a temporary one.
    fn is_in_workplace(&self, path: &Path) -> bool {
        let paths = [path.to_owned(), resolved(path)];
        let mut writable = self.writable.iter();
        writable.any(|above| paths.iter().any(|path| path.starts_with(above)))
    }

    /// The top of the working tree that a path lies in.
    fn tree_around(&self, path: &Path) -> Option<PathBuf> {
        let within = path
            .ancestors()
            .take_while(|above| !self.ceilings.iter().any(|ceiling| above == ceiling));
        let is_top = |above: &&Path| above.join(".git").symlink_metadata().is_ok();
        within.into_iter().find(is_top).map(Path::to_owned)
    }

    /// Whether the repository with this top directory contains installed programs.
    fn is_for_tools(&self, top: &Path) -> bool {
        if INSTALLED.iter().any(|place| top.starts_with(place)) {
            return true;
        }
        let homes = self
            .home
            .iter()
            .flat_map(|home| [home.clone(), resolved(home)]);
        homes.into_iter().any(|home| match top.strip_prefix(&home) {
            Ok(below) => match below.components().next() {
                None => true,
                Some(first) => first.as_os_str().as_bytes().starts_with(b"."),
            },
            // The repository is around HOME.
            Err(_) => home.starts_with(top),
        })
    }
}

/// The search paths of a process in this directory, as variables to set on top of our environment.
/// One process can serve several directories if these are equal for all of them.
pub fn protected_in(directory: Option<&Path>) -> Vec<(OsString, OsString)> {
    let paths = SearchPaths::of_process(directory, our_variable);
    let path = env::var_os(PATH).and_then(|path| paths.without_writable(&path));
    let code = paths.code(our_variable).into_iter();
    let code = code.map(|(name, value)| (name.into(), value.unwrap_or_default()));
    let path = path.map(|path| (PATH.into(), path));
    code.chain(path).collect()
}

/// A variable of our own environment.
fn our_variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Our own directory, unless HOME lies in it.
fn own_directory(paths: &SearchPaths) -> Option<PathBuf> {
    let own = env::current_dir().ok()?;
    (!paths.has_home_in(&own)).then_some(own)
}

/// Warns if Codex or this program lies in a place where it could be replaced by the commands of a
/// Codex in this directory (`None` for ours).
pub fn warn_of_replaceable(codex: &Path, directory: Option<&Path>) {
    let own = env::current_dir().ok();
    let paths = SearchPaths::of_client(directory.or(own.as_deref()));
    let executables = [Some(codex.to_owned()), env::current_exe().ok()];
    for path in executables.into_iter().flatten() {
        if paths.is_in_workplace(&path) {
            tracing::warn!(
                "{} can be replaced by Codex's commands, which can write there, and would run \
                 outside of the sandbox then. Use one that is installed elsewhere.",
                path.display()
            );
        }
    }
}

/// A PATH without relative entries; `None` if the PATH has no such entries.
pub fn without_relative(path: &OsStr) -> Option<OsString> {
    filtered(path, b":", Path::is_absolute).map(not_empty)
}

/// The first program of this name in the absolute directories of a PATH.
pub fn find_program(name: impl AsRef<Path>, path: &OsStr) -> Option<PathBuf> {
    let directories = env::split_paths(path).filter(|directory| directory.is_absolute());
    let mut programs = directories.map(|directory| directory.join(name.as_ref()));
    programs.find(|program| is_executable(program))
}

/// Whether a path leads to a file that somebody may execute.
#[must_use]
pub fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The user's PATH for Codex's commands in a directory, if Codex's process may have a
/// different one.
pub fn for_commands(directory: Option<&Path>) -> Option<String> {
    let path = env::var_os(PATH)?;
    let differs = |cwd| {
        let paths = SearchPaths::of_process(cwd, our_variable);
        paths.without_writable(&path).is_some()
    };
    let is_given = differs(None) || directory.is_some() && differs(directory);
    is_given.then(|| path.into_string().ok()).flatten()
}

/// A list of paths without the entries for which `counts` is `false`; `None` if there are no such
/// entries.
fn filtered(value: &OsStr, separators: &[u8], counts: impl Fn(&Path) -> bool) -> Option<OsString> {
    let entries: Vec<&[u8]> = value
        .as_bytes()
        .split(|byte| separators.contains(byte))
        .collect();
    let kept = entries
        .iter()
        .filter(|entry| counts(Path::new(OsStr::from_bytes(entry))));
    let kept: Vec<&[u8]> = kept.copied().collect();
    (kept.len() < entries.len()).then(|| OsString::from_vec(kept.join(&b':')))
}

fn not_empty(path: OsString) -> OsString {
    match path.is_empty() {
        true => NOWHERE.into(),
        false => path,
    }
}

fn is_bare(entry: &Path) -> bool {
    let bytes = entry.as_os_str().as_bytes();
    !bytes.is_empty() && !bytes.contains(&b'/')
}

fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The directories that a value of [`CEILINGS`] names, without links.
pub fn ceilings_in(value: &OsStr) -> Vec<PathBuf> {
    let directories = env::split_paths(value).filter(|directory| directory.is_absolute());
    directories
        .map(|directory| directory.canonicalize().unwrap_or(directory))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Fixture {
        root: tempfile::TempDir,
        paths: SearchPaths,
    }

    /// HOME is `home` below the root, and `writable` is writable.
    fn fixture() -> Fixture {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().canonicalize().unwrap().join(name);
        for name in [
            "writable/bin",
            "home/.local/bin",
            "home/.nvm/.git",
            "home/.nvm/bin",
            "home/project/.git",
            "home/project/.venv/bin",
            "plain/bin",
        ] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let paths = SearchPaths {
            writable: vec![at("writable")],
            home: Some(at("home")),
            ceilings: vec![at("")],
        };
        Fixture { root, paths }
    }

    impl Fixture {
        fn at(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn path(&self, names: &[&str]) -> OsString {
            env::join_paths(names.iter().map(|name| self.at(name))).unwrap()
        }
    }

    #[test]
    fn path_keeps_only_entries_that_commands_cannot_write() {
        let fixture = fixture();
        let link = fixture.at("plain/link");
        symlink(fixture.at("writable/bin"), link).unwrap();
        let kept = ["home/.local/bin", "home/.nvm/bin", "plain/bin"];
        assert_eq!(fixture.paths.without_writable(&fixture.path(&kept)), None);
        for dropped in ["writable/bin", "home/project/.venv/bin", "plain/link"] {
            let path = fixture.path(&[&[dropped], &kept[..]].concat());
            let rest = fixture.paths.without_writable(&path);
            assert_eq!(rest, Some(fixture.path(&kept)), "{dropped}");
        }
        for dropped in ["bin:", ":", "./node_modules/.bin:"] {
            let mut path = OsString::from(dropped);
            path.push(fixture.path(&kept));
            let rest = fixture.paths.without_writable(&path);
            assert_eq!(rest, Some(fixture.path(&kept)), "{dropped}");
        }
    }

    #[test]
    fn first_executable_file_in_an_absolute_directory_is_found() {
        let fixture = fixture();
        let leads_to = |name, file| symlink(file, fixture.at(name)).unwrap();
        leads_to("plain/bin/tool", "/etc/passwd");
        leads_to("home/.nvm/bin/tool", "/bin/sh");
        fs::create_dir(fixture.at("writable/bin/tool")).unwrap();
        let mut path = fixture.path(&["writable/bin", "plain/bin", "home/.nvm/bin"]);
        let found = Some(fixture.at("home/.nvm/bin/tool"));
        assert_eq!(find_program("tool", &path), found);
        assert_eq!(find_program("other", &path), None);
        path.push(":.:");
        assert_eq!(find_program("Cargo.toml", &path), None);
    }

    #[test]
    fn empty_path_does_not_name_the_working_directory() {
        let rest = fixture().paths.without_writable(OsStr::new("bin"));
        assert_eq!(rest, Some(NOWHERE.into()));
    }

    #[test]
    fn home_is_that_of_the_account_without_home() {
        let paths = SearchPaths::of_process(None, |_| None);
        assert_eq!(paths.home, home_directory(|_| None));
    }

    #[test]
    fn repository_around_home_does_not_hide_programs_in_home() {
        let fixture = fixture();
        fs::create_dir(fixture.at("home/.git")).unwrap();
        let path = fixture.path(&["home/.local/bin"]);
        assert_eq!(fixture.paths.without_writable(&path), None);
    }

    #[test]
    fn libraries_are_loaded_only_from_where_commands_cannot_write() {
        let fixture = fixture();
        let safe = fixture.at("plain/bin").display().to_string();
        let evil = fixture.at("writable").display().to_string();
        let set = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some(format!("{evil}/lib;{safe}:").into()),
            "LD_PRELOAD" => Some(format!("libfaketime.so {evil}/x.so").into()),
            "LD_AUDIT" => Some(format!("{safe}/audit.so").into()),
            "GIT_EXEC_PATH" => Some(evil.clone().into()),
            _ => None,
        };
        let expected = vec![
            ("GIT_EXEC_PATH", None),
            ("LD_LIBRARY_PATH", Some(safe.clone().into())),
            ("LD_PRELOAD", Some("libfaketime.so".into())),
        ];
        assert_eq!(fixture.paths.code(set), expected);
    }
}
