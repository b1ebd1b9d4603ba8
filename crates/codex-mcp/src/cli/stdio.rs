//! Whether stdin and stdout can carry the protocol, and what to do if not
//! (`CODEX_MCP_STDIO_MODE`).
//!
//! A terminal means that somebody started by hand what an MCP client is meant to
//! start. A stderr that is stdout (`2>&1`) would bring the log into the protocol.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::{env, fmt};

use common::output;
use mcp_server::{Stdio, StdioMode};
use nix::sys::stat::{SFlag, fstat};

use super::log;

/// Chooses what to do. A value that isn't known counts as `auto`.
const VARIABLE: &str = "CODEX_MCP_STDIO_MODE";

/// What one of our streams leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Terminal,
    Else,
}

/// Where stderr leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stderr {
    /// Into the same pipe, socket or file as stdout.
    IsStdout,
    Apart,
}

/// Our three streams.
#[derive(Debug, Clone, Copy)]
struct Streams {
    stdin: End,
    stdout: End,
    stderr: Stderr,
}

/// Something that is wrong with them.
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
    /// It would get into the protocol.
    Impossible,
}

impl Logging {
    /// Starts the log, if there can be one.
    pub(super) fn start(self) {
        match self {
            Self::Possible => log::start(),
            Self::Impossible => log::silence(),
        }
    }

    /// Says why we end.
    pub(super) fn end(self, error: &impl fmt::Display) {
        match self {
            Self::Possible => tracing::error!("{error}"),
            // There is no protocol any more that it could disturb. If this can't be
            // written either, the exit code tells.
            Self::Impossible => {
                let _ = writeln!(output::stderr(), "error: {error}");
            }
        }
    }
}

/// What was found when we were started.
#[derive(Debug)]
pub(super) struct Preflight {
    mode: StdioMode,
    /// What stands in the variable, if that is no mode.
    unknown: Option<String>,
    findings: Vec<Finding>,
}

/// Why we refuse to start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is strict, and {0}")]
pub(super) struct Unfit(String);

impl Preflight {
    /// Looks at the variable and at the streams.
    pub(super) fn new() -> Self {
        Self::of(env::var_os(VARIABLE).as_deref(), Streams::look)
    }

    fn of(value: Option<&OsStr>, look: impl FnOnce() -> Streams) -> Self {
        let (mode, unknown) = match value.map(mode) {
            Some(Ok(mode)) => (mode, None),
            Some(Err(unknown)) => (StdioMode::Auto, Some(unknown)),
            None => (StdioMode::Auto, None),
        };
        let findings = match mode {
            StdioMode::Auto | StdioMode::Strict => judge(look()),
            StdioMode::Off => Vec::new(),
        };
        Self {
            mode,
            unknown,
            findings,
        }
    }

    /// Under `strict` the log is for the reason why we don't start; no protocol
    /// follows.
    pub(super) fn logging(&self) -> Logging {
        let in_protocol = self.findings.contains(&Finding::StderrIsStdout);
        match self.mode == StdioMode::Auto && in_protocol {
            true => Logging::Impossible,
            false => Logging::Possible,
        }
    }

    /// # Errors
    ///
    /// [`Unfit`] under `strict`, if anything was found.
    pub(super) fn verdict(&self) -> Result<(), Unfit> {
        if self.mode != StdioMode::Strict || self.findings.is_empty() {
            return Ok(());
        }
        let all: Vec<String> = self.findings.iter().map(|one| one.in_words()).collect();
        Err(Unfit(all.join(" Also, ")))
    }

    /// Says in the log what was found. Somebody at a terminal is just told what is
    /// going on.
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

    /// The same for clients that ask.
    pub(super) fn into_stdio(self) -> Stdio {
        let unknown = self.unknown.map(|unknown| not_a_mode(&unknown));
        let findings = self.findings.iter().map(|finding| finding.in_words());
        Stdio {
            mode: self.mode,
            warnings: unknown.into_iter().chain(findings).collect(),
        }
    }
}

impl Streams {
    fn look() -> Self {
        Self {
            stdin: end(io::stdin().is_terminal()),
            stdout: end(output::stdout_is_terminal()),
            stderr: where_stderr_leads(),
        }
    }
}

fn end(is_terminal: bool) -> End {
    match is_terminal {
        true => End::Terminal,
        false => End::Else,
    }
}

/// Two descriptors of one pipe, socket or file have its device and number. So have
/// all those of a terminal or of /dev/null, which are devices of characters: what
/// is written there mixes with nothing that a program reads.
#[expect(clippy::disallowed_methods, reason = "nothing is written to them")]
fn where_stderr_leads() -> Stderr {
    let (Ok(stdout), Ok(stderr)) = (fstat(io::stdout().as_fd()), fstat(io::stderr().as_fd()))
    else {
        return Stderr::Apart;
    };
    let kind = SFlag::from_bits_truncate(stdout.st_mode) & SFlag::S_IFMT;
    let same = (stdout.st_dev, stdout.st_ino) == (stderr.st_dev, stderr.st_ino);
    match same && kind != SFlag::S_IFCHR {
        true => Stderr::IsStdout,
        false => Stderr::Apart,
    }
}

/// The mode that a value names; an empty one names none.
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

/// What is wrong. A terminal at both ends is one finding: somebody sits there.
fn judge(streams: Streams) -> Vec<Finding> {
    let terminal = match (streams.stdin, streams.stdout) {
        (End::Terminal, _) => Some(Finding::StdinIsTerminal),
        (End::Else, End::Terminal) => Some(Finding::StdoutIsTerminal),
        (End::Else, End::Else) => None,
    };
    let log = match streams.stderr {
        Stderr::IsStdout => Some(Finding::StderrIsStdout),
        Stderr::Apart => None,
    };
    terminal.into_iter().chain(log).collect()
}

impl Finding {
    /// What is wrong, and what to do.
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
        stdin: End::Else,
        stdout: End::Else,
        stderr: Stderr::Apart,
    };

    fn preflight(value: &str, streams: Streams) -> Preflight {
        Preflight::of(Some(OsStr::new(value)), || streams)
    }

    #[test]
    fn a_value_is_trimmed_and_its_case_is_no_matter() {
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
    fn another_value_is_auto_and_a_warning() {
        let preflight = preflight("paranoid", PIPES);
        assert_eq!(preflight.verdict(), Ok(()));
        let Stdio { mode, warnings } = preflight.into_stdio();
        assert_eq!(mode, StdioMode::Auto);
        assert_eq!(
            warnings,
            [r#"CODEX_MCP_STDIO_MODE is "paranoid", not auto, strict or off; auto is used"#]
        );
    }

    #[test]
    fn each_fault_is_found_and_a_terminal_once() {
        use End::{Else, Terminal};
        for (stdin, stdout, stderr, expected) in [
            (Else, Else, Stderr::Apart, &[][..]),
            (Terminal, Else, Stderr::Apart, &[Finding::StdinIsTerminal]),
            (
                Terminal,
                Terminal,
                Stderr::Apart,
                &[Finding::StdinIsTerminal],
            ),
            (Else, Terminal, Stderr::Apart, &[Finding::StdoutIsTerminal]),
            (Else, Else, Stderr::IsStdout, &[Finding::StderrIsStdout]),
            (
                Terminal,
                Else,
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
    fn only_strict_refuses_and_says_what_to_do() {
        let shared = Streams {
            stdin: End::Terminal,
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
    fn nothing_is_logged_into_the_protocol_unless_one_wants_that() {
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
