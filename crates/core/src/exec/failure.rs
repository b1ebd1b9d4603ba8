//! Whether a run failed, what kind of failure it was, and what to do about it.
//!
//! The kind is read off Codex's own words: first those in its events, then those
//! on its stderr. Source of the words: what 0.104.0, 0.153.4 and 0.169.0 print.

use std::time::Duration;

use codex_mcp_protocol::codex::ThreadId;

use super::digest::{Digest, ERROR_LIMIT, Turn, bounded};

/// How many of the last lines of stderr say why a run failed.
const LAST_LINES: usize = 5;

/// The longest account of when a limit is reset, in bytes.
const RESET_LIMIT: usize = 120;

/// How a run ended, for its shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Codex could not be started, for this reason.
    NotStarted(String),
    /// The conversation that was to be resumed is not known to Codex.
    UnknownSession(ThreadId),
    /// Codex exited by itself.
    Exited(i32),
    /// A signal ended Codex, and it wasn't ours.
    Signalled(i32),
    /// Nobody can tell how Codex ended.
    Unknown,
    /// It took longer than this and was ended.
    TimedOut(Duration),
    /// It was no longer wanted and was ended.
    Cancelled,
    /// It waited for somebody to log in, in these words, and was ended.
    AskedToLogIn(String),
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Codex is not logged in, or no longer.
    Auth,
    /// The account's limit or quota is used up, or requests came too fast.
    RateLimit,
    /// The conversation no longer fits the model.
    ContextWindow,
    /// The sandbox could not be set up.
    Sandbox,
    /// There is no such model, or not for this account.
    ModelNotFound,
    /// The model's service has too much to do.
    Overloaded,
    /// The model's service could not be reached.
    Connection,
    /// There is no such conversation to resume.
    UnknownSession,
    /// Another Codex works on the conversation.
    SessionBusy,
    /// It took too long.
    Timeout,
    /// It was no longer wanted.
    Cancelled,
    /// Codex exited with code 0 and had not done the turn, or had no answer.
    EmptyOutput,
    /// Codex exited with another code, for a reason that isn't known.
    Exit,
    /// A signal ended Codex.
    Signal,
    /// Codex could not be started.
    NotStarted,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub class: FailureClass,
    /// What happened, in Codex's words where it has any.
    pub message: String,
    /// When a limit is reset, in Codex's words: `in 20s` for example, or `at May
    /// 18th, 2033 3:33 AM`, which is local time.
    pub reset: Option<String>,
}

impl FailureClass {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Auth => (
                "auth",
                "Log in with `codex login`, or mend the API key of the model provider, then submit it again.",
            ),
            Self::RateLimit => (
                "rate_limit",
                "Wait until the limit is reset, then submit it again.",
            ),
            Self::ContextWindow => (
                "context_window",
                "Begin a new session and tell it what matters of this one.",
            ),
            Self::Sandbox => (
                "sandbox",
                "Run `codex-mcp doctor`, or choose another sandbox if you accept the risk.",
            ),
            Self::ModelNotFound => (
                "model_not_found",
                "Name another model, or leave the model to Codex's config.",
            ),
            Self::Overloaded => ("overloaded", "Wait a moment, then submit it again."),
            Self::Connection => (
                "connection",
                "Check the network and the model provider in Codex's config, then submit it again.",
            ),
            Self::UnknownSession => (
                "unknown_session",
                "Check the session id and CODEX_HOME, or leave the session out to begin a new one.",
            ),
            Self::SessionBusy => (
                "session_busy",
                "Wait until the other Codex is done with the session, or begin a new one.",
            ),
            Self::Timeout => (
                "timeout",
                "Allow more time, or resume the session to let Codex go on.",
            ),
            Self::Cancelled => ("cancelled", "Resume the session to let Codex go on."),
            Self::EmptyOutput => (
                "empty_output",
                "Look at what Codex wrote to stderr; `codex-mcp doctor` tells whether it works.",
            ),
            Self::Exit => (
                "exit",
                "Correct what it says; `codex-mcp doctor` tells whether this Codex works.",
            ),
            Self::Signal => (
                "signal",
                "Find out who ended Codex; a machine short of memory does.",
            ),
            Self::NotStarted => (
                "not_started",
                "Correct what is named; `codex-mcp doctor` tells whether this Codex can be run.",
            ),
        }
    }
}

impl Failure {
    fn new(class: FailureClass, message: &str) -> Self {
        Self {
            class,
            message: bounded(message, ERROR_LIMIT),
            reset: None,
        }
    }

