//! `codex-mcp setup`: adds this program to MCP clients, and removes it from them.

mod apply;
mod change;
mod codex;
mod handshake;
mod present;
mod wanted;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent_team::logic::TeamName;
use client_setup::files::ConfigFile;
use client_setup::logic::clients::Client;
use client_setup::logic::plan::ServerProcess;
use client_setup::receipts::Receipts;
use codex_engine::binary::NoCodex;
use common::output;
use mcp_server::{Api, Group};
use safe_files::state_directory::state_directory;
use safe_files::state_file;
use settings::{ConfigError, Flags, Source};

use self::apply::Applied;
use self::change::{Action, Change, Request};
use self::handshake::{Handshake, Launch};
use super::exit;
use super::runtime;
use super::stored::complain;
use super::values::one_of_words;
use crate::doctor::{self, Report};
use crate::environment::home;

/// The time limit for each program that the checks of `doctor` run.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// The rest of the help.
const HELP: &str = "\
Clients: claude-code, codex, cursor, vscode, claude-desktop, zed, windsurf, opencode, gemini, \
copilot, goose, cline. Without a name, setup adds all clients whose program is on PATH or whose \
configuration file exists.

The changes are shown first, and nothing is written before you agree. Files are edited in place: \
comments, order and other entries stay. A copy is kept in ~/.local/state/codex-mcp/setup. \
--remove restores a file byte for byte if it was not edited since, and otherwise removes only the \
entry. Entries of `codex mcp-server` and of the npm package @leo000001/codex-mcp keep their names \
and start codex-mcp instead.

setup also writes the settings that the client needs: a time limit of ten minutes for a call, if \
its file has a setting for that, and for Codex `default_tools_approval_mode = \"approve\"`. With \
it, Codex calls our tools without asking; otherwise `codex exec` would cancel the calls.

Finally, setup starts each different command once, as its client will, and checks that it lists \
its tools; then it checks Codex as `codex-mcp doctor` does, and offers to log in. If Codex is \
missing, setup offers to install it with npm, unless --yes is given.

Exit codes: 0 done, even if Codex needs a login; 1 something failed; 2 wrong arguments.

Examples:
  codex-mcp setup                    all clients that are installed
  codex-mcp setup cursor zed --yes   these, without a question
  codex-mcp setup --dry-run          only show what would change
  codex-mcp setup vscode --project   .vscode/mcp.json of this repository
  codex-mcp setup --remove           remove it from all clients";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// The clients to set up. Default: all installed clients.
    #[arg(value_name = "CLIENT", value_parser = one_of_words::<Client>(), hide_possible_values = true)]
    clients: Vec<Client>,

    /// Write the file that all users of the repository around this directory share, instead of
    /// your own. Each of them needs `codex-mcp` on PATH.
    #[arg(long)]
    project: bool,

    /// Remove codex-mcp from the clients again.
    #[arg(long, conflicts_with_all = ["api", "tools", "team", "codex_bin"])]
    remove: bool,

    /// Do not ask before writing.
    #[arg(short, long)]
    yes: bool,

    /// Show what would change, and write nothing.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Print one JSON object: {"changes": [{"client", "file", "action": "add" | "update" |
    /// "replace" | "remove" | "restore" | "none", "entries"?, "diff"?, "copy"?, "warnings"?,
    /// "note"?, "error"?}], "written", "checks": [{"client", "tools" | "error"}], "doctor"?: as of
    /// `doctor --json`}. Needs --yes or --dry-run.
    #[arg(long)]
    json: bool,

    /// The name of the entry. Default: that of an existing entry, else `codex`.
    #[arg(long, value_name = "NAME", value_parser = entry_name)]
    name: Option<String>,

    /// Have clients start `codex-mcp serve` with this --api.
    #[arg(long, value_enum)]
    api: Option<Api>,

    /// Have clients start `codex-mcp serve` with these --tools.
    #[arg(long, value_enum, value_name = "GROUP", value_delimiter = ',')]
    tools: Vec<Group>,

    /// Have clients start `codex-mcp serve` with this --team.
    #[arg(long, value_name = "TEAM")]
    team: Option<TeamName>,

    /// Have clients start `codex-mcp serve` with the path of this Codex: a path, or a name on PATH.
    /// Clients started from a desktop find Codex only in system directories.
    #[arg(long, value_name = "PATH", conflicts_with = "project")]
    codex_bin: Option<PathBuf>,
}

/// Parses a name that every client accepts. The rule is that of Codex, which is the strictest. Such
/// a name cannot be taken for an option of a client's command, or for another type of value in
/// YAML.
fn entry_name(text: &str) -> Result<String, String> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let means_more = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = means_more.contains(&text.to_ascii_lowercase().as_str());
    match is_name && text.len() <= 64 && text.chars().all(fits) && !is_word {
        true => Ok(text.to_owned()),
        false => Err("a name begins with a letter and has at most 64 letters, digits, `-` and `_`; `true`, `no` and the like are not allowed".to_owned()),
    }
}

