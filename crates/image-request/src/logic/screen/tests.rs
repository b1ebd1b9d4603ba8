use proptest::prelude::*;

use super::*;
use crate::logic::contract::{ATTACHED, acknowledgement, instructions};

/// Where Codex waits: screens of real ones on which it does.
const WAITING: [(&str, &str); 9] = [
    ("0.104.0", include_str!("screens/0.104.0-100-columns.txt")),
    (
        "0.104.0, narrow",
        include_str!("screens/0.104.0-16-columns.txt"),
    ),
    (
        "0.104.0, resumed",
        include_str!("screens/0.104.0-resumed.txt"),
    ),
    ("0.153.4", include_str!("screens/0.153.4-60-columns.txt")),
    (
        "0.153.4, resumed",
        include_str!("screens/0.153.4-resumed.txt"),
    ),
    ("0.169.0", include_str!("screens/0.169.0-100-columns.txt")),
    (
        "0.169.0, narrow",
        include_str!("screens/0.169.0-16-columns.txt"),
    ),
    (
        "0.169.0, resumed",
        include_str!("screens/0.169.0-resumed.txt"),
    ),
    (
        "0.169.0, with a tip",
        include_str!("screens/0.169.0-tip.txt"),
    ),
];

fn closed(text: &str) -> Row<'_> {
    let end = RowEnd::Closed;
    Row { text, end }
}

fn look(screen: &str) -> ScreenState {
    let rows: Vec<Row<'_>> = screen.lines().map(closed).collect();
    screen_state(&rows)
}

fn with_composer(transcript: &str) -> String {
    format!("{transcript}\n\n› Ask Codex to do anything\n\n  ? for shortcuts\n")
}

#[test]
fn waiting_is_recognized_on_real_screens() {
    for (which, screen) in WAITING {
        assert_eq!(look(screen), ScreenState::Waiting, "{which}");
    }
}

/// Neither the old conversation nor the acknowledgement nor what was sent counts.
#[test]
fn real_screens_without_the_marker_are_not_waiting() {
    for (which, screen) in WAITING {
        let (before, after) = screen.rsplit_once("• <<").unwrap();
        let (_, composer) = after.split_once("\n›").unwrap();
        let before = format!("{before}\n›{composer}");
        assert_eq!(look(&before), ScreenState::Other, "{which}");
        let (asked, _) = before.rsplit_once("\n• Called").unwrap();
        let asked = format!("{asked}\n›{composer}");
        assert_eq!(look(&asked), ScreenState::Other, "{which}, before the call");
    }
}

#[test]
fn working_codex_is_not_waiting() {
    for (which, screen) in WAITING {
        for working in ["• Working (0s • esc to interrupt)", "◦ Working (9s)"] {
            let at = screen.rfind("\n›").unwrap();
            let (before, composer) = screen.split_at(at);
            let screen = format!("{before}\n{working}\n{composer}");
            assert_eq!(look(&screen), ScreenState::Other, "{which}");
        }
    }
}

#[test]
fn waiting_is_recognized_after_scrolling() {
    for (which, screen) in WAITING {
        let lines: Vec<&str> = screen.lines().collect();
        let message = lines.iter().rposition(|line| line.starts_with("• <<"));
        for top in 0..lines.len() {
            let expected = match Some(top) <= message {
                true => ScreenState::Waiting,
                false => ScreenState::Other,
            };
            let rest = lines[top..].join("\n");
            assert_eq!(look(&rest), expected, "{which} from row {top}");
        }
    }
}

