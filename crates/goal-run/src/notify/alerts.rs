//! Notifications of sessions and turns: Codex waits for an answer, has sent no event for long, or
//! has ended a turn.
//!
//! Notices wait in a bounded queue for a task that delivers one after the other, so that the
//! sender never waits for a notifier.

use std::sync::Arc;

use codex_engine::logic::session::Alert;
use common::secrets::mask;
use common::text::one_line;
use common::timestamp::timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::answers::{Answers, MailQuestion};
use super::{Notification, NotifierContext, notify_all_with};
use crate::logic::notifier::Notifier;
use crate::logic::outcome::NOTICE_LIMIT;

/// The length of the queue. Notices beyond it are dropped and logged.
const QUEUE: usize = 64;

/// An alert as a line, and as the object that programs get.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    line: String,
    result: Value,
}

impl Notice {
    /// The notice of an alert about `subject`, such as `session ID`. `names` are members with
    /// its ids for the object. Credentials are masked.
    #[must_use]
    pub fn of(subject: &str, names: &Value, alert: &Alert) -> Self {
        let (what, words, particulars) = match alert {
            Alert::Question {
                id,
                summary,
                text,
                expires,
            } => (
                "APPROVAL",
                mask(summary).into_owned(),
                json!({
                    "event": "approval_needed",
                    "request_id": id,
                    "question": mask(text),
                    "expires_at": timestamp(*expires),
                }),
            ),
            Alert::Stalled { silent, doing } => {
                let seconds = silent.as_secs();
                let doing = mask(doing);
                // Empty before the first step.
                let step = match doing.is_empty() {
                    true => String::new(),
                    false => format!(" ({doing})"),
                };
                (
                    "STALLED",
                    format!("no event from Codex for {seconds} s{step}"),
                    json!({ "event": "stalled", "silent_secs": seconds, "doing": doing }),
                )
            }
            Alert::Ended { status, summary } => {
                let words = match (status.as_ref(), summary.is_empty()) {
                    (status, true) => status.to_owned(),
                    (status, false) => format!("{status}: {summary}"),
                };
                let members = json!({ "event": "ended", "status": status, "summary": summary });
                ("ENDED", words, members)
            }
        };
        let line = one_line(&format!("{what} :: {subject}: {words}"), NOTICE_LIMIT);
        let members = |object: &Value| object.as_object().cloned().unwrap_or_default();
        let mut result: Map<String, Value> = members(&particulars);
        result.extend(members(names));
        Self {
            line,
            result: result.into(),
        }
    }
}

/// A notice that waits for its delivery.
struct Waiting {
    notice: Notice,
    /// The question, if it may be answered by mail.
    question: Option<Arc<dyn MailQuestion>>,
}

/// A handle on the queue of notices. Clones share the queue. Notices that wait when the last
/// handle is dropped are still delivered while the program runs.
#[derive(Debug, Clone)]
pub struct Alerts(mpsc::Sender<Waiting>);

impl Alerts {
    /// Starts the task that delivers to `notifiers`. Must be called in a tokio runtime.
    #[must_use]
    pub fn start(notifiers: Vec<Notifier>, mut context: NotifierContext) -> Self {
        let (queue, mut notices) = mpsc::channel::<Waiting>(QUEUE);
        tokio::spawn(async move {
            let mut answers: Option<Arc<Answers>> = None;
            while let Some(Waiting { notice, question }) = notices.recv().await {
                if question.is_some() && answers.is_none() {
                    answers = Answers::of(&context);
                }
                if let Some(answers) = &answers {
                    context.mail_client = Some(answers.mail_client.clone());
                }
                let ends = match (question, &answers) {
                    (Some(question), Some(answers)) => {
                        let limit = context.timeouts.mail;
                        let line = &notice.line;
                        answers.offer(question, &notifiers, line, limit).await
                    }
                    _ => Vec::new(),
                };
                let Notice { line, result } = notice;
                let notification = Notification {
                    line: &line,
                    result: &result,
                };
                let deliveries = notify_all_with(&notifiers, notification, &ends, &context);
                for delivery in deliveries.await {
                    if let Err(error) = delivery.result {
                        tracing::warn!("notification to {} failed: {error}", delivery.to);
                    }
                }
            }
        });
        Self(queue)
    }

    /// Queues a notice without waiting for its delivery.
    pub fn give(&self, notice: Notice) {
        self.queue(notice, None);
    }

    /// Queues the notice of a question that those who get the notice by mail may answer.
    pub fn ask(&self, notice: Notice, question: Arc<dyn MailQuestion>) {
        self.queue(notice, Some(question));
    }

    fn queue(&self, notice: Notice, question: Option<Arc<dyn MailQuestion>>) {
        if let Err(error) = self.0.try_send(Waiting { notice, question }) {
            tracing::warn!("a notice was dropped, as notifiers are too slow: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use codex_engine::logic::action::ActionId;
    use codex_engine::logic::session::EndStatus;

    use super::*;

    #[test]
    fn notices_are_one_line_and_an_object() {
        let names = json!({ "session_id": "sess_1" });
        let question = Alert::Question {
            id: ActionId("req_1".to_owned()),
            summary: "waiting for approval to run x --token=sk-abcdefghijklmnopqrstuvwxyz123456"
                .to_owned(),
            text: "Codex wants to run a command.\nCommand: x".to_owned(),
            expires: UNIX_EPOCH,
        };
        let Notice { line, result } = Notice::of("session sess_1", &names, &question);
        assert!(
            line.starts_with("APPROVAL :: session sess_1: waiting for approval to run x"),
            "{line}"
        );
        assert!(!line.contains("abcdefghijklmnop"), "{line}");
        let expected = json!({
            "event": "approval_needed",
            "session_id": "sess_1",
            "request_id": "req_1",
            "question": "Codex wants to run a command.\nCommand: x",
            "expires_at": "1970-01-01T00:00:00.000Z",
        });
        assert_eq!(result, expected);

        let stalled = Alert::Stalled {
            silent: Duration::from_millis(300_400),
            doing: format!("running \u{1b}[31m{}", "x".repeat(1000)),
        };
        let Notice { line, result } = Notice::of("job 2f6c1d3e", &json!({}), &stalled);
        let begins = "STALLED :: job 2f6c1d3e: no event from Codex for 300 s (running \\u{1b}[31mx";
        assert!(line.starts_with(begins), "{line}");
        assert!(line.len() <= NOTICE_LIMIT, "{line}");
        assert_eq!(result["silent_secs"], 300);

        let ended = Alert::Ended {
            status: EndStatus::Completed,
            summary: "Fixed.".to_owned(),
        };
        let Notice { line, result } = Notice::of("session sess_1", &names, &ended);
        assert_eq!(line, "ENDED :: session sess_1: completed: Fixed.");
        let expected = json!({
            "event": "ended", "session_id": "sess_1", "status": "completed", "summary": "Fixed.",
        });
        assert_eq!(result, expected);
    }
}
