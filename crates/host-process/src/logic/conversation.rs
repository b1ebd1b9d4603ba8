//! What a client and its host have said, as far as the next host needs it.
//!
//! A host may end while it serves a client, and the next one knows nothing of the client. So
//! this keeps the client's requests that are not answered, which get an error then, and the
//! messages with which the client has introduced itself, which the next host is told.

use std::collections::HashMap;

use codex_protocol::rpc::{Message, RequestId};
use serde::Deserialize;

/// The longest introduction that is kept, in bytes. A client with a longer one is told that
/// the connection has ended.
const INTRODUCTION_LIMIT: usize = 64 * 1024;

/// The methods of the introduction (MCP 2024-11-05 to 2025-11-25; 2026-07-28 has none).
const INITIALIZE: &str = "initialize";
const INITIALIZED: &str = "notifications/initialized";

/// The notification that a request needs no answer any more.
const CANCELLED: &str = "notifications/cancelled";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: RequestId,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A call of a tool, whose errors are results.
    ToolCall,
    /// Any other.
    Other,
}

/// Whether a message of the host is for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// It is passed on.
    Client,
    /// It answers a message that we have repeated.
    Nobody,
}

/// A conversation of a client with its hosts, one after the other.
#[derive(Debug, Default)]
pub struct Conversation {
    /// The requests of the client without an answer.
    unanswered: HashMap<RequestId, RequestKind>,
    introduction: Vec<Vec<u8>>,
    /// The request for the introduction, whose second answer is not for the client.
    introduced_by: Option<RequestId>,
    /// Whether the host answers a repeated introduction.
    repeated: bool,
}

impl Conversation {
    /// Notes a message of the client.
    pub fn from_client(&mut self, message: &[u8]) {
        match Message::read(message) {
            Ok(Message::Request { id, method, .. }) => {
                let kind = match &*method {
                    "tools/call" => RequestKind::ToolCall,
                    _ => RequestKind::Other,
                };
                if method == INITIALIZE && message.len() <= INTRODUCTION_LIMIT {
                    self.introduction = vec![message.to_vec()];
                    self.introduced_by = Some(id.clone());
                }
                self.unanswered.insert(id, kind);
            }
            Ok(Message::Notification { method, .. }) if method == INITIALIZED => {
                // One that is repeated adds nothing.
                self.introduction.truncate(1);
                self.introduction.push(message.to_vec());
            }
            Ok(Message::Notification { method, params }) if method == CANCELLED => {
                let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
                if let Some(Cancelled { request_id }) = cancelled {
                    self.unanswered.remove(&request_id);
                }
            }
            // The host answers what cannot be read.
            Ok(_) | Err(_) => {}
        }
    }

    /// Notes a message of the host.
    pub fn from_host(&mut self, message: &[u8]) -> Recipient {
        let Ok(Message::Response { id, .. }) = Message::read(message) else {
            return Recipient::Client;
        };
        self.unanswered.remove(&id);
        let is_repeated = self.repeated && self.introduced_by.as_ref() == Some(&id);
        self.repeated &= !is_repeated;
        match is_repeated {
            true => Recipient::Nobody,
            false => Recipient::Client,
        }
    }

    /// The host has ended. Returns the requests that it has left unanswered, without that for
    /// the introduction, which the next host answers.
    pub fn lost(&mut self) -> Vec<(RequestId, RequestKind)> {
        let introduction = self.introduced_by.as_ref();
        let kept = introduction.and_then(|id| self.unanswered.remove_entry(id));
        let lost = self.unanswered.drain().collect();
        self.unanswered.extend(kept);
        lost
    }

    /// There is no next host. Returns the request for the introduction, if it is unanswered.
    pub fn lost_introduction(&mut self) -> Option<(RequestId, RequestKind)> {
        let id = self.introduced_by.as_ref()?;
        let lost = self.unanswered.remove_entry(id)?;
        self.introduction.clear();
        self.introduced_by = None;
        Some(lost)
    }

    /// What the next host is told first.
    pub fn introduction(&mut self) -> Vec<Vec<u8>> {
        let introduced_by = self.introduced_by.as_ref();
        self.repeated = introduced_by.is_some_and(|id| !self.unanswered.contains_key(id));
        self.introduction.clone()
    }

    /// Whether the client waits for an answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.unanswered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &[u8] = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const BEGUN: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#;

    #[test]
    fn unanswered_requests_are_lost_with_the_host() {
        let mut conversation = Conversation::default();
        conversation.from_client(CALL);
        conversation.from_client(br#"{"id":2,"method":"ping"}"#);
        conversation.from_client(br#"{"id":3,"method":"ping"}"#);
        assert_eq!(
            conversation.from_host(br#"{"id":3,"result":{}}"#),
            Recipient::Client
        );
        // A request of the host has the ID of one of the client's.
        let question = br#"{"id":2,"method":"elicitation/create","params":{}}"#;
        assert_eq!(conversation.from_host(question), Recipient::Client);
        let mut lost = conversation.lost();
        lost.sort_by_key(|(id, _)| id.clone());
        let expected = [
            (RequestId::Number(2), RequestKind::Other),
            (RequestId::Text("a".to_owned()), RequestKind::ToolCall),
        ];
        assert_eq!(lost, expected);
        assert!(!conversation.waits());
        assert_eq!(conversation.lost(), []);
    }

    #[test]
    fn next_host_is_introduced_and_its_answer_kept_from_the_client() {
        let mut conversation = Conversation::default();
        conversation.from_client(BEGIN);
        let answer = br#"{"id":0,"result":{}}"#;
        assert_eq!(conversation.from_host(answer), Recipient::Client);
        conversation.from_client(BEGUN);
        assert_eq!(conversation.lost(), []);
        assert_eq!(conversation.introduction(), [BEGIN, BEGUN]);
        assert_eq!(conversation.from_host(answer), Recipient::Nobody);
        // A client may use the ID again.
        assert_eq!(conversation.from_host(answer), Recipient::Client);
    }

    #[test]
    fn unanswered_introduction_is_answered_by_the_next_host() {
        let mut conversation = Conversation::default();
        conversation.from_client(BEGIN);
        assert_eq!(conversation.lost(), []);
        assert!(conversation.waits());
        assert_eq!(conversation.introduction(), [BEGIN]);
        assert_eq!(
            conversation.from_host(br#"{"id":0,"result":{}}"#),
            Recipient::Client
        );
    }

    #[test]
    fn cancelled_request_needs_no_answer() {
        let mut conversation = Conversation::default();
        conversation.from_client(CALL);
        let cancel = br#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        conversation.from_client(cancel);
        assert_eq!(conversation.lost(), []);
    }

    #[test]
    fn client_without_an_introduction_is_not_introduced() {
        let mut conversation = Conversation::default();
        conversation.from_client(CALL);
        conversation.lost();
        assert!(conversation.introduction().is_empty());
    }
}
