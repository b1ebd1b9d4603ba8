//! Steady load for a time, and whether memory, open files, threads and files on the disk stay flat.

mod judge;
mod plot;
mod samples;

use std::fs;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use self::judge::{Finding, findings, table};
use self::samples::read;
use crate::fuzz::time;
use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::{page_table, provision};

/// The test, and the variables that it reads.
const TEST: &str = "real::soak::processes_are_measured_under_steady_load";
const SECONDS: &str = "CODEX_MCP_TEST_SECONDS";
const SEED: &str = "CODEX_MCP_TEST_SEED";
const SAMPLES: &str = "CODEX_MCP_TEST_SAMPLES";

/// The directory of the measurements, in the target directory, and their file.
const DIRECTORY: &str = "soak";
const FILE: &str = "soak.csv";

/// The page with the table, and the plot beside it, relative to the workspace.
const PAGE: &str = "docs/soak.md";
const PLOT: &str = "docs/soak.svg";

/// What `cargo xtask soak` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// How long the load lasts, such as 90s, 10m or 2h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    time: Duration,

    /// Pause as an earlier run did, whose seed it has printed
    #[arg(long, value_name = "S")]
    seed: Option<NonZeroU64>,

    /// Judge the measurements of an earlier run again, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["time", "seed"])]
    from: Option<PathBuf>,

    /// Write the table into docs/soak.md, and the plot to docs/soak.svg
    #[arg(long)]
    write: bool,
}

/// Runs the test, and judges what it has measured.
///
/// # Errors
/// When the test fails, or something grows.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let file = match &options.from {
        Some(file) => file.clone(),
        None => measure(workspace, options)?,
    };
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let series = read(&text)?;
    let found = findings(&series).context("there are too few samples")?;
    let table = table(&found);
    println!("\n{table}");
    if options.write {
        page_table::write(&workspace.root().join(PAGE), "soak", &table)?;
        plot::draw(&workspace.root().join(PLOT), &series)?;
    }
    refuse(&found)
}

/// Has the test take samples; returns their file.
fn measure(workspace: &Workspace, options: &Options) -> anyhow::Result<PathBuf> {
    provision::run(workspace)?;
    let directory = workspace.target().join(DIRECTORY);
    fs::create_dir_all(&directory)?;
    let file = directory.join(FILE);
    let name = file.to_str().context("the target directory is not UTF-8")?;
    let test = ["test", "--package", "codex-mcp", "--test", "it", "--"];
    let mut test = Tool::cargo(test)
        .args(["--ignored", "--exact", "--nocapture", TEST])
        .env(SECONDS, options.time.as_secs().to_string())
        .env(SAMPLES, name);
    if let Some(seed) = options.seed {
        test = test.env(SEED, seed.to_string());
    }
    println!("{test}");
    test.run(workspace.root())?;
    println!("the samples are in {name}");
    Ok(file)
}

fn refuse(found: &[Finding]) -> anyhow::Result<()> {
    let grown = found.iter().filter(|finding| finding.verdict.is_fault());
    let grown: Vec<String> = grown.map(Finding::name).collect();
    if !grown.is_empty() {
        bail!("not flat: {}", grown.join(", "));
    }
    Ok(())
}
