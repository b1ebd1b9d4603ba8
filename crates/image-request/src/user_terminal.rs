//! The user's terminal: raw while Codex uses it, and restored afterwards.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{panic, thread};

use common::sync::lock;
use rustix::termios::{Termios, Winsize};

use super::screen;
use super::tty::{Tty, attributes, set_attributes};

/// How long restoring waits for a terminal that takes no output.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval between attempts to write to the terminal.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The user's terminal. It is restored on drop, and before a panic is reported.
#[derive(Debug)]
pub struct UserTerminal {
    tty: Tty,
    saved: Arc<SavedState>,
}

/// The state of the terminal before the wrapper.
#[derive(Debug)]
struct SavedState {
    tty: File,
    attributes: Termios,
    /// The output that restores the terminal; `None` while there is nothing to restore.
    undo: Mutex<Option<Vec<u8>>>,
}

impl UserTerminal {
    /// The terminal of stdin and stdout, unchanged.
    ///
    /// # Errors
    ///
    /// If they are not terminals.
    pub fn find() -> io::Result<Self> {
        Self::of(Tty::of_user()?)
    }

    fn of(tty: Tty) -> io::Result<Self> {
        let saved = SavedState {
            attributes: attributes(tty.try_clone()?)?,
            tty: tty.try_clone()?,
            undo: Mutex::new(None),
        };
        Ok(Self {
            tty,
            saved: Arc::new(saved),
        })
    }

    /// Restores the terminal before a panic is reported, so that the report is readable. A panic
    /// that the screen contains is not reported: Codex continues in the terminal.
    pub fn restore_on_panic(&self) {
        let saved = Arc::downgrade(&self.saved);
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if screen::is_contained() {
                return;
            }
            if let Some(saved) = saved.upgrade() {
                // The report is more important than an error of this.
                let _ = saved.restore();
            }
            report(about);
        }));
    }

    /// Makes the terminal raw, so that keys reach Codex unchanged.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.saved.attributes.clone();
        raw.make_raw();
        lock(&self.saved.undo).get_or_insert_default();
        set_attributes(&self.saved.tty, &raw)
    }

    /// Whether the terminal is raw, so that we may write to it. While the wrapper is stopped, a
    /// shell has the terminal.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        lock(&self.saved.undo).is_some()
    }

    /// Sets the output that restores the terminal. Ignored while the terminal is not raw.
    pub fn set_undo(&self, bytes: Vec<u8>) {
        if let Some(undo) = lock(&self.saved.undo).as_mut() {
            *undo = bytes;
        }
    }

    /// Restores the terminal.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn restore(&self) -> io::Result<()> {
        self.saved.restore()
    }

    /// The attributes of the terminal when it is not raw.
    #[must_use]
    pub fn attributes(&self) -> &Termios {
        &self.saved.attributes
    }

    /// Its size.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn size(&self) -> io::Result<Winsize> {
        self.tty.size()
    }

    /// The terminal for reading keys and writing output.
    #[must_use]
    pub fn tty(&self) -> &Tty {
        &self.tty
    }
}

impl SavedState {
    fn restore(&self) -> io::Result<()> {
        let Some(undo) = lock(&self.undo).take() else {
            return Ok(());
        };
        // The attributes first, since they make the terminal usable: writing the output may have to
        // wait.
        let back = set_attributes(&self.tty, &self.attributes);
        back.and(self.write(&undo))
    }

    /// Writes as much as the terminal takes within [`RESTORE_TIMEOUT`].
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + RESTORE_TIMEOUT;
        while !bytes.is_empty() {
            match (&self.tty).write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for UserTerminal {
    fn drop(&mut self) {
        // An error cannot be reported any more.
        let _ = self.saved.restore();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::termios::LocalModes;

    use super::*;

    /// A terminal, and what reads what is written to it.
    fn terminal() -> (UserTerminal, Tty, File) {
        let (ours, theirs) = Tty::for_program().unwrap();
        let kept = theirs.try_clone().unwrap();
        (
            UserTerminal::of(Tty::new(theirs).unwrap()).unwrap(),
            ours,
            kept,
        )
    }

    fn is_raw(tty: &File) -> bool {
        !attributes(tty)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    }

    async fn read(tty: &Tty) -> Vec<u8> {
        let mut buffer = [0; 100];
        let read = tty.read(&mut buffer).await.unwrap();
        buffer[..read].to_vec()
    }

    #[tokio::test]
    async fn terminal_is_restored_on_drop() {
        let (terminal, far, kept) = terminal();
        assert!(!is_raw(&kept));
        terminal.make_raw().unwrap();
        assert!(is_raw(&kept));
        terminal.set_undo(b"\x1b[?25h".to_vec());
        drop(terminal);
        assert!(!is_raw(&kept));
        assert_eq!(read(&far).await, b"\x1b[?25h");
    }

    #[tokio::test]
    async fn terminal_that_was_not_raw_is_not_changed() {
        let (terminal, _far, kept) = terminal();
        let mut other = terminal.attributes().clone();
        other.local_modes.remove(LocalModes::ECHO);
        set_attributes(&kept, &other).unwrap();
        drop(terminal);
        assert!(
            !attributes(&kept)
                .unwrap()
                .local_modes
                .contains(LocalModes::ECHO)
        );
    }

    #[tokio::test]
    async fn terminal_is_restored_before_a_panic_is_reported() {
        let (terminal, far, kept) = terminal();
        let seen = Arc::new(Mutex::new(None));
        let (looks, at) = (Arc::clone(&seen), kept.try_clone().unwrap());
        panic::set_hook(Box::new(move |_| {
            *looks.lock().unwrap() = Some(is_raw(&at));
        }));
        terminal.restore_on_panic();
        terminal.make_raw().unwrap();
        terminal.set_undo(b"\x1b[?1049l".to_vec());
        assert!(screen::contained(|| panic!("in a parser")).is_err());
        assert!(is_raw(&kept), "not restored when the screen contains it");
        let terminal = AssertUnwindSafe(&terminal);
        let panicked = catch_unwind(|| {
            let _terminal = &terminal;
            panic!("on purpose");
        });
        let _ = panic::take_hook();
        assert!(panicked.is_err());
        assert_eq!(*seen.lock().unwrap(), Some(false));
        assert_eq!(read(&far).await, b"\x1b[?1049l");
    }
}
