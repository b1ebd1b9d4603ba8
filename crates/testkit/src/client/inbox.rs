//! The unclaimed messages from the server, and the check that the server may send each of them.

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    unclaimed: VecDeque<Value>,
    /// By the request's id as JSON text, so that `1` and `"1"` differ.
    requests: HashMap<String, Request>,
    ignored: Vec<String>,
}

/// The relevant members of a line that the client sends; the rest may be nested too deeply to be
/// read.
#[derive(Deserialize)]
struct SentLine {
    id: Option<Value>,
    method: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Open,
    Answered,
    /// The test doesn't care whether an answer comes.
    Abandoned,
    AnsweredAfterAll,
}

impl Inbox {
    /// Notes a line of the client's, to know what may be answered.
    pub(super) fn sent(&mut self, line: &[u8]) {
        if let Ok(SentLine {
            id: Some(id),
            method: Some(_),
        }) = serde_json::from_slice(line)
        {
            self.requests.insert(id.to_string(), Request::Open);
        }
    }

    pub(super) fn abandon(&mut self, id: &Value) {
        let request = self.requests.get_mut(&id.to_string()).unwrap();
        *request = match request {
            Request::Open | Request::Abandoned => Request::Abandoned,
            Request::Answered | Request::AnsweredAfterAll => {
                self.unclaimed.retain(|message| !answers(message, id));
                Request::AnsweredAfterAll
            }
        };
    }

    pub(super) fn ignore(&mut self, method: &str) {
        self.ignored.push(method.to_owned());
        self.unclaimed
            .retain(|message| !is_notification(message, method));
    }

    /// Takes in a line from the server.
    pub(super) fn take_in(&mut self, line: &[u8]) -> Result<(), String> {
        let message: Value = serde_json::from_slice(line)
            .map_err(|error| format!("the server sent a line that is not JSON: {error}"))?;
        if message["jsonrpc"] != "2.0" {
            return Err("the server sent a message that is not JSON-RPC 2.0".to_owned());
        }
        let claimable = match (message.get("method"), message.get("id")) {
            (Some(Value::String(method)), None) => !self.ignored.contains(method),
            (Some(Value::String(_)), Some(_)) => true,
            (None, id) => self.take_in_response(&message, id)?,
            _ => return Err("the server sent a message whose method is no string".to_owned()),
        };
        if claimable {
            self.unclaimed.push_back(message);
        }
        Ok(())
    }

    /// Checks a response, and returns whether it must be claimed.
    fn take_in_response(&mut self, message: &Value, id: Option<&Value>) -> Result<bool, String> {
        if message.get("result").is_some() == message.get("error").is_some() {
            return Err(
                "the server sent a response without exactly one of result and error".into(),
            );
        }
        let id = id.unwrap_or(&Value::Null);
        if id.is_null() && message.get("error").is_some() {
            // This answers a line whose ID could not be read.
            return Ok(true);
        }
        match self.requests.get_mut(&id.to_string()) {
            Some(request @ Request::Open) => {
                *request = Request::Answered;
                Ok(true)
            }
            Some(request @ Request::Abandoned) => {
                *request = Request::AnsweredAfterAll;
                Ok(false)
            }
            Some(Request::Answered | Request::AnsweredAfterAll) => {
                Err(format!("the server answered {id} twice"))
            }
            None => Err(format!("the server answered {id}, which was never asked")),
        }
    }

    pub(super) fn claim(&mut self, fits: impl FnMut(&Value) -> bool) -> Option<Value> {
        let place = self.unclaimed.iter().position(fits)?;
        self.unclaimed.remove(place)
    }

    pub(super) fn claim_response(&mut self, id: &Value) -> Option<Value> {
        self.claim(|message| answers(message, id))
    }

    pub(super) fn unclaimed(&self) -> Vec<&Value> {
        self.unclaimed.iter().collect()
    }

    /// The ids of requests without a response that nobody gave up on.
    pub(super) fn unanswered(&self) -> Vec<&str> {
        self.requests
            .iter()
            .filter(|(_, state)| **state == Request::Open)
            .map(|(id, _)| id.as_str())
            .collect()
    }
}

fn answers(message: &Value, id: &Value) -> bool {
    message.get("method").is_none() && message["id"] == *id
}

fn is_notification(message: &Value, method: &str) -> bool {
    message["method"] == method && message.get("id").is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inbox() -> Inbox {
        let mut inbox = Inbox::default();
        inbox.sent(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        inbox
    }

    fn refusal(inbox: &mut Inbox, line: &str) -> String {
        inbox.take_in(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn request_has_one_response() {
        let mut inbox = inbox();
        assert_eq!(inbox.unanswered(), ["1"]);
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

        inbox.take_in(answer.as_bytes()).unwrap();
        assert_eq!(inbox.unanswered(), Vec::<&str>::new());
        assert_eq!(refusal(&mut inbox, answer), "the server answered 1 twice");
        assert_eq!(
            refusal(&mut inbox, r#"{"jsonrpc":"2.0","id":"1","result":{}}"#),
            "the server answered \"1\", which was never asked"
        );
    }

    #[test]
    fn abandoned_request_may_have_one_response_or_none() {
        let mut inbox = inbox();
        inbox.abandon(&json!(1));
        assert_eq!(inbox.unanswered(), Vec::<&str>::new());
        let answer = r#"{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":""}}"#;

        inbox.take_in(answer.as_bytes()).unwrap();
        assert_eq!(inbox.unclaimed(), Vec::<&Value>::new());
        assert_eq!(refusal(&mut inbox, answer), "the server answered 1 twice");
    }

    #[test]
    fn line_that_is_no_message_is_refused() {
        for (line, problem) in [
            ("hello", "not JSON"),
            ("", "not JSON"),
            (r#"{"id":1,"result":{}}"#, "not JSON-RPC 2.0"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "exactly one of"),
            (r#"{"jsonrpc":"2.0","method":1}"#, "no string"),
        ] {
            let refusal = refusal(&mut inbox(), line);
            assert!(refusal.contains(problem), "{line}: {refusal}");
        }
    }

    #[test]
    fn ignored_notifications_need_not_be_claimed() {
        let mut inbox = inbox();
        let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
        let request = br#"{"jsonrpc":"2.0","id":0,"method":"notifications/progress"}"#;
        inbox.take_in(progress).unwrap();
        inbox.ignore("notifications/progress");
        inbox.take_in(progress).unwrap();
        inbox.take_in(request).unwrap();

        assert_eq!(inbox.unclaimed().len(), 1);
        assert!(inbox.claim(|message| message["id"] == 0).is_some());
    }
}
