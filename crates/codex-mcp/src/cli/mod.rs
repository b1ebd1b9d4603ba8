//! The command line: one module for each verb.

mod alerts;
mod alias;
mod answer_commands;
mod backend;
mod completion;
mod completions;
mod config;
mod demo;
#[cfg(test)]
mod docs;
mod doctor;
mod exit;
mod eyes;
mod eyes_mcp;
mod global;
mod guard;
mod host;
mod injected_servers;
mod job_service;
mod jobs;
mod launch;
mod log;
mod man;
mod overview;
mod progress;
mod prompt;
mod ps;
mod question_details;
mod review;
mod run;
mod runtime;
mod serve;
mod services;
mod settings;
mod setup;
mod shutdown;
mod stdio;
mod stored;
mod summary;
mod table;
mod team_tools;
mod threads;
mod times;
mod top;
mod trust;
mod user_files;
mod values;
mod watchdog;
mod web;
mod work;
mod work_board;
mod work_list;
mod worker;
mod wrong_state;

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, CommandFactory, Parser, Subcommand};
use common::output;

use global::{ColourMode, Global};
use stored::complain;

use crate::installation::{Installation, VERSION};

pub use alias::as_verb;

/// First steps for new users.
const FIRST_STEPS: &str = "\
First steps:
  codex-mcp demo     see it work; no account is needed
  codex-mcp doctor   see whether your own Codex can work
  codex-mcp setup    add it to your MCP clients, such as Claude Code";

/// Names that are no verbs, and seem to mean a list of the work.
const LISTS: [&str; 4] = ["list", "runs", "sessions", "status"];

/// Other names for which there is a verb that clap does not find by its letters, and the advice.
const OTHER_NAMES: [(&[&str], &str); 4] = [
    (&["login"], "`codex login` logs Codex in"),
    (&["kill", "stop"], "`codex-mcp cancel` ends work"),
    (
        &["mcp-server", "start"],
        "`codex-mcp serve` is the MCP server",
    ),
    (
        &["show", "wait", "resume", "retry", "submit"],
        "verbs for one durable job come after `codex-mcp jobs`",
    ),
];

/// The advice for these names.
const LIST_TIP: &str =
    "`codex-mcp ps` lists work under way; `codex-mcp jobs list` also lists jobs that have ended";

/// The parameters of verbs that take a text for Codex.
const TEXTS: [&str; 4] = ["task", "subject", "prompt", "words"];

/// The advice for such a text of several arguments.
const QUOTES_TIP: &str = "put the text for Codex in quotes: it is one argument";

