//! A job with many events: each is stored once and in order.

use std::fs;

use job_queue::logic::JobState;
use job_queue::store::StoredEvent;
use serde_json::Value;

use super::{WorkerFixture, all_events, wait_until};

/// Together below the limit of the write queue, so that no event may be dropped however slow the
/// store is.
const EVENTS: usize = 10_000;

#[tokio::test]
async fn many_events_at_once_are_all_stored() {
    let stage = WorkerFixture::sqlite();
    let store = stage.open().await;
    let event = |number| {
        let words = "word ".repeat(60);
        format!("{{\"type\":\"new\",\"number\":{number},\"words\":\"{words}\"}}\n")
    };
    let said: String = (0..EVENTS).map(event).collect();
    fs::write(stage.file("events"), said).unwrap();
    let worker = stage.worker(&[]);

    let id = stage.submit(&store, "cat events").await;
    wait_until(&store, &id, JobState::Completed).await;

    let events = all_events(&store, &id).await;
    let numbers: Vec<u32> = events.iter().map(|event| event.sequence).collect();
    let last = numbers.len().try_into().unwrap();
    assert_eq!(numbers, (1..=last).collect::<Vec<u32>>());
    let kinds =
        |of: &[StoredEvent]| -> Vec<String> { of.iter().map(|event| event.kind.clone()).collect() };
    let (begin, rest) = events.split_at(2);
    let (new, end) = rest.split_at(EVENTS);
    assert_eq!(kinds(begin), ["thread.started", "turn.started"]);
    assert_eq!(kinds(end), ["item.completed", "turn.completed"]);
    let number = |event: &StoredEvent| {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        data["item"]["number"].as_u64().unwrap()
    };
    let stored: Vec<u64> = new.iter().map(number).collect();
    assert!(stored.into_iter().eq(0..EVENTS as u64), "the order differs");
    worker.finish().await;
}
