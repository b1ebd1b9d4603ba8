use std::time::Duration;

use codex_protocol::codex::DeltaSource;
use serde_json::{Map, Value, json};

use super::*;

mod fitting;
mod model;
mod steps;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn object(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn fixed(kind: EventType, data: Value) -> EventData {
    EventData::new(kind, object(data))
}

fn text(item: &str, text: &str) -> EventData {
    EventData::text(DeltaSource::AgentMessage, "turn-1", item, text)
}

fn progress() -> EventData {
    fixed(EventType::Progress, json!({"method": "m"}))
}

fn request(id: &str) -> EventData {
    fixed(EventType::ApprovalRequest, json!({ "requestId": id }))
}

fn log(events: impl IntoIterator<Item = EventData>) -> EventLog {
    let mut log = EventLog::default();
    events.into_iter().for_each(|data| log.push(at(0), data));
    log
}

fn many(count: usize, data: &EventData) -> impl Iterator<Item = EventData> + use<> {
    std::iter::repeat_n(data.clone(), count)
}

fn everything(log: &EventLog) -> Vec<&Event> {
    log.page(0, usize::MAX).events
}

fn ids(log: &EventLog) -> Vec<u64> {
    everything(log).iter().map(|event| event.id).collect()
}

fn texts(log: &EventLog) -> Vec<(String, String)> {
    let texts = everything(log)
        .into_iter()
        .filter_map(|event| match &event.data {
            EventData::TextChunk(growing) => Some((growing.item_id.clone(), growing.text.clone())),
            EventData::FixedData(_) => None,
        });
    texts.collect()
}

fn full(max_events: usize) -> Poll {
    Poll {
        max_events,
        mode: ResponseMode::Full,
        ..Poll::default()
    }
}

fn size(shown: &PollContent) -> usize {
    serde_json::to_string(shown).unwrap().len()
}

#[test]
fn oldest_transient_event_is_evicted_beyond_the_soft_limit() {
    let result = fixed(EventType::Result, json!({}));
    let mut log = log([result, request("r"), progress(), progress()]);
    log.push(at(0), fixed(EventType::ApprovalResult, json!({})));
    let rest = SOFT.events - everything(&log).len();
    many(rest, &progress()).for_each(|data| log.push(at(0), data));
    assert_eq!(ids(&log), (0..1000).collect::<Vec<_>>());

    log.push(at(0), progress());
    log.push(at(0), fixed(EventType::Error, json!({})));
    let kept: Vec<u64> = [0, 1, 4].into_iter().chain(5..1002).collect();
    assert_eq!(ids(&log), kept);
}

#[test]
fn transient_event_is_evicted_at_once_between_the_limits() {
    let kept = many(SOFT.events, &fixed(EventType::Error, json!({})));
    let mut log = log(kept);
    log.push(at(0), progress());
    assert_eq!(log.next_id(), 1001);
    assert_eq!(ids(&log), (0..1000).collect::<Vec<_>>());
    // A reader that continues from 1000 learns that an event is gone.
    assert_eq!(log.page(1000, 1).reset_to, Some(1001));
    assert!(!log.has_news(1000));
}

#[test]
fn settled_questions_are_evicted_before_open_ones_beyond_the_hard_limit() {
    let answer = fixed(EventType::ApprovalResult, json!({}));
    let start = [request("open"), request("answered"), answer];
    let mut log = log(start);
    log.settle("answered");
    let error = fixed(EventType::Error, json!({}));
    many(HARD.events - 3, &error).for_each(|data| log.push(at(0), data));
    assert_eq!(ids(&log), (0..2000).collect::<Vec<_>>());

    let mut firsts = Vec::new();
    for _ in 0..3 {
        log.push(at(0), error.clone());
        assert_eq!(everything(&log).len(), HARD.events);
        let first: Vec<u64> = ids(&log).into_iter().take(2).collect();
        firsts.push(first);
    }
    assert_eq!(firsts, [vec![0, 2], vec![0, 3], vec![3, 4]]);
}

#[test]
fn event_bytes_count_against_the_soft_limit() {
    let long = text("i", &"😀".repeat(GROWTH_LIMIT));
    let events = SOFT.bytes / long.size();
    let mut log = log(many(events, &long));
    assert_eq!(everything(&log).len(), events);
    log.push(at(0), long);
    assert_eq!(everything(&log).len(), events);
    assert_eq!(log.page(0, 1).reset_to, Some(1));
}

#[test]
fn interleaved_texts_grow_side_by_side() {
    let mut log = log([text("a", "1"), text("b", "2"), text("a", "3")]);
    let pair = |item: &str, text: &str| (item.to_owned(), text.to_owned());
    assert_eq!(texts(&log), [pair("a", "13"), pair("b", "2")]);

    log.push(at(0), progress());
    log.push(at(0), text("a", "4"));
    assert_eq!(
        texts(&log),
        [pair("a", "13"), pair("b", "2"), pair("a", "4")],
        "what Codex said in between stays in between"
    );
}

#[test]
fn only_the_last_few_texts_still_grow() {
    let name = |number: usize| format!("item-{number}");
    let mut log = log((0..=GROWTH_REACH).map(|number| text(&name(number), "1")));
    log.push(at(0), text(&name(1), "2"));
    log.push(at(0), text(&name(0), "2"));
    let texts = texts(&log);
    assert_eq!(texts.len(), GROWTH_REACH + 2);
    assert_eq!(texts.get(1).unwrap().1, "12");
    assert_eq!(texts.first().unwrap().1, "1");
}

#[test]
fn empty_text_adds_no_event() {
    let mut log = log([text("a", "")]);
    assert_eq!((log.next_id(), log.bytes), (0, 0));
    log.push(at(0), text("a", "1"));
    log.push(at(0), text("a", ""));
    log.push(at(0), text("b", ""));
    assert_eq!(texts(&log), [("a".to_owned(), "1".to_owned())]);
    assert_eq!(log.next_id(), 1);
}

#[test]
fn long_text_is_split_into_events_in_order() {
    let mut log = log([text("a", "0")]);
    let long: String = ('a'..='z').cycle().take(2 * GROWTH_LIMIT + 7).collect();
    log.push(at(0), text("a", &long));
    let texts: Vec<String> = texts(&log).into_iter().map(|(_, text)| text).collect();
    let lengths: Vec<usize> = texts.iter().map(String::len).collect();
    assert_eq!(lengths, [GROWTH_LIMIT, GROWTH_LIMIT, 8]);
    assert!(texts.concat() == format!("0{long}"));
}

/// Each event is created once, and evicted only in its turn.
#[test]
fn text_of_sixteen_mebibytes_is_split_into_a_thousand_events() {
    const LENGTH: usize = 16 << 20;
    const EVENTS: u64 = 1024;
    let line = |number: usize| format!("{number:015}\n");
    let long: String = (0..LENGTH / 16).map(line).collect();
    let log = log([text("a", &long)]);
    assert_eq!(log.next_id(), EVENTS);
    let kept = texts(&log);
    assert!(kept.iter().all(|(_, text)| text.len() == GROWTH_LIMIT));
    let kept: Vec<String> = kept.into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        kept.len(),
        SOFT.bytes / text("a", kept.first().unwrap()).size()
    );
    assert!(long.ends_with(&kept.concat()));
    let first = EVENTS - kept.len() as u64;
    assert_eq!(ids(&log), (first..EVENTS).collect::<Vec<_>>());
}

