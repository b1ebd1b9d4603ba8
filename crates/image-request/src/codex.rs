//! The interactive Codex, begun and resumed, each in a terminal of its own.

use std::ffi::OsString;
use std::io;

use codex_engine::binary::CodexBinary;
use rustix::termios::{Termios, Winsize};
use supervise::exit::Exit;
use supervise::spawn::{Process, Program, spawn_in_terminal};

use super::tty::{Tty, behave};
use crate::logic::arguments::{Added, Arguments, Attachment};
use crate::logic::machine::{self, Session};

/// How Codex is started.
#[derive(Debug)]
pub struct Codex {
    /// Which.
    pub binary: CodexBinary,
    /// What the user has given for it.
    pub arguments: Arguments,
    /// What is added to that.
    pub added: Added,
}

/// A Codex that runs.
#[derive(Debug)]
pub struct Running {
    /// It, with all that it has started.
    pub process: Process,
    /// Our end of its terminal.
    pub tty: Tty,
}

impl Codex {
    /// Begins, in a terminal like the user's.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn begin(&self, size: Winsize, manner: &Termios) -> io::Result<Running> {
        self.start(self.arguments.begin(&self.added), size, manner)
    }

    /// Resumes a conversation.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn resume(
        &self,
        session: &Session,
        pictures: &[Attachment],
        words: &str,
        size: Winsize,
        manner: &Termios,
    ) -> io::Result<Running> {
        let args = self.arguments.resume(&self.added, session, pictures, words);
        self.start(args, size, manner)
    }

    fn start(&self, args: Vec<OsString>, size: Winsize, manner: &Termios) -> io::Result<Running> {
        let (tty, theirs) = Tty::for_program()?;
        tty.resize(size)?;
        behave(&theirs, manner)?;
        let program = Program {
            env: self.binary.env(),
            ..Program::new(&self.binary.native, args)
        };
        let process = spawn_in_terminal(&program, &theirs)?;
        Ok(Running { process, tty })
    }
}

/// How Codex exited, as the machine wants it.
pub(super) fn exit_of(exit: Exit) -> machine::Exit {
    let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    match exit {
        Exit::Code(code) => machine::Exit::Code(byte(code)),
        Exit::Signal(signal) => machine::Exit::Signal(byte(signal)),
        Exit::Unknown => machine::Exit::Code(1),
    }
}
