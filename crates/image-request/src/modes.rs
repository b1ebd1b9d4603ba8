//! Terminal modes that vt100 does not track: how to switch them off, and on again.

use std::collections::{BTreeSet, VecDeque};

use vt100::Callbacks;

/// How many levels of keyboard flags are kept. The oldest is dropped, as in terminals.
const LEVELS: usize = 64;

/// The modes that vt100 tracks, by DEC's numbers. It reports all of them but 6, the origin
/// mode, which no release of Codex uses.
const TRACKED_BY_VT100: [u16; 12] = [1, 6, 9, 25, 47, 1000, 1002, 1003, 1005, 1006, 1049, 2004];

/// The mode that wraps lines, the only one that is on initially.
const AUTO_WRAP: u16 = 7;

/// The modes that were changed and that vt100 does not track.
#[derive(Debug, Default)]
pub(super) struct Modes {
    /// DEC's private modes that differ from the initial state: focus, synchronized output,
    /// colour schemes, and future ones.
    modes: BTreeSet<u16>,
    /// The keyboard flags of the main screen.
    pub(super) main: Keyboard,
    /// The keyboard flags of the alternate screen.
    pub(super) alternate: Keyboard,
    /// The level of `modifyOtherKeys`, 0 for off. Source: xterm, `modifyOtherKeys`.
    other_keys: u16,
    /// Whether a link is open.
    link: bool,
}

/// The keyboard flags of a screen. Source: kitty, Comprehensive keyboard handling in
/// terminals.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// The flags below all levels.
    base: u16,
    /// The pushed flags.
    levels: VecDeque<u16>,
}

impl Keyboard {
    /// The output that resets the flags to their initial state.
    pub(super) fn undo(&self) -> String {
        let base = if self.base == 0 { "" } else { "\x1b[=0u" };
        match self.levels.len() {
            0 => base.to_owned(),
            levels => format!("\x1b[<{levels}u{base}"),
        }
    }

    /// The output that restores the flags after [`undo`](Self::undo).
    pub(super) fn redo(&self) -> String {
        let mut redo = match self.base {
            0 => String::new(),
            flags => format!("\x1b[={flags}u"),
        };
        for flags in &self.levels {
            redo.push_str(&format!("\x1b[>{flags}u"));
        }
        redo
    }

    fn push(&mut self, flags: u16) {
        if self.levels.len() == LEVELS {
            self.levels.pop_front();
        }
        self.levels.push_back(flags);
    }

    fn pop(&mut self, levels: u16) {
        let left = self.levels.len().saturating_sub(levels.into());
        self.levels.truncate(left);
    }

    fn set(&mut self, flags: u16, how: u16) {
        let current = self.levels.back_mut().unwrap_or(&mut self.base);
        *current = match how {
            2 => *current | flags,
            3 => *current & !flags,
            _ => flags,
        };
    }
}

/// The end of some output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Text, or the beginning of a sequence without consequences.
    Text,
    /// An escape.
    Escape,
    /// An operating system command without its end, such as that of a link. Source: ECMA-48, OSC.
    Command,
}

impl Tail {
    /// The tail after more output.
    pub(super) fn after(self, output: &[u8]) -> Self {
        output.iter().fold(self, |tail, byte| match (tail, byte) {
            (_, 0x1b) => Self::Escape,
            // CAN and SUB cancel a sequence. Other control characters are executed within the
            // sequence.
            (_, 0x18 | 0x1a) => Self::Text,
            (Self::Escape, 0x00..=0x1f) => Self::Escape,
            // DEL, and bytes that are no part of a sequence, are ignored.
            (Self::Escape, 0x7f..=0xff) => Self::Escape,
            (Self::Escape, b']') => Self::Command,
            (Self::Command, 0x07) => Self::Text,
            (Self::Command, _) => Self::Command,
            (Self::Text | Self::Escape, _) => Self::Text,
        })
    }
}

impl Modes {
    fn keyboard(&mut self, screen: &vt100::Screen) -> &mut Keyboard {
        match screen.alternate_screen() {
            true => &mut self.alternate,
            false => &mut self.main,
        }
    }

    /// The output that switches the modes off, without the keyboard flags. `tail` is the end of the
    /// output before it.
    pub(super) fn undo(&self, tail: Tail) -> String {
        let mut undo = String::new();
        for mode in &self.modes {
            undo.push_str(&private(*mode, *mode == AUTO_WRAP));
        }
        if self.other_keys != 0 {
            undo.push_str("\x1b[>4m");
        }
        // The first escape ends an open command, and many terminals then obey it.
        if self.link || tail == Tail::Command {
            undo.push_str("\x1b]8;;\x1b\\");
        }
        undo
    }

    /// The output that switches the modes on again, without the keyboard flags, and without a link,
    /// which belongs to text that is already written.
    pub(super) fn redo(&self) -> String {
        let mut redo = String::new();
        for mode in &self.modes {
            redo.push_str(&private(*mode, *mode != AUTO_WRAP));
        }
        if self.other_keys != 0 {
            redo.push_str(&format!("\x1b[>4;{}m", self.other_keys));
        }
        redo
    }

    fn private_mode(&mut self, mode: u16, set: bool) {
        let as_begun = set == (mode == AUTO_WRAP);
        match as_begun {
            _ if TRACKED_BY_VT100.contains(&mode) => {}
            true => {
                self.modes.remove(&mode);
            }
            false => {
                self.modes.insert(mode);
            }
        }
    }
}

/// Switches one of DEC's private modes on or off.
fn private(mode: u16, on: bool) -> String {
    let end = if on { 'h' } else { 'l' };
    format!("\x1b[?{mode}{end}")
}

impl Callbacks for Modes {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        _: Option<u8>,
        params: &[&[u16]],
        end: char,
    ) {
        let number = |at: usize| params.get(at).and_then(|param| param.first()).copied();
        match (first, end) {
            (Some(b'?'), 'h' | 'l') => {
                for mode in params.iter().filter_map(|param| param.first()) {
                    self.private_mode(*mode, end == 'h');
                }
            }
            (Some(b'>'), 'u') => self.keyboard(screen).push(number(0).unwrap_or(0)),
            (Some(b'<'), 'u') => self.keyboard(screen).pop(number(0).unwrap_or(0).max(1)),
            (Some(b'='), 'u') => {
                let (flags, how) = (number(0).unwrap_or(0), number(1).unwrap_or(1));
                self.keyboard(screen).set(flags, how);
            }
            (Some(b'>'), 'm') if number(0) == Some(4) => {
                self.other_keys = number(1).unwrap_or(0);
            }
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        if let [b"8", _, target, ..] = params {
            self.link = !target.is_empty();
        }
    }
}
