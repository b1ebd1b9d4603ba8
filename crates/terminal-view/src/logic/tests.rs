//! Effects of keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codex_engine::logic::action::Decision;
use codex_engine::logic::form::FieldKind;
use crossterm::event::KeyCode as Key;
use serde_json::json;
use work_board::{AllWork, Kind, NamedQuestion, Work};

use super::app::App;
use super::job;
use super::mode::{Draft, Effect, Mode, Purpose, Target};
use super::rows::{BAD, GOOD, PLACE, PLAIN, TITLE, clock, diff, push};

/// A session with an open question of this ID, or with none.
fn work(id: &str, state: &str, question: Option<&str>, fields: &[&str]) -> Work {
    let mut work = Work {
        id: id.to_owned(),
        kind: Kind::Session,
        state: state.to_owned(),
        step: None,
        note: None,
        has_problems: false,
        task: None,
        created: UNIX_EPOCH,
        tokens: None,
        cost: None,
        directory: "/home/me".to_owned(),
        thread: None,
        questions: Vec::new(),
    };
    if let Some(question) = question {
        let accept = Some(Decision::Accept).filter(|_| fields.is_empty());
        let decisions: Vec<_> = accept.into_iter().chain([Decision::Decline]).collect();
        let stored = json!({ "kind": "command", "text": "Run touch made.txt?",
            "decisions": decisions, "fields": fields, "expires_at": "" });
        let stored = serde_json::from_value(stored).unwrap();
        work.questions.push(NamedQuestion {
            id: question.to_owned(),
            question: stored,
        });
    }
    work
}

fn idle(id: &str) -> Work {
    work(id, "idle", None, &[])
}

fn asking(fields: &[&str]) -> Work {
    work("asks", "asking", Some("q1"), fields)
}

fn app(work: Vec<Work>) -> App {
    let mut app = App::new(UNIX_EPOCH);
    app.set_work(AllWork {
        work,
        failure: None,
    });
    app
}

fn press(app: &mut App, keys: &str) -> Option<Effect> {
    let key = |key| match key {
        '\n' => Key::Enter,
        '\u{1b}' => Key::Esc,
        key => Key::Char(key),
    };
    keys.chars().map(key).fold(None, |_, key| app.press(key))
}

#[test]
fn choice_is_made_by_number_and_confirmed_by_enter() {
    let mut app = app(vec![asking(&[])]);
    press(&mut app, "\n");
    assert_eq!(press(&mut app, "1"), None);
    for other in ["y", "1", " ", "\u{1b}", "2"] {
        assert_eq!(press(&mut app, other), None, "{other:?}");
        assert_eq!(app.mode, Mode::Browse, "{other:?}");
        assert_eq!(press(&mut app, "\n"), None);
        press(&mut app, "2");
    }
    let answer = Effect::Answer {
        target: Target {
            id: "asks".to_owned(),
            kind: Kind::Session,
        },
        question: "q1".to_owned(),
        decision: Decision::Decline,
    };
    assert_eq!(press(&mut app, "\n"), Some(answer));
    assert_eq!(press(&mut app, "3\n0\n"), None);
}

#[test]
fn confirmation_is_not_for_the_next_question() {
    let mut app = app(vec![asking(&[])]);
    press(&mut app, "\n1");
    let next = work("asks", "asking", Some("q2"), &[]);
    app.set_work(AllWork {
        work: vec![next],
        failure: None,
    });
    assert_eq!(press(&mut app, "\n"), None);
    assert_eq!(app.mode, Mode::Browse);
}

/// The number was meant for the question before, which may even have been closed in between.
#[test]
fn number_is_not_for_a_question_that_has_just_replaced_another() {
    let asks = |question| work("asks", "asking", question, &[]);
    for between in [vec![], vec![asks(None)]] {
        let mut app = app(vec![asks(Some("q1"))]);
        press(&mut app, "\n");
        app.now += Duration::from_secs(60);
        for next in [between, vec![asks(Some("q2"))]].concat() {
            app.set_work(AllWork {
                work: vec![next],
                failure: None,
            });
        }
        app.now += Duration::from_millis(499);
        press(&mut app, "1");
        assert_eq!(app.mode, Mode::Browse);
        let notice = app.notice.clone().unwrap();
        assert_eq!(notice.text, "The question has just changed. Look again.");
        app.now += Duration::from_millis(1);
        press(&mut app, "1");
        let Mode::Confirm { words, .. } = &app.mode else {
            panic!("no choice");
        };
        assert!(
            words.starts_with("Enter: Allow once (a command)."),
            "{words}"
        );
    }
}

