//! The configuration of codex-mcp, with the source of every value.
//!
//! ```text
//!   flag ─► variable ─► role's preset ─► .atm.toml ─► ~/.config/atm/config.toml ─► default
//!                                        repository    user
//!        the first that has a value wins, and the [`Setting`] remembers which it was
//! ```
//!
//! In a file, the settings are in `[plugins.codex-mcp]`. Identity and team are also read from
//! `[core]`, which belongs to the `atm` program. The repository's file is looked for from the
//! working directory up to the top of the repository.
//!
//! Until the user trusts a repository, its file can only narrow the user's own settings. It
//! never chooses the program (`codex_bin`), where jobs are stored, who is notified of
//! sessions, or files outside of the repository, even when it is trusted.
//!
//! [`bounds`] checks what clients ask for against the limits that the operator has set.
//!
//! ```no_run
//! let config = settings::load(settings::Flags::default())?;
//! let sandbox = &config.threads.sandbox;
//! if let Some(sandbox) = sandbox {
//!     println!("{:?}, from {}", sandbox.value, sandbox.source);
//! }
//! # Ok::<(), settings::ConfigError>(())
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

pub mod bound_settings;
pub mod bounds;

mod alerts;
#[cfg(test)]
mod docs;
mod eyes;
mod file;
mod jobs;
mod policy;
mod presets;
mod repository;
mod show;
mod source;
pub mod store_access;
pub mod store_location;
mod variables;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt};

use agent_team::logic::{AgentName, RoleName, TeamName};
use agent_team::registry::Mode;
use codex_config::layers::{UserConfig, repository_layer};
use codex_config::repository_files::OF_REPOSITORY;
use codex_config::trust::{Trust, TrustError, directory_trust_with, top_of};
use codex_engine::binary;
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use common::duration::{self, SetDuration};
use image_request::logic::picture::SizeLimit;
use safe_files::directory::resolved;
use safe_files::untrusted_file::ReadError;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::bounds::{Bounds, Commands, Sources};
use file::{CORE, File, SECTION, Scope};
use presets::Presets;
use repository::{Narrowing, RepositoryFile};

pub use crate::bound_settings::BoundSettings;
pub use alerts::AlertSettings;
pub use eyes::EyesSettings;
pub use jobs::{CONCURRENCY, DEFAULT_SANDBOX, JobSettings};
pub use policy::{PolicyName, REPLACED};
pub use show::{as_json, as_text};
pub use source::{Setting, Source};
pub use store_access::{Access, OthersJobs};
pub use store_location::{BadLocation, Location, PostgresUrl};

/// The default of `request_timeout_secs` (FR-14: 300 s).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The time-outs that can be set: up to a day.
pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// The identity of a server that nobody has given one (FR-2.5).
pub const DEFAULT_IDENTITY: &str = "codex";

/// The settings, each from the first place that has it.
#[derive(Debug)]
pub struct Config {
    /// The Codex to run; else the first on PATH.
    pub codex_bin: Option<Setting<PathBuf>>,
    /// How long a call may take.
    pub request_timeout: Setting<Duration>,
    /// Who the server is among the agents of its team.
    pub identity: Setting<AgentName>,
    /// Its team.
    pub team: Option<Setting<TeamName>>,
    /// The preset that is used.
    pub role: Option<Setting<RoleName>>,
    /// What threads are begun with, unless a call says otherwise.
    pub threads: ThreadDefaults,
    /// Whether Codex's threads get the mail tools.
    pub team_tools: Setting<bool>,
    /// Whether threads are asked for a summary when the server ends.
    pub summaries: Setting<bool>,
    /// How the registry of threads is written (`registry_journal`).
    pub registry_mode: Setting<Mode>,
    /// Pictures that Codex asks for.
    pub eyes: EyesSettings,
    /// What clients may ask for at most.
    pub bounds: BoundSettings,
    /// Where jobs are kept, and what works on them.
    pub jobs: JobSettings,
    /// Who is told that a session needs a person, and after which silence.
    pub alerts: AlertSettings,
    /// Codex's home folder: `CODEX_HOME`, else `~/.codex`.
    pub codex_home: PathBuf,
    /// The folder that teams and the user's file are below: `ATM_HOME`, else HOME.
    pub atm_home: PathBuf,
    /// Who has set the identity.
    pub identity_origin: Origin,
    /// What was not taken, and what to do instead; for the user.
    pub warnings: Vec<Warning>,
}

