//! The inputs and effects of the machine.

use std::fmt;

use codex_protocol::codex::ThreadId;
use common::text::shell_word;

use crate::logic::path::PicturePath;
use crate::logic::picture::BadPicture;
use crate::logic::queue::RequestNumber;
use crate::logic::requested::RequestedPictures;
use crate::logic::screen::ScreenState;

/// An input of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A request with its number. May be repeated, and must be repeated after
    /// [`Input::CodexStarted`] if it is still open.
    Requested(RequestNumber, PicturePath),
    /// The state of Codex by its screen, after a change or after a start of Codex.
    ScreenObserved(ScreenState),
    /// The conversation of Codex.
    ThreadIdentified(ThreadId),
    /// Codex and all its processes have ended. The queue must be read before this input, so that
    /// requests of the old Codex are not taken for requests of the new one.
    CodexExited(Exit),
    /// The wrapper got this signal.
    Signalled(Signal),
    /// The pictures were checked, and these cannot be attached.
    PicturesChecked(Vec<BadPicture>),
    /// Codex was started again.
    CodexStarted,
    /// Codex cannot be started again, for this reason.
    StartFailed(String),
    /// The [`deadline`](super::Machine::deadline) has come.
    DeadlineReached,
}

/// The exit of Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Exit {
    /// The exit code as a shell reports it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
        }
    }
}

/// A signal that ends the wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGINT, sent from elsewhere: Ctrl-C at the terminal is a key for Codex.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP, or the terminal was closed.
    HangUp,
    /// SIGQUIT.
    Quit,
}

impl Signal {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Interrupt => 130,
            Self::Quit => 131,
            Self::Terminate => 143,
        }
    }
}

/// An effect to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// End Codex and all its processes, by TERM and then KILL.
    TerminateCodex,
    /// Check the pictures, and apply [`Input::PicturesChecked`].
    CheckPictures(RequestedPictures),
    /// Start Codex.
    StartCodex(Resume),
    /// Exit.
    ShutDown(Shutdown),
}

/// The arguments for resuming Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The conversation.
    pub session: Session,
    /// The pictures to attach.
    pub pictures: Vec<PicturePath>,
    /// The prompt.
    pub words: String,
    /// A notice for the person at the terminal.
    pub notice: Option<String>,
}

/// The conversation to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Session {
    /// The conversation with this id.
    Named(ThreadId),
    /// The last conversation.
    Last,
}

impl fmt::Display for Session {
    /// The syntax of Codex's command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(thread) => write!(f, "{thread}"),
            Self::Last => f.write_str("--last"),
        }
    }
}

/// The exit of the wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// Its exit code.
    pub code: u8,
    /// The error, if there was one.
    pub error: Option<WrapperError>,
}

/// Why the wrapper ends without Codex.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrapperError {
    /// Codex does not end.
    #[error("Codex did not exit after SIGKILL; not starting another")]
    StillThere,
    /// Codex cannot be started again.
    #[error(
        "Codex cannot be started again: {0}; correct that, then continue with `codex-mcp eyes resume {quoted}`",
        quoted = shell_word(.1.to_string())
    )]
    NotStarted(String, Session),
}
