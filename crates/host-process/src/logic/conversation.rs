//! State that a relay replays to the next host.
//!
//! A host may end while it serves a client, and the next one knows nothing of the client. So
//! the [`Conversation`] keeps the client's requests that are not answered, which then get an
//! error, and the messages with which the client has introduced itself and subscribed to
//! resources, which the relay repeats to the next host.
//!
//! A killed host may not have read a cancellation, and the next host continues the turn of that
//! call. A server does not answer a cancelled call, so the relay cannot know. It therefore repeats
//! the last cancellations too, each behind its call.
//!
//! Each host numbers its own requests from 0. An answer to a question of an earlier host must
//! not decide one of the next host with the same ID. So the IDs of requests of later hosts are
//! changed on the way to the client, and back; answers to earlier hosts go nowhere.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use codex_protocol::rpc::{Message, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::subscriptions::Subscriptions;

/// The methods of the introduction (MCP 2024-11-05 to 2025-11-25; 2026-07-28 has none).
const INITIALIZE: &str = "initialize";
const INITIALIZED: &str = "notifications/initialized";

/// The methods of subscriptions to one resource (MCP 2024-11-05 to 2025-11-25).
const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// The notification that a resource has changed.
const UPDATED: &str = "notifications/resources/updated";

/// The notification that a request needs no answer any more.
const CANCELLED: &str = "notifications/cancelled";

/// The most cancelled calls that are repeated to the next host.
const CANCELLED_CALLS: usize = 100;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: RequestId,
}

#[derive(Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Subscribed {
    uri: String,
}

/// A request for a subscription.
#[derive(Debug)]
struct Subscription {
    id: RequestId,
    message: Vec<u8>,
}

/// A request or an answer on its way, with another ID.
#[derive(Serialize)]
struct Renumbered<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    #[serde(flatten)]
    rest: Rest<'a>,
}

/// The rest of a message with an ID.
#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    Request {
        method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<&'a RawValue>,
    },
    Result {
        result: &'a RawValue,
    },
    Error {
        error: &'a codex_protocol::rpc::ErrorObject,
    },
}

impl Renumbered<'_> {
    fn to_vec(&self) -> Vec<u8> {
        // Only values that have been read are written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A call of a tool, whose errors are results.
    ToolCall,
    /// A call of a tool whose effect outlives the host, see [`Repeatable::lasting`].
    LastingCall,
    /// Any other.
    Other,
}

/// Which calls can be repeated, if the host that had them was killed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Repeatable {
    /// The names of the tools whose calls the next host can answer.
    pub tools: &'static [&'static str],
    /// The names of the tools whose effect outlives the host. A second call may have it twice, so the
    /// client has to look first.
    pub lasting: &'static [&'static str],
    /// The member of `_meta` that marks a repeated call.
    pub mark: &'static str,
}

/// A conversation of a client with its hosts, one after the other.
#[derive(Debug, Default)]
pub struct Conversation {
    repeatable: Repeatable,
    /// The requests of the client without an answer.
    unanswered: HashMap<RequestId, RequestKind>,
    /// Those of them that the next host can answer, marked as repeated.
    calls: HashMap<RequestId, Vec<u8>>,
    /// The last of those that the client has cancelled, without their arguments.
    cancelled: VecDeque<(RequestId, Vec<u8>)>,
    introduction: Vec<Vec<u8>>,
    /// The request for the introduction, whose second answer is not for the client.
    introduced_by: Option<RequestId>,
    subscriptions: Subscriptions<Subscription>,
    /// The requests that the host was told again and has not answered yet.
    repeated: HashSet<RequestId>,
    /// How many hosts have ended.
    ended_hosts: u64,
    /// The requests of the host without an answer, with the IDs that the client knows.
    asked: HashSet<RequestId>,
}

impl Conversation {
    /// A conversation with a client that has said nothing yet.
    #[must_use]
    pub fn new(repeatable: Repeatable) -> Self {
        Self {
            repeatable,
            ..Self::default()
        }
    }

