//! The open work: a line about it, and its rows.

use std::time::SystemTime;

use common::text::visible_line;
use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Scrollbar, ScrollbarOrientation, ScrollbarState};

use super::list::{about, shortened};
use super::{Parts, REVERSED};
use crate::logic::opened::Opened;
use crate::logic::rows::wrapped;

pub(super) fn draw(
    frame: &mut Frame<'_>,
    [header, body]: Parts,
    opened: &mut Opened,
    now: SystemTime,
) {
    let width = header.width.into();
    let title = shortened(&title(opened, now, width), width);
    let title = Paragraph::new(title).style(REVERSED);
    frame.render_widget(title, header);
    let [text, bar] = [
        Rect {
            width: body.width.saturating_sub(1),
            ..body
        },
        body.inner(Margin::default()),
    ];
    if text.is_empty() {
        return;
    }
    opened.refresh(text.as_size());
    draw_rows(frame, text, opened);
    let hidden = opened.rows.len().saturating_sub(text.height.into());
    let position = hidden.saturating_sub(opened.below);
    let mut state = ScrollbarState::new(hidden).position(position);
    let scrollbar = Scrollbar::new(ScrollbarOrientation::VerticalRight);
    frame.render_stateful_widget(scrollbar, bar, &mut state);
}

/// A line of `width` columns about the work, of which its title gets at most half.
fn title(opened: &Opened, now: SystemTime, width: usize) -> String {
    let Some(work) = &opened.work else {
        return format!(" {}", visible_line(&opened.target.id));
    };
    let diff = match opened.shows_diff {
        true => "diff of the turn · ",
        false => "",
    };
    let tokens = match opened.tokens() {
        Some(tokens) => format!(" · {tokens} tokens"),
        None => String::new(),
    };
    let cost = match &work.cost {
        Some(cost) => format!(" · {cost}"),
        None => String::new(),
    };
    let title = shortened(&visible_line(work.title()), width / 2);
    format!(
        " {diff}{} {title} · {} · {}{tokens}{cost} · {}",
        work.kind.as_ref(),
        visible_line(&work.shown_state()),
        about(work, now),
        visible_line(&work.directory),
    )
}

/// Draws the rows upwards from the last one that is not scrolled away, as many as fit.
fn draw_rows(frame: &mut Frame<'_>, area: Rect, opened: &mut Opened) {
    let height = usize::from(area.height);
    opened.below = opened.below.min(most_below(opened, area));
    let end = opened.rows.len().saturating_sub(opened.below);
    let (mut lines, mut count) = (Vec::<Line<'_>>::new(), 0);
    for row in opened.rows.iter().take(end).rev() {
        if count >= height {
            break;
        }
        count += wrapped(row.clone()).line_count(area.width);
        lines.push(row.clone());
    }
    lines.reverse();
    let above = u16::try_from(count.saturating_sub(height)).unwrap_or(u16::MAX);
    let text = wrapped(Text::from(lines)).scroll((above, 0));
    frame.render_widget(text, area);
}

/// How many rows are below the screen when it shows the first one.
fn most_below(opened: &Opened, area: Rect) -> usize {
    let (mut fitting, mut count) = (0, 0);
    for row in &opened.rows {
        count += wrapped(row.clone()).line_count(area.width);
        if count > usize::from(area.height) {
            break;
        }
        fitting += 1;
    }
    opened.rows.len() - fitting.max(1).min(opened.rows.len())
}