/// The MCP server for the OpenAI Codex CLI.
///
/// Lets any MCP client (Claude Code, Cursor, Claude Desktop, VS Code, Codex
/// itself) hand coding tasks to Codex and get the result back.
///
/// Without a command, it shows the current state at a terminal, and serves like
/// `codex-mcp serve` where stdin is no terminal.
#[derive(Debug, Parser)]
#[command(after_help = FIRST_STEPS)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve MCP on stdin and stdout; MCP clients start this themselves.
    ///
    /// Offers the tools `codex`, which begins a thread with Codex and waits for its final
    /// message, and `codex-reply`, which continues a thread; and tools for sessions,
    /// jobs, runs and reviews (see --tools). Codex's own configuration decides what Codex
    /// may do, unless a call says otherwise. The log goes to stderr; CODEX_MCP_LOG=debug
    /// logs more.
    Serve(serve::Args),
    /// Watch codex-mcp at work in a few seconds, without an account.
    Demo(demo::Args),
    /// Check whether Codex can work here, and suggest fixes.
    ///
    /// Checks Codex, its login and configuration, its sandbox, git, gh and the job store.
    /// Exits with 0 if Codex can work, else with 1.
    Doctor(doctor::Args),
    /// Add codex-mcp to the MCP clients on this machine, or remove it from them.
    Setup(setup::Args),
    /// Show each setting and where it comes from.
    #[command(alias = "settings")]
    Config(config::Args),
    /// Trust a repository's own settings and programs, or stop trusting it.
    Trust(trust::Args),
    /// Have Codex work until all criteria hold, checking them in the repository.
    ///
    /// Codex gets the task, and codex-mcp inspects the repository after each turn. If a criterion
    /// of `--until` is not met, Codex is told what is missing and continues, until all criteria
    /// hold or a limit is reached. The run ends with this shell, unless `--detach` makes it a job.
    Run(Box<run::Args>),
    /// Have Codex review changes, without changing anything or asking anyone.
    ///
    /// Reviews the uncommitted changes, unless `--base` or `--commit` names others, in the
    /// repository of the current directory. A separate thread reads them in a read-only
    /// sandbox, without MCP servers; `--json` prints its ID.
    Review(review::Args),
    /// Submit work that Codex does whether or not a client waits for it.
    ///
    /// A job is a prompt that is stored until Codex has finished it, even if you close this
    /// shell or the MCP client that submitted it. You can show it, wait for it and cancel it
    /// from any other shell.
    Jobs(jobs::Args),
    /// List the work under way: sessions, jobs and runs of all clients.
    Ps(ps::Args),
    /// Show the events of a session, job or run, one per line.
    Logs(work::LogsArgs),
    /// Approve Codex's request in a session or job.
    Approve(work::ApproveArgs),
    /// Decline Codex's request in a session or job.
    Decline(work::DeclineArgs),
    /// Send Codex a message while it works on a session or job.
    Steer(work::SteerArgs),
    /// Cancel sessions, jobs and runs: end their turns and commands.
    Cancel(work::CancelArgs),
    /// Open Codex's own interactive program on a session.
    Attach(work::AttachArgs),
    /// Watch all work in this terminal, and answer Codex's questions.
    ///
    /// Shows which agents need an answer, the step of each, and the work that has ended, for
    /// all MCP clients of this user. `?` lists the keys.
    Top(top::Args),
    /// Serve a page on which to watch and decide, and MCP over HTTP.
    ///
    /// The page shows the work that needs you, runs or has ended. You answer Codex's questions
    /// there, on this machine or on a phone. MCP clients that speak HTTP get all tools at /mcp.
    Web(web::Args),
    /// List the threads that Codex has worked on here, or forget old ones.
    ///
    /// A thread is a conversation with Codex. Each server records its threads under its identity
    /// (`codex`, if it was given no other), so they can be found and resumed after it exits.
    /// Threads of all identities are listed, the most recently used first.
    Threads(threads::Args),
    /// Print Codex's summary of a thread.
    ///
    /// When a server ends, it asks Codex for a summary of each of its threads, if there
    /// is time. `codex-mcp threads` lists the threads.
    Summary(summary::Args),
    /// Run the jobs of a store.
    ///
    /// Takes jobs from a store, oldest first, and has Codex do each in a separate session.
    /// The store keeps the results. The log, on stderr, says when each job begins and ends;
    /// CODEX_MCP_LOG=debug logs more.
    Worker(worker::Args),
    /// Show, restart or end the background process that serves several clients.
    ///
    /// `codex-mcp serve` connects its client to the host, one background process for all clients of
    /// this user with the same environment, and starts it if none is running. With `--no-host`,
    /// `serve` serves the client itself. The host exits ten minutes after its last client.
    Host(host::Args),
    /// Run the interactive Codex, and attach the pictures that it asks for.
    ///
    /// Codex itself decides to look at a picture in this repository, asks for it, and
    /// continues with it. You attach nothing by hand.
    Eyes(eyes::Args),
    /// Serve Codex the tool `request_image`; Codex starts this itself.
    ///
    /// `codex-mcp eyes` registers it automatically, and the threads of `codex-mcp serve` have
    /// the tool without it. Register it with any other Codex by `codex mcp add
    /// image-request-mcp -- codex-mcp eyes-mcp --answer picture`: the answer is then the
    /// picture, and Codex need not be restarted.
    EyesMcp(eyes_mcp::Args),
    /// Print or install a script that lets a shell complete the command line of codex-mcp.
    ///
    /// The shell then completes verbs and options, and the IDs of sessions, jobs, runs and threads.
    Completions(completions::Args),
    /// Print the manual page of codex-mcp or of one of its verbs, or install all pages.
    Man(man::Args),
    #[command(hide = true)]
    TeamTools(team_tools::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

impl Verb {
    /// The name of a verb whose exit codes differ from those of the others.
    fn name(&self) -> Option<&'static str> {
        match self {
            Self::Run(_) => Some("run"),
            Self::Review(_) => Some("review"),
            Self::Jobs(_) => Some("jobs"),
            Self::Logs(_) => Some("logs"),
            Self::Approve(_) => Some("approve"),
            Self::Decline(_) => Some("decline"),
            Self::Steer(_) => Some("steer"),
            Self::Cancel(_) => Some("cancel"),
            Self::Attach(_) => Some("attach"),
            Self::Top(_) => Some("top"),
            Self::Web(_) => Some("web"),
            _ => None,
        }
    }
}