/// Who has set something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user, or nobody.
    User,
    /// A repository that the user trusts.
    Repository,
}

/// What threads are begun with, unless a call says otherwise. What isn't set is left
/// to Codex's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadDefaults {
    /// Codex's name of the model.
    pub model: Option<Setting<String>>,
    /// How much the model is to think.
    pub reasoning_effort: Option<Setting<Effort>>,
    /// What commands may touch.
    pub sandbox: Option<Setting<SandboxMode>>,
    /// When Codex asks.
    pub approval_policy: Option<Setting<ApprovalPolicy>>,
    /// A file that replaces Codex's own instructions.
    pub base_prompt_file: Option<Setting<PathBuf>>,
    /// A file that is added as a developer message.
    pub extra_instructions_file: Option<Setting<PathBuf>>,
}

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--codex-bin`.
    pub codex_bin: Option<PathBuf>,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--identity`.
    pub identity: Option<AgentName>,
    /// `--team`.
    pub team: Option<TeamName>,
    /// `--role`.
    pub role: Option<RoleName>,
    /// `false` for `--no-team-tools`.
    pub team_tools: Option<bool>,
    /// `false` for `--no-summaries`.
    pub summaries: Option<bool>,
    /// `false` for `--no-request-image`.
    pub request_image: Option<bool>,
    /// `--max-image-bytes`.
    pub max_image_bytes: Option<SizeLimit>,
    /// `--store`.
    pub store: Option<Location>,
    /// `--max-sandbox`.
    pub max_sandbox: Option<SandboxMode>,
    /// `false` for `--no-commands`.
    pub allow_commands: Option<bool>,
    /// `--allow-dir`, each of them.
    pub allow_dirs: Vec<PathBuf>,
    /// `--model`.
    pub model: Option<String>,
    /// `--effort`.
    pub effort: Option<Effort>,
    /// `--sandbox`.
    pub sandbox: Option<SandboxMode>,
    /// `--approval-policy`.
    pub approval_policy: Option<ApprovalPolicy>,
}

/// Something in a file that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What.
    pub message: String,
    /// What to do instead.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message, self.hint)
    }
}

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// Whether the user trusts the repository cannot be determined.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A file is not as it should be.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A value can't be used.
    #[error("{key} ({from}): {why}")]
    Invalid {
        /// Its key.
        key: &'static str,
        /// Where it came from.
        from: Source,
        /// What is wrong.
        why: String,
    },
    /// There is no such role.
    #[error("there is no role {role} ({from}); {known}")]
    NoRole {
        /// What was asked for.
        role: RoleName,
        /// Where.
        from: Source,
        /// Those that there are, in words.
        known: String,
    },
}

/// A key that can be set from outside the files, and how.
#[derive(Clone, Copy)]
struct Key {
    name: &'static str,
    flag: &'static str,
    variable: &'static str,
}

const CODEX_BIN: Key = Key {
    name: "codex_bin",
    flag: "--codex-bin",
    variable: "CODEX_MCP_CODEX_BIN",
};
const TIMEOUT: Key = Key {
    name: "request_timeout_secs",
    flag: "--timeout",
    variable: "CODEX_MCP_REQUEST_TIMEOUT_SECS",
};
/// The variable is the `atm` program's.
const IDENTITY: Key = Key {
    name: "identity",
    flag: "--identity",
    variable: "ATM_IDENTITY",
};
/// The variable is the `atm` program's.
const TEAM: Key = Key {
    name: "team",
    flag: "--team",
    variable: "ATM_TEAM",
};
const ROLE: Key = Key {
    name: "role",
    flag: "--role",
    variable: "CODEX_MCP_ROLE",
};

