//! What somebody who has seen the demo can do next.

use std::io::{self, Write};
use std::path::PathBuf;

use codex_engine::binary::{self, Source};
use common::text::shell_word;

use super::cast::Cast;
use super::show::Show;

/// Says how this program is added to a client, and how a run is begun, with the
/// Codex of the demo unless that is found anyway.
pub(super) fn tell<W: Write>(show: &mut Show<W>, cast: &Cast) -> io::Result<()> {
    let text = format!(
        "Next: log in to Codex with `{} login`, and add codex-mcp to your MCP client. In Claude \
         Code as follows; elsewhere, the command is what follows the two dashes.",
        shell_word(cast.command())
    );
    let own = shell_word(own_command());
    let codex = match cast.is_found_by_itself() {
        true => String::new(),
        false => format!(" --codex-bin {}", shell_word(cast.path())),
    };
    show.next(
        &text,
        &format!("claude mcp add codex -- {own} serve{codex}"),
    )?;
    show.next(
        "Or, in a repository of yours, have Codex work until the result is there:",
        &format!(
            "{own} run \"Fix the failing test\" --sandbox workspace-write --until commits=1{codex}"
        ),
    )
}

/// What the user types to run this program: its name where that is enough.
fn own_command() -> PathBuf {
    let name = PathBuf::from("codex-mcp");
    let Ok(path) = std::env::current_exe() else {
        return name;
    };
    let on_path = binary::find(Some((name.clone(), Source::Path)))
        .ok()
        .and_then(|found| found.chosen.canonicalize().ok());
    match (on_path, path.canonicalize().ok()) {
        (Some(on_path), Some(own)) if on_path == own => name,
        _ => path,
    }
}
