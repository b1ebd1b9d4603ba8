//! The state in lines, and the next useful command. This module only decides.

use std::borrow::Cow;

use common::text::{counted, one_line};

use crate::cli::work_list::{Kind, Work};
use crate::doctor::brief::{CodexState, INSTALL, LoginState};

/// The longest reason that is shown, in bytes.
const LONGEST_REASON: usize = 300;

/// The state of everything.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// Our version, with its commit and channel.
    pub(super) version: String,
    pub(super) codex: CodexState,
    /// The clients that are set up; `None` if that is not known.
    pub(super) clients: Option<Vec<&'static str>>,
    pub(super) work: WorkState,
}

/// The work under way.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WorkState {
    Known {
        work: Vec<Work>,
        /// The number of jobs and runs that `work` leaves out.
        more_jobs: u64,
    },
    /// It cannot be determined, for this reason.
    Unknown(String),
}

/// The meaning of a line, from which its colour follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Attention,
    Command,
}

/// A line of the overview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The label; empty for a line as wide as the terminal.
    pub(super) label: &'static str,
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// A command to run next, and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) command: String,
    pub(super) purpose: &'static str,
}

impl Line {
    fn new(label: &'static str, tone: Tone, text: impl Into<String>) -> Self {
        Self {
            label,
            tone,
            text: text.into(),
        }
    }

    fn empty() -> Self {
        Self::new("", Tone::Plain, "")
    }

    /// The text, cut to this many characters. A command is never cut, as it is to be copied.
    pub(super) fn within(&self, room: Option<usize>) -> Cow<'_, str> {
        match room {
            Some(room) if self.tone != Tone::Command && self.text.chars().count() > room => {
                let kept = self.text.chars().take(room.saturating_sub(1));
                Cow::Owned(kept.chain(['…']).collect())
            }
            _ => Cow::Borrowed(&self.text),
        }
    }
}

/// The whole overview.
pub(super) fn in_lines(state: &State) -> Vec<Line> {
    let mut lines = vec![
        Line::new("", Tone::Plain, format!("codex-mcp {}", state.version)),
        Line::empty(),
    ];
    lines.extend(codex_lines(&state.codex));
    lines.extend(state.clients.as_deref().map(clients_line));
    lines.push(work_line(&state.work));
    lines.push(Line::empty());
    let next = next(state);
    lines.push(Line::new("Next", Tone::Command, next.command));
    lines.push(Line::new(" ", Tone::Plain, next.purpose));
    lines.push(Line::empty());
    let help = "`codex-mcp --help` lists all commands, `codex-mcp doctor` checks everything.";
    lines.push(Line::new("", Tone::Plain, help));
    lines
}

fn codex_lines(codex: &CodexState) -> Vec<Line> {
    const CODEX: &str = "Codex";
    match codex {
        CodexState::NotInstalled => vec![Line::new(
            CODEX,
            Tone::Attention,
            "not installed: no `codex` found on PATH",
        )],
        CodexState::Unusable(why) => vec![Line::new(CODEX, Tone::Attention, reason(why))],
        CodexState::Found {
            version,
            path,
            login,
        } => vec![
            Line::new(CODEX, Tone::Good, format!("{version}, {path}")),
            login_line(login),
        ],
    }
}

fn login_line(login: &LoginState) -> Line {
    const LOGIN: &str = "Login";
    match login {
        LoginState::Usable(how) => Line::new(LOGIN, Tone::Good, how),
        LoginState::Missing(_) => Line::new(LOGIN, Tone::Attention, "not logged in"),
        LoginState::Unclear(what) => Line::new(LOGIN, Tone::Attention, reason(what)),
    }
}

fn clients_line(clients: &[&str]) -> Line {
    const CLIENTS: &str = "Clients";
    match clients {
        [] => Line::new(CLIENTS, Tone::Attention, "none is set up"),
        clients => Line::new(CLIENTS, Tone::Good, clients.join(", ")),
    }
}

fn work_line(work: &WorkState) -> Line {
    const WORK: &str = "Work";
    let (work, more_jobs) = match work {
        WorkState::Unknown(why) => {
            let text = format!("unknown: {}", reason(why));
            return Line::new(WORK, Tone::Attention, text);
        }
        WorkState::Known { work, more_jobs } => (work, *more_jobs),
    };
    let of_kind = |kind| work.iter().filter(|one| one.kind == kind).count();
    let kinds = [
        (Kind::Session, "session"),
        (Kind::Run, "run"),
        (Kind::Job, "job"),
    ];
    let counted: Vec<String> = kinds
        .into_iter()
        .map(|(kind, name)| (of_kind(kind), name))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| counted(count, name))
        .chain((more_jobs > 0).then(|| format!("{more_jobs} more jobs or runs")))
        .collect();
    match (counted.is_empty(), asking(work).count()) {
        (true, _) => Line::new(WORK, Tone::Plain, "none under way"),
        (false, 0) => Line::new(WORK, Tone::Good, counted.join(", ")),
        (false, 1) => {
            let text = format!("{}; one waits for your answer", counted.join(", "));
            Line::new(WORK, Tone::Attention, text)
        }
        (false, several) => {
            let text = format!("{}; {several} wait for your answer", counted.join(", "));
            Line::new(WORK, Tone::Attention, text)
        }
    }
}

fn asking(work: &[Work]) -> impl Iterator<Item = &Work> {
    work.iter().filter(|one| one.is_asking())
}

fn reason(text: &str) -> String {
    one_line(text, LONGEST_REASON)
}

/// The next useful command. Answers come first, as Codex waits for them, and then whatever is
/// needed before anything else works.
pub(super) fn next(state: &State) -> Next {
    let of = |command: &str, purpose| Next {
        command: command.to_owned(),
        purpose,
    };
    let work = match &state.work {
        WorkState::Known { work, .. } => work.as_slice(),
        WorkState::Unknown(_) => &[],
    };
    match asking(work).collect::<Vec<_>>().as_slice() {
        [] => {}
        [one] => {
            let verb = match one.kind {
                Kind::Session => "logs",
                Kind::Job | Kind::Run => "jobs show",
            };
            let command = format!("codex-mcp {verb} {}", one.short_id());
            return of(&command, "show what Codex asks, and how to answer it");
        }
        _ => return of("codex-mcp ps", "list the work, to answer Codex's questions"),
    }
    let login = match &state.codex {
        CodexState::NotInstalled => return of(INSTALL, "install Codex"),
        CodexState::Unusable(_) => return of("codex-mcp doctor", DOCTOR),
        CodexState::Found { login, .. } => login,
    };
    match login {
        LoginState::Missing(command) => {
            return of(
                command,
                "log in; without an account, `codex-mcp demo` shows the program at work",
            );
        }
        LoginState::Unclear(_) => return of("codex-mcp doctor", DOCTOR),
        LoginState::Usable(_) => {}
    }
    match (&state.clients, work) {
        (Some(clients), _) if clients.is_empty() => {
            of("codex-mcp setup", "add codex-mcp to your MCP clients")
        }
        (_, [_, ..]) => of("codex-mcp ps", "list the work"),
        (None, []) => of("codex-mcp demo", "watch codex-mcp at work"),
        (Some(_), []) => of(
            "codex-mcp jobs submit --wait \"Explain this repository\"",
            "hand Codex a task from here; your clients have tools for it",
        ),
    }
}

const DOCTOR: &str = "find out what is wrong, and what to do about it";

#[cfg(test)]
mod tests;
