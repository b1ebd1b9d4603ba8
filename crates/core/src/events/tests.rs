use std::time::Duration;

use codex_mcp_protocol::codex::DeltaSource;
use serde_json::{Map, Value, json};

use super::*;

mod model;
mod steps;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else {
        panic!("an object");
    };
    object
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
            EventData::Growing(growing) => Some((growing.item_id.clone(), growing.text.clone())),
            EventData::Fixed(_) => None,
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

fn bounded(max_bytes: u64) -> Poll {
    Poll {
        options: PollOptions {
            max_bytes: Some(max_bytes),
            ..PollOptions::default()
        },
        ..full(10)
    }
}

fn size(shown: &Shown) -> usize {
    serde_json::to_string(shown).unwrap().len()
}

#[test]
fn beyond_the_soft_limit_the_oldest_of_passing_interest_goes() {
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
fn between_the_limits_what_matters_stays_and_what_passes_goes_at_once() {
    let kept = many(SOFT.events, &fixed(EventType::Error, json!({})));
    let mut log = log(kept);
    log.push(at(0), progress());
    assert_eq!(log.next_id(), 1001);
    assert_eq!(ids(&log), (0..1000).collect::<Vec<_>>());
    // Who goes on from 1000 is told that there was something.
    assert_eq!(log.page(1000, 1).reset_to, Some(1001));
    assert!(!log.has_news(1000));
}

#[test]
fn beyond_the_hard_limit_answered_questions_go_before_open_ones() {
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
fn bytes_count_too() {
    let long = text("i", &"😀".repeat(GROWTH_LIMIT));
    let events = SOFT.bytes / long.size();
    let mut log = log(many(events, &long));
    assert_eq!(everything(&log).len(), events);
    log.push(at(0), long);
    assert_eq!(everything(&log).len(), events);
    assert_eq!(log.page(0, 1).reset_to, Some(1));
}

#[test]
fn texts_that_come_in_turn_grow_side_by_side() {
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
fn a_text_of_another_kind_or_turn_is_another_text() {
    let reasoning = EventData::text(DeltaSource::Reasoning, "turn-1", "a", "2");
    let later = EventData::text(DeltaSource::AgentMessage, "turn-2", "a", "3");
    let log = log([text("a", "1"), reasoning, later]);
    assert_eq!(ids(&log), [0, 1, 2]);
}

#[test]
fn what_was_shown_does_not_change() {
    let mut log = log([text("a", "1"), text("b", "2")]);
    let shown = log.look(&full(1), Vec::new(), None);
    assert_eq!(shown.next_cursor, 1);
    log.push(at(0), text("a", "3"));
    log.push(at(0), text("b", "4"));
    let texts: Vec<String> = texts(&log).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["1", "24", "3"]);
}

#[test]
fn a_look_goes_on_where_the_last_one_ended() {
    let mut log = log(many(3, &progress()));
    let mut looks = Vec::new();
    for _ in 0..3 {
        let shown = log.look(&full(2), Vec::new(), None);
        looks.push((shown.events.len(), shown.next_cursor));
    }
    assert_eq!(looks, [(2, 2), (1, 3), (0, 3)]);
    let again = Poll {
        cursor: Some(0),
        ..full(10)
    };
    assert_eq!(log.look(&again, Vec::new(), None).events.len(), 3);
    assert_eq!(log.read_to(), 3);
}

#[test]
fn holes_are_told() {
    let result = fixed(EventType::Result, json!({}));
    let events = [
        result.clone(),
        progress(),
        result.clone(),
        progress(),
        result,
    ];
    let mut log = log(events);
    log.forget(|data| data.kind() == EventType::Result);
    let shown = log.look(&full(10), Vec::new(), None);
    assert_eq!(shown.cursor_reset_to, Some(1));
    assert_eq!((shown.events.len(), shown.dropped), (2, 1));
    // The last one is gone too, which the next look tells.
    assert_eq!(shown.next_cursor, 4);
    let shown = log.look(&full(10), Vec::new(), None);
    assert_eq!((shown.cursor_reset_to, shown.next_cursor), (Some(5), 5));
    assert_eq!(log.look(&full(10), Vec::new(), None).cursor_reset_to, None);
}

#[test]
fn a_look_that_wants_no_events_marks_none_as_read() {
    let mut log = log(many(3, &progress()));
    log.forget(|_| true);
    log.push(at(0), progress());
    let mut without = full(10);
    without.options.include_events = false;
    for poll in [full(0), without] {
        let shown = log.look(&poll, Vec::new(), None);
        let expected = Shown::default();
        assert_eq!(shown, expected);
    }
    assert_eq!(
        log.look(&full(10), Vec::new(), None).cursor_reset_to,
        Some(3)
    );
}

#[test]
fn events_go_before_the_result() {
    let mut log = log(many(20, &progress()));
    let result = json!({"status": "completed", "output": "x".repeat(500)});
    let shown = log.look(&bounded(1200), Vec::new(), Some(result.clone()));
    assert_eq!(shown.result, Some(result));
    assert!((1..10).contains(&shown.events.len()));
    assert_eq!(shown.next_cursor, shown.events.len() as u64);
    assert!(shown.truncated);
    assert_eq!(shown.truncated_fields, ["events"]);
    assert!(size(&shown) <= 1200);
}

#[test]
fn a_result_goes_before_the_last_event_and_comes_whole_without() {
    let mut log = log([progress()]);
    let result = json!({"status": "completed", "output": "x".repeat(1500)});
    let shown = log.look(&bounded(1600), Vec::new(), Some(result.clone()));
    assert_eq!((shown.events.len(), shown.result), (1, None));
    assert_eq!(shown.truncated_fields, ["result"]);
    let shown = log.look(&bounded(1800), Vec::new(), Some(result.clone()));
    assert_eq!(shown.result, Some(result));
    assert!(!shown.truncated);
}

#[test]
fn the_final_message_is_the_last_of_a_result_to_be_cut() {
    let mut log = log([]);
    let output = "ß".repeat(700);
    let result = json!({
        "status": "completed", "output": output, "turn": {"id": "t", "items": [1, 2, 3]},
        "diff": "d".repeat(5000), "changedFiles": [{"path": "p".repeat(200), "kind": "add"}],
    });
    let shown = log.look(&bounded(2100), Vec::new(), Some(result.clone()));
    assert_eq!(
        shown.result,
        Some(json!({"status": "completed", "output": output,
            "changedFiles": [{"path": "p".repeat(200), "kind": "add"}]}))
    );
    assert_eq!(shown.truncated_fields, ["result.turn", "result.diff"]);

    let shown = log.look(&bounded(900), Vec::new(), Some(result));
    let fields = [
        "result.turn",
        "result.diff",
        "result.changedFiles",
        "result.output",
    ];
    assert_eq!(shown.truncated_fields, fields);
    let cut = shown.result.as_ref().unwrap()["output"].as_str().unwrap();
    assert!(cut.ends_with("ß…") && cut.len() > 300, "{cut}");
    assert!(size(&shown) <= 900);
}

#[test]
fn an_event_that_does_not_fit_is_cut_and_counts_as_shown() {
    for data in [
        text("item", &"\u{1}ß\"".repeat(5000)),
        fixed(
            EventType::ApprovalRequest,
            json!({"command": "x".repeat(9000), "requestId": "r"}),
        ),
        fixed(
            EventType::Progress,
            json!({"method": "m", "n": (0..5000).collect::<Vec<_>>()}),
        ),
    ] {
        for limit in [0, 1, 640, 2000] {
            let mut log = log([data.clone(), progress()]);
            let shown = log.look(&bounded(limit), Vec::new(), None);
            assert_eq!((shown.events.len(), shown.next_cursor), (1, 1));
            assert_eq!(shown.truncated_fields, ["events"]);
            assert!(size(&shown) <= FLOOR.max(2000));
            assert!(limit > 640 || size(&shown) <= FLOOR, "{shown:?}");
        }
    }
}

#[test]
fn questions_are_shown_by_name_where_there_is_no_room_for_more() {
    let action = |id: &str, command: &str| {
        json!({"type": "approval", "requestId": id, "kind": "command", "command": command,
            "params": {"command": command}})
    };
    let long = "x".repeat(1000);
    let mut log = log([progress()]);
    let actions = vec![action("req_1", &long), action("req_2", "ls")];
    let shown = log.look(&bounded(1000), actions, None);
    let name = |id: &str| json!({"type": "approval", "requestId": id, "kind": "command"});
    assert_eq!(shown.actions, [name("req_1"), name("req_2")]);
    assert_eq!(shown.events.len(), 1);
    assert_eq!(shown.truncated_fields, ["actions"]);
}

#[test]
fn the_first_questions_are_shown_where_there_is_no_room_for_all() {
    let name = |number: usize| json!({"type": "approval", "requestId": format!("req_{number}"), "kind": "command"});
    let mut log = log([progress()]);
    let actions: Vec<Value> = (0..50).map(name).collect();
    let shown = log.look(&bounded(1000), actions.clone(), None);
    assert!((5..50).contains(&shown.actions.len()));
    assert!(actions.starts_with(&shown.actions));
    assert_eq!((shown.events.len(), shown.next_cursor), (1, 1));
    assert!(
        shown
            .truncated_fields
            .iter()
            .any(|field| field == "actions")
    );
    assert!(size(&shown) <= 1000);
}
