//! The content of the user's terminal, and the modes that are on in it.
//!
//! The output to the terminal is also parsed here. Parsing is deferred, so that a program that
//! prints a lot does not wait for the parser.

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{mem, thread};

use rustix::termios::Winsize;
use vt100::Parser;

use super::modes::{Keyboard, Modes, Tail};
use crate::logic::screen::{Row, RowEnd, ScreenState, screen_state};

/// How much output may wait for the parser, in bytes (64 MiB).
pub const PENDING_LIMIT: usize = 64 << 20;

/// How much is parsed at a time, in bytes: a fraction of a millisecond's work. Pending output
/// is kept in slices of this size, as moving it would cost more.
const SLICE: usize = 16 * 1024;

/// The size assumed for a terminal that reports none, in rows and columns.
const DEFAULT_SIZE: (u16, u16) = (24, 80);

/// The largest size that is kept, in rows and columns: more than any screen has.
const MAX_SIZE: (u16, u16) = (500, 2000);

/// How many columns are kept when the terminal gets narrower: enough for the row of a marker,
/// which Codex 0.104.0 does not draw again.
const KEPT_COLUMNS: NonZeroU16 = NonZeroU16::new(40).unwrap();

/// U+FE0F, which makes the character before it an emoji.
const EMOJI_SELECTOR: [u8; 3] = [0xef, 0xb8, 0x8f];

