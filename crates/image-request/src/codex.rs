//! Starts the interactive Codex, new or resumed, in a separate terminal.

use std::ffi::OsString;
use std::io;

use codex_engine::binary::CodexBinary;
use rustix::termios::{Termios, Winsize};
use supervise::exit::Exit;
use supervise::spawn::{Process, Program, spawn_in_terminal};

use super::tty::{Tty, set_attributes};
use crate::logic::arguments::{AddedArguments, Arguments, Attachment};
use crate::logic::machine::{self, Session};

/// Starts Codex.
#[derive(Debug)]
pub struct CodexLauncher {
    /// The binary.
    pub binary: CodexBinary,
    /// The user's arguments.
    pub arguments: Arguments,
    /// The arguments that the wrapper adds.
    pub added: AddedArguments,
}

/// A running Codex.
#[derive(Debug)]
pub struct RunningCodex {
    /// The process, with all processes that it started.
    pub process: Process,
    /// Our end of its terminal.
    pub tty: Tty,
}

impl CodexLauncher {
    /// Starts a new conversation, in a terminal like the user's.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if Codex cannot be started.
    pub fn begin(&self, size: Winsize, attributes: &Termios) -> io::Result<RunningCodex> {
        self.start(self.arguments.begin(&self.added), size, attributes)
    }

    /// Resumes a conversation.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if Codex cannot be started.
    pub fn resume(
        &self,
        session: &Session,
        pictures: &[Attachment],
        words: &str,
        size: Winsize,
        attributes: &Termios,
    ) -> io::Result<RunningCodex> {
        let args = self.arguments.resume(&self.added, session, pictures, words);
        self.start(args, size, attributes)
    }

    fn start(
        &self,
        args: Vec<OsString>,
        size: Winsize,
        attributes: &Termios,
    ) -> io::Result<RunningCodex> {
        let (tty, theirs) = Tty::for_program()?;
        tty.resize(size)?;
        set_attributes(&theirs, attributes)?;
        let program = Program {
            env: self.binary.env(),
            ..Program::new(&self.binary.native, args)
        };
        let process = spawn_in_terminal(&program, &theirs)?;
        Ok(RunningCodex { process, tty })
    }
}

/// The exit of Codex for the machine.
pub(super) fn machine_exit(exit: Exit) -> machine::Exit {
    let byte = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    match exit {
        Exit::Code(code) => machine::Exit::Code(byte(code)),
        Exit::Signal(signal) => machine::Exit::Signal(byte(signal)),
        Exit::Unknown => machine::Exit::Code(1),
    }
}
