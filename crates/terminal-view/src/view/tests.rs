//! Pictures of the view.

mod docs;

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use codex_engine::logic::action::{ActionKind, Decision};
use codex_engine::logic::cost::Cost;
use codex_engine::logic::form::{Field, FieldKind, FieldOption};
use crossterm::event::KeyCode as Key;
use host_process::logic::handshake::{SessionEvent, SessionNews, StepSummary};
use job_queue::question::{NamedQuestion, StoredQuestion};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Map, Value, json};
use work_board::logic::conversation::Conversation;
use work_board::{AllWork, Kind, Work};

use super::draw;
use crate::logic::app::App;
use crate::logic::mode::{Effect, Target};
use crate::logic::opened::Content;
use crate::logic::rows::Row;

fn work(id: &str, kind: Kind, state: &str) -> Work {
    Work {
        id: id.to_owned(),
        kind,
        state: state.to_owned(),
        step: None,
        note: None,
        has_problems: false,
        task: None,
        created: UNIX_EPOCH,
        tokens: Some(1234),
        cost: None,
        directory: "/home/me/project".to_owned(),
        thread: None,
        questions: Vec::new(),
    }
}

fn asking() -> Work {
    asking_to("\u{1b}[2J:\n\n    touch 日本語.txt\n\nReason: it is needed")
}

fn asking_to(run: &str) -> Work {
    let question = StoredQuestion {
        kind: ActionKind::Command,
        text: format!("Codex wants to run {run}"),
        decisions: vec![
            Decision::Accept,
            Decision::AcceptWithExecpolicyAmendment(vec!["touch".to_owned()]),
            Decision::Cancel,
        ],
        fields: Vec::new(),
        expires_at: String::new(),
        details: Some(Map::new()),
        shortened: Vec::new(),
    };
    Work {
        questions: vec![NamedQuestion {
            id: "q".to_owned(),
            question,
        }],
        ..work("sess_asking", Kind::Session, "asking")
    }
}

fn app() -> App {
    let running = Work {
        step: Some(StepSummary {
            words: "cargo test".to_owned(),
            since: UNIX_EPOCH + Duration::from_secs(58),
        }),
        ..work("sess_running", Kind::Session, "running")
    };
    let job = Work {
        task: Some("evil\u{1b}]0;t\u{7}\u{202e}".to_owned()),
        note: Some("no worker".to_owned()),
        ..work("job_1", Kind::Job, "failed")
    };
    let mut app = App::new(UNIX_EPOCH + Duration::from_secs(120));
    app.set_work(AllWork {
        work: vec![job, running, asking()],
        failure: None,
    });
    app
}

fn event(id: u64, data: Value) -> SessionNews {
    SessionNews::Event(SessionEvent {
        at: UNIX_EPOCH,
        data: json!({ "id": id, "type": "progress", "data": data }),
        words: None,
    })
}

fn conversation() -> Content {
    let mut conversation = Conversation::default();
    let command = json!({ "method": "item/completed", "item": {
        "type": "commandExecution", "id": "i1", "command": "ls", "status": "completed",
        "aggregatedOutput": "README.md\nsrc\n", "exitCode": 0 } });
    let message = json!({ "method": "item/completed", "item": {
        "type": "agentMessage", "id": "i2", "text": "I have looked at the files." } });
    let prompt = SessionNews::Prompt {
        before: 0,
        at: UNIX_EPOCH,
        text: "make it".to_owned(),
    };
    for news in [prompt, event(0, command), event(1, message)] {
        conversation.take(news);
    }
    conversation.take(SessionNews::Diff("@@ -1 +1 @@\n-old\n+new\n".to_owned()));
    Content::Conversation(Arc::new(Mutex::new(conversation)))
}

fn opened() -> App {
    let mut app = app();
    let target = Target {
        id: "sess_asking".to_owned(),
        kind: Kind::Session,
    };
    app.open(target.clone());
    app.set_content(&target, conversation());
    app
}

fn drawn(app: &mut App, columns: u16, rows: u16, has_colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| draw(frame, app, has_colours))
        .unwrap();
    terminal
}

