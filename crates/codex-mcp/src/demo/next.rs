//! Next steps after the demo.

use std::io::{self, Write};
use std::path::PathBuf;

use codex_engine::binary::{self, Source};
use common::text::shell_word;

use super::demo_codex::DemoCodex;
use super::printer::Printer;

/// Prints how to add this program to a client, and how to start a run. The commands name the
/// demo's Codex if it would not be found otherwise.
pub(super) fn tell<W: Write>(printer: &mut Printer<W>, demo_codex: &DemoCodex) -> io::Result<()> {
    let text = format!(
        "Next: log in to Codex with `{} login`, and add codex-mcp to your MCP client. In Claude \
         Code as follows; elsewhere, the command is what follows the two dashes.",
        shell_word(demo_codex.command())
    );
    let own = shell_word(own_command());
    let codex = match demo_codex.is_found_by_itself() {
        true => String::new(),
        false => format!(" --codex-bin {}", shell_word(demo_codex.path())),
    };
    printer.next(
        &text,
        &format!("claude mcp add codex -- {own} serve{codex}"),
    )?;
    printer.next(
        "Or, in a repository of yours, have Codex work until the result is there:",
        &format!(
            "{own} run \"Fix the failing test\" --sandbox workspace-write --until commits=1{codex}"
        ),
    )
}

/// The command that runs this program: its name if it is on PATH.
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