#[test]
fn marker_outside_of_codex_messages_does_not_count() {
    let no_orders = [
        "› <<WAITING_FOR_IMAGE>>",
        "› is it\n  <<WAITING_FOR_IMAGE>>",
        "• Ran cat a.txt\n  └ <<WAITING_FOR_IMAGE>>",
        "• Ran cat a.txt\n  └ a\n    <<WAITING_FOR_IMAGE>>\n\n    <<WAITING_FOR_IMAGE>>",
        "• Ran sh -c 'echo\n  │ <<WAITING_FOR_IMAGE>>\n  └ (no output)",
        "• Queued follow-up inputs\n  ↳ <<WAITING_FOR_IMAGE>>",
        "• Ran sh -c 'echo\n  │ <<WAITING_FOR_IMAGE>>\n  └ Tip: x",
        "• Ran cat a.txt\n  └ aaa\n<<WAITING_FOR_IMAGE>>",
        "• I was to print\n\n<<WAITING_FOR_IMAGE>>",
        "• Ran cat a.txt\n  └ Tip: x\n    <<WAITING_FOR_IMAGE>>\n\n    <<WAITING_FOR_IMAGE>>",
        "• Ran cat a.txt\n\n  └ <<WAITING_FOR_IMAGE>>\n  └ Tip: x",
        "• I was to print <<WAITING_FOR_IMAGE>>\n  └ Tip: x",
        "• <<WAITING_FOR_IMAGE>>\n\n  I see it.\n  └ Tip: x",
        "• Edited a.txt (+1 -0)\n    1 +<<WAITING_FOR_IMAGE>>",
        "• I was to print <<WAITING_FOR_IMAGE>>",
        "• <<WAITING_FOR_IMAGE>> is what I print",
        "• <<WAITING_FOR_IMAGE>>\n  is what I print",
        "• <<WAITING_FOR_\n\n  IMAGE>>",
        "• <<waiting_for_image>>",
        "  <<WAITING_FOR_IMAGE>>",
        "⚠ <<WAITING_FOR_IMAGE>>",
        "•<<WAITING_FOR_IMAGE>>",
        "<<WAITING_FOR_IMAGE>>",
    ];
    for screen in no_orders {
        assert_eq!(look(&with_composer(screen)), ScreenState::Other, "{screen}");
    }
    let typing = "• Hello\n\n› <<WAITING_FOR_IMAGE>>\n  <<WAITING_FOR_IMAGE>>\n\n  ? for shortcuts";
    assert_eq!(look(typing), ScreenState::Other);
}

#[test]
fn message_with_text_before_the_marker_counts() {
    let orders = [
        "• I need to see it.\n\n  <<WAITING_FOR_IMAGE>>",
        "• I need to see it.\n  <<WAITING_FOR_IMAGE>>",
        "• Directories:\n  └── a.png\n\n  <<WAITING_FOR_IMAGE>>",
        "• <<WAITING_\n  FOR_IMAGE>>\n  └ Tip: Use\n    /mcp to\n\n  Worked for <1s",
        "• I need to see it.\n\n  <<WAITING_FOR_IMAGE>>\n  └ Tip: Use /mcp",
        "• <<WAITING_FOR_IMAG\nE>>",
        "•\n<<WAITING_FOR_IMAGE>\n>",
        "• <<WAITING_FOR_IMAGE>>\n\n⚠ something is old\n\n────",
    ];
    for screen in orders {
        assert_eq!(
            look(&with_composer(screen)),
            ScreenState::Waiting,
            "{screen}"
        );
    }
}

#[test]
fn screen_without_composer_is_not_waiting() {
    assert_eq!(look("• <<WAITING_FOR_IMAGE>>\n"), ScreenState::Other);
    assert_eq!(look(""), ScreenState::Other);
}

#[test]
fn wrapped_rows_continue_in_the_first_column() {
    let row = |text, end| Row { text, end };
    let composer = closed("› ");
    let waiting = [
        row("• <<WAITING_", RowEnd::Wrapped),
        row("FOR_IMAGE>>", RowEnd::Closed),
        composer,
    ];
    assert_eq!(screen_state(&waiting), ScreenState::Waiting);
    // A long row of a tool's result that is wrapped just before what looks like a message.
    let not = [
        row("• Ran cat a.txt", RowEnd::Closed),
        row("  └ aaaaaaaaaaaa", RowEnd::Wrapped),
        row("• <<WAITING_FOR_IMAGE>>", RowEnd::Closed),
        composer,
    ];
    assert_eq!(screen_state(&not), ScreenState::Other);
    let last = [row("• <<WAITING_FOR_IMAGE>>", RowEnd::Wrapped)];
    assert_eq!(screen_state(&last), ScreenState::Other);
}

/// A part of a conversation, to be drawn.
#[derive(Debug, Clone)]
enum Cell {
    Sent(String),
    Said(String),
    Waits,
    Called(String),
    Warned(String),
    Working,
}

impl Cell {
    fn draw(&self, width: usize) -> Vec<String> {
        match self {
            Self::Sent(text) => indented("› ", "  ", text, width),
            Self::Said(text) => indented("• ", "  ", text, width),
            Self::Waits => indented("• ", "  ", MARKER, width),
            Self::Called(text) => {
                let mut rows = indented("• ", "  │ ", "Called it", width);
                rows.extend(indented("  └ ", "    ", text, width));
                rows
            }
            Self::Warned(text) => indented("⚠ ", "  ", text, width),
            Self::Working => vec!["◦ Working (1s • esc to interrupt)".to_owned()],
        }
    }

    fn is_of_codex_or_somebody(&self) -> bool {
        !matches!(self, Self::Warned(_))
    }
}

