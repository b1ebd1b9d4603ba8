//! Whether a turn failed, what kind of failure it was, and what to do about it.
//!
//! The kind is read off Codex's own words, and then off its kind of error. Source of the
//! words: what 0.104.0, 0.153.4 and 0.169.0 say.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::{ErrorKind, ThreadId, TurnError};
use common::timestamp::minute;

use super::digest::Digest;
use super::limits::{ERROR_LIMIT, bounded};

/// The longest account of when a limit is reset, in bytes.
const RESET_LIMIT: usize = 120;

/// How a turn ended, for its shell.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Codex could not be started, or the turn not begun, for this reason.
    NotStarted(String),
    /// The conversation that was to be resumed is not known to Codex.
    UnknownSession(ThreadId),
    /// Somebody else works on the conversation, in these words.
    SessionBusy(String),
    /// Codex has no login, in these words.
    NoLogin(String),
    /// The turn was not begun, as the account is used up until then.
    UsedUp(SystemTime),
    /// Codex refused to begin, in these words.
    Refused(String),
    /// The turn ended as it should.
    Completed,
    /// The turn failed.
    Failed(TurnError),
    /// Codex ended the turn early, and nobody had asked it to.
    Interrupted,
    /// A question was answered by a refusal that ends the turn, for this reason if one was given.
    Declined(Option<String>),
    /// Codex exited during the turn; how.
    Died(String),
    /// A signal ended Codex during the turn; how.
    Killed(String),
    /// It took longer than this and was ended.
    TimedOut(Duration),
    /// It was no longer wanted and was ended.
    Cancelled,
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
    /// The answer to a question ended the turn.
    Declined,
    /// Codex ended its turn without an answer.
    EmptyOutput,
    /// The turn failed, or Codex exited, for a reason that isn't known.
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
    /// What kept Codex until time was up, where it told that.
    pub cause: Option<FailureClass>,
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
                "Wait until the limit is reset, then resume the session, or submit it again if it has none.",
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
            Self::Declined => (
                "declined",
                "Resume the session with other words, or answer the question otherwise next time.",
            ),
            Self::EmptyOutput => (
                "empty_output",
                "Submit it again in other words; `codex-mcp doctor` tells whether this Codex works.",
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
            cause: None,
        }
    }

    /// Time was up. Codex tries to reach a model that is not there for as long as it is let.
    fn timed_out(after: Duration, last_error: Option<&str>) -> Self {
        let words = format!("agent timed out after {}ms", after.as_millis());
        match last_error {
            Some(error) => Self {
                cause: class_of(error),
                ..Self::new(
                    FailureClass::Timeout,
                    &format!("{words}; the last that was heard: {error}"),
                )
            },
            None => Self::new(FailureClass::Timeout, &words),
        }
    }

    /// In Codex's words. They tell more than the kind of error, unless they are about the
    /// connection: they say how then, and the kind says why.
    fn said(words: &str, kind: FailureClass) -> Self {
        let class = match (class_of(words), kind) {
            (Some(FailureClass::Connection) | None, FailureClass::Exit) => {
                class_of(words).unwrap_or(kind)
            }
            (Some(FailureClass::Connection) | None, kind) => kind,
            (Some(class), _) => class,
        };
        Self {
            reset: reset_in(words).filter(|_| class == FailureClass::RateLimit),
            ..Self::new(class, words)
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match &self.reset {
            Some(reset) => format!(
                "Codex says to try again {reset}; resume the session then, or submit it again if it has none."
            ),
            None => self.cause.unwrap_or(self.class).hint().to_owned(),
        }
    }
}

impl From<ErrorKind> for FailureClass {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ContextWindowExceeded => Self::ContextWindow,
            ErrorKind::UsageLimitExceeded | ErrorKind::RateLimited => Self::RateLimit,
            ErrorKind::ServerOverloaded => Self::Overloaded,
            ErrorKind::Unauthorized => Self::Auth,
            ErrorKind::ModelNotFound => Self::ModelNotFound,
            ErrorKind::Sandbox => Self::Sandbox,
            ErrorKind::Connection => Self::Connection,
            ErrorKind::Other => Self::Exit,
        }
    }
}

/// Why the turn failed; `None` if it did what it was to do.
#[must_use]
pub fn judge(ending: &Ending, digest: &Digest) -> Option<Failure> {
    let (class, message) = match ending {
        Ending::NotStarted(why) => (FailureClass::NotStarted, why.clone()),
        Ending::UnknownSession(id) => (
            FailureClass::UnknownSession,
            format!("Codex has no session {id}"),
        ),
        Ending::SessionBusy(why) => (FailureClass::SessionBusy, why.clone()),
        Ending::NoLogin(why) => (FailureClass::Auth, why.clone()),
        Ending::UsedUp(until) => (
            FailureClass::RateLimit,
            format!(
                "the usage limit of the account is reached, and reset at {}",
                minute(*until)
            ),
        ),
        Ending::TimedOut(after) => {
            return Some(Failure::timed_out(*after, digest.last_error.as_deref()));
        }
        Ending::Cancelled => (FailureClass::Cancelled, "cancelled".to_owned()),
        Ending::Completed => match &digest.message {
            Some(message) if !message.trim().is_empty() => return None,
            _ => (
                FailureClass::EmptyOutput,
                "Codex ended its turn without an answer".to_owned(),
            ),
        },
        Ending::Interrupted => (
            FailureClass::Exit,
            "Codex interrupted the turn, and nobody had asked for that".to_owned(),
        ),
        Ending::Declined(reason) => (
            FailureClass::Declined,
            match reason {
                Some(reason) => format!("the answer to a question ended the turn: {reason}"),
                None => "the answer to a question ended the turn".to_owned(),
            },
        ),
        Ending::Refused(words) => return Some(Failure::said(words, FailureClass::Exit)),
        Ending::Failed(error) => return Some(of_turn(error)),
        Ending::Died(how) => (FailureClass::Exit, format!("Codex {how} during the turn")),
        Ending::Killed(how) => (FailureClass::Signal, format!("Codex {how} during the turn")),
    };
    Some(Failure::new(class, &message))
}

/// What kind of failure a turn had, by Codex's words and its kind of error.
#[must_use]
pub fn class_of_turn(error: &TurnError) -> FailureClass {
    of_turn(error).class
}

fn of_turn(error: &TurnError) -> Failure {
    let words = in_words(error);
    Failure::said(&words, error.kind().into())
}

/// An error in Codex's words, with its details.
#[must_use]
pub fn in_words(error: &TurnError) -> String {
    match error.additional_details.as_deref() {
        Some(details) if !details.is_empty() => format!("{} ({details})", error.message),
        _ => error.message.clone(),
    }
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

#[cfg(test)]
mod tests;
