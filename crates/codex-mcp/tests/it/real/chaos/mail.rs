//! Mail of a member whose server and host are killed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::Load;
use crate::real::CodexFixture;
use crate::real::kill_storm::{Server, Style};
use crate::real::team::{inbox, make_team};

/// The options of the member's servers.
const MEMBER: [&str; 4] = ["--identity", "member", "--team", "builders"];

/// The pause between two messages: short, so that a kill often hits one.
const PAUSE: Duration = Duration::from_millis(200);

/// A message to `lead`.
pub(super) struct Message {
    text: String,
    /// Whether the server has said that it was sent.
    is_acknowledged: bool,
}

/// Makes the team, before anything is killed.
pub(super) fn prepare(stage: &CodexFixture) {
    make_team(stage, &["lead"]);
}

/// Sends messages until the storm is over; returns all, also those whose sending has failed.
pub(super) async fn send(load: Load) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut server = None;
    while load.is_running() {
        let mut current = match server.take() {
            Some(server) => server,
            None => match Server::start_with(&load.stage, Style::Plain, &MEMBER).await {
                Some(server) => server,
                None => continue,
            },
        };
        let number = load.numbers.fetch_add(1, Ordering::Relaxed);
        let text = format!("message {number}");
        let arguments = json!({ "to": "lead", "message": text });
        let call = json!({ "name": "atm_send", "arguments": arguments });
        let answer = current.call("tools/call", call).await;
        let is_acknowledged = answer.as_ref().is_some_and(|answer| {
            let result = &answer["result"];
            result["isError"] != true && result["structuredContent"]["to"].is_string()
        });
        messages.push(Message {
            text,
            is_acknowledged,
        });
        // Without an answer, the server was killed.
        server = answer.map(|_| current);
        sleep(PAUSE).await;
    }
    if let Some(server) = server {
        server.finish().await;
    }
    messages
}

/// Checks that each acknowledged message is in the inbox once, and each other one at most once; returns
/// how many were acknowledged.
pub(super) fn check(stage: &CodexFixture, messages: &[Message]) -> usize {
    let stored = inbox(stage, "lead");
    for Message {
        text,
        is_acknowledged,
    } in messages
    {
        let found = stored.iter().filter(|one| one["text"] == **text).count();
        let is_kept = found == 1 || found == 0 && !is_acknowledged;
        assert!(
            is_kept,
            "{text} is there {found} times, acknowledged: {is_acknowledged}"
        );
    }
    messages.iter().filter(|one| one.is_acknowledged).count()
}