    /// Notes a message of the client. Returns it as the host is to get it, or `None` if it
    /// answers an earlier host.
    pub fn from_client<'a>(&mut self, message: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match Message::read(message) {
            Ok(Message::Request { id, method, params }) => {
                let kind = match &*method {
                    "tools/call" if calls_one_of(self.repeatable.lasting, params) => {
                        RequestKind::LastingCall
                    }
                    "tools/call" => RequestKind::ToolCall,
                    _ => RequestKind::Other,
                };
                if method == INITIALIZE {
                    self.introduction = vec![message.to_vec()];
                    self.introduced_by = Some(id.clone());
                }
                self.note_subscription(&method, &id, params, message);
                self.forget_cancelled(&id);
                if kind == RequestKind::ToolCall
                    && calls_one_of(self.repeatable.tools, params)
                    && let Some(call) = marked(message, self.repeatable.mark)
                {
                    self.calls.insert(id.clone(), call);
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
                    self.note_cancelled(request_id);
                }
            }
            Ok(Message::Response { id, outcome }) => {
                self.asked.remove(&id);
                let of_host = self.id_of_host(&id)?;
                if of_host == id {
                    return Some(message.into());
                }
                let rest = match &outcome {
                    Ok(result) => Rest::Result { result },
                    Err(error) => Rest::Error { error },
                };
                return Some(renumbered(&of_host, rest).into());
            }
            // The host answers what cannot be read.
            Ok(Message::Notification { .. }) | Err(_) => {}
        }
        Some(message.into())
    }

    /// Notes a message of the host. Returns it as the client is to get it, or `None` if it
    /// answers a message that we have repeated. In place of the answer to a repeated subscription, the
    /// client is notified: the resource may have changed while no host watched it.
    pub fn from_host<'a>(&mut self, message: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match Message::read(message) {
            Ok(Message::Response { id, outcome }) => {
                self.unanswered.remove(&id);
                self.calls.remove(&id);
                if !self.repeated.remove(&id) {
                    return Some(message.into());
                }
                let uri = self.subscriptions.uri_of(|known| known.id == id)?;
                outcome.is_ok().then(|| updated(uri).into())
            }
            Ok(Message::Request { id, method, params }) => {
                let of_client = self.id_of_client(&id);
                self.asked.insert(of_client.clone());
                match of_client == id {
                    true => Some(message.into()),
                    false => {
                        let method = &method;
                        Some(renumbered(&of_client, Rest::Request { method, params }).into())
                    }
                }
            }
            Ok(Message::Notification { method, params }) if method == CANCELLED => {
                let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
                let Some(Cancelled { request_id }) = cancelled else {
                    return Some(message.into());
                };
                let of_client = self.id_of_client(&request_id);
                self.asked.remove(&of_client);
                match of_client == request_id {
                    true => Some(message.into()),
                    false => Some(cancellation(&of_client).into()),
                }
            }
            Ok(Message::Notification { .. }) | Err(_) => Some(message.into()),
        }
    }

    /// The calls to repeat to the next host, marked as repeated: those without an answer, which stay
    /// unanswered, and cancelled ones with their cancellations.
    pub fn take_repeatable(&mut self) -> Vec<Vec<u8>> {
        let mut repeated: Vec<_> = self.calls.values().cloned().collect();
        for (id, call) in &self.cancelled {
            // A host that has not read the cancellation yet may answer.
            self.repeated.insert(id.clone());
            repeated.extend([call.clone(), cancellation(id)]);
        }
        repeated
    }

    /// A client that uses the ID of a cancelled call again means another request.
    fn forget_cancelled(&mut self, id: &RequestId) {
        if let Some(known) = self.cancelled.iter().position(|(known, _)| known == id) {
            self.cancelled.remove(known);
            self.repeated.remove(id);
        }
    }

    fn note_cancelled(&mut self, id: RequestId) {
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        if let Some(call) = without_arguments(&call) {
            self.cancelled.push_back((id, call));
        }
        if self.cancelled.len() > CANCELLED_CALLS {
            self.cancelled.pop_front();
        }
    }

    /// There is no next host that continues the turns of cancelled calls.
    pub fn forget_all_cancelled(&mut self) {
        self.cancelled.clear();
    }

    /// The calls that were to be repeated cannot be.
    pub fn forget_repeatable(&mut self) {
        self.calls.clear();
    }

    fn note_subscription(
        &mut self,
        method: &str,
        id: &RequestId,
        params: Option<&RawValue>,
        message: &[u8],
    ) {
        if ![SUBSCRIBE, UNSUBSCRIBE].contains(&method) {
            return;
        }
        let params = params.and_then(|params| serde_json::from_str(params.get()).ok());
        let Some(Subscribed { uri }) = params else {
            return;
        };
        if method == UNSUBSCRIBE {
            return self.subscriptions.remove(&uri);
        }
        let request = Subscription {
            id: id.clone(),
            message: message.to_vec(),
        };
        self.subscriptions.add(uri, request);
    }

    /// The ID under which the client knows a request of the present host.
    fn id_of_client(&self, id: &RequestId) -> RequestId {
        match self.ended_hosts {
            0 => id.clone(),
            ended => RequestId::Text(format!("{ended}{SEPARATOR}{}", json!(id))),
        }
    }

    /// The ID of a request of the present host; `None` if an earlier one has made it.
    fn id_of_host(&self, id: &RequestId) -> Option<RequestId> {
        if self.ended_hosts == 0 {
            return Some(id.clone());
        }
        let RequestId::Text(text) = id else {
            return None;
        };
        let (ended, id) = text.split_once(SEPARATOR)?;
        match ended == self.ended_hosts.to_string() {
            true => serde_json::from_str(id).ok(),
            false => None,
        }
    }

    /// The host has ended. Returns cancellations of its questions for the client, which does not
    /// need to ask them any more.
    pub fn host_ended(&mut self) -> Vec<Vec<u8>> {
        self.ended_hosts += 1;
        self.asked.drain().map(|id| cancellation(&id)).collect()
    }

    /// Returns the requests that the host which has ended has left unanswered, without that for the
    /// introduction and the calls that the next host answers.
    pub fn lost(&mut self) -> Vec<(RequestId, RequestKind)> {
        let introduction = self.introduced_by.as_ref();
        let kept = introduction.and_then(|id| self.unanswered.remove_entry(id));
        let calls = &self.calls;
        let lost = self.unanswered.extract_if(|id, _| !calls.contains_key(id));
        let lost: Vec<_> = lost.collect();
        self.unanswered.extend(kept);
        let is_lost = |known: &Subscription| lost.iter().any(|(id, _)| *id == known.id);
        self.subscriptions.retain(|known| !is_lost(known));
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

    /// The first messages to the next host.
    pub fn introduction(&mut self) -> Vec<Vec<u8>> {
        let introduced_by = self.introduced_by.iter();
        let answered = introduced_by.filter(|id| !self.unanswered.contains_key(id));
        let subscribed = self.subscriptions.requests().map(|known| &known.id);
        self.repeated = answered.chain(subscribed).cloned().collect();
        let subscriptions = self.subscriptions.requests();
        let subscriptions = subscriptions.map(|known| known.message.clone());
        self.introduction
            .iter()
            .cloned()
            .chain(subscriptions)
            .collect()
    }

    /// Whether the client has subscribed to a resource.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    /// Whether the client waits for an answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.unanswered.is_empty()
    }
}