fn picture(app: &mut App, columns: u16, rows: u16) -> String {
    let terminal = drawn(app, columns, rows, false);
    terminal.backend().to_string()
}

#[test]
fn long_title_leaves_room_for_the_state_and_the_step() {
    for (width, step) in [(40, "cargo te…"), (80, "cargo test")] {
        let mut app = app();
        let running = Work {
            task: Some("Please look at the flaky test of the parser 日本語 ".repeat(4)),
            step: Some(StepSummary {
                words: "cargo test".to_owned(),
                since: UNIX_EPOCH + Duration::from_secs(58),
            }),
            ..work("sess_running", Kind::Session, "running")
        };
        app.set_work(AllWork {
            work: vec![running],
            failure: None,
        });
        let list = picture(&mut app, width, 10);
        for shown in ["running", "Please", "…", step] {
            assert!(list.contains(shown), "{shown}: {list}");
        }
    }
}

#[test]
fn list_says_that_there_is_no_work_when_it_has_been_read() {
    let mut app = App::new(UNIX_EPOCH);
    let before = picture(&mut app, 80, 6);
    assert!(
        before.contains("Reading") && !before.contains("No session"),
        "{before}"
    );
    app.set_work(AllWork::default());
    let after = picture(&mut app, 80, 6);
    assert!(after.contains("No session, job or run yet."), "{after}");
}

#[test]
fn list_shows_first_what_needs_a_person() {
    insta::assert_snapshot!("list", picture(&mut app(), 80, 24));
    insta::assert_snapshot!("list_small", picture(&mut app(), 40, 10));
}

/// The list's line has the filter, which a person types.
#[test]
fn line_at_the_top_ends_with_a_mark_where_it_is_cut() {
    let first = |app: &mut App| {
        let picture = picture(app, 40, 10);
        picture.lines().next().unwrap_or_default().to_owned()
    };
    assert!(first(&mut opened()).ends_with("…\""));
    let mut app = app();
    app.press(Key::Char('/'));
    app.paste("a filter that is wider than this terminal");
    app.press(Key::Enter);
    let line = first(&mut app);
    assert!(
        line.contains("filter: a") && line.ends_with("…\""),
        "{line}"
    );
}

#[test]
fn completed_job_with_problems_has_the_mark_of_jobs_list() {
    let completed = |id: &str, has_problems| Work {
        has_problems,
        ..work(id, Kind::Job, "completed")
    };
    let mut app = App::new(UNIX_EPOCH);
    app.set_work(AllWork {
        work: vec![completed("job_1", false), completed("job_2", true)],
        failure: None,
    });
    let list = picture(&mut app, 80, 10);
    for line in ["job     completed  job_1", "job     completed* job_2"] {
        assert!(list.contains(line), "{line}: {list}");
    }
    app.open(Target {
        id: "job_2".to_owned(),
        kind: Kind::Job,
    });
    let open = picture(&mut app, 80, 10);
    assert!(open.contains("job job_2 · completed* · "), "{open}");
}

#[test]
fn cost_of_an_open_session_is_beside_its_tokens() {
    let cost = Cost {
        amount: 0.42,
        currency: "USD".to_owned(),
    };
    let session = Work {
        cost: Some(cost),
        ..work("sess_1", Kind::Session, "idle")
    };
    let mut app = App::new(UNIX_EPOCH);
    app.set_work(AllWork {
        work: vec![session],
        failure: None,
    });
    app.open(Target {
        id: "sess_1".to_owned(),
        kind: Kind::Session,
    });
    let open = picture(&mut app, 80, 10);
    assert!(open.contains(" · 1234 tokens · 0.42 USD · "), "{open}");
}

#[test]
fn open_session_shows_its_end_and_the_question() {
    let mut app = opened();
    insta::assert_snapshot!("opened", picture(&mut app, 80, 24));
    insta::assert_snapshot!("opened_small", picture(&mut app, 40, 10));
    app.press(Key::Home);
    insta::assert_snapshot!("opened_begin_small", picture(&mut app, 40, 10));
    app.press(Key::Char('2'));
    insta::assert_snapshot!("confirm_small", picture(&mut app, 40, 10));
}