    /// In Codex's words.
    fn said(class: FailureClass, message: &str) -> Self {
        Self {
            reset: reset_in(message).filter(|_| class == FailureClass::RateLimit),
            ..Self::new(class, message)
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match &self.reset {
            Some(reset) => format!("Codex says to try again {reset}; submit it again then."),
            None => self.class.hint().to_owned(),
        }
    }
}

/// Why the run failed; `None` if it did what it was to do. `stderr` is what Codex
/// wrote there, or the end of it.
#[must_use]
pub fn judge(ending: &Ending, digest: &Digest, stderr: &str) -> Option<Failure> {
    let failure = match ending {
        Ending::NotStarted(why) => Failure::new(FailureClass::NotStarted, why),
        Ending::UnknownSession(id) => {
            let message = format!("Codex has no session {id}");
            Failure::new(FailureClass::UnknownSession, &message)
        }
        Ending::TimedOut(after) => {
            let message = format!("agent timed out after {}ms", after.as_millis());
            Failure::new(FailureClass::Timeout, &message)
        }
        Ending::Cancelled => Failure::new(FailureClass::Cancelled, "cancelled"),
        Ending::AskedToLogIn(words) => {
            let message = format!("Codex wants somebody to log in: {words}");
            Failure::new(FailureClass::Auth, &message)
        }
        Ending::Exited(0) if digest.turn == Turn::Completed => match digest.message {
            Some(ref message) if !message.trim().is_empty() => return None,
            _ => Failure::new(
                FailureClass::EmptyOutput,
                "Codex ended its turn without an answer",
            ),
        },
        Ending::Exited(code) => exited(*code, digest, stderr),
        Ending::Signalled(number) => by_words(digest, stderr).unwrap_or_else(|| {
            let message = format!("Codex was ended by signal {number}");
            Failure::new(FailureClass::Signal, &message)
        }),
        Ending::Unknown => by_words(digest, stderr).unwrap_or_else(|| {
            Failure::new(FailureClass::Exit, "Codex ended, nobody can tell how")
        }),
    };
    Some(failure)
}

fn exited(code: i32, digest: &Digest, stderr: &str) -> Failure {
    if let Some(failure) = by_words(digest, stderr) {
        return failure;
    }
    let words = match &digest.last_error {
        Some(error) if !error.is_empty() => error.clone(),
        _ => reasons(stderr).join("; "),
    };
    match (code, words.as_str()) {
        (0, "") => Failure::new(
            FailureClass::EmptyOutput,
            "Codex exited without an answer and without a word",
        ),
        (0, words) if digest.last_error.is_none() => {
            let message = format!("Codex exited without an answer; it said: {words}");
            Failure::new(FailureClass::EmptyOutput, &message)
        }
        (0, words) => Failure::new(FailureClass::Exit, words),
        (code, "") => Failure::new(
            FailureClass::Exit,
            &format!("Codex exited with code {code} and said nothing"),
        ),
        (code, words) => Failure::new(
            FailureClass::Exit,
            &format!("Codex exited with code {code}; it said: {words}"),
        ),
    }
}

/// The failure that Codex itself names.
fn by_words(digest: &Digest, stderr: &str) -> Option<Failure> {
    let said = digest.last_error.as_deref().unwrap_or_default();
    if let Some(class) = class_of(said) {
        return Some(Failure::said(class, said));
    }
    let complaint = reasons(stderr).join("; ");
    let class = class_of(&complaint)?;
    // The event says what happened, though not of what kind it is.
    let words = if said.is_empty() { &complaint } else { said };
    Some(Failure::said(class, words))
}

/// The last lines of stderr that give a reason. With `RUST_BACKTRACE` set, Codex
/// tells after its reason where it stood.
fn reasons(stderr: &str) -> Vec<&str> {
    let mut in_backtrace = false;
    let mut lines: Vec<&str> = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !is_noise(line))
        .filter(|line| {
            in_backtrace = line.eq_ignore_ascii_case("stack backtrace:")
                || in_backtrace && is_of_a_backtrace(line);
            !in_backtrace
        })
        .collect();
    let surplus = lines.len().saturating_sub(LAST_LINES);
    lines.drain(..surplus);
    lines
}

/// Codex says these when nothing is wrong.
fn is_noise(line: &str) -> bool {
    line.starts_with("Reading prompt from stdin")
        || line.starts_with("Reading additional input from stdin")
        || starts_with_ignoring_case(line, "warning:")
}

/// What follows the headline of a backtrace: `7: function`, perhaps `at file:line`,
/// and at last that details were left out.
fn is_of_a_backtrace(line: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    line.split_once(": ")
        .is_some_and(|(start, _)| is_number(start))
        || line.starts_with("at ")
        || line.starts_with("note: Some details are omitted")
}

