//! `cargo xtask fuzz`: the fuzz targets under libFuzzer, one after the other.
//!
//! The compiler has to be a nightly one, which inserts the counters of libFuzzer. So the program that is
//! fuzzed (`fuzz/`) is a workspace of its own; the targets (`crates/fuzz-targets`) are not.
//!
//! Source: the Rust Fuzz Book, and libFuzzer's documentation in LLVM 22.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};

use crate::tool::Tool;
use crate::workspace::Workspace;

/// The release of cargo-fuzz.
const CARGO_FUZZ: &str = "0.13.2";

/// The name of the executable in `fuzz/Cargo.toml`.
const EXECUTABLE: &str = "targets";

/// The longest input, in bytes.
const LONGEST: u32 = 4096;

/// The time after which an input counts as a finding, in seconds of the clock: the processors may be
/// busy with other work.
const SLOWEST: u32 = 120;

/// What `cargo xtask fuzz` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Fuzz only these targets; see crates/fuzz-targets
    targets: Vec<String>,
    /// How long each target is fuzzed: a number of seconds, or of minutes as in `10m`
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = time)]
    time: Duration,
    /// The sanitizer that watches the memory
    #[arg(long, value_enum, default_value_t = Sanitizer::Address)]
    sanitizer: Sanitizer,
    /// Add to the corpora in fuzz/corpus what reaches more code, up to the limit of their tests
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sanitizer {
    Address,
    None,
}

impl Sanitizer {
    fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::None => "none",
        }
    }
}

/// Reads `90`, `90s`, `10m` or `1h`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let seconds = number.parse::<u32>().ok().filter(|number| *number > 0);
    let seconds = seconds.map(|number| Duration::from_secs(u64::from(number) * unit));
    seconds.ok_or_else(|| "write a number of seconds, or a time such as 90s, 10m or 1h".to_owned())
}

/// Fuzzes the targets and prints a table of the results.
///
/// # Errors
/// When a tool is missing, the build fails, or an input was found that breaks a promise.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let targets = chosen(workspace, &options.targets)?;
    let fuzzer = Fuzzer::new(workspace, options)?;
    fuzzer.build()?;
    let mut results = Vec::new();
    for target in &targets {
        results.push(fuzzer.fuzz(target)?);
        if options.keep {
            fuzzer.keep(target)?;
        }
    }
    println!("\n{}", table(&results));
    let findings: Vec<String> = results.iter().flat_map(Outcome::report).collect();
    if findings.is_empty() {
        return Ok(());
    }
    bail!(
        "{} inputs break a promise:\n{}",
        findings.len(),
        findings.join("\n")
    )
}

/// The targets that were asked for; all that have a corpus, if none was.
fn chosen(workspace: &Workspace, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let corpora = workspace.root().join("fuzz/corpus");
    let all: Vec<String> = names(&corpora)?.into_iter().collect();
    if let Some(unknown) = asked.iter().find(|name| !all.contains(name)) {
        bail!(
            "there is no target `{unknown}`; there are {}",
            all.join(", ")
        );
    }
    Ok(if asked.is_empty() {
        all
    } else {
        asked.to_vec()
    })
}

/// The names of the entries of a directory, which may be missing.
fn names(directory: &Path) -> anyhow::Result<BTreeSet<String>> {
    if !directory.exists() {
        return Ok(BTreeSet::new());
    }
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| Ok(name(entry?))).collect()
}

struct Fuzzer<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    /// cargo-fuzz.
    program: String,
}

