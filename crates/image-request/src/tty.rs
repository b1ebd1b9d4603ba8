//! Terminals, from either end.
//!
//! The user's terminal is opened by its name instead of using the inherited descriptor:
//! non-blocking mode belongs to an open file, and the shell's open file must not change.
#![expect(
    clippy::disallowed_methods,
    reason = "terminals: the user's, and the other end of one that was just made"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use common::output;
use nix::fcntl::OFlag;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize, ttyname,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A non-blocking end of a terminal.
#[derive(Debug)]
pub struct Tty {
    file: AsyncFd<File>,
}

impl Tty {
    pub(super) fn new(file: File) -> io::Result<Self> {
        // SAFETY: the file owns its descriptor and is owned by the result, which gives
        // it out by reference alone. So that stays open, and the same, as long as it is
        // registered.
        let file = unsafe { AsyncFd::register(file) };
        Ok(Self { file: file? })
    }

    /// The terminal of stdin and stdout.
    ///
    /// # Errors
    ///
    /// If they are not terminals, or the terminal cannot be opened.
    pub fn of_user() -> io::Result<Self> {
        match (stdin().is_terminal(), output::stdout_is_terminal()) {
            (true, true) => {}
            (false, _) => return Err(io::Error::other("stdin is no terminal")),
            (true, false) => return Err(io::Error::other("stdout is no terminal")),
        }
        let name = ttyname(stdin(), Vec::new());
        let name = name.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes())));
        // In a container, its name may be unknown.
        let named = name.map_err(io::Error::from).and_then(|name| open(&name));
        let file = named.or_else(|_| open(Path::new("/dev/tty")))?;
        Self::new(file)
    }

    /// A terminal for a program: our end of it, and the program's.
    ///
    /// # Errors
    ///
    /// If the system has no terminal left.
    pub fn for_program() -> io::Result<(Self, File)> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        fcntl_setfl(&ours, fcntl_getfl(&ours)?.union(OFlags::NONBLOCK))?;
        let name = ptsname(&ours, Vec::new())?;
        let theirs = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(std::ffi::OsStr::from_bytes(name.as_bytes()))?;
        Ok((Self::new(File::from(ours))?, theirs))
    }

    /// Waits for input, and reads it. If the other end is closed, the result is an error or
    /// 0.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |mut file: &File| file.read(buffer);
        self.file.async_io(Interest::READABLE, read).await
    }

    /// Reads the input that is available now.
    ///
    /// # Errors
    ///
    /// The error of the operating system; [`io::ErrorKind::WouldBlock`] if there is nothing.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.get_ref().read(buffer)
    }

    /// Waits until the terminal takes output, and writes as much as it takes.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let write = |mut file: &File| file.write(bytes);
        self.file.async_io(Interest::WRITABLE, write).await
    }

    /// Writes as much as the terminal takes now.
    ///
    /// # Errors
    ///
    /// The error of the operating system; [`io::ErrorKind::WouldBlock`] if that is nothing.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.file.get_ref().write(bytes)
    }

    /// Its size.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn size(&self) -> io::Result<Winsize> {
        Ok(tcgetwinsize(self.file.get_ref())?)
    }

    /// Sets its size; the programs in it get a signal.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn resize(&self, size: Winsize) -> io::Result<()> {
        Ok(tcsetwinsize(self.file.get_ref(), size)?)
    }

    /// Another handle on the same open file.
    ///
    /// # Errors
    ///
    /// If too many files are open.
    pub fn try_clone(&self) -> io::Result<File> {
        self.file.get_ref().try_clone()
    }
}

fn open(name: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NOCTTY | OFlag::O_NONBLOCK).bits())
        .open(name)
}

/// The attributes of a terminal: how it treats input and output.
///
/// # Errors
///
/// The error of the operating system.
pub fn attributes(tty: impl AsFd) -> io::Result<Termios> {
    Ok(tcgetattr(tty)?)
}

/// Sets the attributes of a terminal.
///
/// # Errors
///
/// The error of the operating system.
pub fn set_attributes(tty: impl AsFd, attributes: &Termios) -> io::Result<()> {
    Ok(tcsetattr(tty, OptionalActions::Now, attributes)?)
}