const TEAM_TOOLS: Key = Key {
    name: "team_tools",
    flag: "--no-team-tools",
    variable: "CODEX_MCP_TEAM_TOOLS",
};
const SUMMARIES: Key = Key {
    name: "summaries",
    flag: "--no-summaries",
    variable: "CODEX_MCP_SUMMARIES",
};

const MODEL: Key = Key {
    name: "model",
    flag: "--model",
    variable: "CODEX_MCP_MODEL",
};
const EFFORT: Key = Key {
    name: "reasoning_effort",
    flag: "--effort",
    variable: "CODEX_MCP_REASONING_EFFORT",
};
const SANDBOX: Key = Key {
    name: "sandbox",
    flag: "--sandbox",
    variable: "CODEX_MCP_SANDBOX",
};
const APPROVAL_POLICY: Key = Key {
    name: "approval_policy",
    flag: "--approval-policy",
    variable: "CODEX_MCP_APPROVAL_POLICY",
};

/// Where settings are looked for.
struct Places<'a> {
    here: &'a Path,
    variables: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Gathers the settings: what the command line says is given, the rest is looked up.
///
/// # Errors
///
/// [`ConfigError`] when a file that is there can't be used.
pub fn load(flags: Flags) -> Result<Config, ConfigError> {
    let here = env::current_dir().unwrap_or_default();
    let places = Places {
        here: &here,
        variables: &|name| env::var_os(name),
    };
    let mut config = places.load(flags)?;
    let names = env::vars_os().map(|(name, _)| name);
    config.warnings.extend(variables::unknown(names));
    Ok(config)
}

/// The folder that teams and what servers write down are below: `ATM_HOME`, else HOME.
#[must_use]
pub fn atm_home() -> PathBuf {
    let places = Places {
        here: Path::new(""),
        variables: &|name| env::var_os(name),
    };
    places.atm_home()
}

/// Codex's home directory: `CODEX_HOME`, else `~/.codex`.
#[must_use]
pub fn codex_home() -> PathBuf {
    let places = Places {
        here: Path::new(""),
        variables: &|name| env::var_os(name),
    };
    places.codex_home()
}

/// The user's own file of settings.
#[must_use]
pub fn user_file() -> PathBuf {
    user_file_below(&atm_home())
}

fn user_file_below(atm_home: &Path) -> PathBuf {
    atm_home.join(".config/atm/config.toml")
}

