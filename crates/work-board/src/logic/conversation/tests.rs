//! Tests of conversations.

use serde_json::json;

use super::*;

fn event(id: u64, kind: &str, data: Value) -> SessionNews {
    SessionNews::Event(SessionEvent {
        at: SystemTime::UNIX_EPOCH,
        words: Some("words".to_owned()),
        data: json!({ "id": id, "type": kind, "data": data }),
    })
}

fn item(id: u64, method: &str, item: Value) -> SessionNews {
    event(
        id,
        "progress",
        json!({ "method": method, "item": item, "title": "a step" }),
    )
}

fn delta(id: u64, item: &str, text: &str) -> SessionNews {
    let method = "item/commandExecution/outputDelta";
    event(
        id,
        "output",
        json!({ "method": method, "itemId": item, "delta": text }),
    )
}

fn kinds(conversation: &Conversation) -> Vec<&StepKind> {
    conversation.steps().map(|step| &step.kind).collect()
}

fn command(text: &str, status: &str, exit_code: Option<i64>) -> StepKind {
    StepKind::Command {
        command: "ls".to_owned(),
        text: text.to_owned(),
        status: status.to_owned(),
        exit_code,
    }
}

#[test]
fn events_of_an_item_are_one_step() {
    let mut one = Conversation::default();
    let started =
        json!({ "type": "commandExecution", "id": "c", "command": "ls", "status": "inProgress" });
    assert_eq!(
        one.take(item(0, "item/started", started)),
        [Change::Put(place(0))]
    );
    let grown = one.take(delta(1, "c", "a\n"));
    assert_eq!(
        grown,
        [Change::Append {
            number: place(0),
            text: "a\n".to_owned()
        }]
    );
    let more = SessionNews::More {
        id: 1,
        text: "b\n".to_owned(),
    };
    assert_eq!(
        one.take(more),
        [Change::Append {
            number: place(0),
            text: "b\n".to_owned()
        }]
    );
    assert_eq!(kinds(&one), [&command("a\nb\n", "inProgress", None)]);
    let ended = json!({ "type": "commandExecution", "id": "c", "command": "ls",
        "status": "completed", "exitCode": 0 });
    assert_eq!(
        one.take(item(2, "item/completed", ended)),
        [Change::Put(place(0))]
    );
    assert_eq!(kinds(&one), [&command("a\nb\n", "completed", Some(0))]);
    assert_eq!(one.next(), 3);
}

/// A model has given all items of these turns the same ID.
fn same_id(id: u64, turn: &str, method: &str, mut item: Value) -> SessionNews {
    let members = item.as_object_mut().unwrap();
    members.insert("id".to_owned(), "1".into());
    let data = json!({ "method": method, "turnId": turn, "item": item, "title": "a step" });
    event(id, "progress", data)
}

fn run(command: &str, status: &str) -> Value {
    json!({ "type": "commandExecution", "command": command, "status": status })
}

fn commands(conversation: &Conversation) -> Vec<(&str, &str)> {
    let steps = conversation.steps().filter_map(|step| match &step.kind {
        StepKind::Command {
            command, status, ..
        } => Some((command.as_str(), status.as_str())),
        _ => None,
    });
    steps.collect()
}

#[test]
fn later_command_with_the_same_id_is_another_step() {
    let mut one = Conversation::default();
    one.take(same_id(0, "t", "item/started", run("ls", "inProgress")));
    one.take(same_id(1, "t", "item/completed", run("ls", "completed")));
    // The same command once more, and one whose start is not known.
    one.take(same_id(2, "t", "item/started", run("ls", "inProgress")));
    one.take(same_id(3, "t", "item/completed", run("ls", "failed")));
    one.take(same_id(4, "t", "item/completed", run("id", "completed")));
    let expected = [("ls", "completed"), ("ls", "failed"), ("id", "completed")];
    assert_eq!(commands(&one), expected);
}

#[test]
fn commands_with_the_same_id_run_at_the_same_time() {
    let mut one = Conversation::default();
    for (id, method, command, status) in [
        (0, "item/started", "ls", "inProgress"),
        (1, "item/started", "id", "inProgress"),
        (2, "item/completed", "ls", "completed"),
        (3, "item/completed", "id", "declined"),
    ] {
        one.take(same_id(id, "t", method, run(command, status)));
    }
    assert_eq!(commands(&one), [("ls", "completed"), ("id", "declined")]);
}

