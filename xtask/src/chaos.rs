//! Everything at once, while processes are killed at random, the database crashes and a disk is full.

use std::num::NonZeroU64;
use std::time::SystemTime;

use clap::Args;

use crate::provision;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The test, and the variables that it reads.
const TEST: &str = "real::chaos::promises_are_kept_while_everything_is_killed";
const KILLS: &str = "CODEX_MCP_TEST_KILLS";
const SEED: &str = "CODEX_MCP_TEST_SEED";
const POSTGRES: &str = "CODEX_MCP_TEST_POSTGRES";
const DISK: &str = "CODEX_MCP_TEST_DISK";

/// What `cargo xtask chaos` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// How many processes to kill; each takes about a second
    #[arg(long, value_name = "N", default_value = "100")]
    kills: NonZeroU64,

    /// Choose as an earlier run did, whose seed it has printed
    #[arg(long, value_name = "S")]
    seed: Option<NonZeroU64>,

    /// Keep the jobs in PostgreSQL, and have it crash too
    #[arg(long)]
    postgres: bool,

    /// Keep the state and ATM_HOME on disks, one of which is full every few seconds; takes root
    #[arg(long)]
    disk: bool,
}

/// Runs the test.
///
/// # Errors
/// When a promise was not kept.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    provision::run(workspace)?;
    Tool::cargo(["build", "--workspace", "--bins"]).run(workspace.root())?;
    let seed = match options.seed {
        Some(seed) => seed.get(),
        None => SystemTime::UNIX_EPOCH.elapsed()?.as_secs(),
    };
    println!("the seed is {seed}");
    let test = ["test", "--package", "codex-mcp", "--test", "it", "--"];
    let mut test = Tool::cargo(test)
        .args(["--ignored", "--exact", "--nocapture", TEST])
        .env(KILLS, options.kills.to_string())
        .env(SEED, seed.to_string());
    if options.postgres {
        test = test.env(POSTGRES, "1");
    }
    if options.disk {
        test = test.env(DISK, "1");
    }
    println!("{test}");
    test.run(workspace.root())
}
