//! Draws the state: a line above, the list or the open work, and a line or more below.

mod footer;
mod list;
mod opened;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Paragraph, Wrap};

use crate::logic::app::App;
use crate::logic::mode::Mode;

/// The style of the line above, and of what is selected.
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

const KEYS: &str = "\
j k, arrows   move, scroll
g G           to the beginning, to the end
Enter         open
q Esc         back, or quit
/             show only what has a text

1-9, Enter    choose an answer, and confirm it
s             send a message: to the turn, or as the next one
i             interrupt the turn
d             show the diff of the turn
f             fork the session
x, Enter      end the session, cancel the job
r, Enter      submit again a job that has ended

completed*    with problems, which the open job lists

Ctrl-Z        back to the shell; fg returns
Ctrl-C        quit
Sessions, jobs and runs continue without this view.";

/// The parts of the screen above the footer.
type Parts = [Rect; 2];

/// Draws everything. The scroll position is moved to where there is something.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, has_colours: bool) {
    let area = frame.area();
    let below = footer::paragraph(app, area.width);
    let most = (area.height / 3).max(1);
    let wanted = below.line_count(area.width).try_into().unwrap_or(most);
    let footer_height = Constraint::Length(most.min(wanted).max(1));
    let parts = [Constraint::Length(1), Constraint::Min(0), footer_height];
    let [header, body, footer] = Layout::vertical(parts).areas(area);
    frame.render_widget(below, footer);
    footer::put_cursor(frame, app, footer);
    match (&app.mode, &mut app.opened) {
        (Mode::Help, _) => {
            frame.render_widget(Paragraph::new(" Keys").style(REVERSED), header);
            frame.render_widget(Paragraph::new(KEYS).wrap(Wrap { trim: false }), body);
        }
        (_, Some(opened)) => opened::draw(frame, [header, body], opened, app.now),
        (_, None) => list::draw(frame, [header, body], app),
    }
    if !has_colours {
        let cells = frame.buffer_mut().content.iter_mut();
        cells.for_each(|cell| cell.fg = Color::Reset);
    }
}