impl Places<'_> {
    /// What to do about a key that is never taken from a repository.
    fn set_it_yourself(&self) -> String {
        let file = user_file_below(&self.atm_home());
        format!("Set it in {}.", file.display())
    }

    fn atm_home(&self) -> PathBuf {
        let home = self.variable("ATM_HOME").or_else(|| self.variable("HOME"));
        home.map(PathBuf::from).unwrap_or_default()
    }

    fn codex_home(&self) -> PathBuf {
        let directory = |name| self.variable(name).map(PathBuf::from);
        let home = || directory("HOME").unwrap_or_default();
        directory("CODEX_HOME").unwrap_or_else(|| home().join(".codex"))
    }

    fn load(&self, flags: Flags) -> Result<Config, ConfigError> {
        let codex_home = self.codex_home();
        let atm_home = self.atm_home();
        let mut warnings = Vec::new();
        let given_role = self.given(ROLE, flags.role.clone())?;
        let (files, narrowing) = self.files(&atm_home, &codex_home, &mut warnings)?;
        let eyes = self.eyes(&flags, &files)?;
        let bounds = self.bounds(&flags, &files, &mut warnings)?;
        let set_role = || in_section(&files, |file| file.section.role.clone());
        let role = given_role.clone().or_else(set_role);
        let presets = Presets::of(&files, role.as_ref())?;
        let mut threads = self.threads(&presets, &flags, &mut warnings)?;
        if let Some(narrowing) = narrowing {
            let role = given_role.as_ref();
            warnings.extend(narrowing.narrow(
                &mut threads,
                &files,
                role,
                &codex_home,
                &user_file_below(&atm_home),
            )?);
        }
        if bounds.allow_full_access() {
            warn_of_a_repository_without_a_sandbox(&threads, &files, &mut warnings);
            warnings.extend(self.warn_of_codex_without_a_sandbox(&threads, &codex_home));
        }
        let identity = self.identity(flags.identity, &files)?;
        Ok(Config {
            codex_bin: self.codex_bin(flags.codex_bin, &files, &mut warnings)?,
            request_timeout: self.request_timeout(flags.timeout, &files)?,
            identity_origin: origin(&identity, &files),
            identity,
            team: self.team(flags.team, &files)?,
            threads,
            team_tools: self.switch(TEAM_TOOLS, flags.team_tools, true, &files, |file| {
                file.section.team_tools
            })?,
            summaries: self.switch(SUMMARIES, flags.summaries, true, &files, |file| {
                file.section.summaries
            })?,
            role,
            eyes,
            alerts: self.alerts(&bounds.allow_commands, &files, &mut warnings)?,
            bounds,
            registry_mode: registry_mode(&files),
            jobs: self.jobs(flags.store, &files, &mut warnings)?,
            codex_home,
            atm_home,
            warnings,
        })
    }

    /// A variable that is set; an empty one is none.
    fn variable(&self, name: &str) -> Option<OsString> {
        (self.variables)(name).filter(|value| !value.is_empty())
    }

    /// The files that there are, the first of them the one that counts most, and what
    /// an untrusted repository's file may still say.
    fn files(
        &self,
        atm_home: &Path,
        codex_home: &Path,
        warnings: &mut Vec<Warning>,
    ) -> Result<(Vec<File>, Option<Narrowing>), ConfigError> {
        let user = File::of_user(&user_file_below(atm_home), warnings)?;
        let found = self.repository_file(codex_home, user.as_ref(), warnings)?;
        let (repository, narrowing) = match found {
            None => (None, None),
            Some(RepositoryFile::Trusted(file)) => (Some(file), None),
            Some(RepositoryFile::Narrowed(file, narrowing)) => (Some(file), Some(narrowing)),
        };
        Ok((repository.into_iter().chain(user).collect(), narrowing))
    }

    /// What a flag or a variable says.
    fn given<T: DeserializeOwned>(
        &self,
        key: Key,
        flag: Option<T>,
    ) -> Result<Option<Setting<T>>, ConfigError> {
        if let Some(value) = flag {
            return Ok(Some(Setting::new(value, Source::Flag(key.flag))));
        }
        self.in_variable(key.name, key.variable)
    }

    fn in_variable<T: DeserializeOwned>(
        &self,
        key: &'static str,
        variable: &'static str,
    ) -> Result<Option<Setting<T>>, ConfigError> {
        let Some(value) = self.variable(variable) else {
            return Ok(None);
        };
        let from = Source::Variable(variable);
        let invalid = |why: String| ConfigError::Invalid {
            key,
            from: from.clone(),
            why,
        };
        let text = value
            .to_str()
            .ok_or_else(|| invalid("it is not UTF-8".to_owned()))?;
        let value = T::deserialize(text.into_deserializer())
            .map_err(|error: ValueError| invalid(error.to_string()))?;
        Ok(Some(Setting::new(value, from)))
    }

    /// Something that is on or off.
    fn switch(
        &self,
        key: Key,
        flag: Option<bool>,
        default: bool,
        files: &[File],
        of_file: impl Fn(&File) -> Option<bool>,
    ) -> Result<Setting<bool>, ConfigError> {
        if let Some(value) = flag {
            return Ok(Setting::new(value, Source::Flag(key.flag)));
        }
        if let Some(Setting { value, source }) =
            self.in_variable::<String>(key.name, key.variable)?
        {
            let value = value.parse().map_err(|_| ConfigError::Invalid {
                key: key.name,
                from: source.clone(),
                why: format!("it must be true or false, not {value:?}"),
            })?;
            return Ok(Setting::new(value, source));
        }
        let set = in_section(files, of_file);
        Ok(set.unwrap_or(Setting::new(default, Source::Default)))
    }

    fn codex_bin(
        &self,
        flag: Option<PathBuf>,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Setting<PathBuf>>, ConfigError> {
        for file in files {
            if file.scope == Scope::Repository && file.section.codex_bin.is_some() {
                warnings.push(Warning {
                    message: format!(
                        "codex_bin in {} is left aside: a repository may not choose the program",
                        file.path.display()
                    ),
                    hint: format!("{} Or use --codex-bin.", self.set_it_yourself()),
                });
            }
        }
        if let Some(given) = self.given(CODEX_BIN, flag)? {
            return Ok(Some(given));
        }
        Ok(in_section(files, |file| match file.scope {
            Scope::Repository => None,
            Scope::User => {
                let program = file.section.codex_bin.as_deref()?;
                match (program.strip_prefix("~"), self.variable("HOME")) {
                    (Ok(below), Some(home)) => Some(Path::new(&home).join(below)),
                    _ => Some(file.beside(program)),
                }
            }
        }))
    }

    fn request_timeout(
        &self,
        flag: Option<Duration>,
        files: &[File],
    ) -> Result<Setting<Duration>, ConfigError> {
        let given = self.given(TIMEOUT, flag.map(SetDuration))?;
        let set = || in_section(files, |file| file.section.request_timeout_secs);
        let Some(Setting { value, source }) = given.or_else(set) else {
            return Ok(Setting::new(DEFAULT_TIMEOUT, Source::Default));
        };
        within(TIMEOUT.name, value, source, &TIMEOUTS)
    }

    fn identity(
        &self,
        flag: Option<AgentName>,
        files: &[File],
    ) -> Result<Setting<AgentName>, ConfigError> {
        if let Some(given) = self.given(IDENTITY, flag)? {
            return Ok(given);
        }
        let ours = |file: &File| file.section.identity.clone();
        let of_core = |file: &File| file.core.identity.clone();
        if let Some(set) = in_section_or_core(files, ours, of_core) {
            return Ok(set);
        }
        let default = DEFAULT_IDENTITY.parse().map_err(|error| {
            let from = Source::Default;
            let why = format!("{error}");
            ConfigError::Invalid {
                key: IDENTITY.name,
                from,
                why,
            }
        })?;
        Ok(Setting::new(default, Source::Default))
    }

    fn team(
        &self,
        flag: Option<TeamName>,
        files: &[File],
    ) -> Result<Option<Setting<TeamName>>, ConfigError> {
        if let Some(given) = self.given(TEAM, flag)? {
            return Ok(Some(given));
        }
        let ours = |file: &File| file.section.team.clone();
        let of_core = |file: &File| file.core.default_team.clone();
        Ok(in_section_or_core(files, ours, of_core))
    }

    /// The approval policy of the flag or the variable.
    fn policy(
        &self,
        flag: Option<ApprovalPolicy>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Setting<ApprovalPolicy>>, ConfigError> {
        if let Some(policy) = flag {
            let from = Source::Flag(APPROVAL_POLICY.flag);
            return Ok(Some(Setting::new(policy, from)));
        }
        let Key { name, variable, .. } = APPROVAL_POLICY;
        let named = self.in_variable::<PolicyName>(name, variable)?;
        let Some(Setting { value, source }) = named else {
            return Ok(None);
        };
        if value == PolicyName::OnFailure {
            warnings.push(Warning {
                message: format!("{source}: {REPLACED}"),
                hint: "Set it to on-request.".to_owned(),
            });
        }
        Ok(Some(Setting::new(value.today(), source)))
    }

    fn threads(
        &self,
        presets: &Presets<'_>,
        flags: &Flags,
        warnings: &mut Vec<Warning>,
    ) -> Result<ThreadDefaults, ConfigError> {
        let model = self.given(MODEL, flags.model.clone())?;
        let effort = self.given(EFFORT, flags.effort)?;
        let sandbox = self.given(SANDBOX, flags.sandbox)?;
        let policy = self.policy(flags.approval_policy, warnings)?;
        let base = self.prompt_file("base_prompt_file", "CODEX_MCP_BASE_PROMPT_FILE")?;
        let extra = "CODEX_MCP_EXTRA_INSTRUCTIONS_FILE";
        let extra = self.prompt_file("extra_instructions_file", extra)?;
        Ok(ThreadDefaults {
            model: model.or_else(|| presets.first(|preset| preset.model.clone())),
            reasoning_effort: effort.or_else(|| presets.first(|preset| preset.reasoning_effort)),
            sandbox: sandbox.or_else(|| presets.first(|preset| preset.sandbox)),
            approval_policy: policy.or_else(|| presets.first(|preset| preset.approval_policy)),
            base_prompt_file: match base {
                Some(file) => Some(file),
                None => presets.prompt_file("base_prompt_file", |preset| {
                    preset.base_prompt_file.as_deref()
                })?,
            },
            extra_instructions_file: match extra {
                Some(file) => Some(file),
                None => presets.prompt_file("extra_instructions_file", |preset| {
                    preset.extra_instructions_file.as_deref()
                })?,
            },
        })
    }

    /// A prompt file that a variable names, relative to the working directory.
    fn prompt_file(
        &self,
        key: &'static str,
        variable: &'static str,
    ) -> Result<Option<Setting<PathBuf>>, ConfigError> {
        let Some(value) = self.variable(variable) else {
            return Ok(None);
        };
        let path = self.here.join(value);
        let from = Source::Variable(variable);
        match path.canonicalize() {
            Ok(path) => Ok(Some(Setting::new(path, from))),
            Err(error) => Err(ConfigError::Invalid {
                key,
                from,
                why: format!("{}: {error}", path.display()),
            }),
        }
    }
}

impl Places<'_> {
    /// The same in Codex's own file, which Codex uses where the user trusts the repository
    /// and nothing else names a sandbox.
    fn warn_of_codex_without_a_sandbox(
        &self,
        threads: &ThreadDefaults,
        codex_home: &Path,
    ) -> Option<Warning> {
        let here = self.here.canonicalize().ok()?;
        let top = top_of(&here);
        let within = here.ancestors().take_while(|above| above.starts_with(&top));
        let (path, mode) = within
            .map(|above| above.join(OF_REPOSITORY))
            .find_map(|path| {
                let mode = repository_layer(&path)?.get("sandbox_mode")?.clone();
                Some((path, mode))
            })
            .filter(|_| threads.sandbox.is_none())?;
        let user = UserConfig::read(codex_home);
        let trusted = || directory_trust_with(&here, &user, self.variables);
        let is_full = mode.as_str() == Some("danger-full-access");
        let counts = is_full && trusted().is_ok_and(|trust| trust.trust == Trust::Trusted);
        counts.then(|| Warning {
            message: format!(
                "{} lets Codex's commands touch everything (sandbox_mode)",
                path.display()
            ),
            hint: OTHER_SANDBOX.to_owned(),
        })
    }
}

