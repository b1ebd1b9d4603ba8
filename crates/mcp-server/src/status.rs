//! The status of the server and its Codex, as text and as an object.

use std::time::{Duration, SystemTime};

use agent_team::Member;
use codex_engine::logic::usage_limits::{as_json, in_words};
use codex_protocol::codex::RateLimits;
use common::timestamp::timestamp;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Map, json};
use supervise::exit::{Exit, UnexpectedExit};

/// The status of the server and its Codex.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The value of `--backend`.
    pub backend: &'static str,
    /// The identity and the team of the server, if it has them.
    #[serde(flatten)]
    pub member: Option<Member>,
    /// Codex's process.
    pub codex: Codex,
    /// The usage limits of its account, or why they are not known.
    #[serde(serialize_with = "as_limits")]
    pub limits: Result<RateLimits, String>,
    /// The last Codex that has died, if one has.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_exit")]
    pub last_exit: Option<UnexpectedExit>,
    /// The time since the server started.
    #[serde(rename = "uptimeSeconds", serialize_with = "as_seconds")]
    pub uptime: Duration,
    /// The calls so far.
    pub calls: Calls,
    /// Threads that `codex_threads` shows as active.
    pub active_threads: usize,
    /// Questions of Codex that wait for an answer.
    pub open_questions: usize,
    /// The number of unread messages, if the server is in a team and can count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_mail: Option<usize>,
    /// The messages that were passed on, if the server is a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// Warnings: settings that were left out and servers that were not started, with hints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Codex's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Codex {
    /// Codex has not answered yet.
    Starting,
    /// Codex serves.
    Ready {
        /// Its release, if known.
        version: Option<String>,
    },
    /// None runs; the next call starts one.
    Absent {
        /// The reason why the last one ended, if one has.
        reason: Option<String>,
    },
    /// Codex has ended, or was never started, and is not started again.
    Gone {
        /// The reason.
        reason: String,
    },
}

/// The numbers of calls.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// Calls of the tools that prompt Codex.
    pub total: u64,
    /// Calls that are not answered yet.
    pub in_flight: usize,
}

/// The numbers of messages that the proxy has passed on.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// To Codex.
    pub from_client: u64,
    /// To the client.
    pub from_codex: u64,
}

/// `{code or signal, message, at}`; neither code nor signal if the exit is unknown.
fn as_exit<S: serde::Serializer>(
    death: &Option<UnexpectedExit>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let object = death.map(|UnexpectedExit { exit, at }| {
        let how = match exit {
            Exit::Code(code) => Some(("code", code)),
            Exit::Signal(signal) => Some(("signal", signal)),
            Exit::Unknown => None,
        };
        let mut object = Map::new();
        object.insert("message".to_owned(), exit.to_string().into());
        object.insert("at".to_owned(), timestamp(at).into());
        object.extend(how.map(|(name, number)| (name.to_owned(), number.into())));
        object
    });
    object.serialize(serializer)
}

