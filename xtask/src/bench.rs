//! The measurements, on the release build.

use clap::Args;

use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::{other_servers, provision};

/// The profile of the bench itself, see `Cargo.toml`.
const PROFILE: [&str; 2] = ["--profile", "bench-driver"];

/// The variable with the program that the bench measures.
const PROGRAM: &str = "CODEX_MCP_BENCH_PROGRAM";

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Compare with Codex's app-server, with other MCP servers for Codex, which are installed for
    /// that, and with bare SQL, and print tables
    #[arg(long)]
    against: bool,

    /// Write the table into docs/bench.md; with `--against` also into README.md, and the plot to
    /// docs/bench.svg
    #[arg(long)]
    write: bool,

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
    if options.against {
        other_servers::provide(workspace)?;
    }
    Tool::cargo(["build", "--release", "--package", "codex-mcp"]).run(workspace.root())?;
    Tool::cargo(["build", "--package", "testkit", "--bins"])
        .args(PROFILE)
        .run(workspace.root())?;
    let program = workspace.target().join("release/codex-mcp");
    let bench = Tool::cargo(["bench", "--package", "codex-mcp", "--bench", "figures"])
        .args(PROFILE)
        .args(arguments(workspace, options))
        .env(PROGRAM, program.to_string_lossy());
    println!("{bench}");
    bench.run(workspace.root())
}

fn arguments(workspace: &Workspace, options: &Options) -> Vec<String> {
    let mut arguments = vec!["--".to_owned()];
    if options.against {
        arguments.push("--against".to_owned());
    }
    if options.write {
        let docs = workspace.root().join("docs");
        arguments.extend(["--docs".to_owned(), docs.to_string_lossy().into_owned()]);
    }
    arguments.extend(options.args.iter().cloned());
    arguments
}
