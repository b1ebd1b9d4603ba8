//! Completions that know the work under way: a shell runs this program to complete its command
//! line (the engine of clap_complete), which offers IDs of sessions, jobs, runs and threads.
//!
//! - Nothing is changed: no host or worker is started, and no file is written.
//! - Nothing is printed on stderr, which would get into the line that is being typed, and all that
//!   has to be asked for has [`LIMIT`]. What is not found in time is not offered.
//! - A candidate is inserted by bash without quotes, so only names without special characters are
//!   offered ([`candidate::is_plain`]).

mod candidate;
mod find;
mod paths;
mod shells;

use std::any::TypeId;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use agent_team::logic::{AgentName, TeamName, ThreadName};
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::{CompleteEnv, Shell};
use job_queue::logic::JobPrefix;
use job_queue::thread_ids::ThreadPrefix;
use settings::store_location::Location;

use super::work::WorkId;
use candidate::{Candidate, JobChoice};

/// The variable with the shell's name, in the environment of a process that completes.
const VARIABLE: &str = "_CODEX_MCP_COMPLETE";

/// The program that shells run: the one that is on PATH when they complete, so that the program and
/// the engine's script match after an update.
const PROGRAM: &str = "codex-mcp";

/// The time limit for finding candidates, in addition to the start of the process.
const LIMIT: Duration = Duration::from_millis(700);

/// The most candidates of one kind.
const MOST: usize = 100;

/// Completes a command line, if a shell has started this process to do so.
pub(super) fn run_if_asked() -> Option<ExitCode> {
    env::var_os(VARIABLE)?;
    let engine = CompleteEnv::with_factory(completed)
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .shells(shells::all());
    let here = env::current_dir().ok();
    match engine.try_complete(env::args_os(), here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        // The variable is empty.
        Ok(false) => None,
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// The script by which a shell completes; `None` if the engine does not know the shell.
pub(super) fn registration(shell: Shell) -> Option<Vec<u8>> {
    let mut script = Vec::new();
    let shells = shells::all();
    let shell = shells.completer(&shell.to_string())?;
    let written = shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
    written.is_ok().then_some(script)
}

/// The command line, with candidates for its arguments.
fn completed() -> Command {
    with_candidates(super::shown())
}

fn with_candidates(command: Command) -> Command {
    let verb = command.get_name().to_owned();
    command
        .mut_args(|arg| match completer(&arg, &verb) {
            Some(completer) => arg.add(completer),
            None => arg,
        })
        .mut_subcommands(with_candidates)
}

/// The completer of an argument, by the type of its value.
fn completer(arg: &Arg, verb: &str) -> Option<ArgValueCompleter> {
    let value = arg.get_value_parser().type_id();
    let choice = JobChoice::of(verb);
    if value == TypeId::of::<WorkId>() {
        return Some(offering(move || find::work(choice)));
    }
    if value == TypeId::of::<JobPrefix>() {
        return Some(offering(move || find::jobs(choice, chosen_store())));
    }
    if value == TypeId::of::<ThreadPrefix>() || value == TypeId::of::<ThreadName>() {
        return Some(offering(find::threads));
    }
    if value == TypeId::of::<TeamName>() {
        return Some(offering(find::teams));
    }
    if value == TypeId::of::<AgentName>() {
        return Some(offering(find::identities));
    }
    (value == TypeId::of::<PathBuf>()).then(|| in_time(paths::complete))
}

fn offering(find: impl Fn() -> Vec<Candidate> + Send + Sync + 'static) -> ArgValueCompleter {
    in_time(move |begun: &OsStr| match begun.to_str() {
        Some(begun) => candidate::offered(find(), begun),
        None => Vec::new(),
    })
}

/// A completer that offers nothing if it has not ended within [`LIMIT`]. It runs on a separate
/// thread, which ends with the process: a file system that hangs would block any other kind of
/// limit.
fn in_time(
    complete: impl Fn(&OsStr) -> Vec<CompletionCandidate> + Send + Sync + 'static,
) -> ArgValueCompleter {
    let complete = Arc::new(complete);
    ArgValueCompleter::new(move |begun: &OsStr| {
        let (complete, begun) = (Arc::clone(&complete), begun.to_owned());
        let (sender, receiver) = mpsc::channel();
        // The receiver is gone if this takes too long.
        thread::spawn(move || sender.send(complete(&begun)).ok());
        receiver.recv_timeout(LIMIT).unwrap_or_default()
    })
}

/// The store that the command line names so far.
fn chosen_store() -> Option<Location> {
    store_in(env::args_os().skip_while(|word| word != "--").skip(1))
}

fn store_in(words: impl Iterator<Item = OsString>) -> Option<Location> {
    const OPTION: &str = "--store";
    let mut words = words.filter_map(|word| word.into_string().ok());
    while let Some(word) = words.next() {
        let store = match word.strip_prefix(OPTION) {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        if let Some(store) = store {
            return store.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_of_the_command_line_is_used() {
        let store = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            store_in(words)?.path().map(PathBuf::from)
        };
        let named = Some(PathBuf::from("/a.db"));
        assert_eq!(store("codex-mcp jobs --store /a.db show"), named);
        assert_eq!(store("codex-mcp jobs show --store=/a.db"), named);
        assert_eq!(store("codex-mcp jobs show --stores /a.db"), None);
        assert_eq!(store("codex-mcp jobs show --store"), None);
    }

    #[test]
    fn completer_that_hangs_offers_nothing() {
        let hanging = in_time(|_| {
            loop {
                thread::park();
            }
        });
        assert_eq!(hanging.complete(OsStr::new("")), []);
        let prompt = in_time(|begun| vec![CompletionCandidate::new(begun)]);
        assert_eq!(prompt.complete(OsStr::new("a")).len(), 1);
    }

    /// Finds out when the engine has dropped a shell, or an argument its completer.
    #[test]
    fn engine_has_a_script_for_each_shell() {
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            let script = registration(*shell).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains(VARIABLE), "{shell}: {script}");
        }
        let command = completed();
        let of_verb = |name| command.find_subcommand(name).unwrap();
        for (verb, argument) in [
            ("approve", "id"),
            ("decline", "id"),
            ("steer", "id"),
            ("cancel", "ids"),
            ("attach", "id"),
            ("logs", "id"),
            ("summary", "thread_id"),
            ("serve", "team"),
            ("serve", "resume"),
            ("run", "thread"),
        ] {
            let mut arguments = of_verb(verb).get_arguments();
            let found = arguments.find(|arg| arg.get_id() == argument).unwrap();
            assert!(
                found.get::<ArgValueCompleter>().is_some(),
                "{verb} {argument}"
            );
        }
        for verb in [
            "show", "logs", "wait", "cancel", "approve", "resume", "retry", "steer",
        ] {
            let jobs = command.find_subcommand("jobs").unwrap();
            let mut arguments = jobs.find_subcommand(verb).unwrap().get_arguments();
            let completed = arguments.any(|arg| arg.get::<ArgValueCompleter>().is_some());
            assert!(completed, "jobs {verb}");
        }
    }
}
