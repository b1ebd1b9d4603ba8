//! Lookup of the programs that a run needs.

use std::env;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use supervise::search_path::{SearchPaths, find_program, is_executable};
use supervise::spawn::Lookup;

use crate::logic::names::CommandLine;

/// The program of a command, if it cannot be run now and the run cannot create it: a name
/// that is not on the PATH, or an absolute path outside of `top` without a program. `env` is
/// set on top of our own environment. With [`Lookup::Protected`], the program is started in
/// `top`.
pub(crate) fn missing(
    command: &CommandLine,
    top: &Path,
    env: &[(OsString, OsString)],
    lookup: Lookup,
) -> Option<PathBuf> {
    let program = PathBuf::from(command.words().first()?);
    let is_there = match program.components().next()? {
        Component::Normal(_) if is_bare(&program) => {
            let variable = |name: &str| {
                let of_call = env.iter().rev().find(|(known, _)| known == name);
                let value = of_call.map(|(_, value)| value.clone());
                value.or_else(|| env::var_os(name))
            };
            let path = variable("PATH").unwrap_or_default();
            let protected = match lookup {
                Lookup::Protected => {
                    SearchPaths::of_process(Some(top), variable).without_writable(&path)
                }
                Lookup::AsTheUser => None,
            };
            find_program(&program, &protected.unwrap_or(path)).is_some()
        }
        Component::RootDir => program.starts_with(top) || is_executable(&program),
        // The run may create the program.
        _ => true,
    };
    (!is_there).then_some(program)
}

/// Whether a program of this name is on the PATH of a process that is started in `directory`.
pub(crate) fn is_on_path(name: &str, directory: &Path) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = SearchPaths::of_process(Some(directory), |name| env::var_os(name));
    let protected = paths.without_writable(&path);
    find_program(name, &protected.unwrap_or(path)).is_some()
}

fn is_bare(program: &Path) -> bool {
    !program.as_os_str().as_encoded_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_looked_for_where_they_would_be_run() {
        let lacks = |command: &str, env: &[(OsString, OsString)]| {
            let command = command.parse().unwrap();
            missing(&command, Path::new("/repo"), env, Lookup::AsTheUser)
        };
        for there in [
            "sh -c true",
            "/bin/sh",
            "./made-later",
            "bin/x",
            "/repo/made",
        ] {
            assert_eq!(lacks(there, &[]), None, "{there}");
        }
        for absent in ["no-such-program x", "/nowhere/x", "/etc/passwd"] {
            let program = absent.split(' ').next().map(PathBuf::from);
            assert_eq!(lacks(absent, &[]), program);
        }
        let elsewhere = [("PATH".into(), "/nowhere".into())];
        assert_eq!(lacks("sh", &elsewhere), Some("sh".into()));
    }

    #[test]
    fn notifier_program_is_not_looked_up_where_codex_can_write() {
        let top = tempfile::tempdir().unwrap();
        let program = top.path().join("tell");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let env = [("PATH".into(), top.path().as_os_str().to_owned())];
        let command = "tell".parse().unwrap();
        let lacks = |lookup| missing(&command, top.path(), &env, lookup);
        assert_eq!(lacks(Lookup::AsTheUser), None);
        assert_eq!(lacks(Lookup::Protected), Some("tell".into()));
    }
}
