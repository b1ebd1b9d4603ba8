//! The story of a user with each release of Codex, as a table of releases and steps.

use std::fmt::Write;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::codex::{self, Codex};
use crate::installs::{self, Installs, ProvideOutcome};
use crate::tool::Tool;
use crate::workspace::Workspace;
use crate::{npm, page_table, provision, releases};

/// The releases, relative to the workspace.
const RELEASES: &str = "xtask/matrix-releases.txt";

/// Releases that npm names, but whose binaries it does not have.
const WITHOUT_BINARIES: &[&str] = &["0.142.1", "0.153.1"];

/// The page with the table, relative to the workspace.
const PAGE: &str = "docs/codex-releases.md";

/// The test that goes through the story, and the variables that tell it with which Codex, and
/// where it writes the steps that it has done.
const TEST: &str = "real::story::on_the_newest::user_goes_through_the_whole_story";
const CODEX: &str = "CODEX_MCP_TEST_CODEX";
const STEPS: &str = "CODEX_MCP_TEST_STEPS";

/// How many of the newest releases are always tried.
const NEWEST: usize = 3;

/// What a story takes of memory, in KiB: up to four processes of Codex, and the test.
const MEMORY: usize = 1024 * 1024;

/// What `cargo xtask matrix` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Try each K-th release, and the newest three
    #[arg(long, value_name = "K", default_value = "1")]
    every: NonZeroUsize,

    /// Try this release only; can be given several times
    #[arg(long = "release", value_name = "VERSION")]
    releases: Vec<String>,

    /// Write the table into docs/codex-releases.md
    #[arg(long)]
    write: bool,
}

/// How a step has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepOutcome {
    Done,
    /// The release cannot do it.
    Absent,
    Failed,
    /// A step before it has failed.
    NotReached,
}

impl StepOutcome {
    fn sign(self) -> &'static str {
        match self {
            Self::Done => "✓",
            Self::Absent => "–",
            Self::Failed => "**✗**",
            Self::NotReached => " ",
        }
    }
}

/// A release and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    release: String,
    steps: Vec<(String, StepOutcome)>,
}

/// Goes through the story with the chosen releases, several at once where memory allows, and
/// prints the table.
///
/// # Errors
/// When the list lacks a release of npm's, a release cannot be installed, or a step fails.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    provision::run(workspace)?;
    let list = listed(workspace)?;
    if options.releases.is_empty() {
        refuse_unlisted(workspace, &list)?;
    }
    let chosen = chosen(list, options)?;
    Tool::cargo(["build", "--workspace", "--bins"]).run(workspace.root())?;
    Tool::cargo(["test", "--package", "codex-mcp", "--test", "it", "--no-run"])
        .run(workspace.root())?;
    let at_once = at_once().min(chosen.len());
    println!("{} releases, {at_once} at once", chosen.len());
    let (rows, untried) = stories(workspace, &chosen, at_once)?;
    let table = table(&rows)?;
    println!("{table}");
    ensure!(untried.is_empty(), "{}", untried.join("\n"));
    if options.write {
        page_table::write(&workspace.root().join(PAGE), "matrix", &table)?;
    }
    let failed = rows.iter().filter(|row| row.has_failed());
    let failed: Vec<&str> = failed.map(|row| row.release.as_str()).collect();
    ensure!(
        failed.is_empty(),
        "the story fails with {}; the outputs are in target/matrix",
        failed.join(", ")
    );
    Ok(())
}

fn listed(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let list = fs::read_to_string(workspace.root().join(RELEASES))?;
    releases::parse(&list).context(RELEASES)
}

/// Compares the list with npm's. A run with installed releases works without npm, so its silence
/// is only reported.
fn refuse_unlisted(workspace: &Workspace, list: &[String]) -> anyhow::Result<()> {
    let registry = match npm::versions(codex::PACKAGE, workspace.root()) {
        Ok(registry) => registry,
        Err(error) => {
            println!("warning: {RELEASES} was not compared with npm's list: {error:#}");
            return Ok(());
        }
    };
    let missing = releases::unlisted(&registry, list, WITHOUT_BINARIES);
    ensure!(
        missing.is_empty(),
        "npm has releases that are not in {RELEASES}: {}; add them, or to WITHOUT_BINARIES those \
         that npm cannot install",
        missing.join(", ")
    );
    Ok(())
}