#[test]
fn diff_help_and_typed_text_are_shown() {
    let mut app = opened();
    app.press(Key::Char('d'));
    insta::assert_snapshot!("diff_small", picture(&mut app, 40, 10));
    app.press(Key::Char('?'));
    insta::assert_snapshot!("help", picture(&mut app, 80, 24));
    app.press(Key::Esc);
    app.press(Key::Char('s'));
    app.paste("a long message 日本語 that does not fit \u{1b}[2J");
    insta::assert_snapshot!("message_small", picture(&mut app, 40, 10));
}

/// A session that asks for these fields.
fn asking_for(fields: Vec<Field>) -> App {
    let mut app = opened();
    let mut work = asking();
    for one in &mut work.questions {
        one.question.fields = fields.clone();
    }
    let failure = None;
    let work = vec![work];
    app.set_work(AllWork { work, failure });
    app
}

#[test]
fn form_lists_its_fields_and_a_secret_is_typed_as_dots() {
    let option = |value: &str, label: &str| FieldOption {
        value: value.to_owned(),
        label: label.to_owned(),
    };
    let colour = Field {
        label: "Which colour?".to_owned(),
        kind: FieldKind::Choice,
        options: vec![option("r", "Red: warm"), option("b", "Blue")],
        takes_others: false,
        required: true,
        ..Field::named("colour")
    };
    let token = Field {
        label: "Your token".to_owned(),
        secret: true,
        ..Field::named("token")
    };
    let mut app = asking_for(vec![colour, token]);
    let form = picture(&mut app, 80, 40);
    for line in [
        "1. Which colour?",
        "1 Red: warm",
        "2 Blue",
        "2. Your token (may be left empty)",
    ] {
        assert!(form.contains(line), "{line}: {form}");
    }
    app.press(Key::Char('1'));
    app.paste("3");
    app.press(Key::Enter);
    let wrong = picture(&mut app, 80, 40);
    assert!(
        wrong.contains("must be one of: r, b. 1. Which colour?"),
        "{wrong}"
    );
    app.paste("2");
    app.press(Key::Enter);
    app.paste("hunter2");
    let typed = picture(&mut app, 80, 40);
    assert!(
        typed.contains("2. Your token") && typed.contains("•••••••"),
        "{typed}"
    );
    assert!(!typed.contains("hunter2"), "{typed}");
    app.press(Key::Enter);
    let confirm = picture(&mut app, 80, 40);
    assert!(!confirm.contains("hunter2"), "{confirm}");
    let Some(Effect::Answer { decision, .. }) = app.press(Key::Enter) else {
        panic!("no answer");
    };
    let answers = json!({ "colour": "b", "token": "hunter2" });
    assert_eq!(json!(decision), json!({ "submit": answers }));
}

#[test]
fn whole_command_change_and_expiry_are_above_the_choices() {
    let mut app = opened();
    let mut work = asking();
    let command = format!("echo begin\n{}echo end", "word\n".repeat(3));
    let change = json!({ "path": "a.rs", "kind": { "type": "update" },
        "diff": "@@ -1 +1 @@\n-old\n+new\n" });
    let details = json!({ "command": command, "changes": [change] });
    for one in &mut work.questions {
        one.question.details = details.as_object().cloned();
        one.question.expires_at = "2026-11-23T14:05:09.000Z".to_owned();
    }
    let failure = None;
    let work = vec![work];
    app.set_work(AllWork { work, failure });
    let shown = picture(&mut app, 80, 40);
    let at = |words: &str| {
        let found = shown.find(words);
        found.unwrap_or_else(|| panic!("no {words:?} in {shown}"))
    };
    let lines = [
        "Command, in full:",
        "  echo begin",
        "  echo end",
        "update a.rs",
        "-old",
        "+new",
        "Declined at 2026-11-23 14:05 UTC unless answered.",
        "1 Allow once",
    ];
    assert!(lines.map(at).is_sorted(), "{shown}");
}

