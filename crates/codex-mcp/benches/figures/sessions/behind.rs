//! A look into a session of which 1,000 events have not been read: the usual one
//! that takes one event, and one that takes them all.

use scripted_model::Reply;
use serde_json::{Value, json};

use super::Poller;
use crate::stage::{Stage, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const EVENTS: usize = 1000;

/// Each message begins, is written and ends: three events.
const MESSAGES: usize = EVENTS / 3 + 1;

/// In seconds.
const TARGET: f64 = 1e-3;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let messages = (1..MESSAGES).fold(Reply::say("word"), |all, _| all.then(Reply::say("word")));
    let stage = Stage::with_answer(messages);
    let mut poller = stage.poller().await;
    let session = poller.start().await;
    poller.wait(&session).await;
    let last = poller
        .poll(&session, json!({"cursor": 0, "maxEvents": 2000}))
        .await;
    let end = last["nextCursor"].as_u64().unwrap();
    let behind = end - EVENTS as u64;

    let mut rows = Vec::new();
    for (figure, most) in [
        ("a poll, 1,000 events behind, that takes one", 1),
        ("a poll, 1,000 events behind, that takes all", EVENTS),
    ] {
        let more = json!({"cursor": behind, "maxEvents": most,
            "pollOptions": {"includeResult": false}});
        let mut measured = Vec::new();
        for _ in 0..rounds {
            measured.push(seconds(look(&mut poller, &session, &more, most)).await);
        }
        rows.push(Row {
            figure,
            unit: Unit::Seconds,
            ours: Summary::of(measured),
            direct: None,
            target: Target::AtMost(TARGET),
            notes: Vec::new(),
        });
    }
    poller.finish().await;
    rows
}

async fn look(poller: &mut Poller, session: &str, more: &Value, most: usize) {
    let look = poller.poll(session, more.clone()).await;
    assert_eq!(look["events"].as_array().unwrap().len(), most);
}
