//! Determines whether a turn failed, the class of the failure, and its remedy.
//!
//! The class is derived from Codex's message, and otherwise from the kind of the error. Source of
//! the messages: 0.104.0, 0.153.4 and 0.169.0.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::{ErrorKind, ThreadId, TurnError};
use common::text::bounded;
use common::timestamp::minute;

use super::digest::Digest;
use super::retention::ERROR_LIMIT;

/// The longest description of the reset of a limit, in bytes.
const RESET_LIMIT: usize = 120;

/// How the turn of a job ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkEnding {
    /// Codex could not be started, or the turn not begun, for this reason.
    NotStarted(String),
    /// Codex does not know the thread to resume.
    UnknownSession(ThreadId),
    /// Another process uses the thread; the message.
    SessionBusy(String),
    /// Codex has no login; the message.
    NoLogin(String),
    /// The turn was not begun, as the account is used up until this time.
    UsedUp(SystemTime),
    /// Codex refused to begin the turn; the message.
    Refused(String),
    /// The turn completed.
    Completed,
    /// The turn failed.
    Failed(TurnError),
    /// Codex ended the turn early, without a request.
    Interrupted,
    /// A question was answered by a refusal that ends the turn, for this reason if one was given.
    Declined(Option<String>),
    /// Codex exited during the turn; a description of the exit.
    Died(String),
    /// A signal ended Codex during the turn; a description of the exit.
    Killed(String),
    /// The turn exceeded this time limit and was ended.
    TimedOut(Duration),
    /// The turn was cancelled.
    Cancelled,
}

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Codex is not logged in, or no longer.
    Auth,
    /// The account's limit or quota is used up, or requests were too frequent.
    RateLimit,
    /// The thread no longer fits the model's context.
    ContextWindow,
    /// The sandbox could not be set up.
    Sandbox,
    /// There is no such model, or not for this account.
    ModelNotFound,
    /// The model's service is overloaded.
    Overloaded,
    /// The model's service could not be reached.
    Connection,
    /// There is no such thread to resume.
    UnknownSession,
    /// Another Codex uses the thread.
    SessionBusy,
    /// The time limit was exceeded.
    Timeout,
    /// The job was cancelled.
    Cancelled,
    /// The answer to a question ended the turn.
    Declined,
    /// Codex ended its turn without an answer.
    EmptyOutput,
    /// The turn failed, or Codex exited, for an unknown reason.
    Exit,
    /// A signal ended Codex.
    Signal,
    /// Codex could not be started.
    NotStarted,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class of a failure.
    pub class: FailureClass,
    /// The message, in Codex's words if there are any.
    pub message: String,
    /// The reset of a limit, in Codex's words: `in 20s` for example, or `at May 18th,
    /// 2033 3:33 AM`, which is local time.
    pub reset: Option<String>,
    /// The class of Codex's last error before the time limit, if it reported one.
    pub cause: Option<FailureClass>,
}