fn starts_with_ignoring_case(line: &str, prefix: &str) -> bool {
    line.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Words that tell a kind of failure, in lower case. The first row that fits counts.
const WORDS: &[(FailureClass, &[&str])] = &[
    (
        FailureClass::UnknownSession,
        &[
            "no rollout found",
            "thread not found",
            "session not found",
            "conversation not found",
        ],
    ),
    (FailureClass::SessionBusy, &["active writer"]),
    (
        FailureClass::ContextWindow,
        &[
            "context window",
            "context_length_exceeded",
            "context length",
        ],
    ),
    (
        FailureClass::RateLimit,
        &[
            "usage limit",
            "rate limit",
            "rate_limit",
            "ratelimit",
            "too many requests",
            "quota",
        ],
    ),
    (
        FailureClass::Auth,
        &[
            "unauthorized",
            "device code",
            "invalid_api_key",
            "incorrect api key",
            "not logged in",
            "log in again",
            "sign in again",
            "refresh token",
            "access token could not be refreshed",
            "missing environment variable",
        ],
    ),
    (FailureClass::ModelNotFound, &["model_not_found"]),
    (
        FailureClass::Sandbox,
        &["sandbox", "landlock", "bubblewrap", "bwrap", "seccomp"],
    ),
    (
        FailureClass::Overloaded,
        &["high demand", "overloaded", "at capacity"],
    ),
    (
        FailureClass::Connection,
        &[
            "stream disconnected",
            "connection failed",
            "error sending request",
            "connection refused",
            "timed out waiting for",
        ],
    ),
];

/// HTTP statuses that tell one.
const STATUSES: &[(FailureClass, &str)] = &[
    (FailureClass::RateLimit, "429"),
    (FailureClass::Auth, "401"),
    (FailureClass::Overloaded, "503"),
];

fn class_of(words: &str) -> Option<FailureClass> {
    let words = words.to_lowercase();
    if is_about_a_model(&words) {
        return Some(FailureClass::ModelNotFound);
    }
    let fits =
        |(_, known): &&(FailureClass, &[&str])| known.iter().any(|word| words.contains(word));
    let by_word = WORDS.iter().find(fits).map(|(class, _)| *class);
    let by_status = || {
        let fits = |(_, status): &&(FailureClass, &str)| has_status(&words, status);
        STATUSES.iter().find(fits).map(|(class, _)| *class)
    };
    match by_word {
        // It says how, the status says why.
        Some(FailureClass::Connection) | None => by_status().or(by_word),
        by_word => by_word,
    }
}

/// As OpenAI's API puts it: `The model `x` does not exist or you do not have access
/// to it.`, `The 'x' model is not supported when using Codex with a ChatGPT account.`
fn is_about_a_model(words: &str) -> bool {
    let absent = ["does not exist", "not found", "is not supported"];
    words.contains("model") && !words.contains("metadata") && {
        let about = words.split_once("model").map_or("", |(_, about)| about);
        absent.iter().any(|absence| about.contains(absence))
    }
}

/// Whether the number stands alone, not in a path, a port or a longer number.
fn has_status(words: &str, status: &str) -> bool {
    words
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';'))
        .any(|word| word.trim_end_matches(['.', ':']) == status)
}

/// What follows `try again`, to the end of the sentence: `in 1.5s`, `at 5:30 PM`.
fn reset_in(words: &str) -> Option<String> {
    const LEAD: &str = "try again ";
    let (_, rest) = words.split_once(LEAD)?;
    let rest = rest.lines().next()?;
    let end = rest.find(". ").unwrap_or(rest.len());
    let when = rest.get(..end)?.trim_end_matches(['.', ')']).trim();
    let tells = when.starts_with("in ") || when.starts_with("at ");
    let brief = when.len() <= RESET_LIMIT;
    (tells && brief).then(|| when.to_owned())
}

/// Whether a line that Codex wrote, and that is no event, tells somebody to log in.
/// Codex waits then, and nobody is there. Source: `codex login --device-auth` of
/// 0.169.0, and its sign-in in the browser.
#[must_use]
pub fn asks_to_log_in(line: &str) -> bool {
    let line = line.to_lowercase();
    let prompts = [
        "device code authorization",
        "enter this one-time code",
        "/codex/device",
        "enter the code",
        "device code:",
        "open this link in your browser",
        "open the following url in your browser",
        "navigate to this url to authenticate",
    ];
    prompts.iter().any(|prompt| line.contains(prompt)) && !is_log_line(&line)
}

/// `2026-11-22T00:25:24.911034Z ERROR …`: what Codex notes isn't what it asks.
fn is_log_line(line: &str) -> bool {
    let stamp = line.split(' ').next().unwrap_or_default();
    let date = stamp.get(..5).unwrap_or_default();
    let year = date.strip_suffix('-').unwrap_or_default();
    year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()) && stamp.ends_with('z')
}

#[cfg(test)]
mod tests;
