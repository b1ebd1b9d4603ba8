//! Checks whether another process is confined in the same way as this one.
//!
//! A command in Codex's sandbox runs as the user. If the sandbox allows it the network, it can
//! connect to any socket of the user, and the listening process would do for it what the sandbox
//! prevents. So both ends of a connection must be equally confined: in the same namespaces, with
//! the same system call filters, groups and capabilities, and both with or without `no_new_privs`,
//! which every command in Codex's sandbox has (0.104.0 to 0.169.0). The umask is not compared, as
//! it confines nothing: those of a desktop and of a terminal may differ. The check has two limits:
//! it uses the process ID, which may belong to another process by then, and it does not see
//! Landlock. So the proof of a client is what decides, see [`proof`].
//!
//! [`proof`]: crate::proof

use std::fs;
use std::io;
use std::path::PathBuf;

/// Checks that a process is confined in the same way as this one.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] if it is not; those of the file system if that cannot be
/// determined.
pub fn check(pid: i32) -> io::Result<()> {
    check_without_namespaces(pid)?;
    let (ours, theirs) = (namespaces("self")?, namespaces(&pid.to_string())?);
    equal_or_denied(pid, &NAMESPACES, &ours, &theirs)
}

/// Like [`check`], but without the namespaces. A process that is not dumpable, such as the guard of
/// an adoptable program, hides its namespaces even from its own user.
///
/// # Errors
///
/// As for [`check`].
pub(crate) fn check_without_namespaces(pid: i32) -> io::Result<()> {
    if pid <= 0 {
        // The kernel reports this number for a process that has no ID in our namespace.
        return Err(denied("the other process is in another PID namespace"));
    }
    let (ours, theirs) = (fields("self")?, fields(&pid.to_string())?);
    equal_or_denied(pid, &FIELDS, &ours, &theirs)
}

/// Fails with the name of the first value that differs.
fn equal_or_denied<T: PartialEq>(
    pid: i32,
    names: &[&str],
    ours: &[T],
    theirs: &[T],
) -> io::Result<()> {
    let mut compared = names.iter().zip(ours.iter().zip(theirs));
    match compared.find(|(_, (ours, theirs))| ours != theirs) {
        None => Ok(()),
        Some((name, _)) => Err(denied(format!(
            "process {pid} is confined in another way than this one: {} differs",
            name.trim_end_matches(':')
        ))),
    }
}

fn denied(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

/// The limits in the status of a process, see proc_pid_status(5).
const FIELDS: [&str; 6] = [
    "Gid:",
    "Groups:",
    "CapEff:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
];

/// The links to namespaces in the directory of a process, see namespaces(7).
const NAMESPACES: [&str; 4] = ["ns/mnt", "ns/net", "ns/pid", "ns/user"];

/// The values of [`FIELDS`].
#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, which is short and never waits"
)]
fn fields(process: &str) -> io::Result<Vec<String>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let value = |name: &&str| {
        let line = status.lines().find_map(|line| line.strip_prefix(*name));
        line.unwrap_or_default().trim().to_owned()
    };
    Ok(FIELDS.iter().map(value).collect())
}

/// The identities of [`NAMESPACES`].
fn namespaces(process: &str) -> io::Result<Vec<PathBuf>> {
    let namespace = |name: &&str| fs::read_link(format!("/proc/{process}/{name}"));
    NAMESPACES.iter().map(namespace).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn own_process_is_as_free_as_itself() {
        check(i32::try_from(std::process::id()).unwrap()).unwrap();
        check_without_namespaces(i32::try_from(std::process::id()).unwrap()).unwrap();
        // There is no process of this number.
        assert!(check(i32::MAX).is_err());
        assert!(check_without_namespaces(i32::MAX).is_err());
    }

    /// A missing process would be taken for a host that has ended, and another one started.
    #[test]
    fn process_of_another_pid_namespace_is_denied_and_not_missing() {
        for checked in [check(0), check_without_namespaces(0)] {
            let denied = checked.unwrap_err();
            assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
            assert!(denied.to_string().contains("PID namespace"), "{denied}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process with another umask")]
    fn umask_confines_nothing() {
        let mut child = Command::new("sh")
            .args(["-c", "umask 0137 && echo ready && read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        check(i32::try_from(child.id()).unwrap()).unwrap();
        // It ends when its stdin is closed.
        child.wait().unwrap();
    }

    #[test]
    fn error_names_what_differs() {
        let names = ["NoNewPrivs:", "Seccomp:"];
        equal_or_denied(7, &names, &["0", "0"], &["0", "0"]).unwrap();
        let denied = equal_or_denied(7, &names, &["0", "0"], &["0", "2"]).unwrap_err();
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        let expected = "process 7 is confined in another way than this one: Seccomp differs";
        assert_eq!(denied.to_string(), expected);
    }
}
