//! What a program has switched on in a terminal that vt100 doesn't know, how it is
//! switched off, and on again.

use std::collections::{BTreeSet, VecDeque};

use vt100::Callbacks;

/// How many levels of a keyboard's flags are kept: the oldest give way, as in terminals.
const LEVELS: usize = 64;

/// The modes of the terminal that vt100 knows, by DEC's numbers. It tells itself
/// whether they are on, but for 6, the origin mode, which no Codex switches on.
const KNOWN: [u16; 12] = [1, 6, 9, 25, 47, 1000, 1002, 1003, 1005, 1006, 1049, 2004];

/// Wraps lines at the end of a row, and is the one mode that is on in the beginning.
const AUTO_WRAP: u16 = 7;

/// What has been switched on that vt100 doesn't know.
#[derive(Debug, Default)]
pub(super) struct Modes {
    /// DEC's private modes that are not as in the beginning: focus, synchronized
    /// output, colour schemes and what is yet to come.
    modes: BTreeSet<u16>,
    /// The flags of the main screen.
    pub(super) main: Keyboard,
    /// The flags of the alternate screen, which are others.
    pub(super) alternate: Keyboard,
    /// How other keys are modified, 0 for not at all. Source: xterm, `modifyOtherKeys`.
    other_keys: u16,
    /// Whether a link is open.
    link: bool,
}

/// The keyboard flags of a screen. Source: kitty, Comprehensive keyboard handling in
/// terminals.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// Those below all levels.
    base: u16,
    /// Those that have been pushed.
    levels: VecDeque<u16>,
}

impl Keyboard {
    /// What makes them what they were in the beginning.
    pub(super) fn undo(&self) -> String {
        let base = if self.base == 0 { "" } else { "\x1b[=0u" };
        match self.levels.len() {
            0 => base.to_owned(),
            levels => format!("\x1b[<{levels}u{base}"),
        }
    }

    /// What makes them what they are of what they were in the beginning.
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

impl Modes {
    fn keyboard(&mut self, screen: &vt100::Screen) -> &mut Keyboard {
        match screen.alternate_screen() {
            true => &mut self.alternate,
            false => &mut self.main,
        }
    }

    /// What switches them off, but for the keyboards.
    pub(super) fn undo(&self) -> String {
        let mut undo = String::new();
        for mode in &self.modes {
            undo.push_str(&private(*mode, *mode == AUTO_WRAP));
        }
        if self.other_keys != 0 {
            undo.push_str("\x1b[>4m");
        }
        if self.link {
            undo.push_str("\x1b]8;;\x1b\\");
        }
        undo
    }

    /// What switches them on again, but for the keyboards and a link, which ends with
    /// what it is written on.
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
            _ if KNOWN.contains(&mode) => {}
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
