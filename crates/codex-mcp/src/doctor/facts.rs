//! The facts about the machine, before they are judged.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use codex_config::rules::GitRules;
use codex_config::trust::covered_files::CoveredFile;
use codex_config::trust::{Trust, TrustChanges};
use codex_engine::LimitsUnknown;
use codex_engine::binary::{CodexBinary, NoCodex};
use codex_protocol::codex::RateLimits;
use common::toml_error::TomlError;
use git_probe::private::Leftover;
use settings::{ConfigError, Location, Setting, Warning};
use supervise::short_lived::TextOutput;

use super::settings::Settings;
use crate::installation::Installation;
use crate::writable_state::WritableState;

/// The gathered facts.
#[derive(Debug)]
pub struct Facts {
    /// This copy of the program.
    pub(crate) installation: Installation,
    /// The facts about Codex, or the error in our own settings, which locate it.
    pub codex: Result<CodexSetup, ConfigError>,
    /// The facts about other programs.
    pub tools: Tools,
    /// The private git directories of runs, or why they cannot be listed.
    pub(crate) leftovers: Result<Vec<Leftover>, String>,
    /// The state directory, if the user has a home directory, or why no run can begin with it.
    pub(crate) state: Result<Option<PathBuf>, WritableState>,
}

/// A Codex and its home.
#[derive(Debug)]
pub struct CodexSetup {
    /// The program.
    pub program: Result<Codex, NoCodex>,
    /// Its home directory.
    pub home: Home,
    /// The errors in settings of ours with which Codex can be checked all the same.
    pub wrong: Vec<ConfigError>,
    /// The settings of ours that were ignored.
    pub warnings: Vec<Warning>,
    /// The files that the repository around the working directory brings.
    pub repository: Option<RepositoryFiles>,
    /// The job store.
    pub store: Store,
}

/// The job store.
#[derive(Debug)]
pub struct Store {
    /// Its location.
    pub location: Setting<Location>,
    /// Its state.
    pub state: StoreState,
}

/// The state of the job store.
#[derive(Debug)]
pub enum StoreState {
    /// Its jobs can be read.
    Readable,
    /// The file does not exist; this is the state of its directory.
    Missing(Directory),
    /// The database has no tables yet.
    Empty,
    /// An older program has made its tables.
    Older,
    /// It cannot be used, for this reason.
    Failed(String),
    /// It did not answer within this time.
    TimedOut(Duration),
}

/// Files of a repository that count once the user trusts it.
#[derive(Debug)]
pub struct RepositoryFiles {
    /// The top directory of the repository.
    pub top: PathBuf,
    /// Whether the user trusts the repository.
    pub trust: Trust,
    /// The changes that revoked the user's trust, if there were any.
    pub changes: Option<TrustChanges>,
    /// The files; at least one.
    pub files: Vec<CoveredFile>,
}

/// The outcome of running a program.
#[derive(Debug, Clone)]
pub enum CommandOutcome {
    /// The program ended by itself.
    Ended(TextOutput),
    /// The program was killed after this time.
    TimedOut(Duration),
    /// The program could not be run, for this reason.
    Failed(String),
}

/// A program that claims to be Codex.
#[derive(Debug)]
pub struct Codex {
    /// The path.
    pub binary: CodexBinary,
    /// `codex --version`.
    pub version: CommandOutcome,
    /// The further probes; `None` if the version shows that the program is not Codex.
    pub probes: Option<Probes>,
}

/// The outcomes of the probes of a Codex.
#[derive(Debug)]
pub struct Probes {
    /// The commands that it has.
    pub commands: Commands,
    /// Whether the app-server answers.
    pub app_server: InitializeOutcome,
    /// `codex login status`.
    pub login: CommandOutcome,
    /// How much of the account's usage limits is used.
    pub limits: Result<RateLimits, LimitsUnknown>,
    /// The time of the probes.
    pub asked_at: SystemTime,
    /// `true`, run in the sandbox.
    pub sandbox: CommandOutcome,
}

/// `codex help COMMAND` for each command that matters here.
#[derive(Debug)]
pub struct Commands {
    /// `app-server`.
    pub app_server: CommandOutcome,
    /// `exec`.
    pub exec: CommandOutcome,
    /// `mcp-server`.
    pub mcp_server: CommandOutcome,
}

/// The outcome of `initialize` at an app-server.
#[derive(Debug, Clone)]
pub enum InitializeOutcome {
    /// The app-server answered after this time.
    Answered(Duration),
    /// The app-server did not answer within this time.
    TimedOut(Duration),
    /// The app-server failed, for this reason.
    Failed(String),
}

/// Codex's home directory.
#[derive(Debug)]
pub struct Home {
    /// The path.
    pub path: PathBuf,
    /// The source of the path.
    pub chosen_by: HomeSource,
    /// The state of the directory.
    pub directory: Directory,
    /// Its `config.toml`.
    pub config: ConfigFile,
    /// The settings of Codex's whole configuration.
    pub settings: Settings,
    /// The user's rules by which git leaves the sandbox, if there are any.
    pub git_rules: Option<GitRules>,
    /// Whether the variable with the provider's key is set; `false` if the provider has none.
    pub key_is_set: bool,
}

impl Home {
    /// Whether Codex can use the directory. Codex creates the default one itself, but not one
    /// that CODEX_HOME names.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        match self.directory {
            Directory::Writable | Directory::MadeByProbe => true,
            Directory::Missing => self.chosen_by == HomeSource::Default,
            Directory::ReadOnly | Directory::Other | Directory::Unknown(_) => false,
        }
    }
}

/// The source of the path of Codex's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeSource {
    /// The CODEX_HOME variable.
    Variable,
    /// The default, `~/.codex`.
    Default,
}

/// The state of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// A directory that we may write to.
    Writable,
    /// A directory that we may not write to.
    ReadOnly,
    /// Nothing.
    Missing,
    /// Nothing before Codex was probed. The probe has made the directory.
    MadeByProbe,
    /// A file of another type.
    Other,
    /// The state cannot be determined, for this reason.
    Unknown(String),
}

/// The state of a `config.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFile {
    /// The file does not exist.
    Absent,
    /// The file cannot be read, for this reason.
    Unreadable(String),
    /// The file is not TOML.
    Malformed(TomlError),
    /// The file is TOML.
    Valid,
}

/// Programs that Codex's work often needs.
#[derive(Debug)]
pub struct Tools {
    /// `git --version`.
    pub git: CommandOutcome,
    /// `gh --version`.
    pub gh: CommandOutcome,
    /// `gh auth token`, without the token.
    pub gh_login: CommandOutcome,
}