impl FailureClass {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What to do about the failure.
    #[must_use]
    pub fn hint(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Auth => (
                "auth",
                "Log in with `codex login`, or fix the API key of the model provider, then submit it again.",
            ),
            Self::RateLimit => (
                "rate_limit",
                "Wait until the limit is reset, then resume the session, or submit it again if it has none.",
            ),
            Self::ContextWindow => (
                "context_window",
                "Begin a new thread and include the relevant context.",
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
                "Wait until the turn of the thread has ended, or cancel the session that has it (`codex-mcp ps` lists sessions, `codex-mcp cancel ID` cancels one), or close another Codex that has it open; or begin a new thread.",
            ),
            Self::Timeout => (
                "timeout",
                "Allow more time, or resume the session to let Codex continue.",
            ),
            Self::Cancelled => ("cancelled", "Resume the thread to let Codex continue."),
            Self::Declined => (
                "declined",
                "Resume the session with a different prompt, or answer the question otherwise next time.",
            ),
            Self::EmptyOutput => (
                "empty_output",
                "Submit it again with a different prompt; `codex-mcp doctor --codex-bin PATH` shows whether the Codex at PATH works.",
            ),
            Self::Exit => (
                "exit",
                "The message is Codex's own: resolve what it names, or submit it again. `codex-mcp doctor --codex-bin PATH` shows whether the Codex at PATH works.",
            ),
            Self::Signal => (
                "signal",
                "Find out what ended Codex; the system may be out of memory.",
            ),
            Self::NotStarted => (
                "not_started",
                "`codex-mcp doctor --codex-bin PATH` shows what is wrong with the Codex at PATH; if it works, correct what the message says.",
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

    /// A failure by the time limit. Codex retries an unreachable model until the time limit, so the
    /// last error may be the cause.
    fn timed_out(after: Duration, last_error: Option<&str>) -> Self {
        let words = format!("agent timed out after {}ms", after.as_millis());
        match last_error {
            Some(error) => Self {
                cause: class_of(error),
                ..Self::new(
                    FailureClass::Timeout,
                    &format!("{words}; last error: {error}"),
                )
            },
            None => Self::new(FailureClass::Timeout, &words),
        }
    }

    /// A failure in Codex's words. The words are usually more specific than the kind of error.
    /// Words about the connection state only a symptom, so then the kind of error decides.
    fn from_words(words: &str, kind: FailureClass) -> Self {
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

    /// What to do about the failure.
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

/// The failure of a turn; `None` if it succeeded.
#[must_use]
pub fn judge(ending: &WorkEnding, digest: &Digest) -> Option<Failure> {
    let (class, message) = match ending {
        WorkEnding::NotStarted(why) => (FailureClass::NotStarted, why.clone()),
        WorkEnding::UnknownSession(id) => (
            FailureClass::UnknownSession,
            format!("Codex has no session {id}"),
        ),
        WorkEnding::SessionBusy(why) => (FailureClass::SessionBusy, why.clone()),
        WorkEnding::NoLogin(why) => (FailureClass::Auth, why.clone()),
        WorkEnding::UsedUp(until) => (
            FailureClass::RateLimit,
            format!(
                "a usage limit of the account is reached, and reset at {}",
                minute(*until)
            ),
        ),
        WorkEnding::TimedOut(after) => {
            return Some(Failure::timed_out(*after, digest.last_error.as_deref()));
        }
        WorkEnding::Cancelled => (FailureClass::Cancelled, "cancelled".to_owned()),
        WorkEnding::Completed => match &digest.message {
            Some(message) if !message.trim().is_empty() => return None,
            _ => (
                FailureClass::EmptyOutput,
                "Codex ended its turn without an answer".to_owned(),
            ),
        },
        WorkEnding::Interrupted => (
            FailureClass::Exit,
            "Codex interrupted the turn, and nobody had asked for that".to_owned(),
        ),
        WorkEnding::Declined(reason) => (
            FailureClass::Declined,
            match reason {
                Some(reason) => format!("the answer to a question ended the turn: {reason}"),
                None => "the answer to a question ended the turn".to_owned(),
            },
        ),
        WorkEnding::Refused(words) => return Some(Failure::from_words(words, FailureClass::Exit)),
        WorkEnding::Failed(error) => return Some(of_turn(error)),
        WorkEnding::Died(how) => (FailureClass::Exit, format!("Codex {how} during the turn")),
        WorkEnding::Killed(how) => (FailureClass::Signal, format!("Codex {how} during the turn")),
    };
    Some(Failure::new(class, &message))
}

/// The class of a turn's failure, by Codex's message and kind of error.
#[must_use]
pub fn class_of_turn(error: &TurnError) -> FailureClass {
    of_turn(error).class
}

fn of_turn(error: &TurnError) -> Failure {
    let words = in_words(error);
    Failure::from_words(&words, error.kind().into())
}

/// Codex's message of an error, with its details.
#[must_use]
pub fn in_words(error: &TurnError) -> String {
    match error.additional_details.as_deref() {
        Some(details) if !details.is_empty() => format!("{} ({details})", error.message),
        _ => error.message.clone(),
    }
}

/// Words that identify a class of failure, in lower case. The first matching row counts.
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

/// HTTP statuses that identify a class of failure.
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
        // The words state the symptom, and the status the cause.
        Some(FailureClass::Connection) | None => by_status().or(by_word),
        by_word => by_word,
    }
}

/// Whether the message is one of OpenAI's API about a missing model: `The model `x` does
/// not exist or you do not have access to it.`, `The 'x' model is not supported when
/// using Codex with a ChatGPT account.`
fn is_about_a_model(words: &str) -> bool {
    let absent = ["does not exist", "not found", "is not supported"];
    words.contains("model") && !words.contains("metadata") && {
        let about = words.split_once("model").map_or("", |(_, about)| about);
        absent.iter().any(|absence| about.contains(absence))
    }
}

/// Whether the number is a separate word, not part of a path, a port or a longer number.
fn has_status(words: &str, status: &str) -> bool {
    words
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';'))
        .any(|word| word.trim_end_matches(['.', ':']) == status)
}

/// The text after `try again`, to the end of the sentence: `in 1.5s`, `at 5:30 PM`.
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
