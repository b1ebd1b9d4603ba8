//! Pictures of the view.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use codex_engine::logic::action::{ActionKind, Decision};
use crossterm::event::KeyCode as Key;
use host_process::logic::handshake::{SessionEvent, SessionNews, StepSummary};
use job_queue::question::{NamedQuestion, StoredQuestion};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Value, json};
use work_board::logic::conversation::Conversation;
use work_board::{AllWork, Kind, Work};

use super::draw;
use crate::logic::app::App;
use crate::logic::mode::Target;
use crate::logic::opened::Content;

fn work(id: &str, kind: Kind, state: &str) -> Work {
    Work {
        id: id.to_owned(),
        kind,
        state: state.to_owned(),
        step: None,
        note: None,
        task: None,
        created: UNIX_EPOCH,
        tokens: Some(1234),
        directory: "/home/me/project".to_owned(),
        thread: None,
        questions: Vec::new(),
    }
}

fn asking() -> Work {
    let question = StoredQuestion {
        kind: ActionKind::Command,
        text: "Codex wants to run \u{1b}[2J:\n\n    touch 日本語.txt\n\nReason: it is needed"
            .to_owned(),
        decisions: vec![
            Decision::Accept,
            Decision::AcceptWithExecpolicyAmendment(vec!["touch".to_owned()]),
            Decision::Cancel,
        ],
        fields: Vec::new(),
        expires_at: String::new(),
        details: None,
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
    if let Some(opened) = &mut app.opened {
        opened.refresh();
    }
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
fn list_shows_first_what_needs_a_person() {
    insta::assert_snapshot!("list", picture(&mut app(), 80, 24));
    insta::assert_snapshot!("list_small", picture(&mut app(), 40, 10));
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
