//! What the machine is told, and what it says is to be done.

use std::fmt;

use codex_protocol::codex::ThreadId;
use common::text::shell_word;

use crate::logic::path::PicturePath;
use crate::logic::picture::BadPicture;
use crate::logic::queue::Number;
use crate::logic::screen::Sight;
use crate::logic::wanted::Wanted;

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// There is a request of this number. It may be told again and again, and is to be
    /// told again after [`Input::Started`] if it is still open.
    Asked(Number, PicturePath),
    /// The screen has changed, or been looked at for the first time since Codex started,
    /// and shows this.
    Saw(Sight),
    /// The conversation of the request that is told next, as Codex calls it; `None` if
    /// nobody knows.
    Named(Option<ThreadId>),
    /// Codex has gone, with all that it has started. The queue is to be read before this
    /// is told: what the old Codex asked for is not the new one's request.
    Exited(Exit),
    /// Somebody has sent us this signal.
    Told(Signal),
    /// The pictures were looked at, and these of them can't be attached.
    Checked(Vec<BadPicture>),
    /// Codex was started again.
    Started,
    /// Codex can't be started again, for this reason.
    NotStarted(String),
    /// The [`deadline`](super::Machine::deadline) has come.
    Time,
}

/// How Codex has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Exit {
    /// What a shell says of it.
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
    /// SIGHUP, or the terminal has gone.
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

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// To end Codex and all that it has started: by TERM, and what stays by KILL.
    End,
    /// To look at the pictures again, and to say which of them can't be attached.
    Check(Wanted),
    /// To start Codex.
    Start(Resume),
    /// To exit.
    Leave(Leave),
}

/// How Codex is resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Which conversation.
    pub session: Session,
    /// With which pictures.
    pub pictures: Vec<PicturePath>,
    /// What it is told.
    pub words: String,
    /// What the person is told who looks on, if there is something.
    pub notice: Option<String>,
}

/// Which conversation is resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Session {
    /// The one of this name.
    Named(ThreadId),
    /// The last one that there was.
    Last,
}

impl fmt::Display for Session {
    /// As Codex's command line has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(thread) => write!(f, "{thread}"),
            Self::Last => f.write_str("--last"),
        }
    }
}

/// With what the wrapper exits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// Its exit code.
    pub code: u8,
    /// What went wrong, if something did.
    pub error: Option<GaveUp>,
}

/// Why the wrapper gives up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// Codex doesn't end.
    #[error("Codex has not ended, not even by KILL, and no second one is started beside it")]
    StillThere,
    /// It can't be started again.
    #[error(
        "Codex can't be started again: {0}; see to that, then go on with `codex-mcp eyes resume {quoted}`",
        quoted = shell_word(.1.to_string())
    )]
    NotStarted(String, Session),
}
