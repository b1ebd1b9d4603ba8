//! Next steps after the demo.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use codex_config::logic::codex_servers::{OWN_NAME as NAME, OWN_PACKAGE};
use codex_engine::binary::{self, Source};
use common::text::shell_word;

use super::demo_codex::DemoCodex;
use super::printer::Printer;
use crate::installation::Installation;
use crate::installation::channel::Channel;

/// The end of the path of the package's script, to which the name on PATH leads.
const NPM_SCRIPT: &str = "codex-mcp/bin/codex-mcp.js";

/// Prints how to add this program to clients, and how to start a run. The commands name the
/// demo's Codex if it would not be found otherwise.
pub(super) fn tell<W: Write>(printer: &mut Printer<W>, demo_codex: &DemoCodex) -> io::Result<()> {
    let text = format!(
        "Next: log in to Codex with `{} login`, and add codex-mcp to your MCP clients:",
        shell_word(demo_codex.command())
    );
    let own = own_command();
    let codex = match demo_codex.is_found_by_itself() {
        true => String::new(),
        false => format!(" --codex-bin {}", shell_word(demo_codex.path())),
    };
    printer.next(&text, &format!("{own} setup{codex}"))?;
    printer.next(
        "Or, in a repository of yours, have Codex work until the result is there:",
        &format!(
            "{own} run \"Fix the failing test\" --sandbox workspace-write \\\n    --until commits=1{codex}"
        ),
    )
}

/// The words that run this program: its name if it is on PATH.
fn own_command() -> String {
    let copy = Installation::of_this_process();
    let name = PathBuf::from(NAME);
    let on_path = binary::find(Some((name.clone(), Source::Path)))
        .ok()
        .and_then(|found| found.chosen.canonicalize().ok());
    command(
        copy.channel,
        copy.program.unwrap_or(name),
        on_path.as_deref(),
    )
}

/// The words that run the copy at `own`, where `on_path` is the file that its name leads to.
fn command(channel: Channel, own: PathBuf, on_path: Option<&Path>) -> String {
    match (channel, on_path) {
        // What lies in its cache may be gone tomorrow.
        (Channel::Npx, _) => format!("npx -y {OWN_PACKAGE}"),
        (Channel::Npm, Some(path)) if path.ends_with(NPM_SCRIPT) => NAME.to_owned(),
        (_, Some(path)) if path == own => NAME.to_owned(),
        _ => shell_word(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_short_where_it_stays_valid() {
        let cache = "/home/you/.npm/_npx/3f1b/node_modules/codex-mcp-linux-x64/bin/codex-mcp";
        let npm = "/usr/lib/node_modules/codex-mcp/node_modules/codex-mcp-linux-x64/bin/codex-mcp";
        let script = "/usr/lib/node_modules/codex-mcp/bin/codex-mcp.js";
        let own = "/opt/codex-mcp";
        for (channel, path, on_path, words) in [
            (Channel::Npx, cache, None, "npx -y codex-mcp"),
            (Channel::Npx, cache, Some(own), "npx -y codex-mcp"),
            (Channel::Npm, npm, Some(script), "codex-mcp"),
            (Channel::Npm, npm, None, npm),
            (Channel::Unknown, own, Some(own), "codex-mcp"),
            (Channel::Unknown, own, Some(script), own),
        ] {
            let found = command(channel, path.into(), on_path.map(Path::new));
            assert_eq!(found, words, "{channel:?}");
        }
    }
}
