//! `codex-mcp setup`: adds this program to MCP clients, and takes it back.

mod apply;
mod change;
mod handshake;
mod present;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_team::logic::TeamName;
use client_setup::logic::clients::Client;
use client_setup::logic::entry::Entry;
use common::output;
use mcp_server::{Api, Group};
use safe_files::state_directory::state_directory;
use supervise::spawn::{Program, become_program};

use self::apply::Applied;
use self::change::{Action, Change, Setting};
use self::handshake::Handshake;
use super::exit;
use super::runtime;
use super::stored::complain;
use super::values::one_of_words;
use crate::doctor::{self, Check, Report, Status};

/// The time limit for each program that the checks of `doctor` run.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// What moves Codex's directories and ours.
const MOVING_VARIABLES: [&str; 4] = [
    "CODEX_HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// What a person may want to know beside the options.
const HELP: &str = "\
Clients: claude-code, codex, cursor, vscode, claude-desktop, zed, windsurf, opencode, gemini, \
copilot, goose, cline. Without one, all that are installed here are set up.

First the changes are shown; nothing is written before you agree. Each file is edited in place: \
comments, order and other entries stay. A copy of it is kept in ~/.local/state/codex-mcp/setup, and \
--remove restores it byte for byte if nobody has edited the file since; otherwise it removes the \
entry alone. Entries of `codex mcp-server` and of the npm package codex-mcp are replaced under their \
names. In the end, `codex-mcp serve` is started as the client will start it, and must answer.

With an entry comes what the client needs for long calls: a time limit of ten minutes for a call, \
and for Codex `default_tools_approval_mode = \"approve\"`, without which `codex exec` refuses tools.

Examples:
  codex-mcp setup                      all clients that are installed
  codex-mcp setup cursor zed --yes     these, without a question
  codex-mcp setup --dry-run            only show what would change
  codex-mcp setup vscode --project     .vscode/mcp.json of this repository
  codex-mcp setup --remove             take it back everywhere";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// The clients to set up. Default: all that are installed.
    #[arg(value_name = "CLIENT", value_parser = one_of_words::<Client>(), hide_possible_values = true)]
    clients: Vec<Client>,

    /// Write the file that all users of the repository around this directory share, instead of
    /// your own. It names `codex-mcp` without its directory.
    #[arg(long)]
    project: bool,

    /// Remove codex-mcp from the clients again.
    #[arg(long, conflicts_with_all = ["api", "tools", "team"])]
    remove: bool,

    /// Do not ask before writing.
    #[arg(short, long)]
    yes: bool,

    /// Show what would change, and write nothing.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Print one JSON object: {"changes": [{"client", "file", "action": "add" | "update" |
    /// "replace" | "remove" | "restore" | "none", "name"?, "replaces"?, "diff"?, "backup"?,
    /// "error"?}], "written", "check"?: {"tools"} or {"error"}, "doctor"?: that of `doctor
    /// --json`}. Needs --yes or --dry-run.
    #[arg(long)]
    json: bool,

    /// The name of the entry. Default: that of the entry which is there, else `codex`.
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
}

/// A name that every client takes. Source: Codex, whose rule is the strictest.
fn entry_name(text: &str) -> Result<String, String> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    match (1..=64).contains(&text.len()) && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 letters, digits, `-` and `_`".to_owned()),
    }
}