/// Parses the command line and runs the verb. Returns the exit code; see `exit`.
#[must_use]
pub fn run() -> ExitCode {
    if let Some(exit) = guard::run_if_guard(std::env::args_os()) {
        return exit;
    }
    if let Some(exit) = launch::run_if_launcher(std::env::args_os()) {
        return exit;
    }
    if let Some(exit) = completion::run_if_asked() {
        return exit;
    }
    if let Err(error) = supervise::starter::end_with_starter() {
        complain(
            "warning",
            &format!("cannot watch the program that started this one: {error}"),
        );
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(error),
    };
    if let Err(error) = cli.global.apply() {
        complain("error", &error.to_string());
        return ExitCode::from(exit::usage_code(cli.verb.as_ref().and_then(Verb::name)));
    }
    let verb = match cli.verb {
        Some(verb) => verb,
        None if overview::is_wanted() => return overview::run(),
        // As the npm package did, which clients start without arguments.
        None => match bare_serve() {
            Ok(args) => Verb::Serve(args),
            Err(error) => return not_parsed(error),
        },
    };
    match verb {
        Verb::Serve(args) => serve::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Setup(args) => setup::run(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Trust(args) => trust::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Review(args) => review::run(&args),
        Verb::Jobs(args) => jobs::run(&args),
        Verb::Ps(args) => ps::run(&args),
        Verb::Logs(args) => work::logs(&args),
        Verb::Approve(args) => work::approve(&args),
        Verb::Decline(args) => work::decline(&args),
        Verb::Steer(args) => work::steer(&args),
        Verb::Cancel(args) => work::cancel(&args),
        Verb::Attach(args) => work::attach(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Web(args) => web::run(&args),
        Verb::Threads(args) => threads::run(&args),
        Verb::Summary(args) => summary::run(&args),
        Verb::Worker(args) => worker::run(&args),
        Verb::Host(args) => host::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
        Verb::Eyes(args) => eyes::run(&args),
        Verb::EyesMcp(args) => eyes_mcp::run(&args),
        Verb::TeamTools(args) => team_tools::run(&args),
        Verb::Guard(args) => guard::run(&args),
    }
}

/// The arguments of `codex-mcp serve` in a command line without the program's name.
fn serve_args(words: &[String]) -> Result<serve::Args, clap::Error> {
    let program = std::iter::once("codex-mcp");
    let words = program.chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(words)?.verb {
        Some(Verb::Serve(args)) => Ok(args),
        None => bare_serve(),
        Some(_) => Err(Cli::command().error(ErrorKind::InvalidSubcommand, "not `serve`")),
    }
}

/// The arguments of `codex-mcp serve` without options.
fn bare_serve() -> Result<serve::Args, clap::Error> {
    serve_args(&["serve".to_owned()])
}

/// The command line with all verbs, including those for our own use.
#[must_use]
pub fn command_tree() -> Command {
    Cli::command()
}

/// Prints the error in the command line, or the help or version that the user wanted.
fn not_parsed(error: clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayVersion {
        return version();
    }
    // The part of the command line that can be parsed.
    let read = Cli::command().ignore_errors(true).try_get_matches().ok();
    if let Some(when) = read
        .as_ref()
        .and_then(|read| read.get_one::<ColourMode>("color"))
    {
        when.apply();
    }
    let mut error = match error.kind() {
        // The tips of this error would name hidden verbs.
        ErrorKind::InvalidSubcommand => shown().try_get_matches().err().unwrap_or(error),
        _ => error,
    };
    if let Some(read) = &read {
        add_tip(&mut error, read);
    }
    // If it cannot be written, the exit code reports the error.
    let _ = output::command_line(&error);
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        true => {
            let verb = read.as_ref().and_then(ArgMatches::subcommand_name);
            ExitCode::from(exit::usage_code(verb))
        }
    }
}

/// Adds a tip to errors for which clap has none, or a wrong one. `read` is the part of the command
/// line that can be parsed.
fn add_tip(error: &mut clap::Error, read: &ArgMatches) {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(tip) = verb_tip(error, read) else {
                return;
            };
            error.remove(ContextKind::SuggestedSubcommand);
            tip
        }
        ErrorKind::UnknownArgument if is_unquoted(error, read) => QUOTES_TIP,
        _ => return,
    };
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
}

/// The advice for an unknown verb that is a common name for something else.
fn verb_tip(error: &clap::Error, read: &ArgMatches) -> Option<&'static str> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let is_list = LISTS.contains(&name.as_str());
    match read.subcommand_name() {
        None | Some("jobs") if is_list => Some(LIST_TIP),
        None => {
            let mut others = OTHER_NAMES.into_iter();
            let found = others.find(|(names, _)| names.contains(&name.as_str()));
            found.map(|(_, tip)| tip)
        }
        Some(_) => None,
    }
}

/// Whether an unexpected argument is probably the second word of a text for Codex.
fn is_unquoted(error: &clap::Error, read: &ArgMatches) -> bool {
    let is_word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => !word.starts_with('-'),
        _ => false,
    };
    let program = Cli::command();
    let (mut verb, mut read) = (&program, read);
    while let Some((name, below)) = read.subcommand()
        && let Some(named) = verb.find_subcommand(name)
    {
        (verb, read) = (named, below);
    }
    let mut texts = verb.get_positionals().map(|arg| arg.get_id().as_str());
    is_word && texts.any(|name| TEXTS.contains(&name))
}

/// Prints the version, with the commit and how this copy was installed.
fn version() -> ExitCode {
    let version = Installation::of_this_process().in_words();
    let printed = writeln!(output::stdout(), "codex-mcp {version}");
    stored::exit(printed.map(|()| ExitCode::SUCCESS).map_err(Into::into))
}

/// The command line without hidden verbs: completions, manuals and tips would show them.
fn shown() -> Command {
    let all = Cli::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut shown = Command::new("codex-mcp")
        .version(VERSION)
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
