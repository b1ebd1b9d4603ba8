//! The command line: one module for each verb.

mod alerts;
mod alias;
mod backend;
mod completions;
mod config;
mod demo;
#[cfg(test)]
mod docs;
mod doctor;
mod ending;
mod exit;
mod eyes;
mod eyes_mcp;
mod global;
mod guard;
mod jobs;
mod jobs_of;
mod log;
mod man;
mod own_servers;
mod prompt;
mod review;
mod run;
mod runtime;
mod serve;
mod services;
mod settings;
mod stdio;
mod stored;
mod summary;
mod table;
mod team_tools;
mod teller;
mod threads;
mod times;
mod trust;
mod values;
mod watchdog;
mod worker;

use std::process::ExitCode;

use clap::{ArgMatches, Command, CommandFactory, Parser, Subcommand};
use common::output;

use global::{Global, When};
use stored::complain;

pub use alias::as_verb;

/// What to do first, for somebody who has just met us.
const FIRST_STEPS: &str = "\
First steps:
  codex-mcp demo     see it work; no account is needed
  codex-mcp doctor   see whether your own Codex can work
  claude mcp add codex -- codex-mcp serve
                     add it to an MCP client, here Claude Code; others want the
                     command `codex-mcp` with the argument `serve`";

/// The MCP server for the OpenAI Codex CLI.
///
/// Lets any MCP client (Claude Code, Cursor, Claude Desktop, VS Code, Codex
/// itself) hand coding tasks to Codex and get the result back.
#[derive(Debug, Parser)]
#[command(after_help = FIRST_STEPS)]
#[command(
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve MCP on stdin and stdout; MCP clients start this themselves.
    ///
    /// Offers the tools `codex`, which begins a thread with Codex and waits for
    /// its final message, and `codex-reply`, which goes on with a thread. What
    /// Codex may do is up to Codex's own configuration, unless a call says
    /// otherwise. The log goes to stderr; CODEX_MCP_LOG=debug tells more.
    Serve(serve::Args),
    /// Watch codex-mcp at work in a few seconds, without an account.
    Demo(demo::Args),
    /// Tell whether Codex can work here, and what to do where it can't.
    ///
    /// Looks at Codex, its login and configuration, its sandbox, git and gh.
    /// Exits with 0 if work can be done, else with 1.
    Doctor(doctor::Args),
    /// Show each setting and where it comes from.
    Config(config::Args),
    /// Trust a repository's own settings and programs, or stop trusting it.
    Trust(trust::Args),
    /// Have Codex work until the result is there: it is looked at, not believed.
    ///
    /// Codex gets the task, and after each turn the repository is looked at. Where
    /// something is missing that was asked for with `--until`, Codex is told what, and
    /// goes on, until all of it holds or the limits are reached.
    Run(Box<run::Args>),
    /// Have Codex review changes: nothing is changed, and nobody is asked.
    ///
    /// Reviews the changes that are not committed, unless `--base` or `--commit` names
    /// others, in the repository of the current directory. A thread of its own reads them in
    /// a read-only sandbox, without MCP servers; `--json` prints its id.
    Review(review::Args),
    /// Hand work to Codex that is done whether or not anybody waits for it.
    ///
    /// A job is a prompt that is kept until Codex has done it, also when this shell,
    /// or the MCP client that has submitted it, is closed. It can be looked at, waited
    /// for and called off from any other shell.
    Jobs(jobs::Args),
    /// List the threads that Codex has worked on here, or forget old ones.
    ///
    /// A thread is a conversation with Codex. Each server writes down its threads
    /// under its identity (`codex`, if it was given no other), so that they can be
    /// found and taken up again when it has ended. Those of all identities are
    /// listed, the last one first.
    Threads(threads::Args),
    /// Print what a thread was about, as Codex summed it up when it was put away.
    ///
    /// A server that ends asks Codex for a summary of each of its threads, if there
    /// is time. `codex-mcp threads` lists the threads.
    Summary(summary::Args),
    /// Run jobs: prompts that were handed over for good, and outlive who did so.
    ///
    /// Takes jobs from a store, oldest first, and has Codex do them, each in a session of its
    /// own. The result of each is kept in the store. The log, on stderr,
    /// says when each begins and ends; CODEX_MCP_LOG=debug tells more.
    Worker(worker::Args),
    /// Run the interactive Codex, and bring it the pictures that it asks for.
    ///
    /// Codex decides by itself that it wants to look at a picture in this repository,
    /// asks for it, and goes on with it. Nothing is attached by hand.
    Eyes(eyes::Args),
    /// Serve Codex the tool `request_image`; Codex starts this itself.
    ///
    /// `codex-mcp eyes` gives it to Codex by itself, and the threads of `codex-mcp serve`
    /// have the tool without it. For any other Codex it is registered by
    /// `codex mcp add image-request-mcp -- codex-mcp eyes-mcp --answer picture`:
    /// the answer is the picture then, and nothing has to be started again.
    EyesMcp(eyes_mcp::Args),
    /// Print a script that lets a shell complete the command line of codex-mcp.
    Completions(completions::Args),
    /// Print the manual page of codex-mcp, or of one of its verbs.
    Man(man::Args),
    #[command(hide = true)]
    TeamTools(team_tools::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

impl Verb {
    /// The verb, if its exit codes differ from those of the others.
    fn name(&self) -> Option<&'static str> {
        match self {
            Self::Run(_) => Some("run"),
            Self::Review(_) => Some("review"),
            Self::Jobs(_) => Some("jobs"),
            _ => None,
        }
    }
}

/// Parses the command line and does what it says. Returns the exit code, see `exit`.
#[must_use]
pub fn run() -> ExitCode {
    if let Some(exit) = guard::run_alone(std::env::args_os()) {
        return exit;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    if let Err(error) = cli.global.apply() {
        complain("error", &error.to_string());
        return ExitCode::from(exit::of_usage(cli.verb.name()));
    }
    match cli.verb {
        Verb::Serve(args) => serve::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Trust(args) => trust::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Review(args) => review::run(&args),
        Verb::Jobs(args) => jobs::run(&args),
        Verb::Threads(args) => threads::run(&args),
        Verb::Summary(args) => summary::run(&args),
        Verb::Worker(args) => worker::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
        Verb::Eyes(args) => eyes::run(&args),
        Verb::EyesMcp(args) => eyes_mcp::run(&args),
        Verb::TeamTools(args) => team_tools::run(&args),
        Verb::Guard(args) => guard::run(&args),
    }
}

/// The command line with all verbs, also those for our own use.
#[must_use]
pub fn command_tree() -> Command {
    Cli::command()
}

/// Prints what is wrong with the command line, or the help that was asked for.
fn not_parsed(error: &clap::Error) -> ExitCode {
    // What is right of the command line.
    let read = Cli::command().ignore_errors(true).try_get_matches().ok();
    if let Some(when) = read.as_ref().and_then(|read| read.get_one::<When>("color")) {
        when.apply();
    }
    // If it can't be written, the exit code has to tell.
    let _ = output::command_line(error);
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        true => {
            let verb = read.as_ref().and_then(ArgMatches::subcommand_name);
            ExitCode::from(exit::of_usage(verb))
        }
    }
}

/// The command line without what is for our own use only: completions and manuals
/// would show that too.
fn shown() -> Command {
    let all = Cli::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut shown = Command::new("codex-mcp")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommands(verbs.cloned());
    shown = shown.args(all.get_arguments().cloned());
    if let Some(about) = all.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = all.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    shown.after_help(FIRST_STEPS)
}
