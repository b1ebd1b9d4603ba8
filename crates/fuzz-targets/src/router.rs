//! The router of the old backend, against a ledger of requests.
//!
//! Input: a line for each event. `c` begins a message of the client, `s` one of the child, `u` a
//! message of the child that cannot be read, `t` a number of seconds that pass, `f` and `o` fill and
//! empty the queue to the child, `d` ends our own calls, and `q` shuts down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use codex_protocol::rpc::{Message, RequestId, TruncatedMessage};
use mcp_proxy::logic::{
    ChildQueue, Effect, Failure, Router, RouterConfig, RouterTimeouts, replace_part,
};
use serde_json::Value;
use serde_json::value::RawValue;

const TIMEOUTS: RouterTimeouts = RouterTimeouts {
    call: Duration::from_secs(300),
    approval: Duration::from_secs(60),
    request: Duration::from_secs(30),
};

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    for line in data.split(|byte| *byte == b'\n').take(200) {
        if let Some((event, rest)) = line.split_first() {
            world.step(*event, rest);
        }
        world.check();
    }
    world.end();
}

/// The requests of one ID.
#[derive(Debug, Default)]
struct Account {
    sent: u64,
    cancelled: u64,
    answers: u64,
}

struct World {
    router: Router,
    queue: ChildQueue,
    now: Instant,
    accounts: HashMap<RequestId, Account>,
    own: Vec<RequestId>,
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

impl World {
    fn new() -> Self {
        let config = RouterConfig {
            timeouts: TIMEOUTS,
            version: None,
            server_info: Value::Null,
            known_tools: vec![raw(r#"{"name":"codex"}"#), raw(r#"{"name":"codex-reply"}"#)],
            own_tools: vec![("codex_status".to_owned(), raw(r#"{"name":"codex_status"}"#))],
        };
        Self {
            router: Router::new(config),
            queue: ChildQueue::Open,
            now: Instant::now(),
            accounts: HashMap::new(),
            own: Vec::new(),
        }
    }

    fn step(&mut self, event: u8, rest: &[u8]) {
        let effects = match event {
            b'c' => return self.client_sends(rest),
            b's' => return self.child_sends(rest),
            b'u' => TruncatedMessage::guess(rest).map(|head| {
                let why = Failure::Unreadable("not JSON".to_owned());
                self.router.fail_unreadable(&head, why)
            }),
            b't' => Some(self.wait(rest)),
            b'f' => {
                self.queue = ChildQueue::Full;
                None
            }
            b'o' => {
                self.queue = ChildQueue::Open;
                None
            }
            b'd' => {
                self.finish_own();
                None
            }
            b'q' => Some(self.router.shut_down()),
            _ => None,
        };
        self.note(&effects.unwrap_or_default(), Cause::Other);
    }

    fn wait(&mut self, seconds: &[u8]) -> Vec<Effect> {
        let seconds = std::str::from_utf8(seconds).ok();
        let seconds = seconds.and_then(|seconds| seconds.parse::<u16>().ok());
        self.now += Duration::from_secs(seconds.unwrap_or(1).into());
        let effects = self.router.tick(self.now);
        let next = self.router.next_deadline();
        assert!(
            next.is_none_or(|next| next > self.now),
            "a deadline has passed"
        );
        effects
    }

    fn client_sends(&mut self, bytes: &[u8]) {
        let Ok(message) = Message::read(bytes) else {
            return;
        };
        // The proxy lets no other message pass.
        let params = match &message {
            Message::Request { params, .. } | Message::Notification { params, .. } => *params,
            Message::Response { .. } => None,
        };
        if params.is_some_and(|params| codex_protocol::duplicates::check(params.get()).is_err()) {
            return;
        }
        if let Message::Request { id, .. } = &message {
            self.accounts.entry(id.clone()).or_default().sent += 1;
        }
        let effects = self
            .router
            .from_client(bytes, &message, self.queue, self.now);
        self.note(&effects, Cause::Client(bytes));
        if let Some(id) = cancelled(&message)
            && let Some(account) = self.accounts.get_mut(&id)
        {
            // One cancellation ends all that is open under the ID.
            account.cancelled = account.sent - account.answers.min(account.sent);
        }
    }

    fn child_sends(&mut self, bytes: &[u8]) {
        if let Ok(message) = Message::read(bytes) {
            let effects = self.router.from_child(bytes, &message, self.now);
            self.note(&effects, Cause::Child(bytes));
        }
    }

    fn note(&mut self, effects: &[Effect], cause: Cause<'_>) {
        for effect in effects {
            match effect {
                Effect::Answer { id, .. } => self.answered(id),
                Effect::CallOwnTool { id, .. } => self.own.push(id.clone()),
                Effect::ToClient(bytes) => {
                    let message = read(bytes, cause.sent_by_child());
                    if let Message::Response { id, .. } = message {
                        self.answered(&id);
                    }
                }
                Effect::ToChild(bytes) => drop(read(bytes, cause.sent_by_client())),
            }
        }
        drop(self.router.take_notes());
    }

    fn answered(&mut self, id: &RequestId) {
        let account = self.accounts.entry(id.clone()).or_default();
        account.answers += 1;
        assert!(account.answers <= account.sent, "{id}: {account:?}");
    }

    fn finish_own(&mut self) {
        for id in std::mem::take(&mut self.own) {
            if self.router.finish_own_call(&id) {
                self.answered(&id);
            }
        }
    }

    fn check(&self) {
        let counts = self.router.counts();
        assert!(counts.active_threads <= self.accounts.len());
        assert!(counts.in_flight as u64 <= counts.calls);
        let open: u64 = self
            .accounts
            .values()
            .map(|account| account.sent - account.answers)
            .sum();
        assert!(counts.in_flight as u64 <= open, "{counts:?}, {open} open");
    }

    /// At the end, every request has its answer, unless it was cancelled.
    fn end(mut self) {
        self.finish_own();
        let effects = self.router.child_gone("exited with code 0");
        self.note(&effects, Cause::Other);
        for (id, account) in &self.accounts {
            let due = account.sent - account.cancelled;
            assert!(account.answers >= due, "{id}: {account:?}");
        }
        assert_eq!(self.router.next_deadline(), None);
        let counts = self.router.counts();
        assert_eq!((counts.in_flight, counts.questions), (0, 0));
    }
}

/// What has caused effects: a message, or something else.
#[derive(Clone, Copy)]
enum Cause<'a> {
    Client(&'a [u8]),
    Child(&'a [u8]),
    Other,
}

impl<'a> Cause<'a> {
    fn sent_by_client(self) -> Option<&'a [u8]> {
        match self {
            Self::Client(bytes) => Some(bytes),
            Self::Child(_) | Self::Other => None,
        }
    }

    fn sent_by_child(self) -> Option<&'a [u8]> {
        match self {
            Self::Child(bytes) => Some(bytes),
            Self::Client(_) | Self::Other => None,
        }
    }
}

/// The ID of the request that a notification cancels.
fn cancelled(message: &Message<'_>) -> Option<RequestId> {
    let Message::Notification { method, params } = message else {
        return None;
    };
    let params = params.filter(|_| method == "notifications/cancelled")?;
    let params: Value = serde_json::from_str(params.get()).ok()?;
    serde_json::from_value(params.get("requestId")?.clone()).ok()
}

/// A message that is sent can be read. What is not ours is what came from the other side, perhaps
/// under another ID.
fn read<'a>(bytes: &'a [u8], came: Option<&[u8]>) -> Message<'a> {
    let message = Message::read(bytes);
    let message = message.unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()));
    if let (Message::Response { id, .. }, Some(came)) = (&message, came)
        && let Ok(Message::Response { id: before, .. }) = Message::read(came)
        && id != &before
        && let Ok(text) = std::str::from_utf8(came)
    {
        let json = serde_json::to_string(&before).unwrap();
        if let (1, Some(at)) = (text.matches(&json).count(), text.find(&json)) {
            let part = &text[at..at + json.len()];
            let new = serde_json::to_string(id).unwrap();
            assert_eq!(replace_part(came, part, &new).as_deref(), Some(bytes));
        }
    }
    message
}
