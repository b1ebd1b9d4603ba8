//! Checks whether stdin and stdout can carry the protocol. `CODEX_MCP_STDIO_MODE` decides what
//! happens if they cannot.
//!
//! A terminal means that a person started the server by hand instead of an MCP client. A stderr
//! that is stdout (`2>&1`) would mix the log with the protocol.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::{env, fmt};

use common::output;
use mcp_server::{Stdio, StdioMode};
use nix::sys::stat::{SFlag, fstat};

use super::log;

/// Selects the mode. An unknown value counts as `auto`.
const VARIABLE: &str = "CODEX_MCP_STDIO_MODE";

/// The kind of file behind a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Terminal,
    Other,
}

/// The target of stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stderr {
    /// Into the same pipe, socket or file as stdout.
    IsStdout,
    Separate,
}

/// Our three streams.
#[derive(Debug, Clone, Copy)]
struct Streams {
    stdin: StreamKind,
    stdout: StreamKind,
    stderr: Stderr,
}

/// A problem of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    StdinIsTerminal,
    StdoutIsTerminal,
    StderrIsStdout,
}

/// Whether a log can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logging {
    Possible,
    /// The log would mix with the protocol.
    Impossible,
}

impl Logging {
    /// Starts the log, if it can be written.
    pub(super) fn start(self) {
        match self {
            Self::Possible => log::start_for_client(),
            Self::Impossible => log::silence(),
        }
    }

    /// Reports the error that ends the process.
    pub(super) fn end(self, error: &impl fmt::Display) {
        match self {
            Self::Possible => tracing::error!("{error}"),
            // The protocol has ended, so the text does not disturb it. If the text cannot be
            // written, the exit code reports the error.
            Self::Impossible => {
                let _ = writeln!(output::stderr(), "error: {error}");
            }
        }
    }
}

/// The mode and the problems found at the start.
#[derive(Debug)]
pub(super) struct Preflight {
    mode: StdioMode,
    /// The value of the variable if it is no mode.
    unknown: Option<String>,
    findings: Vec<Finding>,
}

/// The reason why the server refuses to start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is strict, and {0}")]
pub(super) struct StdioError(String);

impl Preflight {
    /// Reads the variable and checks the streams.
    pub(super) fn new() -> Self {
        Self::of(env::var_os(VARIABLE).as_deref(), Streams::detect)
    }

    fn of(value: Option<&OsStr>, detect: impl FnOnce() -> Streams) -> Self {
        let (mode, unknown) = match value.map(mode) {
            Some(Ok(mode)) => (mode, None),
            Some(Err(unknown)) => (StdioMode::Auto, Some(unknown)),
            None => (StdioMode::Auto, None),
        };
        let findings = match mode {
            StdioMode::Auto | StdioMode::Strict => judge(detect()),
            StdioMode::Off => Vec::new(),
        };
        Self {
            mode,
            unknown,
            findings,
        }
    }

    /// Whether the log can be written. Under `strict` it always can: it then holds the reason for
    /// the refusal, and no protocol follows.
    pub(super) fn logging(&self) -> Logging {
        let in_protocol = self.findings.contains(&Finding::StderrIsStdout);
        match self.mode == StdioMode::Auto && in_protocol {
            true => Logging::Impossible,
            false => Logging::Possible,
        }
    }

    /// Decides whether the server may start.
    ///
    /// # Errors
    ///
    /// [`StdioError`] under `strict`, if any problem was found.
    pub(super) fn verdict(&self) -> Result<(), StdioError> {
        if self.mode != StdioMode::Strict || self.findings.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = self.findings.iter().map(|one| one.in_words()).collect();
        Err(StdioError(all.join(" Also, ")))
    }

    /// Logs the problems. A person at a terminal only gets a hint on what the server waits for.
    pub(super) fn report(&self) {
        if let Some(unknown) = &self.unknown {
            tracing::warn!("{}", not_a_mode(unknown));
        }
        for finding in &self.findings {
            match finding {
                Finding::StdinIsTerminal => tracing::info!(
                    "waiting for MCP messages from this terminal. An MCP client is meant to start \
                     this; `codex-mcp --help` tells how. Ctrl-C ends it."
                ),
                Finding::StdoutIsTerminal | Finding::StderrIsStdout => {
                    tracing::warn!("{}", finding.in_words());
                }
            }
        }
    }

    /// The mode and the problems for clients that ask.
    pub(super) fn stdio(&self) -> Stdio {
        let unknown = self.unknown.as_ref().map(|unknown| not_a_mode(unknown));
        let findings = self.findings.iter().map(|finding| finding.in_words());
        Stdio {
            mode: self.mode,
            warnings: unknown.into_iter().chain(findings).collect(),
        }
    }
}

impl Streams {
    fn detect() -> Self {
        Self {
            stdin: end(io::stdin().is_terminal()),
            stdout: end(output::stdout_is_terminal()),
            stderr: stderr_target(),
        }
    }
}

fn end(is_terminal: bool) -> StreamKind {
    match is_terminal {
        true => StreamKind::Terminal,
        false => StreamKind::Other,
    }
}

/// Two descriptors of one pipe, socket or file share its device and inode number. So do all
/// descriptors of a terminal or of /dev/null, but these are character devices: no program reads a
/// protocol from them.
#[expect(clippy::disallowed_methods, reason = "nothing is written to them")]
fn stderr_target() -> Stderr {
    let (Ok(stdout), Ok(stderr)) = (fstat(io::stdout().as_fd()), fstat(io::stderr().as_fd()))
    else {
        return Stderr::Separate;
    };
    let kind = SFlag::from_bits_truncate(stdout.st_mode) & SFlag::S_IFMT;
    let same = (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino);
    match same && kind != SFlag::S_IFCHR {
        true => Stderr::IsStdout,
        false => Stderr::Separate,
    }
}

