//! The terminal: taken when the view begins, and given back as it was, whatever happens.

use std::io::{self, Stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal};

/// The terminal of this process. It is given back when this is dropped, and before a panic is
/// reported.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(crate) fn take() -> io::Result<Self> {
        give_back_on_panic();
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(stdout()))?,
        };
        enter()?;
        Ok(screen)
    }

    /// Draws what has changed. Fails when some task of the process has panicked.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::Relaxed) {
            return Err(io::Error::other("a part of the program has panicked"));
        }
        self.terminal.draw(draw)?;
        Ok(())
    }

    /// Takes the terminal again after the process was stopped.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        // The shell has set modes of its own, of which crossterm knows nothing.
        disable_raw_mode()?;
        enter()?;
        self.clear()
    }

    /// Gives the terminal back, and stops the process group, as Ctrl-Z does elsewhere. Returns when
    /// it continues, or at once if no shell would continue it.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        leave()?;
        kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        enter()?;
        self.clear()
    }

    /// Has everything drawn again. `Terminal::clear` would ask the terminal where the cursor is, and
    /// the keys are read elsewhere.
    fn clear(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have gone.
        let _ = leave();
    }
}

fn give_back_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = leave();
        report(info);
    }));
}

/// Whether this process has the terminal. It is given back once: leaving the alternate screen twice
/// moves the cursor.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    IS_TAKEN.store(true, Ordering::Relaxed);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

fn leave() -> io::Result<()> {
    if !IS_TAKEN.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    // The modes first, as they make it usable: the output may have to wait.
    let reset = reset_modes();
    execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show)?;
    reset
}

/// Sets the modes of the terminal as they were, if this process has changed them. It does not wait
/// for a terminal that takes no output, which may block the thread that draws.
///
/// # Errors
///
/// The error of the operating system.
pub fn reset_modes() -> io::Result<()> {
    disable_raw_mode()
}

#[expect(
    clippy::disallowed_methods,
    reason = "all texts were made visible before they were drawn"
)]
fn stdout() -> Stdout {
    io::stdout()
}
