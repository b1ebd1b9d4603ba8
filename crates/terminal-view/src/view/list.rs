//! The list of all work.

use std::time::SystemTime;

use common::text::{one_line, visible_line};
use ratatui::Frame;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{List, ListItem, ListState, Paragraph};
use work_board::{Group, Work};

use super::{Parts, REVERSED};
use crate::logic::app::App;
use crate::logic::rows::{ASKING, BAD, DIM, GOOD, TITLE, clock, columns, most_columns};

/// The mark before the chosen line.
const MARK: &str = "> ";

/// The gap between two parts of a line.
const GAP: &str = "  ";

/// The most that is shown of a title or question in the list, in bytes.
const STEP: usize = 200;

pub(super) fn draw(frame: &mut Frame<'_>, [header, body]: Parts, app: &App) {
    let title = shortened(&title(app), header.width.into());
    let title = Paragraph::new(title).style(REVERSED);
    frame.render_widget(title, header);
    let shown = app.list.shown();
    if shown.is_empty() {
        let words = match app.list.filter.is_empty() {
            true if !app.list.is_read => "Reading the sessions, jobs and runs …",
            true => {
                "No session, job or run yet. Sessions of MCP clients appear here by themselves."
            }
            false => "Nothing fits the filter. Esc removes it.",
        };
        let hint = Paragraph::new(words).style(DIM);
        return frame.render_widget(hint.wrap(ratatui::widgets::Wrap::default()), body);
    }
    let (mut items, mut selected, mut group) = (Vec::new(), None, None);
    for (position, work) in shown.iter().enumerate() {
        if group != Some(work.group()) {
            group = Some(work.group());
            items.push(ListItem::new(heading(work.group())));
        }
        if position == app.list.position() {
            selected = Some(items.len());
        }
        items.push(ListItem::new(line(work, app.now, body.width)));
    }
    let list = List::new(items)
        .highlight_symbol(MARK)
        .highlight_style(REVERSED);
    let mut state = ListState::default().with_selected(selected);
    frame.render_stateful_widget(list, body, &mut state);
}

fn title(app: &App) -> String {
    let asking = match app.list.asking() {
        0 => "nothing needs you".to_owned(),
        1 => "1 needs you".to_owned(),
        many => format!("{many} need you"),
    };
    match app.list.filter.as_str() {
        "" => format!(" codex-mcp · {asking}"),
        filter => format!(" codex-mcp · {asking} · filter: {}", visible_line(filter)),
    }
}

fn heading(group: Group) -> Line<'static> {
    match group {
        Group::Asking => Line::styled("Needs you", ASKING),
        Group::Running => Line::styled("Under way", TITLE),
        Group::Ended => Line::styled("Idle and ended", TITLE),
    }
}

/// A line of `width` columns about some work. What it is and does has its room; the title gets the
/// rest, and the directory what that leaves.
fn line(work: &Work, now: SystemTime, width: u16) -> Line<'static> {
    let kind = format!("{:<8}", work.kind.as_ref());
    let state = format!("{:<10} ", visible_line(&work.shown_state()));
    let width = usize::from(width).saturating_sub(MARK.len() + columns(&kind) + columns(&state));
    let about = about(work, now);
    let title = shortened(
        &one_line(work.title(), STEP),
        width.saturating_sub(GAP.len() + columns(&about).min(width / 2)),
    );
    let about = shortened(&about, width.saturating_sub(columns(&title) + GAP.len()));
    let directory = format!("{GAP}{}", visible_line(&work.directory));
    Line::from(vec![
        Span::styled(kind, DIM),
        Span::styled(state, style(work)),
        Span::raw(format!("{title}{GAP}{about}")),
        Span::styled(directory, DIM),
    ])
}

/// The beginning of a text that has at most so many columns.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let (mut begin, mut width) = (String::new(), 0);
    for character in text.chars() {
        width += most_columns(character);
        if width >= most {
            break;
        }
        begin.push(character);
    }
    begin.push('…');
    begin
}

/// Its question or its step, and for how long.
pub(super) fn about(work: &Work, now: SystemTime) -> String {
    match (work.questions.first(), &work.step, &work.note) {
        (Some(asked), ..) => one_line(&asked.question.text, STEP),
        (None, Some(step), _) => {
            let took = clock(step.since, now);
            format!("{} {took}", visible_line(&step.words))
        }
        (None, None, Some(note)) => visible_line(note).into_owned(),
        (None, None, None) => format!("begun {} ago", clock(work.created, now)),
    }
}

/// The colour of a state.
fn style(work: &Work) -> Style {
    match (work.group(), work.state_class()) {
        (Group::Asking, _) => ASKING,
        (_, "running") => GOOD,
        (_, "failed") => BAD,
        _ => DIM,
    }
}