/// Stands between the number of ended hosts and the ID of a host.
const SEPARATOR: char = '/';

fn renumbered(id: &RequestId, rest: Rest<'_>) -> Vec<u8> {
    let renumbered = Renumbered {
        jsonrpc: "2.0",
        id,
        rest,
    };
    renumbered.to_vec()
}

fn calls_one_of(tools: &[&str], params: Option<&RawValue>) -> bool {
    let params = params.and_then(|params| serde_json::from_str(params.get()).ok());
    params.is_some_and(|Called { name }| tools.contains(&&*name))
}

/// A call with a mark in its `_meta`; `None` if it cannot have one, and is not repeated.
fn marked(call: &[u8], mark: &str) -> Option<Vec<u8>> {
    let mut call: Value = serde_json::from_slice(call).ok()?;
    let params = call.get_mut("params")?.as_object_mut()?;
    let meta = params.entry("_meta").or_insert(Value::Null);
    if meta.is_null() {
        *meta = json!({});
    }
    meta.as_object_mut()?.insert(mark.to_owned(), true.into());
    Some(call.to_string().into_bytes())
}

/// A call that only names an earlier one. Its arguments may be long.
fn without_arguments(call: &[u8]) -> Option<Vec<u8>> {
    let mut call: Value = serde_json::from_slice(call).ok()?;
    call.get_mut("params")?.as_object_mut()?.remove("arguments");
    Some(call.to_string().into_bytes())
}

