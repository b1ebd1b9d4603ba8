//! The lines below: what was done, what a key would do, or the text that is typed.

use common::text::visible_line;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Wrap};

use crate::logic::app::{App, QUESTION_CLOSED};
use crate::logic::mode::{Act, Mode, OpenForm, Purpose};
use crate::logic::rows::{ASKING, BAD, DIM, GOOD, TITLE};

pub(super) fn paragraph(app: &App, width: u16) -> Paragraph<'static> {
    let (text, style) = match (&app.mode, &app.notice) {
        (Mode::Type { purpose, text }, _) => {
            (ending(&typed(purpose, text), width).to_owned(), TITLE)
        }
        (Mode::Confirm { words, .. }, _) => (words.clone(), ASKING),
        (Mode::Closed, _) => (
            format!("{QUESTION_CLOSED} Its answer is dropped. Enter or Esc: back."),
            BAD,
        ),
        (Mode::Help, _) => ("Any key: back.".to_owned(), DIM),
        (Mode::Browse, Some(notice)) => {
            let style = match notice.is_failure {
                true => BAD,
                false => GOOD,
            };
            (visible_line(&notice.text).into_owned(), style)
        }
        (Mode::Browse, None) => hint(app),
    };
    let paragraph = Paragraph::new(text).style(style);
    paragraph.wrap(Wrap { trim: false })
}

/// The text before the cursor. A secret answer is shown as dots.
fn field(form: &OpenForm, typed: &str) -> String {
    let Some(field) = form.field() else {
        return String::new();
    };
    let text = match field.secret {
        true => "•".repeat(typed.chars().count()).into(),
        false => visible_line(typed),
    };
    format!(
        "{}{}. {} (Enter continues, Esc discards it): {text}",
        before(form.problem.as_deref()),
        form.at + 1,
        visible_line(&field.label)
    )
}

/// Why a text was not taken, before the text.
fn before(problem: Option<&str>) -> String {
    problem.map_or_else(String::new, |why| format!("{}. ", visible_line(why)))
}

fn typed(purpose: &Purpose, typed: &str) -> String {
    let text = visible_line(typed);
    match purpose {
        Purpose::Filter => format!("Filter: {text}"),
        Purpose::Message { problem } => format!(
            "{}Message (Enter sends, Esc discards it): {text}",
            before(problem.as_deref())
        ),
        Purpose::Field(form) => field(form, typed),
    }
}

fn hint(app: &App) -> (String, Style) {
    if let Some(failure) = app.list.failure() {
        return (visible_line(failure).into_owned(), BAD);
    }
    match &app.opened {
        None => {
            let words = "Enter open  j/k move  / filter  ? help  q quit";
            (words.to_owned(), DIM)
        }
        Some(opened) if opened.question().is_some() => {
            ("1-9 choose an answer  ? help  q back".to_owned(), ASKING)
        }
        Some(opened) => {
            let acts = Act::ALL.iter().filter(|(act, ..)| opened.allows(*act));
            let acts = acts.map(|(_, key, words)| format!("{key} {words}  "));
            (acts.chain(["? help  q back".to_owned()]).collect(), DIM)
        }
    }
}

/// The end of a text, as much as leaves room for the cursor.
fn ending(text: &str, width: u16) -> &str {
    let mut room = usize::from(width).saturating_sub(1);
    let mut begin = text.len();
    for (at, character) in text.char_indices().rev() {
        let wide = Span::raw(character.to_string()).width();
        if wide > room {
            break;
        }
        room -= wide;
        begin = at;
    }
    text.get(begin..).unwrap_or_default()
}

/// Puts the cursor behind the text that is typed.
pub(super) fn put_cursor(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Mode::Type { purpose, text } = &app.mode else {
        return;
    };
    let typed = typed(purpose, text);
    let width = Span::raw(ending(&typed, area.width)).width();
    let x = area.x + u16::try_from(width).unwrap_or_default();
    let at = Position { x, y: area.y };
    if area.contains(at) {
        frame.set_cursor_position(at);
    }
}
