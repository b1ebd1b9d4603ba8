//! The terminal of the wrapper: what is shown, and the output that resets it.
//!
//! Input: the rows, the columns, and the output of a program. The byte 0xff stands for a resize to
//! the rows and columns in the next two bytes.

use image_request::logic::screen::ScreenState;
use image_request::screen::Screen;
use rustix::termios::Winsize;

/// The output that resets a terminal with no modes on and the cursor in its first column.
const ALWAYS: &str = "\x1b[m\x1b(B\x0f\x1b[4l\x1b7\x1b[r\x1b8";

/// Tests one input.
pub fn run(data: &[u8]) {
    let &[rows, columns, ref output @ ..] = data else {
        return;
    };
    let whole = state(rows, columns, output, usize::MAX);
    assert_eq!(whole, state(rows, columns, output, 1), "in single bytes");
    assert_eq!(whole, state(rows, columns, output, 5), "in pieces");
    undo_and_redo(rows, columns, output);
}

fn size(rows: u8, columns: u8) -> Winsize {
    Winsize {
        ws_row: u16::from(rows % 40),
        ws_col: u16::from(columns % 120),
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn screen(rows: u8, columns: u8, output: &[u8], piece: usize) -> Screen {
    let mut screen = Screen::new(size(rows, columns));
    let mut rest = output;
    while let Some(resize) = rest.iter().position(|byte| *byte == 0xff) {
        draw(&mut screen, &rest[..resize], piece);
        rest = &rest[resize + 1..];
        let (rows, columns) = (rest.first().copied(), rest.get(1).copied());
        screen.resize(size(rows.unwrap_or(0), columns.unwrap_or(0)));
        rest = rest.get(2..).unwrap_or_default();
    }
    draw(&mut screen, rest, piece);
    screen
}

fn draw(screen: &mut Screen, output: &[u8], piece: usize) {
    for bytes in output.chunks(piece.min(output.len()).max(1)) {
        screen.take(bytes);
        if piece == 1 {
            catch_up(screen);
        }
    }
}

fn catch_up(screen: &mut Screen) {
    while !screen.is_up_to_date() {
        screen.process_next();
    }
}

/// The state of Codex by its screen, and the output that resets it.
fn state(rows: u8, columns: u8, output: &[u8], piece: usize) -> (ScreenState, Vec<u8>, Vec<u8>) {
    let mut screen = screen(rows, columns, output, piece);
    catch_up(&mut screen);
    let (state, undo) = (screen.screen_state(), screen.undo());
    (state, undo, screen.redo())
}

/// After the output that resets it, a terminal has no modes on; and that output reverts the one that
/// switches them on again.
fn undo_and_redo(rows: u8, columns: u8, output: &[u8]) {
    let mut shown = screen(rows, columns, output, usize::MAX);
    let undo = shown.undo();
    let redo = shown.redo();
    shown.take(&undo);
    let reset = shown.undo();
    let text = String::from_utf8_lossy(&reset);
    let rest = text.strip_prefix(ALWAYS);
    assert!(
        rest.is_some_and(is_move),
        "after {:?}: {text:?}",
        String::from_utf8_lossy(&undo)
    );
    shown.take(&redo);
    catch_up(&mut shown);
    let again = shown.redo();
    assert_eq!(
        String::from_utf8_lossy(&again),
        String::from_utf8_lossy(&redo),
        "switched on again"
    );
}

/// Whether the output only moves the cursor below the text.
fn is_move(output: &str) -> bool {
    let (place, end) = match output.strip_prefix("\x1b[") {
        Some(rest) => rest.split_once(";1H").unwrap_or(("?", "")),
        None => ("", output),
    };
    place.bytes().all(|byte| byte.is_ascii_digit()) && matches!(end, "" | "\r" | "\r\n")
}