fn updated(uri: &str) -> Vec<u8> {
    let params = json!({ "uri": uri });
    let updated = json!({ "jsonrpc": "2.0", "method": UPDATED, "params": params });
    updated.to_string().into_bytes()
}

fn cancellation(id: &RequestId) -> Vec<u8> {
    let params = json!({ "requestId": id });
    let cancelled = json!({ "jsonrpc": "2.0", "method": CANCELLED, "params": params });
    cancelled.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &[u8] = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const BEGUN: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}"#;
    const REPEATABLE: Repeatable = Repeatable {
        tools: &["wait"],
        lasting: &["submit"],
        mark: "again",
    };

    #[test]
    fn unanswered_requests_are_lost_with_the_host() {
        let mut conversation = Conversation::default();
        let _ = conversation.from_client(CALL);
        let _ = conversation.from_client(br#"{"id":2,"method":"ping"}"#);
        let _ = conversation.from_client(br#"{"id":3,"method":"ping"}"#);
        assert!(conversation.from_host(br#"{"id":3,"result":{}}"#).is_some());
        // A request of the host has the ID of one of the client's.
        let question = br#"{"id":2,"method":"elicitation/create","params":{}}"#;
        assert!(conversation.from_host(question).is_some());
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
        let _ = conversation.from_client(BEGIN);
        let answer = br#"{"id":0,"result":{}}"#;
        assert!(conversation.from_host(answer).is_some());
        let _ = conversation.from_client(BEGUN);
        assert_eq!(conversation.lost(), []);
        assert_eq!(conversation.introduction(), [BEGIN, BEGUN]);
        assert!(conversation.from_host(answer).is_none());
        // A client may use the ID again.
        assert!(conversation.from_host(answer).is_some());
    }

    #[test]
    fn next_host_gets_the_subscriptions_that_hold() {
        let request = |id: u8, method: &str, uri: &str| {
            let params = json!({ "uri": uri });
            let request = json!({ "id": id, "method": method, "params": params });
            request.to_string().into_bytes()
        };
        let mut conversation = Conversation::default();
        let mut say = |id, method, uri| {
            let message = request(id, method, uri);
            let _ = conversation.from_client(&message);
            let answer = format!(r#"{{"id":{id},"result":{{}}}}"#);
            assert!(conversation.from_host(answer.as_bytes()).is_some());
        };
        say(1, SUBSCRIBE, "a");
        say(2, SUBSCRIBE, "b");
        say(3, UNSUBSCRIBE, "a");
        say(5, SUBSCRIBE, "d");
        // The host has not answered this: its client gets an error, and may subscribe again.
        let _ = conversation.from_client(&request(4, SUBSCRIBE, "c"));
        conversation.lost();
        let expected = [request(2, SUBSCRIBE, "b"), request(5, SUBSCRIBE, "d")];
        assert_eq!(conversation.introduction(), expected);
        // The client is notified, as the resource may have changed between the hosts.
        let told = conversation.from_host(br#"{"id":2,"result":{}}"#).unwrap();
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["method"], UPDATED);
        assert_eq!(told["params"], json!({ "uri": "b" }));
        let refused = br#"{"id":5,"error":{"code":1,"message":"no"}}"#;
        assert_eq!(conversation.from_host(refused), None);
    }

    #[test]
    fn unanswered_introduction_is_answered_by_the_next_host() {
        let mut conversation = Conversation::default();
        let _ = conversation.from_client(BEGIN);
        assert_eq!(conversation.lost(), []);
        assert!(conversation.waits());
        assert_eq!(conversation.introduction(), [BEGIN]);
        assert!(conversation.from_host(br#"{"id":0,"result":{}}"#).is_some());
    }

    #[test]
    fn cancelled_request_needs_no_answer() {
        let mut conversation = Conversation::default();
        let _ = conversation.from_client(CALL);
        let cancel = br#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        let _ = conversation.from_client(cancel);
        assert_eq!(conversation.lost(), []);
    }

    #[test]
    fn client_without_an_introduction_is_not_introduced() {
        let mut conversation = Conversation::default();
        let _ = conversation.from_client(CALL);
        conversation.lost();
        assert!(conversation.introduction().is_empty());
    }

    #[test]
    fn call_that_the_next_host_can_answer_is_repeated() {
        let mut conversation = Conversation::new(REPEATABLE);
        let call = |id: u8, tool: &str| {
            let params = json!({ "name": tool, "_meta": { "progressToken": 7 } });
            let call = json!({ "id": id, "method": "tools/call", "params": params });
            call.to_string().into_bytes()
        };
        for (id, tool) in [(1, "wait"), (2, "other"), (3, "wait")] {
            let _ = conversation.from_client(&call(id, tool));
        }
        assert!(conversation.from_host(br#"{"id":3,"result":{}}"#).is_some());
        let other = (RequestId::Number(2), RequestKind::ToolCall);
        assert_eq!(conversation.lost(), [other]);
        let [again] = &conversation.take_repeatable()[..] else {
            panic!("one call");
        };
        let again: Value = serde_json::from_slice(again).unwrap();
        assert_eq!(again["id"], 1);
        let meta = json!({ "progressToken": 7, "again": true });
        assert_eq!(again["params"]["_meta"], meta);
        assert!(conversation.waits());
        conversation.forget_repeatable();
        let lost = (RequestId::Number(1), RequestKind::ToolCall);
        assert_eq!(conversation.lost(), [lost]);
    }

    #[test]
    fn lost_call_with_a_lasting_effect_is_told_from_others() {
        let mut conversation = Conversation::new(REPEATABLE);
        for (id, tool) in [(1, "submit"), (2, "other")] {
            let call = json!({ "id": id, "method": "tools/call", "params": { "name": tool } });
            let _ = conversation.from_client(call.to_string().as_bytes());
        }
        assert!(conversation.take_repeatable().is_empty());
        let mut lost = conversation.lost();
        lost.sort_by_key(|(id, _)| id.clone());
        let expected = [
            (RequestId::Number(1), RequestKind::LastingCall),
            (RequestId::Number(2), RequestKind::ToolCall),
        ];
        assert_eq!(lost, expected);
    }

    #[test]
    fn next_host_is_told_of_cancelled_calls_again() {
        let mut conversation = Conversation::new(REPEATABLE);
        let last = i64::try_from(CANCELLED_CALLS).unwrap();
        for id in 0..=last {
            let params = json!({ "name": "wait", "arguments": { "prompt": "x" } });
            let call = json!({ "id": id, "method": "tools/call", "params": params });
            let _ = conversation.from_client(call.to_string().as_bytes());
            let _ = conversation.from_client(&cancellation(&RequestId::Number(id)));
        }
        assert_eq!(conversation.lost(), []);
        let told = conversation.take_repeatable();
        assert_eq!(told.len(), 2 * CANCELLED_CALLS);
        let [.., call, cancelled] = told.as_slice() else {
            panic!("a call and its cancellation");
        };
        let call: Value = serde_json::from_slice(call).unwrap();
        let params = json!({ "name": "wait", "_meta": { "again": true } });
        let expected = json!({ "id": last, "method": "tools/call", "params": params });
        assert_eq!(call, expected);
        assert_eq!(*cancelled, cancellation(&RequestId::Number(last)));
        // The host has answered before it has read the cancellation.
        let answer = format!(r#"{{"id":{last},"result":{{}}}}"#);
        assert_eq!(conversation.from_host(answer.as_bytes()), None);
    }

    /// MCP forbids to use an ID again.
    #[test]
    fn later_call_with_the_id_of_a_cancelled_one_is_not_cancelled() {
        let mut conversation = Conversation::new(REPEATABLE);
        let call = br#"{"id":1,"method":"tools/call","params":{"name":"wait"}}"#;
        let _ = conversation.from_client(call);
        let _ = conversation.from_client(&cancellation(&RequestId::Number(1)));
        assert_eq!(conversation.take_repeatable().len(), 2);
        let _ = conversation.from_client(call);
        let answer = br#"{"id":1,"result":{}}"#;
        assert!(conversation.from_host(answer).is_some());
        assert!(conversation.take_repeatable().is_empty());
    }

    #[test]
    fn call_that_cannot_be_marked_is_lost() {
        let mut conversation = Conversation::new(REPEATABLE);
        for call in [
            &br#"{"id":1,"method":"tools/call","params":{"name":"wait","_meta":null}}"#[..],
            br#"{"id":2,"method":"tools/call","params":{"name":"wait","_meta":7}}"#,
            br#"{"id":3,"method":"tools/call","params":["wait"]}"#,
            br#"{"id":4,"method":"tools/call","params":{"name":"wait","n":1e999}}"#,
        ] {
            let _ = conversation.from_client(call);
        }
        assert_eq!(conversation.take_repeatable().len(), 1);
        let mut lost: Vec<RequestId> = conversation.lost().into_iter().map(|(id, _)| id).collect();
        lost.sort();
        assert_eq!(lost, [2, 3, 4].map(RequestId::Number));
    }

    #[test]
    fn answer_to_an_earlier_host_decides_no_question_of_the_next() {
        let mut conversation = Conversation::default();
        let question =
            br#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"a":1}}"#;
        let answer = br#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept"}}"#;
        let sent = conversation.from_host(question).unwrap();
        assert_eq!(*sent, question[..]);
        let cancelled = conversation.host_ended();
        let [cancelled] = cancelled.as_slice() else {
            panic!("{cancelled:?}")
        };
        let cancelled: serde_json::Value = serde_json::from_slice(cancelled).unwrap();
        assert_eq!(cancelled["params"], json!({ "requestId": 0 }));

        let sent = conversation.from_host(question).unwrap();
        let expected =
            br#"{"jsonrpc":"2.0","id":"1/0","method":"elicitation/create","params":{"a":1}}"#;
        assert_eq!(*sent, expected[..]);
        assert_eq!(conversation.from_client(answer), None);
        let own = br#"{"jsonrpc":"2.0","id":"1/0","result":{"action":"decline"}}"#;
        let passed = conversation.from_client(own).unwrap();
        let expected = br#"{"jsonrpc":"2.0","id":0,"result":{"action":"decline"}}"#;
        assert_eq!(*passed, expected[..]);
        let failed = br#"{"jsonrpc":"2.0","id":"1/\"x\"","error":{"code":1,"message":"no"}}"#;
        let passed = conversation.from_client(failed).unwrap();
        let expected = br#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}"#;
        assert_eq!(*passed, expected[..]);
        assert!(conversation.host_ended().is_empty());
    }

    #[test]
    fn host_takes_a_question_back_under_the_id_that_the_client_knows() {
        let mut conversation = Conversation::default();
        conversation.host_ended();
        let question = br#"{"id":0,"method":"elicitation/create","params":{}}"#;
        let _ = conversation.from_host(question);
        let cancel = br#"{"method":"notifications/cancelled","params":{"requestId":0}}"#;
        let cancelled = conversation.from_host(cancel).unwrap();
        let cancelled: serde_json::Value = serde_json::from_slice(&cancelled).unwrap();
        assert_eq!(cancelled["params"]["requestId"], "1/0");
        assert!(conversation.host_ended().is_empty());
    }
}
