//! What a program has switched on in a terminal that vt100 doesn't know, and how it is
//! switched off.

use std::collections::BTreeSet;

use vt100::Callbacks;

/// The modes of the terminal that vt100 knows, by DEC's numbers: it tells itself
/// whether they are on.
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
    /// Whether other keys are modified. Source: xterm, `modifyOtherKeys`.
    other_keys: bool,
    /// Whether a link is open.
    link: bool,
}

/// The keyboard flags of a screen. Source: kitty, Comprehensive keyboard handling in
/// terminals.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// How many levels of flags have been pushed.
    pushed: u16,
    /// Whether flags have been set without that.
    set: bool,
}

impl Keyboard {
    /// What makes them what they were in the beginning.
    pub(super) fn undo(&self) -> String {
        let set = if self.set { "\x1b[=0u" } else { "" };
        match self.pushed {
            0 => set.to_owned(),
            levels => format!("{set}\x1b[<{levels}u"),
        }
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
            let back = match *mode {
                AUTO_WRAP => 'h',
                _ => 'l',
            };
            undo.push_str(&format!("\x1b[?{mode}{back}"));
        }
        if self.other_keys {
            undo.push_str("\x1b[>4m");
        }
        if self.link {
            undo.push_str("\x1b]8;;\x1b\\");
        }
        undo
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
            (Some(b'>'), 'u') => {
                let keyboard = self.keyboard(screen);
                keyboard.pushed = keyboard.pushed.saturating_add(1);
            }
            (Some(b'<'), 'u') => {
                let levels = number(0).unwrap_or(0).max(1);
                let keyboard = self.keyboard(screen);
                keyboard.pushed = keyboard.pushed.saturating_sub(levels);
            }
            (Some(b'='), 'u') => self.keyboard(screen).set = number(0).unwrap_or(0) != 0,
            (Some(b'>'), 'm') if number(0) == Some(4) => {
                self.other_keys = number(1).unwrap_or(0) != 0;
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
