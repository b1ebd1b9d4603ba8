//! `codex-mcp attach`: Codex's own interactive program on a session.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use common::output;
use host_process::logic::handshake::{AttachAnswer, SessionAct, SessionAnswer};
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
    match session.ask(SessionAct::Attach).await? {
        SessionAnswer::Attach(answer) => Ok(become_program(&program(answer))),
        _ => Err(Failure::OddAnswer),
    }
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
    // Where it is still there: Codex asks which of two directories to use if they differ.
    program.cwd = answer.directory.filter(|directory| directory.is_dir());
    program
}