impl Config {
    /// What clients may ask for at most.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let BoundSettings {
            max_sandbox,
            allow_commands,
            allow_dirs,
        } = &self.bounds;
        Bounds {
            max_sandbox: max_sandbox.as_ref().map(|set| set.value),
            commands: match allow_commands.value {
                true => Commands::Allowed,
                false => Commands::Refused,
            },
            directories: allow_dirs
                .as_ref()
                .map(|set| set.value.iter().map(|path| resolved(path)).collect()),
            approval_policy: self.threads.approval_policy.as_ref().map(|set| set.value),
            codex_home: self.codex_home.clone(),
            sources: Sources {
                max_sandbox: source_of(max_sandbox.as_ref()),
                commands: allow_commands.source.clone(),
                directories: source_of(allow_dirs.as_ref()),
            },
        }
    }

    /// The Codex that was chosen, for [`binary::find`].
    #[must_use]
    pub fn chosen_codex(&self) -> Option<(PathBuf, binary::Source)> {
        let Setting { value, source } = self.codex_bin.clone()?;
        let from = match source {
            Source::File(_, path) => binary::Source::File(path),
            _ => binary::Source::FlagOrVariable,
        };
        Some((value, from))
    }
}

/// What to do about a trusted repository that widens the sandbox.
const OTHER_SANDBOX: &str = "It counts since you trust the repository. For another sandbox, set \
    CODEX_MCP_SANDBOX or name one in the call; `codex-mcp trust --revoke DIR` ends the trust.";