#[test]
fn first_question_is_answered_at_once() {
    let mut app = app(vec![work("asks", "running", None, &[])]);
    press(&mut app, "\n");
    app.set_work(AllWork {
        work: vec![asking(&[])],
        failure: None,
    });
    press(&mut app, "1");
    assert!(matches!(app.mode, Mode::Confirm { .. }));
}

#[test]
fn fields_are_typed_one_after_the_other() {
    let mut app = app(vec![asking(&["name", "colour"])]);
    press(&mut app, "\n1me\n");
    app.paste("bl");
    press(&mut app, "ux");
    app.press(Key::Backspace);
    assert_eq!(press(&mut app, "e\n"), None);
    let Some(Effect::Answer { decision, .. }) = press(&mut app, "\n") else {
        panic!("no answer");
    };
    let words = json!({ "name": "me", "colour": "blue" });
    let words = words.as_object().unwrap().clone();
    assert_eq!(decision, Decision::Submit(words));
}

#[test]
fn letters_of_an_answer_are_no_keys_after_its_question_was_closed() {
    let mut app = app(vec![asking(&["name"])]);
    press(&mut app, "\n1me");
    app.set_work(AllWork {
        work: vec![work("asks", "running", None, &[])],
        failure: None,
    });
    for key in "ifsq1".chars() {
        assert_eq!(press(&mut app, &key.to_string()), None, "{key}");
        assert_eq!(app.mode, Mode::Closed, "{key}");
    }
    app.paste("i\n");
    assert_eq!(app.mode, Mode::Closed);
    assert_eq!(press(&mut app, "\n"), None);
    assert_eq!(app.mode, Mode::Browse);
    let interrupt = press(&mut app, "i");
    assert!(matches!(interrupt, Some(Effect::Interrupt(_))));
}

#[test]
fn fields_left_empty_are_left_out_and_numbers_are_numbers() {
    let mut work = asking(&["name", "count"]);
    for field in &mut work.questions[0].question.fields {
        if field.id == "count" {
            field.kind = FieldKind::Integer;
            field.preset = Some("1".to_owned());
        }
    }
    let mut app = app(vec![work]);
    press(&mut app, "\n1\nx\n");
    let Mode::Type { purpose, text } = &app.mode else {
        panic!("no text");
    };
    let Purpose::Field(form) = purpose else {
        panic!("no field");
    };
    assert_eq!(form.problem.as_deref(), Some("must be a whole number"));
    assert_eq!(text, "1");
    press(&mut app, "2\n");
    let Some(Effect::Answer { decision, .. }) = press(&mut app, "\n") else {
        panic!("no answer");
    };
    assert_eq!(json!(decision), json!({ "submit": { "count": 12 } }));
}

#[test]
fn pasted_text_is_no_key() {
    let mut app = app(vec![asking(&[])]);
    app.paste("q\n1\n");
    press(&mut app, "\n");
    app.paste("1\n");
    assert_eq!(app.mode, Mode::Browse);
    press(&mut app, "1");
    app.paste("\n");
    assert_eq!(app.mode, Mode::Browse);
    press(&mut app, "s");
    app.paste("one\rtwo\r\n");
    let Some(Effect::Send { text, .. }) = press(&mut app, "\n") else {
        panic!("no message");
    };
    assert_eq!(text, "one\ntwo\n");
}

#[test]
fn selection_follows_its_work() {
    let two = vec![idle("a"), idle("b")];
    let mut app = app(two.clone());
    press(&mut app, "j");
    assert_eq!(app.list.selected().unwrap().id, "b");
    let all = AllWork {
        work: [two, vec![asking(&[])]].concat(),
        failure: None,
    };
    app.set_work(all);
    assert_eq!(app.list.shown().first().unwrap().id, "asks");
    assert_eq!(app.list.selected().unwrap().id, "b");
    press(&mut app, "/ASK\n");
    assert_eq!(app.list.selected().unwrap().id, "asks");
    press(&mut app, "\u{1b}");
    assert_eq!(app.list.shown().len(), 3);
    assert_eq!(press(&mut app, "\u{1b}"), Some(Effect::Quit));
}