/// The host that follows a killed one tells the items of the turn again.
#[test]
fn repeated_item_is_one_step() {
    let mut one = Conversation::default();
    one.take(same_id(0, "t", "item/started", run("ls", "inProgress")));
    one.begin(1000);
    one.take(same_id(1000, "t", "item/started", run("ls", "inProgress")));
    one.take(same_id(1001, "t", "item/completed", run("ls", "completed")));
    one.begin(2000);
    one.take(same_id(2000, "t", "item/completed", run("ls", "completed")));
    assert_eq!(commands(&one), [("ls", "completed")]);
}

#[test]
fn items_of_the_next_turn_come_after_its_prompt() {
    let mut one = Conversation::default();
    let message = |text: &str| json!({ "type": "agentMessage", "text": text });
    let delta = |id: u64, turn: &str, text: &str| {
        let data = json!({ "method": "item/agentMessage/delta", "turnId": turn,
            "itemId": "1", "delta": text });
        event(id, "output", data)
    };
    one.take(same_id(0, "t1", "item/started", message("")));
    // The turn is interrupted before the end of the message.
    one.take(delta(1, "t1", "first"));
    one.take(event(2, "result", json!({ "status": "interrupted" })));
    one.take(prompt(3, "more"));
    one.take(delta(3, "t2", "sec"));
    one.take(same_id(4, "t2", "item/completed", message("second")));
    let end = StepKind::End {
        words: "words".to_owned(),
        failed: false,
    };
    let message = |text: &str| StepKind::Message {
        text: text.to_owned(),
    };
    let asked = StepKind::Prompt {
        text: "more".to_owned(),
    };
    let expected = [&message("first"), &end, &asked, &message("second")];
    assert_eq!(kinds(&one), expected);
}

#[test]
fn missing_events_are_a_gap() {
    let mut one = Conversation::default();
    let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
    one.take(item(5, "item/completed", message("a")));
    let changes = one.take(item(9, "item/completed", message("b")));
    assert_eq!(changes, [Change::Put(place(8)), Change::Put(place(9))]);
    assert_eq!(one.step(place(8)).unwrap().kind, StepKind::Gap { count: 3 });
}

#[test]
fn log_of_the_next_host_is_no_gap() {
    let mut one = Conversation::default();
    let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
    one.take(item(5, "item/completed", message("a")));
    one.begin(1_000_000);
    let changes = one.take(item(1_000_002, "item/completed", message("b")));
    assert_eq!(
        changes,
        [Change::Put(place(1_000_001)), Change::Put(place(1_000_002))]
    );
    one.begin(0);
    let changes = one.take(item(1_000_003, "item/completed", message("c")));
    assert_eq!(changes, [Change::Put(place(1_000_003))]);
}

fn prompt(before: u64, text: &str) -> SessionNews {
    SessionNews::Prompt {
        before,
        at: SystemTime::UNIX_EPOCH,
        text: text.to_owned(),
    }
}

#[test]
fn prompts_of_missing_events_come_before_the_gap() {
    let mut one = Conversation::default();
    let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
    one.take(prompt(0, "first"));
    one.take(item(0, "item/completed", message("a")));
    one.take(prompt(500, "second"));
    one.take(item(1200, "item/completed", message("b")));
    let shown: Vec<&StepKind> = one.steps().map(|step| &step.kind).collect();
    assert!(
        matches!(
            shown[..],
            [
                StepKind::Prompt { .. },
                StepKind::Message { .. },
                StepKind::Prompt { .. },
                StepKind::Gap { count: 1199 },
                StepKind::Message { .. }
            ]
        ),
        "{shown:?}"
    );
}

#[test]
fn steps_are_in_order_if_the_first_event_after_a_gap_follows_a_prompt() {
    let mut one = Conversation::default();
    let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
    one.take(item(0, "item/completed", message("a")));
    one.take(prompt(9, "more"));
    let changes = one.take(item(9, "item/completed", message("b")));
    let places: Vec<u64> = one.steps().map(|step| step.number).collect();
    assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
    // The place of the prompt, and the next one, which the gap gets.
    let gap = 9 * STRIDE + 1;
    assert_eq!(changes, [Change::Put(gap), Change::Put(place(9))]);
    assert_eq!(one.step(gap).unwrap().kind, StepKind::Gap { count: 8 });
}

