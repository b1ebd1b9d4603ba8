//! A look into a session of which 1,000 events have not been read: the usual one,
//! which takes one event. Beside it one that takes them all, which is half a
//! megabyte to be written twice and read by the client.

use scripted_model::Reply;
use serde_json::json;

use super::Poller;
use crate::fixture::{Fixture, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const EVENTS: usize = 1000;

/// Each message begins, is written and ends: three events.
const MESSAGES: usize = EVENTS / 3 + 1;

/// In seconds.
const TARGET: f64 = 1e-3;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let messages = (1..MESSAGES).fold(Reply::say("word"), |all, _| all.then(Reply::say("word")));
    let fixture = Fixture::with_answer(messages);
    let mut poller = fixture.poller().await;
    let session = poller.start().await;
    poller.wait(&session).await;
    let last = poller
        .poll(&session, json!({"cursor": 0, "maxEvents": 2000}))
        .await;
    let end = last["nextCursor"].as_u64().unwrap();
    let behind = end - EVENTS as u64;

    // One after the other: half a megabyte empties the caches of both sides.
    let mut one = Vec::new();
    for _ in 0..rounds {
        one.push(seconds(look(&mut poller, &session, behind, 1)).await);
    }
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push(seconds(look(&mut poller, &session, behind, EVENTS)).await);
    }
    poller.finish().await;
    let all = Summary::of(all);
    vec![Row {
        figure: "a poll, 1,000 events behind",
        unit: Unit::Seconds,
        ours: Summary::of(one),
        direct: None,
        target: Target::AtMost(TARGET),
        notes: vec![format!(
            "and {} for one that takes all of them at once",
            Unit::Seconds.show(all.median)
        )],
    }]
}

async fn look(poller: &mut Poller, session: &str, behind: u64, most: usize) {
    let more = json!({"cursor": behind, "maxEvents": most,
        "pollOptions": {"includeResult": false}});
    let look = poller.poll(session, more).await;
    assert_eq!(look["events"].as_array().unwrap().len(), most);
}
