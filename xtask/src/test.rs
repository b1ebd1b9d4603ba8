//! `cargo xtask test`: the steps of CI, up to the first failure.
//!
//! Most steps run one after the other, as cargo works on one build at a time anyway. Two leave a
//! core idle, one because it downloads and one because rustdoc has a single thread: they run
//! [beside](Beside) the others.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};

use crate::tool::{Tool, has_nextest};
use crate::workspace::Workspace;
use crate::{advisories, deny, docs, layers, provision, words};

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Run only this step; can be given several times
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// List the steps and what they run
    #[arg(long)]
    list: bool,
}

/// The steps in the order in which they run: the quick ones first, and the tests last, so that
/// their result is at the end of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Provision,
    Fmt,
    Words,
    Layers,
    Deny,
    Advisories,
    Clippy,
    Build,
    Doctest,
    Doc,
    Docs,
    Test,
}

/// The action of a step.
enum Action {
    /// A check of our own; the words say what it does.
    Own(&'static str, fn(&Workspace) -> anyhow::Result<()>),
    /// Another program.
    Tool(Tool),
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// A download, or rustdoc, which has one thread.
    fn leaves_a_core_idle(self) -> bool {
        matches!(self, Self::Provision | Self::Doctest)
    }

    fn action(self, workspace: &Workspace) -> Action {
        let cargo = |line: &str| Action::Tool(Tool::cargo(line.split(' ')));
        match self {
            Self::Provision => Action::Own("install what the tests need", provision::run),
            Self::Fmt => cargo("fmt --all --check"),
            Self::Words => Action::Own("no file speaks of a machine", words::run),
            Self::Layers => Action::Own("who may depend on whom", layers::run),
            Self::Deny => Action::Own("licences, bans and sources by deny.toml", deny::run),
            Self::Advisories => Action::Own(
                "known vulnerabilities, by cargo-deny or cargo-audit",
                advisories::run,
            ),
            Self::Clippy => cargo("clippy --workspace --all-targets -- -D warnings"),
            // The tests and benches too: the test runner finds everything built.
            Self::Build => cargo("build --workspace --all-targets"),
            Self::Doc => Action::Tool(
                Tool::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
            ),
            Self::Doctest => cargo("test --workspace --doc"),
            Self::Docs => Action::Own(
                "README, links, and tables that come from the code",
                docs::run,
            ),
            Self::Test if has_nextest(workspace.root()) => {
                cargo("nextest run --workspace --no-fail-fast")
            }
            // Not --all-targets: that would run the benches too.
            Self::Test => cargo("test --workspace --tests --no-fail-fast"),
        }
    }
}

/// A step in a process of its own, whose output is shown when it has ended.
struct Beside {
    step: Step,
    output: JoinHandle<anyhow::Result<(Output, Duration)>>,
}

impl Beside {
    fn start(step: Step, xtask: &Path) -> Self {
        println!("== {}: runs beside the next steps\n", step.name());
        let xtask = PathBuf::from(xtask);
        let run = move || {
            let start = Instant::now();
            let output = Command::new(xtask)
                .args(["test", "--only", &step.name()])
                .stdin(Stdio::null())
                .output()?;
            Ok((output, start.elapsed()))
        };
        Self {
            step,
            output: thread::spawn(run),
        }
    }

    fn join(self) -> (Step, Duration, anyhow::Result<()>) {
        let joined = self.output.join();
        let joined = joined.unwrap_or_else(|_| Err(anyhow!("its thread panicked")));
        let (output, took) = match joined {
            Ok(joined) => joined,
            Err(error) => return (self.step, Duration::ZERO, Err(error)),
        };
        let text = [output.stdout, output.stderr].concat();
        println!("{}", String::from_utf8_lossy(&text));
        let result = match output.status.success() {
            true => Ok(()),
            false => Err(anyhow!("its output is above")),
        };
        (self.step, took, result)
    }
}

/// Runs the steps, or those that were asked for.
///
/// # Errors
/// When a step fails; the steps after it are not run.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let chosen = |step: &Step| options.only.is_empty() || options.only.contains(step);
    let steps: Vec<Step> = Step::value_variants()
        .iter()
        .copied()
        .filter(chosen)
        .collect();
    if options.list {
        for step in steps {
            println!("{:<10} {}", step.name(), show(&step.action(workspace)));
        }
        return Ok(());
    }
    // Asked for before the build replaces the executable: afterwards the system calls it deleted.
    let xtask = std::env::current_exe()?;
    let (mut done, mut beside) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let mut result = Ok(());
    for step in &steps {
        if step.leaves_a_core_idle() && options.only.is_empty() {
            beside.push(Beside::start(*step, &xtask));
            continue;
        }
        if *step == Step::Test {
            result = join_all(&mut beside, &mut done);
        }
        if result.is_ok() {
            let (took, performed) = perform(*step, workspace);
            result = note(*step, took, performed, &mut done);
        }
        if result.is_err() {
            break;
        }
    }
    // Nothing that this has started outlives it.
    let result = result.and(join_all(&mut beside, &mut done));
    summarise(&done);
    result?;
    println!("everything passed in {}", seconds(start.elapsed()));
    Ok(())
}

type Passed = Vec<(String, Duration)>;

fn join_all(beside: &mut Vec<Beside>, done: &mut Passed) -> anyhow::Result<()> {
    let mut joined = Ok(());
    for running in beside.drain(..) {
        let (step, took, result) = running.join();
        joined = joined.and(note(step, took, result, done));
    }
    joined
}

/// Notes a step that has passed; the error of any other one names it.
fn note(
    step: Step,
    took: Duration,
    result: anyhow::Result<()>,
    done: &mut Passed,
) -> anyhow::Result<()> {
    let name = step.name();
    match result {
        Ok(()) => {
            done.push((name, took));
            Ok(())
        }
        Err(error) => {
            bail!("step {name} failed: {error:#}\nrun it alone: cargo xtask test --only {name}")
        }
    }
}

fn perform(step: Step, workspace: &Workspace) -> (Duration, anyhow::Result<()>) {
    let action = step.action(workspace);
    println!("== {}: {}", step.name(), show(&action));
    let start = Instant::now();
    let result = match action {
        Action::Own(_, check) => check(workspace),
        Action::Tool(tool) => tool.run(workspace.root()),
    };
    let took = start.elapsed();
    println!("== {}: {}\n", step.name(), seconds(took));
    (took, result)
}

fn show(action: &Action) -> String {
    match action {
        Action::Own(what, _) => (*what).to_owned(),
        Action::Tool(tool) => tool.to_string(),
    }
}

fn summarise(done: &Passed) {
    println!("== summary");
    for (name, took) in done {
        println!("passed  {name:<10} {:>9}", seconds(*took));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
