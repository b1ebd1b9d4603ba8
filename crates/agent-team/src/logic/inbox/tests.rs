use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn inbox(text: &str) -> Inbox<'_> {
    Inbox::parse(text.as_bytes()).unwrap()
}

fn new(text: &str) -> NewMessage {
    let id = format!("id-{text}");
    let from = "codex".parse().unwrap();
    NewMessage::new(from, text.to_owned(), SystemTime::UNIX_EPOCH, id)
}

fn all() -> ReadLimits {
    ReadLimits {
        max_messages: usize::MAX,
        max_length: usize::MAX,
    }
}

fn texts(batch: &UnreadBatch) -> Vec<&str> {
    let messages = batch.messages.iter();
    messages.map(|envelope| envelope.message.as_str()).collect()
}

fn mark_all(text: &str, batch: &UnreadBatch) -> MarkedInbox {
    inbox(text).mark(batch.marks.iter().map(|(_, mark)| mark))
}

#[test]
fn message_has_the_format_of_atm() {
    let text = inbox("").append(&new("hi").summary(Some("greeting".into())));
    assert_eq!(
        text,
        "[\n  {\"from\":\"codex\",\"text\":\"hi\",\"timestamp\":\
         \"1970-01-01T00:00:00.000000000+00:00\",\"read\":false,\
         \"summary\":\"greeting\",\"message_id\":\"id-hi\"}\n]"
    );
    let team = Some("others".parse().unwrap());
    let text = inbox("[ ]").append(&new("hi").source_team(team));
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read[0]["source_team"], "others");
    assert!(inbox(&text).contains(&new("hi")));
    assert!(!inbox(&text).contains(&new("ho")));
}

#[test]
fn first_lines_are_those_of_short_unread_messages() {
    let long = "x".repeat(101);
    let inbox_text = json!([
        {"from": "a", "text": "\n \t\n  one line \r\nmore", "source_team": "others"},
        {"from": "a", "text": "read", "read": true},
        {"from": "a", "text": format!("{long}\nshort")},
        {"from": "a", "text": " \n"},
        {"from": "b", "content": &long[..100]},
        {"from": "b", "text": "same"},
        {"from": "b", "text": "same"},
    ])
    .to_string();
    let lines = first_lines(&[inbox(&inbox_text)]);
    let found: Vec<_> = lines
        .iter()
        .map(|(line, _)| (line.from.as_str(), line.line.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("a", "one line"),
            ("b", &long[..100]),
            ("b", "same"),
            ("b", "same")
        ]
    );
    assert_eq!(lines[0].0.source_team.as_deref(), Some("others"));
    assert_eq!(lines[1].0.source_team, None);
    // A message is found again by its key.
    assert_ne!(lines[0].0.key, lines[1].0.key);
    assert_eq!(first_lines(&[inbox(&inbox_text)])[0].0, lines[0].0);
    // The marks are those of the message, and of no other.
    let marks = lines[0].1.iter().map(|(_, mark)| mark);
    let marked = inbox(&inbox_text).mark(marks);
    assert_eq!(marked.count, 1);
    let left = first_lines(&[inbox(&marked.text.unwrap())]).len();
    assert_eq!(left, lines.len() - 1);
}

#[test]
fn inbox_of_too_many_values_is_refused() {
    let long = format!("[{}0]", "0,".repeat(MOST_VALUES));
    let refused = Inbox::parse(long.as_bytes()).unwrap_err();
    assert!(matches!(refused, BadInbox::TooManyValues), "{refused}");
}

