//! `cargo xtask test`: the steps of CI, up to the first failure.
//!
//! The builds run one after the other, as cargo works on one at a time anyway. Downloads run
//! [beside](Beside) them. The tests wait for other programs a quarter of their time: the checks
//! that need a compiler run beside them. Those that use one processor come first.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};

use crate::tool::{CRATE_COMPILER, Tool};
use crate::workspace::Workspace;
use crate::{advisories, deny, docs, layers, nextest, portable, provision, words};

/// The niceness of the steps beside the tests, see nice(1): a processor that both want goes to the tests.
const LOW_PRIORITY: &str = "10";

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

/// The steps, the quick ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Provision,
    Fmt,
    Words,
    Layers,
    Deny,
    Advisories,
    Build,
    Docs,
    Doctest,
    Portable,
    Clippy,
    Doc,
    Test,
    TestHost,
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

    /// Which other steps this one runs beside, if all steps run.
    fn lane(self) -> Lane {
        match self {
            Self::Provision => Lane::BesideBuilds,
            Self::Clippy | Self::Doc | Self::Doctest | Self::Portable => Lane::BesideTests,
            Self::Test | Self::TestHost => Lane::Tests,
            _ => Lane::Main,
        }
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
            Self::Clippy => Action::Tool(checked_by_clippy(
                Tool::cargo(["check", "--workspace", "--all-targets"]),
                workspace,
            )),
            // The tests too: the test runner finds everything built.
            Self::Build => cargo("build --workspace --lib --bins --tests"),
            Self::Doc => Action::Tool(checked_by_clippy(
                Tool::cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
                workspace,
            )),
            Self::Doctest => cargo("test --workspace --doc"),
            Self::Docs => Action::Own(
                "README, links, and tables that come from the code",
                docs::run,
            ),
            Self::Portable => Action::Tool(portable::tests(workspace)),
            Self::Test => Action::Tool(nextest::tests(workspace)),
            Self::TestHost => Action::Tool(nextest::with_host(nextest::tests(workspace))),
        }
    }
}

/// Has cargo check the crates of the workspace by Clippy, as `cargo clippy` does: once for all steps.
fn checked_by_clippy(tool: Tool, workspace: &Workspace) -> Tool {
    let wrapper = workspace.root().join("xtask/clippy-rustc.sh");
    tool.env(CRATE_COMPILER, wrapper.to_string_lossy())
}

/// How a step runs when all steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// One after the other, before the tests.
    Main,
    /// Beside these; the tests need what it installs.
    BesideBuilds,
    /// The tests.
    Tests,
    /// Beside the tests, and one after the other. Their processes have a lower priority.
    BesideTests,
}

/// Steps of a lane, one after the other in a process of their own. What it prints is shown if it
/// fails.
struct Beside {
    names: String,
    output: JoinHandle<anyhow::Result<(Output, Duration)>>,
}

impl Beside {
    fn start(steps: &[Step], lane: Lane, xtask: &Path) -> Self {
        let names: Vec<String> = steps.iter().map(|step| step.name()).collect();
        let mut command = match lane {
            Lane::BesideTests => {
                let mut nice = Command::new("nice");
                nice.args(["-n", LOW_PRIORITY]).arg(xtask);
                nice
            }
            Lane::BesideBuilds | Lane::Main | Lane::Tests => Command::new(xtask),
        };
        command.arg("test").stdin(Stdio::null());
        for name in &names {
            command.args(["--only", name]);
        }
        let names = names.join(", ");
        println!("== {names}: beside the next steps\n");
        let run = move || {
            let start = Instant::now();
            let output = command.output().context("cannot be started")?;
            Ok((output, start.elapsed()))
        };
        Self {
            names,
            output: thread::spawn(run),
        }
    }

    fn join(self, passed: &mut Passed) -> anyhow::Result<()> {
        let joined = self.output.join();
        let joined = joined.unwrap_or_else(|_| Err(anyhow!("its thread panicked")));
        let (output, took) = joined.with_context(|| format!("{} failed", self.names))?;
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            println!("{}", String::from_utf8_lossy(&text));
            bail!("{} failed; the output is above", self.names);
        }
        passed.push((self.names, took));
        Ok(())
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
    let start = Instant::now();
    let mut passed = Passed::new();
    let result = match options.only.is_empty() {
        true => run_in_lanes(&steps, workspace, &mut passed),
        false => run_in_order(&steps, workspace, &mut passed),
    };
    summarise(&passed);
    result?;
    println!("everything passed in {}", seconds(start.elapsed()));
    Ok(())
}

type Passed = Vec<(String, Duration)>;

fn run_in_order(steps: &[Step], workspace: &Workspace, passed: &mut Passed) -> anyhow::Result<()> {
    for step in steps {
        let (took, performed) = perform(*step, workspace);
        note(*step, took, performed, passed)?;
    }
    Ok(())
}

fn run_in_lanes(steps: &[Step], workspace: &Workspace, passed: &mut Passed) -> anyhow::Result<()> {
    // Asked for before the build replaces the executable: afterwards the system calls it deleted.
    let xtask = std::env::current_exe()?;
    let of_lane = |lane: Lane| -> Vec<Step> {
        let steps = steps.iter().copied();
        steps.filter(|step| step.lane() == lane).collect()
    };
    let start = |lane: Lane| Beside::start(&of_lane(lane), lane, &xtask);

    // Whatever this starts ends before it returns.
    let beside = start(Lane::BesideBuilds);
    let built = run_in_order(&of_lane(Lane::Main), workspace, passed);
    built.and(beside.join(passed))?;
    let Some(tests) = nextest::built_tests(workspace)? else {
        let rest = [of_lane(Lane::BesideTests), of_lane(Lane::Tests)].concat();
        return run_in_order(&rest, workspace, passed);
    };
    let beside = start(Lane::BesideTests);
    let with_host = nextest::with_host(tests.clone());
    let tested = [(Step::Test, tests), (Step::TestHost, with_host)]
        .into_iter()
        .try_for_each(|(step, tests)| {
            let (took, tested) = perform_action(step, Action::Tool(tests), workspace);
            note(step, took, tested, passed)
        });
    tested.and(beside.join(passed))
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
    perform_action(step, step.action(workspace), workspace)
}

fn perform_action(
    step: Step,
    action: Action,
    workspace: &Workspace,
) -> (Duration, anyhow::Result<()>) {
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