/// It may be what the user wants, but the user should know.
fn warn_of_a_repository_without_a_sandbox(
    threads: &ThreadDefaults,
    files: &[File],
    warnings: &mut Vec<Warning>,
) {
    let Some(Setting {
        value: SandboxMode::DangerFullAccess,
        source: Source::File(_, path) | Source::Role(_, path),
    }) = &threads.sandbox
    else {
        return;
    };
    let is_theirs = |file: &File| file.scope == Scope::Repository && file.path == *path;
    if files.iter().any(is_theirs) {
        warnings.push(Warning {
            message: format!(
                "{} lets Codex's commands touch everything (sandbox)",
                path.display()
            ),
            hint: OTHER_SANDBOX.to_owned(),
        });
    }
}

/// A duration, unless it is out of range.
fn within(
    key: &'static str,
    SetDuration(value): SetDuration,
    from: Source,
    range: &RangeInclusive<Duration>,
) -> Result<Setting<Duration>, ConfigError> {
    match duration::check(value, range) {
        Ok(value) => Ok(Setting::new(value, from)),
        Err(why) => Err(ConfigError::Invalid { key, from, why }),
    }
}

fn source_of<T>(set: Option<&Setting<T>>) -> Source {
    set.map_or(Source::Default, |set| set.source.clone())
}