#[test]
fn closed_question_does_not_move_what_is_scrolled_to() {
    let mut app = opened();
    let target = Target {
        id: "sess_asking".to_owned(),
        kind: Kind::Session,
    };
    let lines = (0..60).map(|number| Row::raw(format!("line {number:02}")));
    app.set_content(&target, Content::Job(lines.collect()));
    picture(&mut app, 120, 24);
    for _ in 0..30 {
        app.press(Key::Char('k'));
    }
    let shown = |app: &mut App| {
        let picture = picture(app, 120, 24);
        let lines = picture.split("line ").skip(1);
        lines.map(|line| line[..2].to_owned()).collect::<Vec<_>>()
    };
    let before = shown(&mut app);
    assert_eq!(before.len(), 22);
    let closed = Work {
        questions: Vec::new(),
        ..asking()
    };
    app.set_work(AllWork {
        work: vec![closed],
        failure: None,
    });
    assert_eq!(shown(&mut app), before);
}

/// A conversation has 2000 steps at most.
#[test]
fn scroll_position_survives_dropped_steps() {
    let mut app = opened();
    let target = Target {
        id: "sess_asking".to_owned(),
        kind: Kind::Session,
    };
    let conversation = Arc::new(Mutex::new(Conversation::default()));
    let say = |app: &mut App, ids: std::ops::Range<u64>| {
        for id in ids {
            let message = json!({ "method": "item/completed", "item": {
                "type": "agentMessage", "id": id.to_string(), "text": format!("line {id:04}") } });
            conversation.lock().unwrap().take(event(id, message));
        }
        app.set_content(&target, Content::Conversation(Arc::clone(&conversation)));
    };
    let shown = |app: &mut App| {
        let picture = picture(app, 120, 24);
        let lines = picture.split("line ").skip(1);
        lines.map(|line| line[..4].to_owned()).collect::<Vec<_>>()
    };
    say(&mut app, 0..2000);
    shown(&mut app);
    for _ in 0..30 {
        app.press(Key::Char('k'));
    }
    let before = shown(&mut app);
    assert!(!before.is_empty());
    say(&mut app, 2000..2010);
    assert_eq!(shown(&mut app), before);
}

/// The rows of the command have more lines than these screens.
#[test]
fn whole_command_can_be_scrolled_to_in_a_small_terminal() {
    let words = (0..80).map(|number| format!("w{number:02}"));
    let words: Vec<String> = words.collect();
    for (columns, rows) in [(40, 7), (80, 5), (30, 10), (20, 3)] {
        let mut app = opened();
        let mut work = asking();
        let details = json!({ "command": words.join(" ") });
        for one in &mut work.questions {
            one.question.details = details.as_object().cloned();
        }
        app.set_work(AllWork {
            work: vec![work],
            failure: None,
        });
        app.press(Key::Char('g'));
        let mut shown = picture(&mut app, columns, rows);
        while app.opened.as_ref().unwrap().below > 0 {
            app.press(Key::Char('j'));
            shown.push_str(&picture(&mut app, columns, rows));
        }
        for word in &words {
            assert!(shown.contains(word), "{word} in {columns} x {rows}");
        }
    }
}

#[test]
fn every_size_and_key_can_be_drawn() {
    for (columns, rows) in [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 40),
        (200, 1),
        (10, 3),
        (500, 200),
    ] {
        let mut app = opened();
        for key in "kkkgGjd?x1sabc".chars().map(Key::Char) {
            drawn(&mut app, columns, rows, true);
            app.press(key);
        }
        app.press(Key::Esc);
        app.press(Key::PageUp);
        drawn(&mut app, columns, rows, true);
        drawn(&mut self::app(), columns, rows, true);
    }
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    for has_colours in [true, false] {
        let terminal = drawn(&mut opened(), 80, 24, has_colours);
        let cells = terminal.backend().buffer().content();
        let coloured = cells.iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(coloured, has_colours);
    }
}
