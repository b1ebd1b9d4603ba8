//! Messages through a relay, from one host to the next.
//!
//! Input: a line for each message. `c` begins one of the client, `h` one of the host. `a` stands for
//! the client's answers to all questions, `n` for the end of a host.

use std::collections::{HashMap, HashSet};

use codex_protocol::rpc::{self, Message, RequestId};
use host_process::logic::conversation::{Conversation, Repeatable};
use host_process::logic::handshake::{Answer, Request};

const REPEATABLE: Repeatable = Repeatable {
    tools: &["codex_wait"],
    lasting: &["codex_submit"],
    mark: "codex-mcp/repeated",
};

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut relay = Relay {
        conversation: Conversation::new(REPEATABLE),
        asked: HashMap::new(),
        waiting: HashSet::new(),
    };
    for line in data.split(|byte| *byte == b'\n').take(200) {
        match line.split_first() {
            Some((b'c', message)) => relay.client_sends(message),
            Some((b'h', message)) => relay.host_sends(message),
            Some((b'a', _)) => relay.answer_all(),
            Some((b'n', _)) => relay.next_host(),
            _ => first_line(line),
        }
        let waits = relay.conversation.waits();
        assert_eq!(waits, !relay.waiting.is_empty(), "{:?}", relay.waiting);
    }
}

/// The first lines of a connection read as they were written.
fn first_line(line: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    }
    if let Ok(answer) = serde_json::from_slice::<Answer>(line) {
        let text = serde_json::to_string(&answer).unwrap();
        drop(serde_json::from_str::<Answer>(&text).unwrap());
    }
}

struct Relay {
    conversation: Conversation,
    /// The questions of the present host: their IDs for the client, and for the host.
    asked: HashMap<RequestId, RequestId>,
    /// The requests of the client that have no answer.
    waiting: HashSet<RequestId>,
}

/// The ID of the request that a notification cancels.
fn cancelled(message: &Message<'_>) -> Option<RequestId> {
    let Message::Notification { method, params } = message else {
        return None;
    };
    let params = params.filter(|_| method == "notifications/cancelled")?;
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: RequestId,
    }
    let params: Params = serde_json::from_str(params.get()).ok()?;
    Some(params.request_id)
}

impl Relay {
    fn client_sends(&mut self, message: &[u8]) {
        let read = Message::read(message);
        let passed = self.conversation.from_client(message);
        match &read {
            Ok(Message::Request { id, .. }) => drop(self.waiting.insert(id.clone())),
            Ok(message) => {
                if let Some(id) = cancelled(message) {
                    self.waiting.remove(&id);
                }
            }
            Err(_) => {}
        }
        match (&read, passed) {
            (Ok(Message::Response { .. }), Some(passed)) => {
                assert!(matches!(
                    Message::read(&passed),
                    Ok(Message::Response { .. })
                ));
            }
            (Ok(Message::Response { .. }), None) => {}
            (_, passed) => assert_eq!(passed.as_deref(), Some(message), "it is passed on as it is"),
        }
    }

    fn host_sends(&mut self, message: &[u8]) {
        let read = Message::read(message);
        let passed = self.conversation.from_host(message);
        match &read {
            Ok(Message::Response { id, .. }) => drop(self.waiting.remove(id)),
            // A host numbers its requests.
            Ok(Message::Request {
                id: RequestId::Text(_),
                ..
            }) => {}
            Ok(Message::Request { id, .. }) => {
                let passed = passed.unwrap();
                let Ok(Message::Request { id: named, .. }) = Message::read(&passed) else {
                    panic!("a request became something else");
                };
                self.asked.insert(named, id.clone());
            }
            Ok(message) => {
                if let Some(id) = cancelled(message) {
                    self.asked.retain(|_, own| *own != id);
                }
                assert!(passed.is_some());
            }
            Err(_) => assert!(passed.is_some()),
        }
    }

    /// The answer to a question reaches the host under the host's own ID.
    fn answer_all(&mut self) {
        for (named, own) in std::mem::take(&mut self.asked) {
            let passed = self.answer(&named).unwrap();
            match Message::read(&passed).unwrap() {
                Message::Response { id, .. } => assert_eq!(id, own),
                other => panic!("an answer became {other:?}"),
            }
        }
    }

    fn answer(&mut self, question: &RequestId) -> Option<Vec<u8>> {
        let answer = rpc::response_line(question, Ok(&1)).unwrap();
        let passed = self.conversation.from_client(&answer);
        passed.map(|passed| passed.into_owned())
    }

    fn next_host(&mut self) {
        let cancellations = self.conversation.host_ended();
        assert!(cancellations.len() >= self.asked.len());
        let repeated = self.conversation.take_repeatable();
        let read = |message: &Vec<u8>| Message::read(message).is_ok();
        assert!(repeated.iter().chain(&cancellations).all(read));
        for (id, _) in self.conversation.lost() {
            assert!(self.waiting.remove(&id), "{id} was answered");
        }
        // The next host answers the rest, and the introduction.
        assert!(
            self.waiting.len() <= repeated.len() + 1,
            "{:?}",
            self.waiting
        );
        assert!(self.conversation.introduction().iter().all(read));
        for question in std::mem::take(&mut self.asked).into_keys() {
            assert_eq!(self.answer(&question), None, "an answer to an earlier host");
        }
    }
}