impl<'a> Fuzzer<'a> {
    /// Finds the nightly compiler, and finds or installs cargo-fuzz.
    fn new(workspace: &'a Workspace, options: &'a Options) -> anyhow::Result<Self> {
        let nightly = Tool::new("rustup", ["run", "nightly", "rustc", "--version"]);
        ensure!(
            nightly.succeeds(workspace.root()),
            "fuzzing needs a nightly compiler, for the counters of libFuzzer, and `{nightly}` fails; \
             install one by `rustup toolchain install nightly --profile minimal`"
        );
        let tools = workspace.target().join("tools");
        let program = path(&tools.join("bin/cargo-fuzz"))?;
        let version = Tool::new(&program, ["--version"]).capture(workspace.root());
        if !version.is_ok_and(|version| version.contains(CARGO_FUZZ)) {
            println!("cargo-fuzz {CARGO_FUZZ}: installing");
            Tool::cargo(["install", "cargo-fuzz", "--version", CARGO_FUZZ])
                .args(["--locked", "--force", "--root"])
                .args([path(&tools)?])
                .capture(workspace.root())
                .context("cannot install cargo-fuzz")?;
        }
        Ok(Self {
            workspace,
            options,
            program,
        })
    }

    /// cargo-fuzz on the nightly compiler.
    fn cargo_fuzz(&self, verb: &str) -> anyhow::Result<Tool> {
        let build = self.workspace.target().join("fuzz/build");
        Ok(Tool::new("rustup", ["run", "nightly", &self.program, verb])
            .args(["--codegen-units", "16", "--target-dir", &path(&build)?])
            .args(["--sanitizer", self.options.sanitizer.as_str(), EXECUTABLE]))
    }

    fn build(&self) -> anyhow::Result<()> {
        let tool = self.cargo_fuzz("build")?;
        println!("{tool}");
        tool.run(self.workspace.root())
    }

    /// The directory of what is found, which grows from one run to the next.
    fn found(&self, kind: &str, target: &str) -> anyhow::Result<PathBuf> {
        let directory = self.workspace.target().join("fuzz").join(kind).join(target);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }

    fn fuzz(&self, target: &str) -> anyhow::Result<Outcome> {
        let (corpus, findings) = (
            self.found("corpus", target)?,
            self.found("findings", target)?,
        );
        let tool = self
            .cargo_fuzz("run")?
            .args([
                path(&corpus)?,
                format!("fuzz/corpus/{target}"),
                "--".to_owned(),
            ])
            .args([format!("-max_total_time={}", self.options.time.as_secs())])
            .args([format!("-max_len={LONGEST}"), format!("-timeout={SLOWEST}")])
            .args(["-rss_limit_mb=4096", "-print_final_stats=1"])
            .args([format!("-artifact_prefix={}/", path(&findings)?)])
            .env("FUZZ_TARGET", target);
        println!("{tool}");
        let log = self.found("logs", target)?.join("log");
        let status = {
            let file =
                File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
            let mut command = tool.command(self.workspace.root());
            command.stdout(file.try_clone()?).stderr(file).status()?
        };
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let outcome = Outcome::read(target, &text, log);
        if !status.success() && outcome.findings.is_empty() {
            bail!(
                "{tool} failed without an input; see {}",
                outcome.log.display()
            );
        }
        println!("{}", table(std::slice::from_ref(&outcome)));
        Ok(outcome)
    }

    /// Adds inputs that reach more code to the corpus in the repository: the smallest ones first.
    fn keep(&self, target: &str) -> anyhow::Result<()> {
        let corpus = self.workspace.root().join("fuzz/corpus").join(target);
        let found = self.found("corpus", target)?;
        let merged = self.found("merged", target)?;
        fs::remove_dir_all(&merged)?;
        fs::create_dir_all(&merged)?;
        let of = format!("fuzz/corpus/{target}");
        self.cargo_fuzz("run")?
            .args([path(&merged)?, of, path(&found)?, "--".to_owned()])
            .args([
                "-set_cover_merge=1".to_owned(),
                format!("-max_len={LONGEST}"),
            ])
            .env("FUZZ_TARGET", target)
            .capture(self.workspace.root())?;
        let mut inputs: Vec<(u64, String)> = Vec::new();
        for name in names(&merged)? {
            inputs.push((fs::metadata(merged.join(&name))?.len(), name));
        }
        inputs.sort();
        let room = KEPT.saturating_sub(names(&corpus)?.len());
        for (_, name) in inputs.into_iter().take(room) {
            fs::copy(merged.join(&name), corpus.join(&name))?;
        }
        println!("{target}: {} inputs in the corpus", names(&corpus)?.len());
        Ok(())
    }
}

