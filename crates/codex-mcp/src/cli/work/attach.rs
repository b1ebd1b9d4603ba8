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
use crate::cli::stored::complain;

/// The variable that passes the token to the program, whose command line others can read.
const TOKEN: &str = "CODEX_MCP_ATTACH_TOKEN";

/// Replaces this process with Codex's program on a session. Returns only on failure.
pub(super) async fn open(session: &HostedSession) -> Result<io::Error, Failure> {
    if !io::stdin().is_terminal() || !output::stdout_is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let (answer, stream) = session.attach().await?;
    // The program inherits the connection, so that the host stays as long as the program runs.
    let kept = fcntl(&stream, FcntlArg::F_SETFD(FdFlag::empty()));
    kept.map_err(|error| Failure::NotStarted(error.into()))?;
    // This process becomes Codex, so nothing can be printed after Codex's own advice.
    complain("note", &advice(session.short()));
    Ok(become_program(&program(answer)))
}

/// The advice to the user. Codex's own command to continue would need an address and a token that
/// nobody else has.
fn advice(session: &str) -> String {
    format!(
        "the command that Codex prints at its end does not work. To attach again, run `codex-mcp \
         attach {session}`; to end the session, `codex-mcp cancel {session}`."
    )
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
    // If the two directories differ, Codex asks which to use. A path that now contains links has
    // just been replaced.
    let is_itself =
        |directory: &PathBuf| fs::canonicalize(directory).is_ok_and(|it| it == *directory);
    program.cwd = answer.directory.filter(is_itself);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_commands_that_work() {
        let advice = advice("sess_2f6c1d3e");
        for command in ["attach", "cancel"] {
            let command = format!("codex-mcp {command} sess_2f6c1d3e`");
            assert!(advice.contains(&command), "{advice}");
        }
    }
}
