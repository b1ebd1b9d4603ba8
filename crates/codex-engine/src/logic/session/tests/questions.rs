//! Questions of Codex, and the events about them.

use codex_protocol::codex::{
    FileChange, FileChangeApproval, FileChangeKind, Question, UserInputRequest,
};

use super::*;
use crate::logic::events::Rank;

fn user_input() -> Ask {
    Ask::UserInput(UserInputRequest {
        item_id: "step".into(),
        questions: vec![Question {
            id: "q".into(),
            header: "Sure".into(),
            question: "are you sure?".into(),
            options: None,
            is_other: false,
            is_secret: false,
        }],
    })
}

#[test]
fn file_question_lists_the_changes_of_its_step() {
    let mut world = World::running();
    let change = |path: &str| FileChange {
        path: path.into(),
        kind: FileChangeKind::Add,
        diff: "hello".into(),
    };
    for (id, path) in [("c", "a.txt"), ("d", "b.txt")] {
        let item = json!({"type": "fileChange", "id": id, "changes": [change(path)]});
        world.receive_item("item/started", &item);
    }
    // A sub-agent numbers its steps itself.
    let of_child = vec![change("c.txt")];
    world
        .session
        .changes_announced("child", "c".into(), of_child);
    for (thread, item, expected) in [
        ("t", "c", vec![change("a.txt")]),
        ("t", "d", vec![change("b.txt")]),
        ("child", "c", vec![change("c.txt")]),
        ("child", "d", Vec::new()),
        ("t", "another", Vec::new()),
    ] {
        let ask = Ask::FileChange(FileChangeApproval {
            item_id: item.into(),
            ..FileChangeApproval::default()
        });
        world.ask_in(thread, ask);
        let Ask::FileChange(asked) = &world.session.actions().last().unwrap().ask else {
            panic!("about files");
        };
        assert_eq!(asked.changes, expected);
    }
}

