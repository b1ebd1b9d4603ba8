//! The user's terminal: raw while Codex is in it, and then what it was before.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{panic, thread};

use rustix::termios::{Termios, Winsize};

use super::tty::{Tty, behave, manner};

/// How long a terminal that takes nothing is waited for when it is put back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two attempts to write to it.
const PAUSE: Duration = Duration::from_millis(5);

/// The user's terminal. It is put back when this is dropped, and before a panic is
/// reported.
#[derive(Debug)]
pub struct UserTerminal {
    tty: Tty,
    before: Arc<Before>,
}

/// How the terminal was.
#[derive(Debug)]
struct Before {
    tty: File,
    manner: Termios,
    /// What is to be written to make it that; `None` while nothing is to be put back.
    undo: Mutex<Option<Vec<u8>>>,
}

impl UserTerminal {
    /// The terminal that stdin and stdout are. It is left as it is.
    ///
    /// # Errors
    ///
    /// When they are something else.
    pub fn find() -> io::Result<Self> {
        Self::of(Tty::of_user()?)
    }

    fn of(tty: Tty) -> io::Result<Self> {
        let before = Before {
            manner: manner(tty.again()?)?,
            tty: tty.again()?,
            undo: Mutex::new(None),
        };
        Ok(Self {
            tty,
            before: Arc::new(before),
        })
    }

    /// Puts it back before a panic is reported, as the report could not be read else.
    pub fn put_back_on_panic(&self) {
        let before = Arc::downgrade(&self.before);
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if let Some(before) = before.upgrade() {
                // The report says more than an error of this would.
                let _ = before.put_back();
            }
            report(about);
        }));
    }

    /// Passes everything on as it comes, from now on: keys are Codex's business.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.before.manner.clone();
        raw.make_raw();
        self.before.undo().get_or_insert_default();
        behave(&self.before.tty, &raw)
    }

    /// Whether it is raw, and what is written to it isn't in somebody else's way: a shell
    /// has it while we are stopped.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.before.undo().is_some()
    }

    /// What is to be written when it is put back, until there is something newer. While
    /// it isn't raw, nothing is.
    pub fn undo_with(&self, bytes: Vec<u8>) {
        if let Some(undo) = self.before.undo().as_mut() {
            *undo = bytes;
        }
    }

    /// Makes it what it was.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn put_back(&self) -> io::Result<()> {
        self.before.put_back()
    }

    /// How it treats what goes through it when it isn't raw.
    #[must_use]
    pub fn manner(&self) -> &Termios {
        &self.before.manner
    }

    /// Its size.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn size(&self) -> io::Result<Winsize> {
        self.tty.size()
    }

    /// To read what is typed, and to write what is shown.
    #[must_use]
    pub fn tty(&self) -> &Tty {
        &self.tty
    }
}

impl Before {
    fn undo(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self) -> io::Result<()> {
        let Some(undo) = self.undo().take() else {
            return Ok(());
        };
        // First what makes it usable: the rest has to wait for one that takes nothing.
        let back = behave(&self.tty, &self.manner);
        back.and(self.write(&undo))
    }

    /// Writes as far as the terminal takes it within [`PATIENCE`].
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !bytes.is_empty() {
            match (&self.tty).write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for UserTerminal {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.before.put_back();
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
        !manner(tty)
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
    async fn it_is_put_back_when_it_is_dropped() {
        let (terminal, far, kept) = terminal();
        assert!(!is_raw(&kept));
        terminal.make_raw().unwrap();
        assert!(is_raw(&kept));
        terminal.undo_with(b"\x1b[?25h".to_vec());
        drop(terminal);
        assert!(!is_raw(&kept));
        assert_eq!(read(&far).await, b"\x1b[?25h");
    }

    #[tokio::test]
    async fn one_that_was_not_raw_is_left_alone() {
        let (terminal, _far, kept) = terminal();
        let mut other = terminal.manner().clone();
        other.local_modes.remove(LocalModes::ECHO);
        behave(&kept, &other).unwrap();
        drop(terminal);
        assert!(
            !manner(&kept)
                .unwrap()
                .local_modes
                .contains(LocalModes::ECHO)
        );
    }

    #[tokio::test]
    async fn it_is_put_back_before_a_panic_is_reported() {
        let (terminal, far, kept) = terminal();
        let seen = Arc::new(Mutex::new(None));
        let (looks, at) = (Arc::clone(&seen), kept.try_clone().unwrap());
        panic::set_hook(Box::new(move |_| {
            *looks.lock().unwrap() = Some(is_raw(&at));
        }));
        terminal.put_back_on_panic();
        terminal.make_raw().unwrap();
        terminal.undo_with(b"\x1b[?1049l".to_vec());
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