#[test]
fn empty_file_is_an_empty_inbox_and_non_arrays_are_refused() {
    for text in ["", " \n", "[]", "[ ]"] {
        assert_eq!(oldest_unread(&[inbox(text)], all()).messages, []);
    }
    for bad in ["{}", "null", "[", "[1,]", "[] []", "\u{feff}[]", "0"] {
        assert!(Inbox::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(Inbox::parse(b"[\"\xff\"]").is_err());
}

/// Mail of Claude Code, newer files, members of other programs, and elements that are not messages.
const MIXED: &str = r#"[ 7, {"from":"lead","text":"{\"a\":1}","timestamp":"2026-02-18T12:00:00.000Z","read":false,"color":"blue"},
 {"content":"new form","from":"b","x":[1,{"read":false}], "text":null},"text",
 {"from":"c","text":"seen","read":true}, {"from":1,"text":"odd"},{"from":"d"},null,
 {"read" : null,"from":"e\u00e9","text":"\ud800half","message_id":"9"} ]"#;

#[test]
fn known_messages_are_read_and_unknown_elements_are_kept() {
    let batch = oldest_unread(&[inbox(MIXED)], all());
    assert_eq!(
        texts(&batch),
        ["{\"a\":1}", "new form", "\u{fffd}\u{fffd}\u{fffd}half"]
    );
    assert_eq!(batch.messages[2].from, "eé");
    assert_eq!(
        batch.messages[0].timestamp.as_deref(),
        Some("2026-02-18T12:00:00.000Z")
    );

    let marked = mark_all(MIXED, &batch);
    assert_eq!(marked.count, 3);
    let expected = MIXED
        .replace(r#""read":false,"color""#, r#""read":true,"color""#)
        .replace(r#""text":null}"#, "\"text\":null,\n\"read\": true\n}")
        .replace(r#""read" : null"#, r#""read" : true"#);
    let text = marked.text.unwrap();
    assert_eq!(text, expected);
    assert_eq!(oldest_unread(&[inbox(&text)], all()).messages, []);
    assert_eq!(mark_all(&text, &batch).text, None);
    assert_eq!(
        inbox(&text)
            .append(&new("more"))
            .split("\n  {\"from\":\"codex\"")
            .next()
            .unwrap(),
        format!("{},", expected.strip_suffix(" ]").unwrap())
    );
}

#[test]
fn messages_are_cut_between_characters_and_state_their_length() {
    let text = json!([{"from": "a", "text": "äöü😀xyz"}]).to_string();
    let cut = |max_length| {
        let limits = ReadLimits {
            max_length,
            ..all()
        };
        oldest_unread(&[inbox(&text)], limits).messages.remove(0)
    };
    assert_eq!(cut(4).message, "äöü😀\n[… cut here: 4 of 7 characters]");
    assert_eq!(cut(4).truncated_from, Some(7));
    assert_eq!(cut(0).message, "\n[… cut here: 0 of 7 characters]");
    assert_eq!(cut(7).message, "äöü😀xyz");
    assert_eq!(cut(7).truncated_from, None);
}

/// Other programs write members of any length.
#[test]
fn long_members_are_cut_and_their_messages_are_marked() {
    let message = |salt: &str| {
        let long = format!("{salt}{}", "\u{1}ä".repeat(9000));
        json!({ "from": long, "text": "t", "timestamp": long, "message_id": long, "summary": long })
    };
    // Two messages differ only behind the cut.
    let mut twin = message("a");
    twin["message_id"] = json!(format!("{}b", twin["message_id"].as_str().unwrap()));
    let text = json!([message("a"), twin, message("b")]).to_string();
    let limits = ReadLimits {
        max_messages: 2,
        ..all()
    };
    let batch = oldest_unread(&[inbox(&text)], limits);
    let Envelope {
        from,
        timestamp,
        message_id,
        summary,
        ..
    } = batch.messages[0].clone();
    for (member, length) in [
        (Some(from), 100),
        (timestamp, 100),
        (message_id, 100),
        (summary, 500),
    ] {
        let member = member.unwrap();
        assert_eq!(member.chars().count(), length + 1);
        assert!(member.starts_with("a\u{1}ä") && member.ends_with('…'));
    }
    let marked = mark_all(&text, &batch);
    assert_eq!(marked.count, 2);
    let text = marked.text.unwrap();
    let left = oldest_unread(&[inbox(&text)], all());
    assert_eq!(left.messages.len(), 1);
    assert!(left.messages[0].from.starts_with('b'));
}

#[test]
fn first_senders_are_listed_and_the_others_are_counted() {
    let message = |number: usize| {
        let from = format!("{number:02}{}", "\u{1}".repeat(9000));
        json!({ "from": from, "text": "t" })
    };
    let messages: Vec<Value> = (0..23).chain([0, 21]).map(message).collect();
    let text = json!(messages).to_string();
    let pending = pending(&[inbox(&text)]);
    assert_eq!(pending.count, 25);
    assert_eq!(pending.senders.len(), 20);
    assert_eq!(pending.other_senders, 3);
    let (first, count) = &pending.senders[0];
    assert!(first.starts_with("00\u{1}") && first.ends_with("\u{1}…"));
    assert_eq!((first.chars().count(), *count), (61, 2));
    let listed = serde_json::to_string(&pending.senders).unwrap();
    assert!(listed.chars().count() < 8000);
}

#[test]
fn oldest_messages_come_first_and_the_rest_is_counted() {
    let text = json!([
        {"from": "a", "text": "1"}, {"from": "b", "text": "2"}, {"from": "a", "text": "3"},
    ]);
    let text = text.to_string();
    let limits = ReadLimits {
        max_messages: 2,
        ..all()
    };
    let batch = oldest_unread(&[inbox(&text)], limits);
    assert_eq!(texts(&batch), ["1", "2"]);
    assert_eq!(batch.remaining, 1);
    let pending = pending(&[inbox(&text)]);
    assert_eq!(pending.count, 3);
    assert_eq!(pending.senders, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

#[test]
fn messages_of_several_inboxes_are_ordered_by_time() {
    let own = json!([
        {"from": "a", "text": "2", "timestamp": "2026-02-18T12:00:00+00:00"},
        {"from": "a", "text": "3", "timestamp": "not a time"},
        {"from": "a", "text": "5", "timestamp": "2026-02-18T12:00:02Z"},
        // Its clock was wrong; it was written after the one before it.
        {"from": "a", "text": "6", "timestamp": "2026-02-18T11:00:00Z"},
    ])
    .to_string();
    let other = json!([
        {"from": "b", "text": "1", "timestamp": "2026-02-18T13:59:59.9+02:00"},
        {"from": "b", "text": "4", "timestamp": "2026-02-18T12:00:01Z"},
    ])
    .to_string();
    let batch = oldest_unread(&[inbox(&own), inbox(&other)], all());
    assert_eq!(texts(&batch), ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn duplicate_message_is_returned_once_and_marked_in_both_inboxes() {
    let one = json!({"from": "a", "text": "t", "message_id": "1"});
    let false_friend = json!({"from": "b", "text": "t", "message_id": "1"});
    let own = json!([one, false_friend]).to_string();
    let other = json!([one]).to_string();
    let batch = oldest_unread(&[inbox(&own), inbox(&other)], all());
    assert_eq!(batch.messages.len(), 2);
    assert_eq!(batch.marks.len(), 3);
    assert_eq!(pending(&[inbox(&own), inbox(&other)]).count, 2);
}

#[test]
fn mark_finds_a_message_that_has_moved() {
    let twin = json!({"from": "a", "text": "same", "timestamp": "t"});
    let other = json!({"from": "b", "text": "other", "timestamp": "t"});
    let before = json!([other, twin, twin]).to_string();
    let limits = ReadLimits {
        max_messages: 2,
        ..all()
    };
    let batch = oldest_unread(&[inbox(&before)], limits);

    // Rewritten by a program with another order of members, and the first removed.
    let after = r#"[{"timestamp":"t","text":"same","from":"a"},{"timestamp":"t","text":"same","from":"a"}]"#;
    let marked = mark_all(after, &batch);
    assert_eq!(marked.count, 1);

    // Another process has marked the delivered message: its twin was not delivered.
    let read = json!({"from": "a", "text": "same", "timestamp": "t", "read": true});
    let seen = json!([other, read, twin]).to_string();
    assert_eq!(mark_all(&seen, &batch).count, 1);
}

#[test]
fn merge_keeps_concurrent_messages() {
    let before = inbox("[]");
    let ours = before.append(&new("ours"));
    let theirs = before.append(&new("theirs"));
    let merged = merge(&before, &inbox(&ours), &inbox(&theirs));
    assert_eq!(
        texts(&oldest_unread(&[inbox(&merged)], all())),
        ["theirs", "ours"]
    );
    // The other process had read our message and written on.
    let on_top = inbox(&ours).append(&new("theirs"));
    let merged = merge(&before, &inbox(&ours), &inbox(&on_top));
    assert_eq!(merged, on_top);
    // Messages that the other process has removed stay removed.
    let full = inbox(&ours);
    let ours = full.append(&new("more"));
    let merged = merge(&full, &inbox(&ours), &inbox("[]"));
    assert_eq!(texts(&oldest_unread(&[inbox(&merged)], all())), ["more"]);
}

/// A step of a test of an inbox.
#[derive(Debug, Clone)]
enum Step {
    /// A process writes a message.
    Append(u8),
    /// Another program writes an element, perhaps not a message, perhaps the same as another.
    Foreign(u8, u8),
    /// This many messages are read and marked.
    Read(usize),
    /// A process writes, and another one in spite of the locks.
    Collide(u8, u8),
    /// Another program rewrites all of it in its own format.
    Rewrite,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u8>().prop_map(Step::Append),
        3 => (0..8_u8, 0..3_u8).prop_map(|(kind, number)| Step::Foreign(kind, number)),
        2 => (0..5_usize).prop_map(Step::Read),
        2 => any::<(u8, u8)>().prop_map(|(ours, theirs)| Step::Collide(ours, theirs)),
        1 => Just(Step::Rewrite),
    ]
}

fn foreign(kind: u8, number: u8) -> String {
    match kind {
        0 => format!("{number}"),
        1 => format!("[ {number}, \"from\" ]"),
        2 => format!("{{\"from\" : {number}}}"),
        3 => format!("{{ \"content\":\"c{number}\",\"from\":\"f\" }}"),
        4 => format!("{{\"from\":\"f\",\"text\":\"r{number}\",\"read\":true}}"),
        5 => format!("{{\"z\":{{\"read\":false}},\"from\":\"f\",\"text\":\"\\u0061{number}\"}}"),
        _ => format!("{{\"text\":\"t{number}\",\"from\":\"f\",\"read\":false,\"k\":[1.0]}}"),
    }
}

/// A naive model of an inbox: each element, and whether it is unread.
#[derive(Debug, Default)]
struct Model {
    elements: Vec<(String, Option<String>)>,
    number: u32,
}

impl Model {
    fn message(&mut self, salt: u8) -> NewMessage {
        self.number += 1;
        let text = format!("{salt} {}", self.number);
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(salt.into());
        let from = "codex".parse().unwrap();
        NewMessage::new(from, text.clone(), written, format!("id {}", self.number))
    }

    fn add(&mut self, element: String) {
        let value: Value = serde_json::from_str(&element).unwrap();
        let body = value.get("text").or(value.get("content"));
        let open = value.get("from").is_some_and(Value::is_string)
            && value.get("read") != Some(&json!(true));
        let body = body.and_then(Value::as_str).filter(|_| open);
        self.elements.push((element, body.map(str::to_owned)));
    }

    fn perform(&mut self, text: &str, step: &Step) -> String {
        match step {
            Step::Append(salt) => {
                let message = self.message(*salt);
                self.add(serde_json::to_string(&message).unwrap());
                inbox(text).append(&message)
            }
            Step::Foreign(kind, number) => {
                let element = foreign(*kind, *number);
                self.add(element.clone());
                with_appended(inbox(text).text, &element, "").unwrap()
            }
            Step::Read(count) => {
                let limits = ReadLimits {
                    max_messages: *count,
                    ..all()
                };
                let batch = oldest_unread(&[inbox(text)], limits);
                let mut open = self.elements.iter_mut().filter(|(_, open)| open.is_some());
                for envelope in &batch.messages {
                    let (_, open) = open.next().unwrap();
                    assert_eq!(open.take().unwrap(), envelope.message);
                }
                let marked = mark_all(text, &batch);
                assert_eq!(marked.count, batch.messages.len());
                marked.text.unwrap_or_else(|| text.to_owned())
            }
            Step::Collide(ours, theirs) => {
                let (mine, other) = (self.message(*ours), self.message(*theirs));
                for message in [&other, &mine] {
                    self.add(serde_json::to_string(message).unwrap());
                }
                let before = inbox(text);
                let (mine, other) = (before.append(&mine), before.append(&other));
                merge(&before, &inbox(&mine), &inbox(&other))
            }
            Step::Rewrite => {
                let value: Value = serde_json::from_str(inbox(text).text).unwrap();
                serde_json::to_string_pretty(&value).unwrap()
            }
        }
    }
}

proptest! {
    #[test]
    fn inbox_operations_agree_with_the_model(steps in prop::collection::vec(step(), 0..40)) {
        let mut model = Model::default();
        let mut text = String::new();
        for step in &steps {
            text = model.perform(&text, step);
        }
        let stored = inbox(&text);
        prop_assert_eq!(stored.elements.len(), model.elements.len());
        let rewritten = steps.iter().any(|step| matches!(step, Step::Rewrite));
        for (element, (written, open)) in stored.elements.iter().zip(&model.elements) {
            let mut value: Value = serde_json::from_str(element.get()).unwrap();
            let mut expected: Value = serde_json::from_str(written).unwrap();
            if !rewritten && (open.is_some() || value == expected) {
                prop_assert_eq!(element.get(), written);
            }
            // All but the mark.
            for value in [&mut value, &mut expected] {
                value.as_object_mut().map(|members| members.remove("read"));
            }
            prop_assert_eq!(value, expected);
        }
        let left: Vec<&str> = model.elements.iter().filter_map(|(_, open)| open.as_deref()).collect();
        let batch = oldest_unread(&[inbox(&text)], all());
        prop_assert_eq!(texts(&batch), left);
    }
}