#[test]
fn messages_interrupts_and_ends_are_for_the_open_work() {
    let mut app = app(vec![work("a", "running", None, &[])]);
    let target = Target {
        id: "a".to_owned(),
        kind: Kind::Session,
    };
    assert_eq!(press(&mut app, "s"), None);
    let follow = press(&mut app, "\n");
    assert_eq!(follow, Some(Effect::Follow(target.clone())));
    assert_eq!(press(&mut app, "s  \n"), None);
    let text = "in German".to_owned();
    let send = Effect::Send {
        target: target.clone(),
        text,
    };
    assert_eq!(press(&mut app, "sin German\n"), Some(send));
    let interrupt = press(&mut app, "i");
    assert_eq!(interrupt, Some(Effect::Interrupt(target.clone())));
    assert_eq!(press(&mut app, "xi"), None);
    assert_eq!(press(&mut app, "x\n"), Some(Effect::Cancel(target)));
    assert_eq!(press(&mut app, "q"), Some(Effect::Unfollow));
}

#[test]
fn refused_message_can_be_sent_again() {
    let all = |state: &str| vec![work("a", state, None, &[]), idle("b")];
    let mut app = app(all("running"));
    let target = |id: &str| Target {
        id: id.to_owned(),
        kind: Kind::Session,
    };
    app.open(target("a"));
    let sent = press(&mut app, "sin German\n");
    let Some(Effect::Send { target: to, text }) = sent.clone() else {
        panic!("no message");
    };
    let draft = Draft::new(to, text, "no turn is running.");
    app.not_sent(draft.clone());
    // The next keys are not taken for the message.
    assert_eq!(app.mode, Mode::Browse);
    let notice = app.notice.clone().unwrap().text;
    assert_eq!(
        notice,
        "no turn is running. Press s to edit the message again."
    );
    press(&mut app, "s");
    let typing = Mode::Type {
        purpose: Purpose::Message {
            problem: Some(draft.why.clone()),
        },
        text: draft.text.clone(),
    };
    assert_eq!(app.mode, typing);
    assert_eq!(press(&mut app, "\n"), sent);
    assert_eq!(press(&mut app, "s\n"), None);

    // It stays with its session, and is shown when that has ended, but not offered.
    app.open(target("b"));
    app.not_sent(draft.clone());
    let notice = app.notice.clone().unwrap().text;
    assert!(notice.contains("Open session a. Press s"), "{notice}");
    assert_eq!(press(&mut app, "s\n"), None);
    app.set_work(AllWork {
        work: all("cancelled"),
        failure: None,
    });
    app.open(target("a"));
    for _ in 0..2 {
        press(&mut app, "s");
        assert_eq!(app.mode, Mode::Browse);
        let notice = app.notice.clone().unwrap().text;
        assert_eq!(notice, "It has ended. Not sent: in German");
    }
    for id in ["a", "b"] {
        app.open(target(id));
        app.not_sent(draft.clone());
        let notice = app.notice.clone().unwrap().text;
        assert_eq!(notice, "no turn is running. Not sent: in German", "{id}");
    }
}

#[test]
fn paste_into_ended_work_does_not_offer_a_message() {
    let mut app = app(vec![work("a", "cancelled", None, &[])]);
    press(&mut app, "\n");
    app.paste("in German");
    assert_eq!(app.mode, Mode::Browse);
    assert_eq!(app.notice.clone().unwrap().text, "It has ended.");
}