/// Parses a mode; an empty value is no mode.
fn mode(value: &OsStr) -> Result<StdioMode, String> {
    let text = value.to_string_lossy();
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "auto" => Ok(StdioMode::Auto),
        "strict" => Ok(StdioMode::Strict),
        "off" => Ok(StdioMode::Off),
        _ => Err(text.into_owned()),
    }
}

fn not_a_mode(value: &str) -> String {
    format!("{VARIABLE} is {value:?}, not auto, strict or off; auto is used")
}

/// The problems of the streams. A terminal at both ends is one finding: a person sits there.
fn judge(streams: Streams) -> Vec<Finding> {
    let terminal = match (streams.stdin, streams.stdout) {
        (StreamKind::Terminal, _) => Some(Finding::StdinIsTerminal),
        (StreamKind::Other, StreamKind::Terminal) => Some(Finding::StdoutIsTerminal),
        (StreamKind::Other, StreamKind::Other) => None,
    };
    let log = match streams.stderr {
        Stderr::IsStdout => Some(Finding::StderrIsStdout),
        Stderr::Separate => None,
    };
    terminal.into_iter().chain(log).collect()
}

impl Finding {
    /// The problem and the remedy.
    fn in_words(self) -> String {
        let (what, to_do) = match self {
            Self::StdinIsTerminal => (
                "stdin is a terminal, where MCP messages should come from",
                "Let an MCP client start codex-mcp, or send it messages through a pipe; \
                 `codex-mcp --help` tells how.",
            ),
            Self::StdoutIsTerminal => (
                "stdout is a terminal, where MCP messages should go to a client",
                "Let an MCP client start codex-mcp, or send its output through a pipe; \
                 `codex-mcp --help` tells how.",
            ),
            Self::StderrIsStdout => (
                "stderr leads where stdout leads, so the log would get into the protocol; \
                 without strict, none is written",
                "Leave out `2>&1`, or send stderr elsewhere, such as `2>codex-mcp.log`.",
            ),
        };
        format!("{what}. {to_do}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPES: Streams = Streams {
        stdin: StreamKind::Other,
        stdout: StreamKind::Other,
        stderr: Stderr::Separate,
    };

    fn preflight(value: &str, streams: Streams) -> Preflight {
        Preflight::of(Some(OsStr::new(value)), || streams)
    }

    #[test]
    fn value_is_trimmed_and_case_insensitive() {
        for (value, expected) in [
            ("", StdioMode::Auto),
            (" Auto\n", StdioMode::Auto),
            ("STRICT", StdioMode::Strict),
            ("\toff ", StdioMode::Off),
        ] {
            let preflight = preflight(value, PIPES);
            assert_eq!(preflight.mode, expected, "{value:?}");
            assert_eq!(preflight.unknown, None);
        }
        assert_eq!(Preflight::of(None, || PIPES).mode, StdioMode::Auto);
    }

    #[test]
    fn unknown_value_means_auto_and_warns() {
        let preflight = preflight("paranoid", PIPES);
        assert_eq!(preflight.verdict(), Ok(()));
        let Stdio { mode, warnings } = preflight.stdio();
        assert_eq!(mode, StdioMode::Auto);
        assert_eq!(
            warnings,
            [r#"CODEX_MCP_STDIO_MODE is "paranoid", not auto, strict or off; auto is used"#]
        );
    }

    #[test]
    fn fault_is_found_and_terminal_is_reported_once() {
        use StreamKind::{Other, Terminal};
        for (stdin, stdout, stderr, expected) in [
            (Other, Other, Stderr::Separate, &[][..]),
            (
                Terminal,
                Other,
                Stderr::Separate,
                &[Finding::StdinIsTerminal],
            ),
            (
                Terminal,
                Terminal,
                Stderr::Separate,
                &[Finding::StdinIsTerminal],
            ),
            (
                Other,
                Terminal,
                Stderr::Separate,
                &[Finding::StdoutIsTerminal],
            ),
            (Other, Other, Stderr::IsStdout, &[Finding::StderrIsStdout]),
            (
                Terminal,
                Other,
                Stderr::IsStdout,
                &[Finding::StdinIsTerminal, Finding::StderrIsStdout],
            ),
        ] {
            let streams = Streams {
                stdin,
                stdout,
                stderr,
            };
            assert_eq!(judge(streams), expected, "{streams:?}");
        }
    }

    #[test]
    fn strict_mode_refuses_and_names_the_remedy() {
        let shared = Streams {
            stdin: StreamKind::Terminal,
            stderr: Stderr::IsStdout,
            ..PIPES
        };
        assert_eq!(preflight("strict", PIPES).verdict(), Ok(()));
        assert_eq!(preflight("auto", shared).verdict(), Ok(()));
        assert_eq!(preflight("off", shared).verdict(), Ok(()));
        let refusal = preflight("strict", shared).verdict().unwrap_err();
        let refusal = refusal.to_string();
        for words in [
            "CODEX_MCP_STDIO_MODE is strict, and stdin is a terminal",
            "Let an MCP client start codex-mcp",
            "Leave out `2>&1`",
        ] {
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn log_is_not_written_into_the_protocol() {
        let shared = Streams {
            stderr: Stderr::IsStdout,
            ..PIPES
        };
        assert_eq!(preflight("auto", PIPES).logging(), Logging::Possible);
        assert_eq!(preflight("auto", shared).logging(), Logging::Impossible);
        assert_eq!(preflight("strict", shared).logging(), Logging::Possible);
        assert_eq!(preflight("off", shared).logging(), Logging::Possible);
    }
}
