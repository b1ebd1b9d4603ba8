//! `codex-mcp attach`: Codex's own interactive program on a session.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use common::output;
use host_process::logic::handshake::AttachAnswer;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use supervise::spawn::{Program, become_program};

use super::Failure;
use super::session::HostedSession;

/// The variable that has the token for the program: its command line can be read by others.
const TOKEN: &str = "CODEX_MCP_ATTACH_TOKEN";

/// Becomes Codex's program on a session; returns on failure only.
pub(super) async fn open(session: &HostedSession) -> Result<io::Error, Failure> {
    if !io::stdin().is_terminal() || !output::stdout_is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let (answer, stream) = session.attach().await?;
    // The program inherits the connection, so that the host stays as long as the program runs.
    let kept = fcntl(&stream, FcntlArg::F_SETFD(FdFlag::empty()));
    kept.map_err(|error| Failure::NotStarted(error.into()))?;
    Ok(become_program(&program(answer)))
}

fn program(answer: AttachAnswer) -> Program {
    let args = [
        "--remote",
        &answer.address,
        "--remote-auth-token-env",
        TOKEN,
        "resume",
        &answer.thread,
    ];
    let mut program = Program::new(&answer.program, args.map(OsString::from));
    program.env = vec![(TOKEN.into(), answer.token.into())];
    // Codex asks which of two directories to use if they differ. A path with links is one that was
    // replaced just now.
    let is_itself =
        |directory: &PathBuf| fs::canonicalize(directory).is_ok_and(|it| it == *directory);
    program.cwd = answer.directory.filter(is_itself);
    program
}