thread_local! {
    /// Whether this thread runs a parser.
    static PARSES: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread is one of a parser, which [`Screen`] contains.
pub(crate) fn is_contained() -> bool {
    PARSES.get()
}

/// Calls a parser, and catches its panic.
pub(crate) fn contained(work: impl FnOnce()) -> thread::Result<()> {
    PARSES.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    PARSES.set(false);
    result
}

/// The screen of a terminal.
pub struct Screen {
    parser: Parser<Modes>,
    selectors: SelectorFilter,
    /// The end of the parsed output.
    tail: Tail,
    pending: VecDeque<Pending>,
}

/// Takes each [`EMOJI_SELECTOR`] out of the output: in the last column of a scroll region it
/// brings vt100 0.18 into a state in which the next text can make it panic. No answer of
/// [`Screen`] depends on it.
#[derive(Debug, Default)]
struct SelectorFilter {
    /// How many bytes of a selector the output ends with.
    begun: usize,
}

impl SelectorFilter {
    fn filter(&mut self, output: &[u8]) -> Vec<u8> {
        let mut filtered = Vec::with_capacity(output.len() + EMOJI_SELECTOR.len());
        for byte in output {
            if EMOJI_SELECTOR.get(self.begun) != Some(byte) {
                filtered.extend(EMOJI_SELECTOR.iter().take(self.begun));
                self.begun = 0;
            }
            match EMOJI_SELECTOR.get(self.begun) == Some(byte) {
                true => self.begun = (self.begun + 1) % EMOJI_SELECTOR.len(),
                false => filtered.push(*byte),
            }
        }
        filtered
    }
}

/// Pending work for the parser.
enum Pending {
    /// A slice of output, which is full if another one follows.
    Output(Vec<u8>),
    /// A resize of the terminal.
    Resize(Winsize),
}

impl Screen {
    /// An empty screen.
    #[must_use]
    pub fn new(size: Winsize) -> Self {
        let (rows, columns) = dimensions(size);
        Self {
            parser: Parser::new_with_callbacks(rows, columns, 0, Modes::default()),
            selectors: SelectorFilter::default(),
            tail: Tail::Text,
            pending: VecDeque::new(),
        }
    }

    /// Queues output to the terminal.
    pub fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let slice = match self.pending.back_mut() {
                Some(Pending::Output(slice)) if slice.len() < SLICE => slice,
                _ => {
                    self.pending
                        .push_back(Pending::Output(Vec::with_capacity(SLICE)));
                    continue;
                }
            };
            let (fits, more) = rest.split_at(rest.len().min(SLICE - slice.len()));
            slice.extend_from_slice(fits);
            rest = more;
        }
        while self.pending.len() > PENDING_LIMIT / SLICE {
            self.process_next();
        }
    }

    /// Parses the next slice of pending output.
    pub fn process_next(&mut self) {
        match self.pending.pop_front() {
            Some(Pending::Output(slice)) => {
                let filtered = self.selectors.filter(&slice);
                self.parse(|parser| parser.process(&filtered));
                self.tail = self.tail.after(&slice);
            }
            Some(Pending::Resize(size)) => {
                let (rows, columns) = dimensions(size);
                let (_, before) = self.parser.screen().size();
                let kept = before.min(KEPT_COLUMNS);
                self.parse(|parser| parser.set_size(rows, columns.max(kept)));
            }
            None => {}
        }
    }

    /// Calls the parser. Its panic costs what is on the screen, which may be a picture that
    /// Codex asks for, but not the running Codex.
    fn parse(&mut self, work: impl FnOnce(&mut Parser<Modes>)) {
        let parser = &mut self.parser;
        if contained(|| work(parser)).is_err() {
            self.replace_parser();
        }
    }

    /// Puts an empty screen of the same size, in the same modes, in the place of the present one.
    fn replace_parser(&mut self) {
        let modes = mem::take(self.parser.callbacks_mut());
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let mut drawn = screen.input_mode_formatted();
        if screen.alternate_screen() {
            drawn.push_str("\x1b[?1049h");
        }
        if screen.hide_cursor() {
            drawn.push_str("\x1b[?25l");
        }
        self.parser = Parser::new_with_callbacks(rows, columns, 0, modes);
        self.parser.process(drawn.as_bytes());
    }

    /// Whether all output was parsed.
    #[must_use]
    pub fn is_up_to_date(&self) -> bool {
        self.pending.is_empty()
    }

    /// Queues a resize of the terminal.
    pub fn resize(&mut self, size: Winsize) {
        self.pending.push_back(Pending::Resize(size));
    }

    /// The state of Codex according to the parsed output.
    #[must_use]
    pub fn screen_state(&self) -> ScreenState {
        let screen = self.parser.screen();
        let (_, columns) = screen.size();
        let texts: Vec<String> = screen.rows(0, columns.get()).collect();
        let rows: Vec<Row<'_>> = texts
            .iter()
            .zip(0..)
            .map(|(text, number)| Row {
                text,
                end: match screen.row_wrapped(number) {
                    true => RowEnd::Wrapped,
                    false => RowEnd::Closed,
                },
            })
            .collect();
        screen_state(&rows)
    }

    /// The output that resets the terminal to its initial state, with the cursor below all
    /// text.
    pub fn undo(&mut self) -> Vec<u8> {
        self.catch_up();
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let fresh = Parser::new(rows, columns, 0);
        let modes = self.parser.callbacks();
        let mut undo = modes.undo(self.tail);
        undo.push_str(&fresh.screen().input_mode_diff(screen));
        // Resets colours, character set, insert mode, and scroll margins, which would move
        // the cursor.
        undo.push_str("\x1b[m\x1b(B\x0f\x1b[4l\x1b7\x1b[r\x1b8");
        match screen.alternate_screen() {
            true => {
                let [alternate, main] = [&modes.alternate, &modes.main].map(Keyboard::undo);
                undo.push_str(&format!("{alternate}\x1b[?1049l{main}"));
            }
            false => undo.push_str(&format!("{}{}", modes.main.undo(), below(screen))),
        }
        if screen.hide_cursor() {
            undo.push_str("\x1b[?25h");
        }
        undo.into_bytes()
    }

    /// The output that reverts [`undo`](Self::undo), for a program that does not know of it:
    /// restores the modes and the content of the alternate screen. Text on the main screen stays.
    #[must_use]
    pub fn redo(&self) -> Vec<u8> {
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let fresh = Parser::new(rows, columns, 0);
        let modes = self.parser.callbacks();
        let mut redo = modes.main.redo();
        if screen.alternate_screen() {
            let drawn = screen.contents_formatted();
            redo.push_str(&format!("\x1b[?1049h{}{drawn}", modes.alternate.redo()));
        } else if screen.hide_cursor() {
            redo.push_str("\x1b[?25l");
        }
        redo.push_str(&screen.input_mode_diff(fresh.screen()));
        redo.push_str(&modes.redo());
        redo.into_bytes()
    }

    fn catch_up(&mut self) {
        while !self.is_up_to_date() {
            self.process_next();
        }
    }
}