#[test]
fn prompt_comes_before_its_events_and_once() {
    let mut one = Conversation::default();
    let message = json!({ "type": "agentMessage", "id": "a", "text": "m" });
    assert_eq!(one.take(prompt(0, "do it")), [Change::Put(0)]);
    one.take(item(0, "item/completed", message.clone()));
    assert_eq!(one.take(prompt(1, "more")).len(), 1);
    assert_eq!(one.take(prompt(1, "and more")).len(), 1);
    one.take(item(1, "item/completed", message));
    for (before, text) in [(0, "do it"), (1, "more"), (1, "and more")] {
        assert_eq!(one.take(prompt(before, text)), [], "{text}");
    }
    let places: Vec<u64> = one.steps().map(|step| step.number).collect();
    assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
}

/// Codex reports the added text as a message of the user.
#[test]
fn text_added_to_a_turn_is_shown_once() {
    let mut one = Conversation::default();
    one.take(prompt(0, "do it"));
    let steered = json!({ "method": "codex-mcp/steered", "message": "in German", "turnId": "t" });
    assert_eq!(one.take(event(0, "progress", steered)), []);
    one.take(prompt(1, "in German"));
    let shown = ["do it", "in German"].map(|text| StepKind::Prompt {
        text: text.to_owned(),
    });
    assert_eq!(kinds(&one), shown.each_ref());
}

#[test]
fn closed_question_says_who_decided() {
    let mut one = Conversation::default();
    let asked = json!({ "requestId": "q", "kind": "command", "command": "/bin/bash -lc ls" });
    one.take(event(0, "approval_request", asked));
    let answered = json!({ "requestId": "q", "decision": "accept", "decidedBy": "terminal" });
    assert_eq!(
        one.take(event(1, "approval_result", answered)),
        [Change::Put(place(0))]
    );
    let closed = StepKind::Question {
        id: "q".to_owned(),
        title: "command: ls".to_owned(),
        closed: Some("accept, at a terminal".to_owned()),
    };
    assert_eq!(kinds(&one), [&closed]);
}

#[test]
fn question_of_the_model_has_words_for_people() {
    let mut one = Conversation::default();
    let asked = json!({ "requestId": "q", "kind": "user_input" });
    one.take(event(0, "approval_request", asked));
    let asked = StepKind::Question {
        id: "q".to_owned(),
        title: "input".to_owned(),
        closed: None,
    };
    assert_eq!(kinds(&one), [&asked]);
}

#[test]
fn texts_and_steps_are_bounded() {
    let mut one = Conversation::default();
    let large = "ä".repeat(LONGEST_TEXT);
    for id in 0..3000 {
        let text = if id < 100 { large.as_str() } else { "m" };
        let message = json!({ "type": "agentMessage", "id": id.to_string(), "text": text });
        one.take(item(id, "item/completed", message));
        assert!(one.size <= MOST_TEXT);
    }
    assert_eq!(one.steps().count(), MOST_STEPS);
    let size: usize = one.steps().map(|step| step.kind.size()).sum();
    assert_eq!(one.size, size);
    let more = one.take(delta(3000, "2999", &large));
    assert!(matches!(more.as_slice(), [Change::Append { text, .. }] if text.len() < LONGEST_TEXT));
}

#[test]
fn lower_bound_drops_the_oldest_texts() {
    let mut one = Conversation::default();
    let text = "m".repeat(1000);
    let take = |one: &mut Conversation, id: u64| {
        let message = json!({ "type": "agentMessage", "id": id.to_string(), "text": text });
        one.take(item(id, "item/completed", message));
    };
    for id in 0..10 {
        take(&mut one, id);
    }
    one.bound_text(3000);
    let numbers = |one: &Conversation| -> Vec<u64> {
        let numbers = one.steps().map(|step| step.number / STRIDE);
        numbers.collect()
    };
    assert_eq!(numbers(&one), [7, 8, 9]);
    take(&mut one, 10);
    assert_eq!(numbers(&one), [8, 9, 10]);
    one.bound_text(usize::MAX);
    for id in 11..20 {
        take(&mut one, id);
    }
    assert_eq!(numbers(&one).len(), 12);
    assert_eq!(one.most_text, MOST_TEXT);
}