fn chosen(list: Vec<String>, options: &Options) -> anyhow::Result<Vec<String>> {
    if let Some(unknown) = options.releases.iter().find(|name| !list.contains(name)) {
        bail!("{unknown} is not in {RELEASES}");
    }
    let newest = list.len().saturating_sub(NEWEST);
    let is_chosen = |index: usize, release: &String| match options.releases.is_empty() {
        true => index >= newest || index.is_multiple_of(options.every.get()),
        false => options.releases.contains(release),
    };
    let chosen = list.into_iter().enumerate();
    let chosen = chosen.filter(|(index, release)| is_chosen(*index, release));
    Ok(chosen.map(|(_, release)| release).collect())
}

/// How many stories fit this machine.
fn at_once() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| {
        let number = line.strip_prefix("MemAvailable:")?.split_whitespace();
        number.into_iter().next()?.parse::<usize>().ok()
    });
    // Without the figure, one at a time is safe.
    available.map_or(1, |available| (available / MEMORY).clamp(1, cores))
}

/// The stories that were told, and why the others could not be.
fn stories(
    workspace: &Workspace,
    chosen: &[String],
    at_once: usize,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let installs = Mutex::new(Installs::open(workspace.target().join("codex"))?);
    let queue = Mutex::new(chosen.iter());
    let next = || queue.lock().ok()?.next();
    let work = || {
        let mut rows = Vec::new();
        while let Some(release) = next() {
            let row = story(workspace, &installs, release);
            rows.push(row.with_context(|| format!("{release} could not be tried")));
        }
        rows
    };
    let parts: Vec<Vec<anyhow::Result<Row>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let failed = |_| vec![Err(anyhow::anyhow!("a story panicked"))];
        ended.map(|part| part.unwrap_or_else(failed)).collect()
    });
    // What has been seen with the others is not lost.
    let (mut rows, mut untried) = (Vec::new(), Vec::new());
    for row in parts.into_iter().flatten() {
        match row {
            Ok(row) => rows.push(row),
            Err(error) => untried.push(format!("{error:#}")),
        }
    }
    let place = |row: &Row| chosen.iter().position(|release| *release == row.release);
    rows.sort_by_key(place);
    Ok((rows, untried))
}

/// Goes through the story with one release, which is removed if it was installed for it.
fn story(workspace: &Workspace, installs: &Mutex<Installs>, release: &str) -> anyhow::Result<Row> {
    let codex = Codex {
        version: release.to_owned(),
    };
    let outcome = {
        let installs = installs
            .lock()
            .map_err(|_| anyhow::anyhow!("a story panicked"))?;
        installs.provide(&codex)?
    };
    let row = tested(workspace, release);
    if outcome == ProvideOutcome::Installed {
        installs::remove(&workspace.target().join("codex").join(release))?;
    }
    let row = row?;
    let words = match row.has_failed() {
        true => "failed",
        false => "passed",
    };
    println!("{release}: {words}");
    Ok(row)
}

/// Runs the test, and reads which steps it has done.
fn tested(workspace: &Workspace, release: &str) -> anyhow::Result<Row> {
    let directory = workspace.target().join("matrix");
    fs::create_dir_all(&directory)?;
    let file: PathBuf = directory.join(format!("{release}.steps"));
    // What an earlier test wrote tells nothing of this one.
    fs::write(&file, "")?;
    let test = ["test", "--package", "codex-mcp", "--test", "it", "--"];
    let (stdout, stderr) = Tool::cargo(test)
        .args(["--exact", TEST])
        .env(CODEX, release)
        .env(STEPS, file.to_string_lossy())
        .outputs(workspace.root())?;
    fs::write(
        directory.join(format!("{release}.log")),
        format!("{stdout}\n{stderr}"),
    )?;
    let text = fs::read_to_string(&file)?;
    let passed = stdout.contains("test result: ok. 1 passed");
    let steps = steps(&text, passed).with_context(|| format!("{release}: {stderr}"))?;
    Ok(Row {
        release: release.to_owned(),
        steps,
    })
}