/// The most inputs that `--keep` leaves in a corpus. Its test allows a few more, for findings.
const KEPT: usize = 48;

fn path(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| anyhow!("{} is not UTF-8", path.display()))
}

/// The result of fuzzing one target.
struct Outcome {
    target: String,
    executions: u64,
    per_second: u64,
    /// The number of covered edges.
    coverage: u64,
    /// The inputs that were found.
    findings: Vec<PathBuf>,
    log: PathBuf,
}

impl Outcome {
    /// Reads the log of libFuzzer.
    fn read(target: &str, text: &str, log: PathBuf) -> Self {
        let stat = |name: &str| {
            let mut lines = text.lines().rev();
            let value = lines.find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
            value.trim_start_matches(':').trim().parse().ok()
        };
        // `#1024	pulse  cov: 812 ft: 1403 corp: 97/5kb exec/s: 512 rss: 60Mb`
        let mut lines = text.lines().rev();
        let coverage = lines.find_map(|line| {
            let (_, rest) = line.split_once(" cov: ")?;
            rest.split(' ').next()?.parse().ok()
        });
        Self {
            target: target.to_owned(),
            executions: stat("number_of_executed_units").unwrap_or_default(),
            per_second: stat("average_exec_per_sec").unwrap_or_default(),
            coverage: coverage.unwrap_or_default(),
            findings: text.lines().filter_map(finding).collect(),
            log,
        }
    }

    /// How each finding is repeated.
    fn report(&self) -> Vec<String> {
        let Self { target, log, .. } = self;
        let findings = self.findings.iter().map(|input| {
            format!(
                "  {target}: cargo run -p fuzz-targets -- {target} {}\n    (log: {})",
                input.display(),
                log.display()
            )
        });
        findings.collect()
    }
}

/// The input that a line of libFuzzer's log says was written. A slow one breaks no promise.
fn finding(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once("Test unit written to ")?;
    let path = PathBuf::from(path);
    let name = path.file_name()?.to_str()?;
    (!name.starts_with("slow-unit-")).then_some(path)
}

fn table(outcomes: &[Outcome]) -> String {
    let mut table = "target        executions   per second   coverage   findings\n".to_owned();
    for outcome in outcomes {
        let Outcome {
            target,
            executions,
            per_second,
            coverage,
            findings,
            ..
        } = outcome;
        let findings = findings.len();
        table += &format!(
            "{target:<12} {executions:>11} {per_second:>12} {coverage:>10} {findings:>10}\n"
        );
    }
    table.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_a_unit_or_is_in_seconds() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "m", "-1", "1d", "1.5m", "99999999999"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn log_of_libfuzzer_becomes_a_line_of_the_table() {
        let text = "INFO: Seed: 1\n\
            #2\tINITED cov: 12 ft: 14 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #8192\tpulse  cov: 812 ft: 1403 corp: 97/5kb lim: 80 exec/s: 4096 rss: 60Mb\n\
            Done 12345 runs in 3 second(s)\n\
            stat::number_of_executed_units: 12345\n\
            stat::average_exec_per_sec:     4115\n\
            artifact_prefix='found/'; Test unit written to found/slow-unit-1\n\
            artifact_prefix='found/'; Test unit written to found/crash-1\n";
        let outcome = Outcome::read("globs", text, "log".into());
        let expected = "\
target        executions   per second   coverage   findings
globs              12345         4115        812          1";
        assert_eq!(table(std::slice::from_ref(&outcome)), expected);
        let report = outcome.report().join("\n");
        assert!(report.contains("-- globs found/crash-1"), "{report}");
    }
}