/// The keys of actions that are allowed on work of this kind in this state.
fn acts(kind: Kind, state: &str) -> String {
    let work = Work {
        kind,
        ..work("w", state, None, &[])
    };
    let mut app = app(vec![work]);
    press(&mut app, "\n");
    let mut does_something = |key: &char| {
        let effect = press(&mut app, &key.to_string());
        let begins = app.mode != Mode::Browse;
        let is_refused = app.notice.take().is_some_and(|notice| notice.is_failure);
        assert_ne!(
            effect.is_some() || begins,
            is_refused,
            "{key} {kind:?} {state}"
        );
        press(&mut app, "\u{1b}");
        if app.opened.is_none() {
            press(&mut app, "\n");
        }
        !is_refused
    };
    "sifxr".chars().filter(|key| does_something(key)).collect()
}

#[test]
fn keys_do_what_the_state_allows() {
    for (kind, state, allowed) in [
        (Kind::Session, "running", "sifx"),
        (Kind::Session, "idle", "sfx"),
        (Kind::Session, "cancelled", ""),
        (Kind::Session, "gone", ""),
        (Kind::Job, "running", "sx"),
        (Kind::Run, "running", "x"),
        (Kind::Job, "failed", "r"),
        (Kind::Run, "completed", "r"),
    ] {
        assert_eq!(acts(kind, state), allowed, "{kind:?} {state}");
    }
}

#[test]
fn job_is_submitted_again_after_confirming() {
    let failed = Work {
        kind: Kind::Job,
        ..work("w", "failed", None, &[])
    };
    let mut app = app(vec![failed]);
    press(&mut app, "\n");
    assert_eq!(press(&mut app, "r"), None);
    let target = Target {
        id: "w".to_owned(),
        kind: Kind::Job,
    };
    assert_eq!(press(&mut app, "\n"), Some(Effect::Retry(target)));
}

#[test]
fn new_work_is_opened_unless_its_origin_was_left() {
    let target = |id: &str| Target {
        id: id.to_owned(),
        kind: Kind::Session,
    };
    let all = vec![work("a", "idle", None, &[]), work("b", "idle", None, &[])];
    let mut app = app(all);
    app.open(target("b"));
    assert_eq!(app.begun(&target("a"), target("new")), None);
    let opened = app.begun(&target("b"), target("new"));
    assert_eq!(opened, Some(Effect::Follow(target("new"))));
}

#[test]
fn rows_have_no_control_characters() {
    let mut rows = Vec::new();
    let text = format!("a\tb\u{1b}[2J\r\u{202e}\n{}", "x".repeat(1000));
    push(&mut rows, PLAIN, "> ", &text);
    assert_eq!(rows[0].to_string(), "> a    b\\u{1b}[2J\\u{d}\\u{202e}");
    assert!(
        rows.iter()
            .all(|row| row.to_string().chars().count() <= 240)
    );
    let hidden = |one: char| common::text::is_hidden(one);
    assert!(!rows.iter().any(|row| row.to_string().contains(hidden)));
    assert_eq!(rows.len(), 6);
}

#[test]
fn empty_diff_does_not_say_that_no_files_have_changed() {
    let rows: Vec<String> = diff("").iter().map(ToString::to_string).collect();
    let expected = "The last turn has no patches. Changes by commands are not shown.";
    assert_eq!(rows, [expected]);
}

#[test]
fn diff_and_criteria_have_styles() {
    let styles: Vec<_> = diff("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z")
        .iter()
        .map(|row| row.style)
        .collect();
    let expected = [TITLE, TITLE, PLACE, BAD, GOOD, PLAIN];
    assert_eq!(styles, expected);
    let record = json!({ "prompt": "do it", "response": "done", "warnings": ["old"] });
    let criteria = json!([
        { "criterion": "clean", "state": "satisfied", "found": "no changes" },
        { "criterion": "commit", "state": "not_yet", "missing": "a commit" },
        { "criterion": "review", "state": "not_run", "missing": "not reviewed yet" },
    ]);
    let rows = job::rows(&record, &criteria);
    let text: Vec<String> = rows.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn clocks_have_two_units() {
    let at = |seconds| clock(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(seconds));
    let all = [at(59), at(61), at(3660), at(90_000)];
    assert_eq!(all, ["59 s", "1 min 01 s", "1 h 01 min", "1 d"]);
    assert_eq!(
        clock(UNIX_EPOCH + Duration::from_secs(1), SystemTime::UNIX_EPOCH),
        "0 s"
    );
}
