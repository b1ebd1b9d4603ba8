//! Polls with a size limit.

use super::*;

fn bounded(max_bytes: u64) -> Poll {
    Poll {
        options: PollOptions {
            max_bytes: Some(max_bytes),
            ..PollOptions::default()
        },
        ..full(10)
    }
}

#[test]
fn events_are_left_out_before_the_result() {
    let mut log = log(many(20, &progress()));
    let result = json!({"status": "completed", "output": "x".repeat(500)});
    let shown = log.read(&bounded(1200), Vec::new(), Some(result.clone()));
    assert_eq!(shown.result, Some(result));
    assert!((1..10).contains(&shown.events.len()));
    assert_eq!(shown.next_cursor, shown.events.len() as u64);
    assert!(shown.truncated);
    assert_eq!(shown.truncated_fields, ["events"]);
    assert!(size(&shown) <= 1200);
}

#[test]
fn result_is_left_out_before_the_last_event() {
    let mut log = log([progress()]);
    let result = json!({"status": "completed", "output": "x".repeat(1500)});
    let shown = log.read(&bounded(1600), Vec::new(), Some(result.clone()));
    assert_eq!((shown.events.len(), shown.result), (1, None));
    assert_eq!(shown.truncated_fields, ["result"]);
    let shown = log.read(&bounded(1800), Vec::new(), Some(result.clone()));
    assert_eq!(shown.result, Some(result));
    assert!(!shown.truncated);
}

#[test]
fn result_is_left_out_before_events_that_would_not_make_room_for_it() {
    let mut log = log(many(5, &progress()));
    let result = json!({"status": "completed", "output": "x".repeat(1500)});
    let shown = log.read(&bounded(1600), Vec::new(), Some(result.clone()));
    assert_eq!((shown.events.len(), &shown.result), (5, &None));
    assert_eq!(shown.truncated_fields, ["result"]);
    assert!(size(&shown) <= 1600);
    // The result is returned once the events are read.
    let shown = log.read(&bounded(1800), Vec::new(), Some(result.clone()));
    assert_eq!((shown.events.len(), shown.result), (0, Some(result)));
    assert!(!shown.truncated);
}

#[test]
fn final_message_is_the_last_part_of_a_result_to_be_cut() {
    let mut log = log([]);
    let output = "ß".repeat(700);
    let result = json!({
        "status": "completed", "output": output, "turn": {"id": "t", "items": [1, 2, 3]},
        "diff": "d".repeat(5000), "changedFiles": [{"path": "p".repeat(200), "kind": "add"}],
    });
    let shown = log.read(&bounded(2100), Vec::new(), Some(result.clone()));
    assert_eq!(
        shown.result,
        Some(json!({"status": "completed", "output": output,
            "changedFiles": [{"path": "p".repeat(200), "kind": "add"}]}))
    );
    assert_eq!(shown.truncated_fields, ["result.turn", "result.diff"]);

    let shown = log.read(&bounded(900), Vec::new(), Some(result));
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
fn oversized_event_is_cut_and_counts_as_read() {
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
            let shown = log.read(&bounded(limit), Vec::new(), None);
            assert_eq!((shown.events.len(), shown.next_cursor), (1, 1));
            assert_eq!(shown.truncated_fields, ["events"]);
            assert!(size(&shown) <= FLOOR.max(2000));
            assert!(limit > 640 || size(&shown) <= FLOOR, "{shown:?}");
        }
    }
}

#[test]
fn questions_are_reduced_to_their_names_without_room() {
    let action = |id: &str, command: &str| {
        json!({"type": "approval", "requestId": id, "kind": "command", "command": command,
            "params": {"command": command}})
    };
    let long = "x".repeat(1000);
    let mut log = log([progress()]);
    let actions = vec![action("req_1", &long), action("req_2", "ls")];
    let shown = log.read(&bounded(1000), actions, None);
    let name = |id: &str| json!({"type": "approval", "requestId": id, "kind": "command"});
    assert_eq!(shown.actions, [name("req_1"), name("req_2")]);
    assert_eq!(shown.events.len(), 1);
    assert_eq!(shown.truncated_fields, ["actions"]);
}

#[test]
fn duplicate_fields_of_a_question_are_left_out_before_events() {
    let mut action = json!({"type": "approval", "requestId": "req_1", "kind": "command",
        "command": "ls", "params": {"command": "x".repeat(1000)}});
    let mut log = log(many(5, &progress()));
    let shown = log.read(&bounded(1000), vec![action.clone()], None);
    action.as_object_mut().unwrap().remove("params");
    assert_eq!(shown.actions, [action]);
    assert_eq!(shown.events.len(), 5);
    assert_eq!(shown.truncated_fields, ["actions"]);
    assert!(size(&shown) <= 1000);
}

#[test]
fn first_questions_are_shown_without_room_for_all() {
    let name = |number: usize| json!({"type": "approval", "requestId": format!("req_{number}"), "kind": "command"});
    let mut log = log([progress()]);
    let actions: Vec<Value> = (0..50).map(name).collect();
    let shown = log.read(&bounded(1000), actions.clone(), None);
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