#[test]
fn text_of_another_source_or_turn_starts_another_event() {
    let reasoning = EventData::text(DeltaSource::Reasoning, "turn-1", "a", "2");
    let later = EventData::text(DeltaSource::AgentMessage, "turn-2", "a", "3");
    let log = log([text("a", "1"), reasoning, later]);
    assert_eq!(ids(&log), [0, 1, 2]);
}

#[test]
fn event_that_was_read_does_not_change() {
    let mut log = log([text("a", "1"), text("b", "2")]);
    let shown = log.read(&full(1), Vec::new(), None);
    assert_eq!(shown.next_cursor, 1);
    log.push(at(0), text("a", "3"));
    log.push(at(0), text("b", "4"));
    let texts: Vec<String> = texts(&log).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["1", "24", "3"]);
}

#[test]
fn poll_continues_where_the_last_one_ended() {
    let mut log = log(many(3, &progress()));
    let mut looks = Vec::new();
    for _ in 0..3 {
        let shown = log.read(&full(2), Vec::new(), None);
        looks.push((shown.events.len(), shown.next_cursor));
    }
    assert_eq!(looks, [(2, 2), (1, 3), (0, 3)]);
    let again = Poll {
        cursor: Some(0),
        ..full(10)
    };
    assert_eq!(log.read(&again, Vec::new(), None).events.len(), 3);
    assert_eq!(log.read_to(), 3);
}

#[test]
fn dropped_events_are_reported() {
    let result = fixed(EventType::Result, json!({}));
    let events = [
        result.clone(),
        progress(),
        result.clone(),
        progress(),
        result,
    ];
    let mut log = log(events);
    log.forget(|event| event.data.kind() == EventType::Result);
    let shown = log.read(&full(10), Vec::new(), None);
    assert_eq!(shown.cursor_reset_to, Some(1));
    assert_eq!((shown.events.len(), shown.dropped), (2, 1));
    // The last one is gone too, which the next poll reports.
    assert_eq!(shown.next_cursor, 4);
    let shown = log.read(&full(10), Vec::new(), None);
    assert_eq!((shown.cursor_reset_to, shown.next_cursor), (Some(5), 5));
    assert_eq!(log.read(&full(10), Vec::new(), None).cursor_reset_to, None);
}

#[test]
fn poll_without_events_marks_none_as_read() {
    let mut log = log(many(3, &progress()));
    log.forget(|_| true);
    log.push(at(0), progress());
    let mut without = full(10);
    without.options.include_events = false;
    for poll in [full(0), without] {
        let shown = log.read(&poll, Vec::new(), None);
        let expected = PollContent::default();
        assert_eq!(shown, expected);
    }
    assert_eq!(
        log.read(&full(10), Vec::new(), None).cursor_reset_to,
        Some(3)
    );
}