/// Why nothing could be set up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot find your home directory, where the clients' files are: set HOME to its path")]
    NoHome,
    #[error("cannot find the file of this program: {0}")]
    NoProgram(io::Error),
    #[error("no MCP client was found here; name one, such as `codex-mcp setup cursor`")]
    NoClient,
    #[error(
        "there is no git repository around this directory: run this inside of one, or omit --project"
    )]
    NoRepository,
    #[error("{0} has no file that the users of a repository share; omit --project")]
    NoProjectFile(&'static str),
    #[error("stdin is not a terminal, so nobody can be asked: use --yes to write, or --dry-run")]
    NobodyToAsk,
    #[error("--json needs --yes or --dry-run")]
    JsonAsks,
    #[error(transparent)]
    NoCodex(#[from] NoCodex),
    #[error("--codex-bin: the path {} is not UTF-8, which clients' files need", .0.display())]
    CodexNotText(PathBuf),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot start `codex login`: {0}")]
    Login(io::Error),
    #[error(transparent)]
    State(#[from] state_file::FileError),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    match set_up(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::FAILED),
        // The reader has read enough of what would change.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe && args.dry_run => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            match error {
                Failure::JsonAsks
                | Failure::NoProjectFile(_)
                | Failure::NoCodex(_)
                | Failure::CodexNotText(_) => ExitCode::from(exit::usage_code(Some("setup"))),
                _ => ExitCode::from(exit::FAILED),
            }
        }
    }
}

/// Returns whether every client is as it should be now.
fn set_up(args: &Args) -> Result<bool, Failure> {
    if args.json && !args.yes && !args.dry_run {
        return Err(Failure::JsonAsks);
    }
    if !args.remove {
        let wrong = match settings::load_partial(&Flags::default()) {
            Ok(partial) => partial.wrong,
            Err(error) => vec![error],
        };
        for error in wrong {
            complain("warning", &format!("{error}. {}", consequence(&error)));
        }
    }
    let request = request(args)?;
    let clients = match args.clients.is_empty() {
        true => change::clients(&request),
        false => args.clients.clone(),
    };
    let changes = change::plan(&request, &clients)?;
    if changes.is_empty() && !args.remove {
        return Err(Failure::NoClient);
    }
    if !args.json {
        present::changes(&changes)?;
    }
    let must_write = changes.iter().any(Change::is_to_write);
    let agreed = match (args.dry_run, must_write) {
        (true, _) => false,
        (false, false) => true,
        (false, true) => args.yes || agrees()?,
    };
    if agreed && !args.remove && !args.yes && !args.json {
        codex::offer_install(args)?;
    }
    let outcome = match agreed {
        true => runtime::block_on(apply_all(&request, changes, args.codex_bin.clone()))
            .map_err(Failure::Runtime)?,
        false => Outcome {
            applied: changes.into_iter().map(Applied::not_written).collect(),
            ..Outcome::default()
        },
    };
    let others = match args.remove {
        true => others(&request, &outcome)?,
        false => Vec::new(),
    };
    let outcome = Outcome { others, ..outcome };
    match args.json {
        true => present::json(&outcome)?,
        false => present::outcome(&request, &outcome)?,
    }
    if !args.json && !args.yes {
        codex::offer_login(&outcome)?;
    }
    Ok(outcome.is_fine())
}

/// What a wrong setting means for the servers that clients start: in other directories, and without
/// the variables of this shell.
fn consequence(error: &ConfigError) -> &'static str {
    let file = match error {
        ConfigError::Malformed { path, .. } => Some(path),
        ConfigError::Invalid { from, .. } | ConfigError::NoRole { from, .. } => match from {
            Source::Variable(_) => {
                return "Servers cannot start with this variable until it is corrected.";
            }
            Source::File(_, path) | Source::Role(_, path) => Some(path),
            _ => None,
        },
        ConfigError::Unreadable(_) | ConfigError::Trust(_) => None,
    };
    match file {
        Some(path) if *path != settings::user_file() => {
            "Servers cannot start in this directory until it is corrected."
        }
        _ => "The server does not start with these settings; correct them first.",
    }
}

/// The outcome of `setup`.
#[derive(Default)]
struct Outcome {
    applied: Vec<Applied>,
    /// The different ways in which entries start the server: for each, one entry of each client,
    /// and whether the server answers.
    checks: Vec<(Vec<CheckedEntry>, Handshake)>,
    /// Whether Codex can work here, if entries were to be written.
    report: Option<Report>,
    /// Files that still have entries of ours.
    others: Vec<OtherFile>,
}