/// Why nothing could be set up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("HOME is not set: it says where the clients' files are")]
    NoHome,
    #[error("cannot find the file of this program: {0}")]
    NoProgram(io::Error),
    #[error("no MCP client was found here; name one, such as `codex-mcp setup cursor`")]
    NoClient,
    #[error("there is no repository around this directory; leave --project out, or change there")]
    NoRepository,
    #[error("{0} has no file that the users of a repository share; leave --project out")]
    NoProjectFile(&'static str),
    #[error("nobody can be asked here: use --yes to write, or --dry-run to look")]
    NobodyToAsk,
    #[error("--json needs --yes or --dry-run")]
    JsonAsks,
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot start `codex login`: {0}")]
    Login(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    match set_up(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::FAILED),
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Returns whether every client is set up now.
fn set_up(args: &Args) -> Result<bool, Failure> {
    if args.json && !args.yes && !args.dry_run {
        return Err(Failure::JsonAsks);
    }
    let setting = setting(args)?;
    let clients = match args.clients.is_empty() {
        true => change::installed(&setting),
        false => args.clients.clone(),
    };
    let mut changes: Vec<Change> = Vec::new();
    for client in clients {
        let Some(change) = change::plan(&setting, client)? else {
            continue;
        };
        // Two clients can share the file of a repository, from which the entry is removed once.
        let is_known = changes.iter().any(|known| known.path == change.path);
        if !(args.remove && is_known) {
            changes.push(change);
        }
    }
    if changes.is_empty() && !args.remove {
        return Err(Failure::NoClient);
    }
    if !args.json {
        present::changes(&changes)?;
    }
    let must_write = changes.iter().any(|change| change.is_to_write());
    let agreed = match (args.dry_run, must_write) {
        (true, _) => false,
        (false, false) => true,
        (false, true) => args.yes || agrees()?,
    };
    let done = runtime::block_on(write(&setting, changes, agreed)).map_err(Failure::Runtime)?;
    match args.json {
        true => present::json(&done, agreed)?,
        false => present::outcome(&done, agreed, args.remove)?,
    }
    if !args.json && !args.yes {
        offer_login(&done)?;
    }
    Ok(done.is_fine())
}

/// What has been done.
struct Done {
    applied: Vec<Applied>,
    /// Whether the server answers, if an entry was to be written.
    check: Option<Handshake>,
    /// Whether Codex can work here, if an entry was to be written.
    report: Option<Report>,
}

impl Done {
    fn is_fine(&self) -> bool {
        let has_failed = |applied: &Applied| applied.error.is_some();
        let answers = self.check.as_ref().is_none_or(|check| check.is_ok());
        !self.applied.iter().any(has_failed) && answers
    }
}

/// Writes the changes, if the user has agreed, and checks that the server answers.
async fn write(setting: &Setting, changes: Vec<Change>, agreed: bool) -> Done {
    let mut applied = Vec::new();
    for change in changes {
        applied.push(match agreed {
            true => apply::apply(setting, change).await,
            false => Applied::not_written(change),
        });
    }
    let entry = applied
        .iter()
        .find_map(|applied| match &applied.change.action {
            Action::Set { plan } => Some(plan.entry.clone()),
            Action::Remove { .. } | Action::Broken(_) => None,
        });
    let (check, report) = match entry {
        Some(entry) if agreed => {
            let check = handshake::hold(&entry).await;
            let facts = doctor::gather(None, PROGRAM_TIMEOUT).await;
            (Some(check), Some(doctor::judge(&facts)))
        }
        _ => (None, None),
    };
    Done {
        applied,
        check,
        report,
    }
}

/// Offers to log in, if that is what Codex needs; then `codex login` takes the place of this
/// process.
fn offer_login(done: &Done) -> Result<(), Failure> {
    let Some(codex) = done.report.as_ref().and_then(codex_to_log_in) else {
        return Ok(());
    };
    if !io::stdin().is_terminal() || !asks("Log in to Codex now? [y/N] ")? {
        return Ok(());
    }
    Err(Failure::Login(become_program(&Program::new(
        &codex,
        ["login"],
    ))))
}

/// The Codex that needs a login, and works otherwise.
fn codex_to_log_in(report: &Report) -> Option<PathBuf> {
    let problems = report.findings.iter();
    let mut problems = problems.filter(|finding| finding.status == Status::Problem);
    let is_login = problems.next()?.check == Check::Login && problems.next().is_none();
    let mut findings = report.findings.iter();
    let codex = findings.find(|finding| finding.check == Check::Codex)?;
    let chosen = codex.value.as_ref()?.get("chosen")?.as_str()?;
    is_login.then(|| chosen.into())
}

fn setting(args: &Args) -> Result<Setting, Failure> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.map(PathBuf::from).ok_or(Failure::NoHome)?;
    let state = state_directory(|name| std::env::var_os(name)).ok_or(Failure::NoHome)?;
    let top = match args.project {
        true => Some(change::repository_top().ok_or(Failure::NoRepository)?),
        false => None,
    };
    let mut words = vec!["serve".to_owned()];
    if let Some(api) = args.api {
        words.extend(["--api".to_owned(), word_of(&api)]);
    }
    if !args.tools.is_empty() {
        let groups: Vec<String> = args.tools.iter().map(word_of).collect();
        words.extend(["--tools".to_owned(), groups.join(",")]);
    }
    if let Some(team) = &args.team {
        words.extend(["--team".to_owned(), team.to_string()]);
    }
    let command = match top {
        // Each user of the repository has it elsewhere.
        Some(_) => "codex-mcp".to_owned(),
        None => program().map_err(Failure::NoProgram)?,
    };
    Ok(Setting {
        home,
        state,
        top,
        name: args.name.clone(),
        entry: Entry {
            command,
            args: words,
            env: match args.project {
                true => Vec::new(),
                false => moved_directories(),
            },
        },
        remove: args.remove,
    })
}

/// The variables that move Codex's directories and ours, where they are set.
fn moved_directories() -> Vec<(String, String)> {
    let variables = MOVING_VARIABLES.iter();
    let set = variables.filter_map(|name| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        Some(((*name).to_owned(), value?))
    });
    set.collect()
}

/// The word of a value on the command line.
fn word_of(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The path of this program, which clients need that were not started from a shell: that on PATH if
/// it is this one, as it stays when an update moves what its link leads to.
fn program() -> io::Result<String> {
    let own = std::env::current_exe()?;
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == own);
    let path = change::program("codex-mcp").filter(is_own).unwrap_or(own);
    let words = path.into_os_string().into_string();
    words.map_err(|_| io::Error::other("its path is not UTF-8"))
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