/// Reads the steps that a test has told: a line with all, and one for each that has ended.
fn steps(text: &str, passed: bool) -> anyhow::Result<Vec<(String, StepOutcome)>> {
    let mut lines = text.lines();
    let all = lines.next().context("the test has told no steps")?;
    let mut steps: Vec<(String, StepOutcome)> = all
        .split(' ')
        .map(|step| (step.to_owned(), StepOutcome::NotReached))
        .collect();
    for line in lines {
        let (step, how) = line.split_once(' ').context("a step without an outcome")?;
        let place = steps.iter_mut().find(|(name, _)| name == step);
        let (_, outcome) = place.with_context(|| format!("an unknown step: {step}"))?;
        *outcome = match how {
            "absent" => StepOutcome::Absent,
            _ => StepOutcome::Done,
        };
    }
    let open = steps
        .iter_mut()
        .find(|(_, outcome)| *outcome == StepOutcome::NotReached);
    match (open, passed) {
        (None, true) => {}
        (Some((_, outcome)), false) => *outcome = StepOutcome::Failed,
        // It has failed when all was done: the processes did not end.
        (None, false) => steps.push(("end".to_owned(), StepOutcome::Failed)),
        (Some((step, _)), true) => bail!("the test passed without the step {step}"),
    }
    Ok(steps)
}

impl Row {
    fn has_failed(&self) -> bool {
        self.steps
            .iter()
            .any(|(_, outcome)| *outcome == StepOutcome::Failed)
    }
}

/// The table. Neighbours that do the same share a line.
fn table(rows: &[Row]) -> anyhow::Result<String> {
    let first = rows.first().context("no release was tried")?;
    let names: Vec<&str> = first.steps.iter().map(|(name, _)| name.as_str()).collect();
    let mut table = format!("| Codex | {} |\n", names.join(" | "));
    writeln!(table, "| --- |{}", " :-: |".repeat(names.len()))?;
    for same in rows.chunk_by(|one, next| one.steps == next.steps) {
        let [first, .., last] = same else {
            let [only] = same else { continue };
            writeln!(table, "| {} | {} |", only.release, only.signs())?;
            continue;
        };
        let releases = format!("{} to {} ({})", first.release, last.release, same.len());
        writeln!(table, "| {releases} | {} |", first.signs())?;
    }
    Ok(table)
}

impl Row {
    fn signs(&self) -> String {
        let signs = self.steps.iter().map(|(_, outcome)| outcome.sign());
        signs.collect::<Vec<_>>().join(" | ")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    fn row(release: &str, text: &str, passed: bool) -> Row {
        Row {
            release: release.to_owned(),
            steps: steps(text, passed).unwrap(),
        }
    }

    #[test]
    fn first_step_that_was_not_done_has_failed() {
        let told = row("0.1.0", "start ask fork\nstart done\n", false);
        let outcomes: Vec<StepOutcome> = told.steps.iter().map(|(_, outcome)| *outcome).collect();
        let (done, failed) = (StepOutcome::Done, StepOutcome::Failed);
        assert_eq!(outcomes, [done, failed, StepOutcome::NotReached]);
        assert!(told.has_failed());
    }

    #[test]
    fn test_with_incomplete_output_is_a_failure() {
        assert!(steps("", true).is_err());
        assert!(steps("start ask\nstart done\n", true).is_err());
        assert!(steps("start\nask done\n", true).is_err());
        assert!(row("0.1.0", "start\nstart done\n", false).has_failed());
    }

    #[test]
    fn neighbours_that_do_the_same_share_a_line() {
        let old = "start ask\nstart done\nask absent\n";
        let new = "start ask\nstart done\nask done\n";
        let rows = [
            row("0.1.0", old, true),
            row("0.2.0", new, true),
            row("0.3.0", new, true),
        ];
        let expected = "| Codex | start | ask |\n| --- | :-: | :-: |\n\
            | 0.1.0 | ✓ | – |\n| 0.2.0 to 0.3.0 (2) | ✓ | ✓ |\n";
        assert_eq!(table(&rows).unwrap(), expected);
    }
}
