//! `cargo xtask test`: the steps of CI, one after the other, up to the first failure.

use std::time::{Duration, Instant};

use anyhow::bail;
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
    Doc,
    Doctest,
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
            Self::Build => cargo("build --workspace"),
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
    let mut done = Vec::new();
    for step in &steps {
        let (took, result) = perform(*step, workspace);
        if let Err(error) = result {
            let name = step.name();
            summarise(&done);
            println!("FAILED  {name:<10} {:>9}", seconds(took));
            bail!("step {name} failed: {error:#}\nrun it alone: cargo xtask test --only {name}");
        }
        done.push((step.name(), took));
    }
    summarise(&done);
    let total = done.iter().map(|(_, took)| *took).sum();
    println!("everything passed in {}", seconds(total));
    Ok(())
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

fn summarise(done: &[(String, Duration)]) {
    println!("== summary");
    for (name, took) in done {
        println!("passed  {name:<10} {:>9}", seconds(*took));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