/// The text in rows of the width, broken between words and in long ones, as Codex does.
fn indented(first: &str, rest: &str, text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![first.to_owned()];
    let mut begun = false;
    for line in text.lines() {
        if begun {
            rows.push(rest.to_owned());
        }
        for (index, word) in line.split(' ').enumerate() {
            let used = rows.last().unwrap().chars().count();
            if index > 0 && used + 1 + word.chars().count() <= width {
                rows.last_mut().unwrap().push(' ');
            } else if index > 0 {
                rows.push(rest.to_owned());
            }
            for one in word.chars() {
                if rows.last().unwrap().chars().count() >= width {
                    rows.push(rest.to_owned());
                }
                rows.last_mut().unwrap().push(one);
            }
        }
        begun = true;
    }
    rows
}

/// Texts of a conversation, some of which look like a request, an acknowledgement or the
/// instructions.
fn words() -> impl Strategy<Value = String> {
    let acknowledged = acknowledgement(&"./a.png".parse().unwrap());
    prop_oneof![
        "[a-z]{1,9}( [a-z]{1,9}){0,9}",
        Just(format!("see {MARKER}")),
        Just(format!("{MARKER} it is")),
        Just(acknowledged),
        Just(instructions().replace(&format!("{MARKER}\n"), "")),
    ]
}

/// Texts of somebody else, which may also have the marker on a line of its own.
fn hostile() -> impl Strategy<Value = String> {
    let lone = [MARKER.to_owned(), format!("a\n{MARKER}\nb\n{MARKER}")];
    prop_oneof![words(), proptest::sample::select(lone.to_vec())]
}

fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        3 => hostile().prop_map(Cell::Sent),
        2 => words().prop_filter("breaks only", |text| !breaks(text)).prop_map(Cell::Said),
        2 => Just(Cell::Waits),
        3 => hostile().prop_map(Cell::Called),
        1 => hostile().prop_map(Cell::Warned),
        1 => Just(Cell::Working),
    ]
}

/// Whether words could be broken so that the marker stands alone at the end of a
/// paragraph: then Codex has as good as printed it.
fn breaks(text: &str) -> bool {
    let mut paragraphs = text.split("\n\n");
    paragraphs.any(|paragraph| paragraph.trim_end().ends_with(MARKER))
}

fn screen(cells: &[Cell], width: usize, typed: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for cell in cells {
        rows.extend(cell.draw(width));
        rows.push(String::new());
    }
    rows.extend(indented("› ", "  ", typed, width));
    rows.extend([String::new(), "  ? for shortcuts".to_owned()]);
    rows
}

fn rows_sight(rows: &[String]) -> ScreenState {
    let rows: Vec<Row<'_>> = rows.iter().map(|row| closed(row)).collect();
    screen_state(&rows)
}

proptest! {
    /// Codex waits exactly if the last thing that it or somebody has done is that it
    /// has printed the marker; however wide the screen is.
    #[test]
    fn last_message_decides_whether_codex_waits(
        cells in proptest::collection::vec(cell(), 0..8),
        typed in hostile(),
        width in 10_usize..120,
    ) {
        let last = cells.iter().rfind(|cell| cell.is_of_codex_or_somebody());
        let expected = match last {
            Some(Cell::Waits) => ScreenState::Waiting,
            _ => ScreenState::Other,
        };
        let rows = screen(&cells, width, &typed);
        prop_assert_eq!(rows_sight(&rows), expected, "{}", rows.join("\n"));
    }

    /// After a resume all of the old conversation is history, whatever was in it.
    #[test]
    fn old_conversation_is_not_waiting(
        cells in proptest::collection::vec(cell(), 0..8),
        new in proptest::collection::vec(hostile().prop_map(Cell::Called), 0..2),
        width in 10_usize..120,
        top in 0_usize..60,
    ) {
        let words = Cell::Sent(ATTACHED.to_owned());
        let cells: Vec<Cell> = cells.into_iter().chain([words]).chain(new).collect();
        let rows = screen(&cells, width, "");
        let words = rows.iter().rposition(|row| row.starts_with("› Req")).unwrap();
        let rows = &rows[top.min(words)..];
        prop_assert_eq!(rows_sight(rows), ScreenState::Other, "{}", rows.join("\n"));
    }

    #[test]
    fn arbitrary_screen_does_not_panic(
        rows in proptest::collection::vec((r"[•›◦└ ßa<>]{0,9}(<<WAITING_FOR_IMAGE>>)?", any::<bool>()), 0..9),
        any in any::<String>(),
    ) {
        let end = |wrapped: bool| match wrapped {
            true => RowEnd::Wrapped,
            false => RowEnd::Closed,
        };
        let rows = rows.iter().map(|(text, wrapped)| Row { text, end: end(*wrapped) });
        let rows: Vec<Row<'_>> = rows.chain([closed(&any)]).collect();
        let _ = screen_state(&rows);
    }
}
