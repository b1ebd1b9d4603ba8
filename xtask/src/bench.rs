//! The measurements, on the release build.

use clap::Args;

use crate::provision;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Passed on to the bench `figures`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Provisions, builds the release program and runs the bench `figures` on it.
///
/// # Errors
/// When a step fails.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    provision::run(workspace)?;
    let program = ["build", "--release", "--package", "codex-mcp"];
    let testkit = ["--package", "testkit", "--bins"];
    Tool::cargo(program.into_iter().chain(testkit)).run(workspace.root())?;
    let mut bench = Tool::cargo(["bench", "--package", "codex-mcp", "--bench", "figures"]);
    if !options.args.is_empty() {
        bench = bench.args(["--"]).args(options.args.iter().cloned());
    }
    println!("{bench}");
    bench.run(workspace.root())
}