/// Moves the cursor into the first empty row below all text, unless it is below already.
fn below(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let written = screen
        .rows(0, columns.get())
        .zip(1_u16..)
        .filter(|(text, _)| !text.trim().is_empty())
        .map(|(_, number)| number)
        .last()
        .unwrap_or(0);
    let (row, _) = screen.cursor_position();
    match written {
        _ if row >= written => "\r".to_owned(),
        last if last < rows.get() => format!("\x1b[{};1H", last + 1),
        last => format!("\x1b[{last};1H\r\n"),
    }
}

fn dimensions(size: Winsize) -> (NonZeroU16, NonZeroU16) {
    let within = |number: u16, usual, most| {
        let usual = NonZeroU16::new(usual).unwrap_or(NonZeroU16::MIN);
        NonZeroU16::new(number.min(most)).unwrap_or(usual)
    };
    (
        within(size.ws_row, DEFAULT_SIZE.0, MAX_SIZE.0),
        within(size.ws_col, DEFAULT_SIZE.1, MAX_SIZE.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(rows: u16, columns: u16, drawn: &str) -> Screen {
        let mut screen = Screen::new(size(rows, columns));
        screen.take(drawn.as_bytes());
        screen
    }

    fn size(rows: u16, columns: u16) -> Winsize {
        Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        }
    }

    fn sees(mut screen: Screen) -> ScreenState {
        screen.catch_up();
        screen.screen_state()
    }

    #[test]
    fn marker_is_found_coloured_wrapped_and_redrawn() {
        let composer = "\r\n\r\n\x1b[1m›\x1b[0m Ask\r\n";
        let marker = "\x1b[32m• \x1b[1m<<WAITING\x1b[0m_FOR_IMAGE>>";
        let coloured = screen(9, 40, &format!("{marker}{composer}"));
        assert_eq!(sees(coloured), ScreenState::Waiting);
        let wrapped = screen(9, 13, &format!("{marker}{composer}"));
        assert_eq!(sees(wrapped), ScreenState::Waiting);
        let parts = "\x1b[3;3H_FOR_IMAGE>>\x1b[5;1H› x\x1b[2;1H• <<WAIT\x1b[3;1H  \x1b[2;9HING";
        assert_eq!(sees(screen(9, 14, parts)), ScreenState::Waiting);
        let overwritten = format!("{marker}{composer}\x1b[1;6HX");
        assert_eq!(sees(screen(9, 40, &overwritten)), ScreenState::Other);
    }

    #[test]
    fn marker_cut_by_a_narrower_terminal_is_found() {
        let mut cut = screen(9, 80, "• <<WAITING_FOR_IMAGE>>\r\n\r\n› x");
        for columns in [20, 10] {
            cut.resize(size(9, columns));
            cut.catch_up();
            assert_eq!(cut.screen_state(), ScreenState::Waiting);
        }
    }

    #[test]
    fn pending_output_is_not_part_of_the_screen() {
        let mut screen = screen(9, 40, "• <<WAITING_FOR_IMAGE>>\r\n\r\n› x");
        assert!(!screen.is_up_to_date());
        assert_eq!(screen.screen_state(), ScreenState::Other);
        screen.process_next();
        assert!(screen.is_up_to_date());
        assert_eq!(screen.screen_state(), ScreenState::Waiting);
    }

    #[test]
    fn pending_output_is_bounded() {
        let mut screen = screen(9, 40, "");
        let line = [b'x'; 1 << 20];
        for _ in 0..80 {
            screen.take(&line);
        }
        let length = |pending: &Pending| match pending {
            Pending::Output(slice) => slice.len(),
            Pending::Resize(_) => 0,
        };
        let aside: usize = screen.pending.iter().map(length).sum();
        assert!(
            aside <= PENDING_LIMIT && aside > PENDING_LIMIT / 2,
            "{aside}"
        );
        screen.catch_up();
        assert!(screen.is_up_to_date());
    }

    #[test]
    fn terminal_without_a_size_gets_the_default_size() {
        let mut screen = screen(0, 0, &"x".repeat(81));
        screen.catch_up();
        assert_eq!(screen.parser.screen().cursor_position(), (1, 1));
    }

    /// Undo switches off every mode that is on, and changes nothing else.
    #[test]
    fn undo_switches_modes_off() {
        let undone = |drawn: &str| String::from_utf8(screen(9, 40, drawn).undo()).unwrap();
        let always = undone("");
        assert_eq!(always, "\x1b[m\x1b(B\x0f\x1b[4l\x1b7\x1b[r\x1b8\r");
        for (on, off) in [
            ("\x1b[?2004h", "\x1b[?2004l"),
            ("\x1b[?1000h", "\x1b[?1000l"),
            ("\x1b[?1006h", "\x1b[?1006l"),
            ("\x1b[?1h", "\x1b[?1l"),
            ("\x1b=", "\x1b>"),
            ("\x1b[?25l", "\x1b[?25h"),
            ("\x1b[?1049h", "\x1b[?1049l"),
            ("\x1b[?1004;2026h", "\x1b[?1004l\x1b[?2026l"),
            ("\x1b[?7l", "\x1b[?7h"),
            ("\x1b[>5u\x1b[>1u", "\x1b[<2u"),
            ("\x1b[=1;1u", "\x1b[=0u"),
            ("\x1b[>4;2m", "\x1b[>4m"),
            ("\x1b]8;;https://example.org\x1b\\link", "\x1b]8;;\x1b\\"),
            // Undo ends the command, which then opens a link.
            ("\x1b]8;;https://exam", "\x1b]8;;\x1b\\"),
            ("\x1b\n]8;;https://exam", "\x1b]8;;\x1b\\"),
            ("\x1bß]8;;https://exam", "\x1b]8;;\x1b\\"),
        ] {
            assert!(undone(on).contains(off), "{on:?}: {:?}", undone(on));
        }
        for pair in [
            "\x1b[?2004h\x1b[?2004l",
            "\x1b[?1004h\x1b[?1004l",
            "\x1b[?1049h\x1b[?1049l",
            "\x1b[?25l\x1b[?25h",
            "\x1b[?7l\x1b[?7h",
            "\x1b[>5u\x1b[<u",
            "\x1b[=1u\x1b[=0u",
            "\x1b[>4;2m\x1b[>4;0m",
            "\x1b]8;;x\x1b\\\x1b]8;;\x1b\\",
            "\x1b]0;title\x07",
            "\x1b]0;title\x1b[",
        ] {
            assert_eq!(undone(pair), always, "{pair:?}");
        }
    }

    /// The program does not know that its modes were off.
    #[test]
    fn redo_switches_modes_on_again() {
        let redone = |drawn: &str| {
            let mut screen = screen(9, 40, drawn);
            screen.undo();
            String::from_utf8(screen.redo()).unwrap()
        };
        assert_eq!(redone("text"), "");
        for on in [
            "\x1b[?2004h",
            "\x1b[?25l",
            "\x1b[?7l",
            "\x1b[>4;2m",
            "\x1b[=5u\x1b[>7u\x1b[>1u",
        ] {
            assert_eq!(redone(on), on, "{on:?}");
        }
        assert_eq!(redone("\x1b[>7u\x1b[=2;2u\x1b[=1;3u"), "\x1b[>6u");
        assert_eq!(redone("\x1b[?1004h\x1b[?2026h\x1b[?1004l"), "\x1b[?2026h");
        let whole = redone("\x1b[>7u\x1b[?1049h\x1b[>1u\x1b[3;3Hthere");
        assert!(
            whole.starts_with("\x1b[>7u\x1b[?1049h\x1b[>1u"),
            "{whole:?}"
        );
        assert!(whole.contains("there"), "{whole:?}");
    }

    #[test]
    fn output_before_a_resize_is_read_at_the_old_size() {
        let mut screen = screen(9, 80, &"x".repeat(80));
        screen.resize(size(9, 60));
        screen.take(b"\r\nnext");
        screen.catch_up();
        assert_eq!(screen.parser.screen().cursor_position(), (1, 4));
    }

    /// As Codex 0.169.0 does it.
    #[test]
    fn keyboard_flags_are_restored_for_each_screen() {
        let both = "\x1b[>7u\x1b[?1049h\x1b[>7u\x1b[>1u";
        let undo = String::from_utf8(screen(9, 40, both).undo()).unwrap();
        assert!(undo.ends_with("\x1b[<2u\x1b[?1049l\x1b[<1u"), "{undo:?}");
        let left = format!("{both}\x1b[<2u\x1b[?1049l");
        let undo = String::from_utf8(screen(9, 40, &left).undo()).unwrap();
        assert!(
            undo.contains("\x1b[<1u") && !undo.contains("1049"),
            "{undo:?}"
        );
    }

    #[test]
    fn endless_title_takes_no_memory() {
        let mut screen = screen(9, 40, "\x1b]0;");
        for _ in 0..4 {
            screen.take(&[b'x'; 1 << 20]);
            screen.catch_up();
        }
        screen.take(b"\x07\x1b[Hdone");
        screen.catch_up();
        assert_eq!(screen.parser.screen().contents(), "done");
    }

    /// A heart as an emoji in the last corner of 9 x 40, which scrolls, and text over the cell
    /// where it was.
    const CORNER: &str = "\x1b[9;40H❤\u{fe0f}\x1b[8;40Hx";

    #[test]
    fn emoji_in_the_last_corner_is_drawn_without_its_selector() {
        let (rows, columns) = dimensions(size(9, 40));
        let bare = contained(|| Parser::new(rows, columns, 0).process(CORNER.as_bytes()));
        assert!(bare.is_err(), "vt100 needs no filter any more");
        let mut whole = screen(9, 40, CORNER);
        whole.catch_up();
        let mut bytewise = screen(9, 40, "");
        for byte in CORNER.bytes() {
            bytewise.take(&[byte]);
            bytewise.catch_up();
        }
        for screen in [whole, bytewise] {
            let text = screen.parser.screen().contents();
            assert!(text.contains('x') && text.contains('❤'), "{text:?}");
        }
    }

    #[test]
    fn filter_takes_out_whole_selectors_only() {
        let mut filter = SelectorFilter::default();
        let mut filtered = filter.filter("a⚠\u{fe0f}\u{fe0e}\u{fe0f}b".as_bytes());
        assert_eq!(filtered, "a⚠\u{fe0e}b".as_bytes());
        filtered = filter.filter(b"\xef\xb8");
        filtered.extend(filter.filter(b"\xef"));
        filtered.extend(filter.filter(b"\xb8\x8f\xefc"));
        assert_eq!(filtered, b"\xef\xb8\xefc");
    }

    #[test]
    fn panic_of_the_parser_leaves_an_empty_screen_in_the_same_modes() {
        let on = "\x1b[?2004h\x1b[?1004h\x1b[>7u\x1b[?1049h\x1b[?25l";
        let modes = |screen: &mut Screen| {
            let undo = String::from_utf8(screen.undo()).unwrap();
            assert!(undo.contains("\x1b[?1049l"), "{undo:?}");
            undo
        };
        let mut screen = screen(9, 40, &format!("{on}before"));
        let before = modes(&mut screen);
        screen.parse(|parser| parser.process(CORNER.as_bytes()));
        assert!(!is_contained());
        assert_eq!(screen.parser.screen().contents(), "");
        assert_eq!(screen.parser.screen().size(), dimensions(size(9, 40)));
        assert_eq!(modes(&mut screen), before);
        screen.take("\x1b[H• <<WAITING_FOR_IMAGE>>\r\n\r\n› x".as_bytes());
        assert_eq!(sees(screen), ScreenState::Waiting);
    }

    #[test]
    fn size_of_a_huge_terminal_is_bounded() {
        let screen = screen(u16::MAX, u16::MAX, "");
        let (rows, columns) = screen.parser.screen().size();
        assert_eq!((rows.get(), columns.get()), MAX_SIZE);
    }

    #[test]
    fn undo_moves_the_cursor_below_the_text() {
        let end = |drawn: &str| {
            let undo = String::from_utf8(screen(3, 40, drawn).undo()).unwrap();
            undo.rsplit_once("\x1b8").unwrap().1.to_owned()
        };
        assert_eq!(end("one\r\ntwo\x1b[1;1H"), "\x1b[3;1H");
        assert_eq!(end("one\r\ntwo\r\nthree\x1b[1;1H"), "\x1b[3;1H\r\n");
        assert_eq!(end("one\r\n"), "\r");
    }
}
