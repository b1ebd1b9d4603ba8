//! The pictures of the page in docs/: a test of the page in the real Chromium takes them.

use crate::provision;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The test that takes them, and the variable that tells it where they go.
const TEST: &str = "real::web::screenshots::pages_of_a_session_that_asks_are_photographed";
const DIRECTORY: &str = "SCREENSHOTS";

/// Takes the pictures.
///
/// # Errors
/// When the test fails.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    provision::run(workspace)?;
    let docs = workspace.root().join("docs");
    Tool::cargo(["build", "--workspace", "--bins"]).run(workspace.root())?;
    Tool::cargo([
        "test",
        "-p",
        "codex-mcp",
        "--test",
        "it",
        "--",
        "--exact",
        TEST,
    ])
    .env(DIRECTORY, docs.to_string_lossy())
    .run(workspace.root())
}