/// Codex drops the questions of the thread whose turn ends, and waits for the answers to those of
/// its sub-agents.
#[test]
fn question_of_a_subagent_is_declined_when_the_turn_ends() {
    for event in [Event::Completed, Event::CutOff] {
        let mut world = World::running();
        world.apply(Event::Asked);
        world.ask_in("child", command("step-1"));
        let (effects, _) = world.apply(event);
        let effects: Vec<String> = effects.iter().map(effect_words).collect();
        assert_eq!(effects, [r#"answer 2 with {"decision":"decline"}"#]);
        let closed = world.event_data("approval_result");
        let decisions: Vec<&Value> = closed.iter().map(|data| &data["decision"]).collect();
        assert_eq!(json!(decisions), json!(["cancel", "decline"]));
    }
}

/// A question about this step, with an ID of its own if Codex asks several questions about it.
fn command_with(item: &str, approval: Option<&str>) -> Ask {
    Ask::Command(CommandApproval {
        item_id: item.to_owned(),
        approval_id: approval.map(str::to_owned),
        ..CommandApproval::default()
    })
}

fn open_questions(world: &World) -> Vec<&str> {
    let open = world.session.actions().iter();
    open.map(|action| action.id.0.as_str()).collect()
}

#[test]
fn questions_that_codex_could_confuse_are_declined() {
    let change = Ask::FileChange(FileChangeApproval {
        item_id: "step".into(),
        ..FileChangeApproval::default()
    });
    let empty = || command_with("", None);
    let first = || command_with("step", None);
    let other_step = || command_with("another", Some("step"));
    for (first, second) in [
        (first(), first()),
        (first(), change),
        (empty(), empty()),
        (first(), other_step()),
    ] {
        let mut world = World::running();
        world.ask(first);
        world.apply(Event::Asked);
        drop(world.session.take_alerts());
        let effects = world.ask(second);
        let words: Vec<String> = effects.iter().map(effect_words).collect();
        let decline = |request| format!(r#"answer {request} with {{"decision":"decline"}}"#);
        assert_eq!(words, [decline(1), decline(3)]);
        assert_eq!(open_questions(&world), ["req_2"]);
        assert_eq!(world.session.take_alerts(), []);
        let closed = world.session.take_closed();
        assert!(
            closed
                .iter()
                .all(|closed| closed.reason == CloseReason::Ambiguous)
        );
        let data = world.event_data("approval_result");
        let closed: Vec<&Value> = data.iter().map(|data| &data["requestId"]).collect();
        assert_eq!(closed, ["req_1", "req_3"]);
        for id in ["req_1", "req_3"] {
            let id = ActionId(id.into());
            let late = world
                .session
                .decide(&id, &Decision::Accept, None, world.now);
            let Err(DecisionRefused::Closed(words)) = &late else {
                panic!("{late:?}");
            };
            assert!(words.contains("with the same ID"), "{words}");
        }
    }
}

#[test]
fn questions_that_codex_can_tell_apart_stay_open() {
    let mut world = World::running();
    world.ask(command_with("step", None));
    world.ask(command_with("step", Some("one")));
    world.ask(command_with("step", Some("two")));
    world.ask_in("child", command_with("step", None));
    assert_eq!(open_questions(&world), ["req_1", "req_2", "req_3", "req_4"]);
    // The next question about a step comes after the answer to the previous one.
    world.apply(Event::Accept);
    world.ask(command_with("step", None));
    assert_eq!(open_questions(&world), ["req_2", "req_3", "req_4", "req_5"]);
    assert_eq!(world.event_data("approval_result").len(), 1);
}

/// Codex asks its first question, or repeats it, and we give it this ID.
fn ask_first(world: &mut World, id: &str) -> Vec<Effect> {
    let asked = IncomingQuestion {
        id: ActionId(id.to_owned()),
        request: RequestId::Number(1),
        thread: "t".to_owned(),
        ask: command("step"),
        params: json!({}),
    };
    world.session.on_question(asked, world.now)
}

#[test]
fn question_that_codex_repeats_stays_open() {
    let mut world = World::running();
    assert_eq!(ask_first(&mut world, "req_1"), []);
    let record = world.session.record().unwrap();
    world.session = Session::restored("t", TIMEOUTS, record, world.now);
    assert_eq!(ask_first(&mut world, "req_2"), []);
    assert_eq!(open_questions(&world), ["req_1"]);
    // Codex repeats it to a process that has it, too, if that resumes the thread.
    assert_eq!(ask_first(&mut world, "req_3"), []);
    assert_eq!(world.event_data("approval_result"), Vec::<Value>::new());
}

#[test]
fn question_outlasts_a_process_that_ends_before_codex_has_repeated_it() {
    let mut world = World::running();
    assert_eq!(ask_first(&mut world, "req_1"), []);
    assert!(world.session.show_questions(world.now));
    let deadline = world.session.next_deadline();
    for _ in 0..2 {
        world.wait(Duration::from_secs(1));
        let record = world.session.record().unwrap();
        world.session = Session::restored("t", TIMEOUTS, record, world.now);
    }
    assert_eq!(ask_first(&mut world, "req_2"), []);
    assert_eq!(open_questions(&world), ["req_1"]);
    assert_eq!(world.session.next_deadline(), deadline);
}

#[test]
fn approval_result_carries_the_answer_and_the_note() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.ask(user_input());
    world.apply(Event::Asked);
    let Value::Object(answers) = json!({"q": {"answers": ["yes"]}}) else {
        panic!("an object");
    };
    for (id, decision, note) in [
        ("req_1", Decision::Decline, Some("too risky")),
        ("req_2", Decision::Submit(answers), None),
    ] {
        let id = ActionId(id.into());
        world
            .session
            .decide(&id, &decision, note, world.now)
            .unwrap();
    }
    world.apply(Event::TimePasses);
    let expected = [
        json!({"requestId": "req_1", "kind": "command", "itemId": "step-1", "decision": "decline",
            "decidedBy": "client", "denyMessage": "too risky"}),
        json!({"requestId": "req_2", "kind": "user_input", "itemId": "step", "decision": "accept",
            "decidedBy": "client", "answers": {"q": {"answers": ["yes"]}}}),
        json!({"requestId": "req_3", "kind": "command", "itemId": "step-3", "decision": "decline",
            "timeout": true, "message": "nobody answered in time, so it was declined"}),
    ];
    assert_eq!(world.event_data("approval_result"), expected);
}

#[test]
fn secret_answer_goes_to_codex_and_not_to_the_log() {
    let mut world = World::running();
    let mut ask = user_input();
    if let Ask::UserInput(asked) = &mut ask {
        asked
            .questions
            .iter_mut()
            .for_each(|one| one.is_secret = true);
    }
    world.ask(ask);
    let Value::Object(answers) = json!({"q": {"answers": ["hunter2"]}}) else {
        panic!("an object");
    };
    let (id, decision) = (ActionId("req_1".into()), Decision::Submit(answers));
    let effects = world
        .session
        .decide(&id, &decision, None, world.now)
        .unwrap();
    let [Effect::Answer { result, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(*result, json!({"answers": {"q": {"answers": ["hunter2"]}}}));
    let events = world.event_data("approval_result");
    assert_eq!(events[0]["answers"], json!({"q": "[not shown]"}));
    let log = format!("{:?}", world.session.log().page(0, usize::MAX).events);
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn answer_that_does_not_fit_leaves_the_question_open() {
    let mut world = World::running();
    world.ask(user_input());
    let before = world.session.progress(world.now.instant).number;
    let Value::Object(answers) = json!({"another": "yes"}) else {
        panic!("an object");
    };
    for decision in [Decision::Submit(answers), Decision::Accept] {
        let id = ActionId("req_1".into());
        let refusal = world.session.decide(&id, &decision, None, world.now);
        assert!(matches!(refusal, Err(DecisionRefused::Wrong(_))));
    }
    assert_eq!(world.session.state(), State::WaitingApproval);
    assert_eq!(world.session.progress(world.now.instant).number, before);
    assert_eq!(world.event_data("approval_result"), Vec::<Value>::new());
}

#[test]
fn declined_step_is_not_shown_as_running() {
    for (decision, words) in [
        (Decision::Accept, "running make"),
        (Decision::Decline, "thinking"),
    ] {
        let mut world = World::running();
        let item = json!({"type": "commandExecution", "id": "c", "command": "make"});
        world.receive_item("item/started", &item);
        world.ask(Ask::Command(CommandApproval {
            item_id: "c".into(),
            ..CommandApproval::default()
        }));
        let id = ActionId("req_1".into());
        let decided = world.session.decide(&id, &decision, None, world.now);
        assert!(decided.is_ok(), "{decision:?}");
        assert_eq!(world.session.progress(world.now.instant).words, words);
    }
}

#[test]
fn decision_counts_as_a_step() {
    let mut world = World::running();
    world.apply(Event::Asked);
    let before = world.session.progress(world.now.instant).number;
    world.apply(Event::Accept);
    let step = world.session.progress(world.now.instant);
    assert_eq!((step.number, step.words.as_str()), (before + 1, "thinking"));
}

/// Questions that cannot be answered raise no alert.
#[test]
fn open_question_alerts_once() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.ask(user_input());
    let alerts = world.session.take_alerts();
    let open: Vec<ActionId> = world
        .session
        .actions()
        .iter()
        .map(|action| action.id.clone())
        .collect();
    // It can take 60 s until a client that polls at the recommended interval sees a
    // question.
    let unseen = SystemTime::UNIX_EPOCH + Duration::from_secs(60 + 60);
    let alerted: Vec<ActionId> = alerts
        .into_iter()
        .filter_map(|alert| match alert {
            Alert::Question { id, expires, .. } if expires == unseen => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(alerted, open);
    world.session.show_questions(world.now);
    world.apply(Event::Accept);
    assert_eq!(world.session.take_alerts(), []);
    world.session.interrupt(world.now);
    world.apply(Event::Asked);
    assert_eq!(world.session.take_alerts(), []);
}

#[test]
fn question_states_when_it_expires() {
    let mut world = World::running();
    world.wait(Duration::from_secs(1));
    world.apply(Event::Asked);
    let shown = world.session.actions().first().unwrap().shown();
    assert_eq!(shown["createdAt"], "1970-01-01T00:00:01.000Z");
    assert_eq!(shown["expiresAt"], "1970-01-01T00:01:01.000Z");
}

#[test]
fn answered_question_is_ranked_as_settled() {
    let mut world = World::running();
    world.apply(Event::Asked);
    world.apply(Event::Asked);
    world.apply(Event::Accept);
    let events = world.session.log().page(0, usize::MAX).events;
    let questions = events
        .iter()
        .filter(|event| event.data.kind() == EventType::ApprovalRequest);
    let ranks: Vec<Rank> = questions.map(|event| event.data.rank()).collect();
    assert_eq!(ranks, [Rank::Settled, Rank::Essential]);
}
