//! What was found on the machine, before anyone judges it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use codex_config::rules::GitRules;
use codex_config::trust::brought::Brought;
use codex_config::trust::{Changes, Trust};
use codex_engine::LimitsUnknown;
use codex_engine::binary::{CodexBinary, NoCodex};
use codex_protocol::codex::RateLimits;
use git_probe::private::Leftover;
use settings::{ConfigError, Warning};
use supervise::converse::Finished;

use super::settings::{Malformed, Settings};

/// All that was found.
#[derive(Debug)]
pub struct Facts {
    /// Everything about Codex, or why our own settings, which say where to
    /// look, can't be used.
    pub codex: Result<Place, ConfigError>,
    /// Other programs.
    pub tools: Tools,
    /// The private git directories of runs, or why they cannot be listed.
    pub(crate) leftovers: Result<Vec<Leftover>, String>,
}

/// A Codex and its home.
#[derive(Debug)]
pub struct Place {
    /// The program.
    pub program: Result<Codex, NoCodex>,
    /// Its home directory.
    pub home: Home,
    /// What of our own settings was not taken.
    pub warnings: Vec<Warning>,
    /// What the repository around the working directory brings.
    pub repository: Option<RepositoryFiles>,
}

/// Files of a repository that count once the user trusts it.
#[derive(Debug)]
pub struct RepositoryFiles {
    /// Its top.
    pub top: PathBuf,
    /// Whether the user trusts it.
    pub trust: Trust,
    /// Why the user's trust does not count, if there was some.
    pub changes: Option<Changes>,
    /// At least one.
    pub files: Vec<Brought>,
}

/// What came of running a program.
#[derive(Debug, Clone)]
pub enum Asked {
    /// It ended by itself.
    Ended(Finished),
    /// It was ended, because it took longer than this.
    Silent(Duration),
    /// The system couldn't run it, for this reason.
    Failed(String),
}

/// A program that claims to be Codex.
#[derive(Debug)]
pub struct Codex {
    /// Where it is.
    pub binary: CodexBinary,
    /// `codex --version`.
    pub version: Asked,
    /// What else it was asked; nothing, if its version shows that it isn't
    /// Codex.
    pub probes: Option<Probes>,
}

/// What a Codex was asked.
#[derive(Debug)]
pub struct Probes {
    /// Which commands it has.
    pub commands: Commands,
    /// Whether its app-server answers.
    pub app_server: Introduction,
    /// `codex login status`.
    pub login: Asked,
    /// How much of the account's usage limits is used.
    pub limits: Result<RateLimits, LimitsUnknown>,
    /// When all that was asked.
    pub asked_at: SystemTime,
    /// A command that does nothing, in the sandbox.
    pub sandbox: Asked,
}

/// `codex help COMMAND` for each command that matters here.
#[derive(Debug)]
pub struct Commands {
    /// `app-server`.
    pub app_server: Asked,
    /// `exec`.
    pub exec: Asked,
    /// `mcp-server`.
    pub mcp_server: Asked,
}

/// What an app-server did with `initialize`.
#[derive(Debug, Clone)]
pub enum Introduction {
    /// It answered after so long.
    Answered(Duration),
    /// It didn't answer for so long.
    Silent(Duration),
    /// It failed in this way.
    Failed(String),
}

/// Codex's home directory.
#[derive(Debug)]
pub struct Home {
    /// Where it is.
    pub path: PathBuf,
    /// Who said so.
    pub chosen_by: HomeSource,
    /// What is there.
    pub directory: Directory,
    /// Its `config.toml`.
    pub config: ConfigFile,
    /// What Codex's configuration as a whole says.
    pub settings: Settings,
    /// The user's rules by which git leaves the sandbox, if there are any.
    pub git_rules: Option<GitRules>,
    /// Whether the variable is set that holds the provider's key; `false` if
    /// there is none.
    pub key_is_set: bool,
}

impl Home {
    /// Whether Codex can work with the directory. It makes the default one itself,
    /// but none that CODEX_HOME names.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        match self.directory {
            Directory::Writable => true,
            Directory::Missing => self.chosen_by == HomeSource::Default,
            Directory::ReadOnly | Directory::Other | Directory::Unknown(_) => false,
        }
    }
}

/// Who says where Codex's home is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeSource {
    /// The CODEX_HOME variable.
    Variable,
    /// Nobody, so it is `~/.codex`.
    Default,
}

/// What is where a directory should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// A directory that we may write to.
    Writable,
    /// A directory that we may not write to.
    ReadOnly,
    /// Nothing.
    Missing,
    /// Something else.
    Other,
    /// The system doesn't say, for this reason.
    Unknown(String),
}

/// What a `config.toml` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFile {
    /// There is none.
    Absent,
    /// It can't be read, for this reason.
    Unreadable(String),
    /// It isn't TOML.
    Malformed(Malformed),
    /// It is TOML.
    Valid,
}

/// Programs that Codex's work often needs.
#[derive(Debug)]
pub struct Tools {
    /// `git --version`.
    pub git: Asked,
    /// `gh --version`.
    pub gh: Asked,
    /// `gh auth token`, without the token.
    pub gh_login: Asked,
}