/// `{known: true, windows, usedUpUntil, models}`, or `{known: false, reason}`.
fn as_limits<S: serde::Serializer>(
    limits: &Result<RateLimits, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut object = match limits {
        Ok(limits) => as_json(limits, SystemTime::now()),
        Err(reason) => json!({ "reason": reason }),
    };
    if let Some(members) = object.as_object_mut() {
        members.insert("known".to_owned(), limits.is_ok().into());
    }
    object.serialize(serializer)
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

impl Status {
    /// The answer of `codex_status`.
    pub(crate) fn into_result(self) -> CallToolResult {
        let object = json!(self);
        let text = [self.in_words(), object.to_string()];
        let mut result = CallToolResult::success(text.map(ContentBlock::text).to_vec());
        result.structured_content = Some(object);
        result
    }

    fn in_words(&self) -> String {
        let codex = match &self.codex {
            Codex::Starting => "Codex is starting".to_owned(),
            Codex::Ready {
                version: Some(version),
            } => format!("Codex {version} is ready"),
            Codex::Ready { version: None } => "Codex is ready".to_owned(),
            Codex::Absent { reason: None } => {
                "No Codex is running; the next call starts it".to_owned()
            }
            Codex::Absent {
                reason: Some(reason),
            } => format!("No Codex is running ({reason}); the next call tries again"),
            Codex::Gone { reason } => {
                format!("Codex is gone: {reason}. Reconnect to start it again")
            }
        };
        let died = self.last_exit.map(|death| format!(" Last exit: {death}."));
        let Calls { total, in_flight } = self.calls;
        let member = self.member.as_ref().map(|member| match &member.team {
            Some(team) => format!(" Identity: {} of {team}.", member.identity),
            None => format!(" Identity: {}.", member.identity),
        });
        let mail = self
            .pending_mail
            .map(|count| format!(", unread mail: {count}"));
        let limits = match &self.limits {
            Ok(limits) => in_words(limits, SystemTime::now()),
            Err(reason) => format!("not known, as {reason}"),
        };
        let warnings = self.warnings.iter();
        let warnings: String = warnings.map(|text| format!("\nWarning: {text}")).collect();
        format!(
            "{codex}.{}{} Calls: {total}, in flight: {in_flight}, active threads: {}, \
             open questions: {}{}. Usage limits: {limits}. Up for {} s.{warnings}",
            died.unwrap_or_default(),
            member.unwrap_or_default(),
            self.active_threads,
            self.open_questions,
            mail.unwrap_or_default(),
            self.uptime.as_secs(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn status(codex: Codex) -> Status {
        Status {
            backend: "mcp-server",
            member: Some(Member {
                identity: "arch".parse().unwrap(),
                team: None,
            }),
            codex,
            limits: Err("no Codex is running".to_owned()),
            last_exit: None,
            uptime: Duration::from_millis(61_500),
            calls: Calls {
                total: 3,
                in_flight: 1,
            },
            active_threads: 1,
            open_questions: 0,
            pending_mail: None,
            messages: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn status_is_given_as_text_and_object() {
        let version = Some("0.153.4".to_owned());
        let result = status(Codex::Ready { version }).into_result();
        let object = result.structured_content.unwrap();
        assert_eq!(
            object,
            json!({
                "backend": "mcp-server",
                "identity": "arch",
                "team": null,
                "codex": { "state": "ready", "version": "0.153.4" },
                "limits": { "known": false, "reason": "no Codex is running" },
                "uptimeSeconds": 61,
                "calls": { "total": 3, "inFlight": 1 },
                "activeThreads": 1,
                "openQuestions": 0,
            })
        );
        let reason = "it exited with code 3".to_owned();
        let words = status(Codex::Gone { reason }).in_words();
        assert!(words.starts_with("Codex is gone: it exited with code 3. Reconnect"));
    }

    #[test]
    fn last_exit_is_reported_with_its_time() {
        let mut status = status(Codex::Absent { reason: None });
        for (exit, expected) in [
            (
                Exit::Signal(9),
                json!({ "message": "was ended by signal 9 (SIGKILL)", "signal": 9,
                    "at": "1970-01-01T00:00:00.000Z" }),
            ),
            (
                Exit::Code(3),
                json!({ "message": "exited with code 3", "code": 3,
                    "at": "1970-01-01T00:00:00.000Z" }),
            ),
        ] {
            let at = UNIX_EPOCH;
            status.last_exit = Some(UnexpectedExit { exit, at });
            assert_eq!(json!(status)["lastExit"], expected);
            let words = format!("Last exit: Codex {exit} at 1970-01-01T00:00:00.000Z.");
            assert!(status.in_words().contains(&words), "{}", status.in_words());
        }
    }

    #[test]
    fn limits_are_reported_with_their_reset_times() {
        let mut status = status(Codex::Starting);
        let object = r#"{"rateLimits":{"primary":{"usedPercent":42,"windowDurationMins":300,
            "resetsAt":86400}}}"#;
        let object = serde_json::value::RawValue::from_string(object.to_owned()).unwrap();
        status.limits = Ok(RateLimits::read(&object).unwrap());
        assert_eq!(
            json!(status)["limits"],
            json!({
                "known": true,
                "windows": [{ "usedPercent": 42.0, "windowMinutes": 300,
                    "resetsAt": "1970-01-02T00:00:00.000Z" }],
                "usedUpUntil": null,
                "models": [],
            })
        );
        let words = "Usage limits: 42 % of 5h used, reset at 1970-01-02 00:00 UTC.";
        assert!(status.in_words().contains(words), "{}", status.in_words());
        status.limits = Err("Codex has no login".to_owned());
        let words = "Usage limits: not known, as Codex has no login.";
        assert!(status.in_words().contains(words), "{}", status.in_words());
    }
}
