//! The key of an environment. Clients with equal keys share a host.
//!
//! Codex and its commands inherit the environment of the process that starts them. So a host
//! has the environment of its clients, and a client whose environment differs in a variable
//! that commands may use gets another host: with another PATH or an active virtual
//! environment, the same command runs another program. They inherit the umask as well: with
//! another one, others can read what a command writes, or cannot.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use common::text::hex;
use sha2::{Digest, Sha256};

/// Variables that differ between two terminals, shells, editor windows or starts of a program,
/// without a meaning for commands.
const WITHOUT_MEANING: [&str; 62] = [
    "ALACRITTY_LOG",
    "ALACRITTY_SOCKET",
    "ALACRITTY_WINDOW_ID",
    "ATUIN_HISTORY_ID",
    "ATUIN_SESSION",
    "ATUIN_SHLVL",
    "COLORFGBG",
    "COLORTERM",
    "COLUMNS",
    "CURSOR_TRACE_ID",
    "DESKTOP_STARTUP_ID",
    "GHOSTTY_SURFACE_ID",
    "GIO_LAUNCHED_DESKTOP_FILE_PID",
    "GNOME_TERMINAL_SCREEN",
    "GNOME_TERMINAL_SERVICE",
    "GPG_TTY",
    "INVOCATION_ID",
    "ITERM_PROFILE",
    "ITERM_SESSION_ID",
    "JOURNAL_STREAM",
    "KITTY_LISTEN_ON",
    "KITTY_PID",
    "KITTY_WINDOW_ID",
    "KONSOLE_DBUS_SESSION",
    "KONSOLE_DBUS_WINDOW",
    "LC_TERMINAL",
    "LC_TERMINAL_VERSION",
    "LINES",
    "MCFLY_SESSION_ID",
    "MEMORY_PRESSURE_WATCH",
    "OLDPWD",
    "P9K_TTY",
    "PWD",
    "SHELL_SESSION_ID",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STARSHIP_SESSION_KEY",
    "STY",
    "SYSTEMD_EXEC_PID",
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "VTE_VERSION",
    "WEZTERM_PANE",
    "WEZTERM_UNIX_SOCKET",
    "WINDOW",
    "WINDOWID",
    "WT_PROFILE_ID",
    "WT_SESSION",
    "XDG_ACTIVATION_TOKEN",
    "XDG_SESSION_ID",
    "ZELLIJ",
    "ZELLIJ_PANE_ID",
    "ZELLIJ_SESSION_NAME",
    "_",
    "_P9K_SSH_TTY",
    "_P9K_TTY",
];

/// The number of bytes of the digest in a key: enough that no two environments of a user have
/// the same key by chance.
const KEY_BYTES: usize = 12;

/// The key of a umask and these variables for a program, which is given by bytes that differ
/// between its builds.
#[must_use]
pub fn key(
    program: &[u8],
    umask: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> String {
    let mut counted: Vec<_> = variables
        .into_iter()
        .filter(|(name, _)| has_meaning(name))
        .collect();
    counted.sort();
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| {
        // With its length, no text can be mistaken for two others.
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    add(program);
    add(umask.as_bytes());
    for (name, value) in &counted {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    let digest = digest.finalize();
    hex(digest.get(..KEY_BYTES).unwrap_or(&digest))
}

fn has_meaning(name: &OsStr) -> bool {
    !WITHOUT_MEANING.iter().any(|known| name == *known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> String {
        let variables = variables.iter();
        key(
            b"1",
            "0022",
            variables.map(|(name, value)| (name.into(), value.into())),
        )
    }

    #[test]
    fn terminals_have_the_same_key() {
        let one = of(&[
            ("PATH", "/bin"),
            ("SHLVL", "1"),
            ("WINDOWID", "7"),
            ("PWD", "/a"),
            ("STARSHIP_SESSION_KEY", "1"),
            ("ATUIN_HISTORY_ID", "1"),
            ("ATUIN_SHLVL", "1"),
            ("_P9K_TTY", "/dev/pts/1"),
            ("CURSOR_TRACE_ID", "1"),
            ("GIO_LAUNCHED_DESKTOP_FILE_PID", "1"),
        ]);
        let other = of(&[
            ("TMUX_PANE", "%1"),
            ("SHLVL", "2"),
            ("ATUIN_SHLVL", "2"),
            ("PATH", "/bin"),
            ("STARSHIP_SESSION_KEY", "2"),
            ("MCFLY_SESSION_ID", "2"),
            ("MEMORY_PRESSURE_WATCH", "/a"),
        ]);
        assert_eq!(one, other);
        assert_eq!(one.len(), 24);
    }

    #[test]
    fn variable_seen_by_commands_changes_the_key() {
        let plain = of(&[("PATH", "/bin")]);
        for other in [
            of(&[("PATH", "/venv/bin:/bin")]),
            of(&[("PATH", "/bin"), ("VIRTUAL_ENV", "/venv")]),
            of(&[("PATH", "/bin"), ("SSH_AUTH_SOCK", "/tmp/a")]),
            of(&[("PAT", "H/bin")]),
            key(b"2", "0022", [("PATH".into(), "/bin".into())]),
            key(b"1", "0077", [("PATH".into(), "/bin".into())]),
        ] {
            assert_ne!(plain, other);
        }
    }

    #[test]
    fn list_is_sorted_and_has_no_word_twice() {
        assert!(WITHOUT_MEANING.is_sorted_by(|one, other| one < other));
    }
}