/// An entry with which a client starts the server.
struct CheckedEntry {
    client: Client,
    name: String,
}

/// A file that still has an entry of ours.
enum OtherFile {
    /// The shared file of a repository, which was set up there.
    OfRepository(PathBuf),
    /// The user's file of a client that is set up, and was not named.
    OfUser(Client, PathBuf),
    /// A file whose entry `setup` has not added.
    ByHand(Client, PathBuf),
}

impl Outcome {
    fn is_written(&self) -> bool {
        self.applied.iter().any(|applied| applied.is_written)
    }

    fn is_fine(&self) -> bool {
        let answers = self.checks.iter().all(|(_, check)| check.is_ok());
        self.applied.iter().all(Applied::is_fine) && answers
    }
}

/// Makes the changes, and checks that the server answers.
async fn apply_all(request: &Request, changes: Vec<Change>, codex: Option<PathBuf>) -> Outcome {
    let mut outcome = Outcome::default();
    for change in changes {
        outcome.applied.push(apply::apply(request, change).await);
    }
    let mut launches: Vec<(Vec<CheckedEntry>, Launch)> = Vec::new();
    for applied in outcome.applied.iter().filter(|applied| applied.is_fine()) {
        let Ok(Action::Set { plan, .. }) = &applied.change.action else {
            continue;
        };
        for entry in &plan.entries {
            let client = applied.change.client;
            let launch = match request.top {
                None => Launch::of(client, &entry.entry, plan.process(client, &entry.name)),
                // The writer of the repository has chosen the rest.
                Some(_) => Launch::of(client, &request.entry_alone(), ServerProcess::default()),
            };
            let checked = CheckedEntry {
                client,
                name: entry.name.clone(),
            };
            match launches.iter_mut().find(|(_, known)| *known == launch) {
                Some((entries, _)) if entries.iter().any(|one| one.client == client) => {}
                Some((entries, _)) => entries.push(checked),
                None => launches.push((vec![checked], launch)),
            }
        }
    }
    let must_check = !launches.is_empty();
    for (entries, launch) in launches {
        let answer = handshake::check(&launch).await;
        outcome.checks.push((entries, answer));
    }
    if must_check {
        let facts = doctor::gather(codex, PROGRAM_TIMEOUT).await;
        outcome.report = Some(doctor::judge(&facts));
    }
    outcome
}

/// The files that still have entries of ours: those that were set up, and those whose entry `setup`
/// has not added.
fn others(request: &Request, outcome: &Outcome) -> Result<Vec<OtherFile>, Failure> {
    let receipts = Receipts::read(&request.state)?;
    let is_looked_at = |file: &Path| {
        let mut applied = outcome.applied.iter();
        applied.any(|applied| applied.change.path == file)
    };
    let set_up = receipts.all().iter().filter_map(|receipt| {
        let path = receipt.file.clone();
        let client = receipt.client.parse::<Client>().ok()?;
        let (file, other) = match change::user_file(&request.home, client) == path {
            true => (ConfigFile::of_user(&path), OtherFile::OfUser(client, path)),
            false => (
                change::file_of_repository(client, &path),
                OtherFile::OfRepository(path),
            ),
        };
        change::has_entry(client, file).then_some(other)
    });
    let written = change::written_by_hand(request, &receipts).into_iter();
    let written = written.map(|(client, file)| OtherFile::ByHand(client, file));
    let others = set_up.chain(written).filter(|other| match other {
        OtherFile::OfRepository(file) | OtherFile::OfUser(_, file) | OtherFile::ByHand(_, file) => {
            !is_looked_at(file)
        }
    });
    Ok(others.collect())
}

/// The names of the clients in whose configuration this program is; `None` without a home.
pub(super) fn clients_set_up() -> Option<Vec<&'static str>> {
    let clients = change::set_up(&home()?).into_iter();
    Some(clients.map(Client::title).collect())
}

fn request(args: &Args) -> Result<Request, Failure> {
    let home = home().ok_or(Failure::NoHome)?;
    let state = state_directory(|name| std::env::var_os(name)).ok_or(Failure::NoHome)?;
    let top = match args.project {
        true => Some(change::repository_top().ok_or(Failure::NoRepository)?),
        false => None,
    };
    Ok(Request {
        home,
        state,
        top,
        name: args.name.clone(),
        wanted: wanted::entry(args)?,
        remove: args.remove,
        names_clients: !args.clients.is_empty(),
    })
}

/// Asks a person whether the changes are to be written.
fn agrees() -> Result<bool, Failure> {
    match io::stdin().is_terminal() {
        true => asks("Write this? [y/N] "),
        false => Err(Failure::NobodyToAsk),
    }
}

fn asks(question: &str) -> Result<bool, Failure> {
    let mut out = output::stdout();
    write!(out, "{question}")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
