//! Whether a process is confined in another way than this one.
//!
//! A command in Codex's sandbox runs as the user. Where the sandbox allows it the network, it can
//! connect to any socket of the user, and the host would do for it what the sandbox keeps it
//! from doing. So a client and its host have to be equally free: in the same namespaces, with
//! the same filters of system calls, with the same groups, capabilities and umask, and both with
//! or without `no_new_privs`, which every command in Codex's sandbox has (0.104.0 to 0.169.0).
//! The check goes by the process ID, which may be that of another process by then, and does not
//! see Landlock: the proof of a client is what decides, see [`Challenge`].
//!
//! [`Challenge`]: crate::logic::handshake::Challenge

use std::io;

#[cfg(target_os = "linux")]
use std::fs;

/// Checks that a process is confined in the same way as this one.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] if it is not; those of the file system if that cannot be
/// determined.
#[cfg(target_os = "linux")]
pub(crate) fn check(pid: i32) -> io::Result<()> {
    let (ours, theirs) = (Freedom::of("self")?, Freedom::of(&pid.to_string())?);
    match theirs == ours {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("process {pid} is confined in another way than this one"),
        )),
    }
}

/// Other systems do not say it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn check(_pid: i32) -> io::Result<()> {
    Ok(())
}

/// The limits of a process, see proc_pid_status(5) and namespaces(7).
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Freedom {
    /// The values of [`FIELDS`].
    fields: Vec<String>,
    /// The identities of [`NAMESPACES`].
    namespaces: Vec<std::path::PathBuf>,
}

#[cfg(target_os = "linux")]
const FIELDS: [&str; 7] = [
    "Gid:",
    "Groups:",
    "CapEff:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
    "Umask:",
];

#[cfg(target_os = "linux")]
const NAMESPACES: [&str; 4] = ["mnt", "net", "pid", "user"];

#[cfg(target_os = "linux")]
impl Freedom {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, which is short and never waits"
    )]
    fn of(process: &str) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let value = |name: &&str| {
            let line = status.lines().find_map(|line| line.strip_prefix(*name));
            line.unwrap_or_default().trim().to_owned()
        };
        let namespace = |name: &&str| fs::read_link(format!("/proc/{process}/ns/{name}"));
        Ok(Self {
            fields: FIELDS.iter().map(value).collect(),
            namespaces: NAMESPACES
                .iter()
                .map(namespace)
                .collect::<io::Result<_>>()?,
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_as_free_as_itself() {
        check(i32::try_from(std::process::id()).unwrap()).unwrap();
        // There is no process of this number.
        assert!(check(i32::MAX).is_err());
    }
}