fn registry_mode(files: &[File]) -> Setting<Mode> {
    let mode = |journal| match journal {
        true => Mode::Journal,
        false => Mode::Document,
    };
    let set = in_section(files, |file| file.section.registry_journal.map(mode));
    set.unwrap_or_else(|| Setting::new(Mode::Document, Source::Default))
}

/// The first file that sets something in our section.
fn in_section<T>(files: &[File], get: impl Fn(&File) -> Option<T>) -> Option<Setting<T>> {
    in_section_or_core(files, get, |_| None)
}

/// The first file that sets something, in our section or else in `[core]`.
fn in_section_or_core<T>(
    files: &[File],
    ours: impl Fn(&File) -> Option<T>,
    core: impl Fn(&File) -> Option<T>,
) -> Option<Setting<T>> {
    files.iter().find_map(|file| {
        let set = |table| move |value| Setting::new(value, Source::File(table, file.path.clone()));
        ours(file)
            .map(set(SECTION))
            .or_else(|| core(file).map(set(CORE)))
    })
}

/// Who has set a value.
fn origin<T>(set: &Setting<T>, files: &[File]) -> Origin {
    let (Source::File(_, path) | Source::Role(_, path)) = &set.source else {
        return Origin::User;
    };
    let is_theirs = |file: &File| file.scope == Scope::Repository && file.path == *path;
    match files.iter().any(is_theirs) {
        true => Origin::Repository,
        false => Origin::User,
    }
}

#[cfg(test)]
mod tests;
