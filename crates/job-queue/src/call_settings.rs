//! Settings of a call beside the fields of the contract.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::logic::TeamName;
use codex_config::layers::get;
use codex_config::writable_roots;
use codex_engine::confinement::set;
use codex_engine::tool_limit::LimitOrigin;
use goal_run::logic::notifier::Notifier;
use safe_files::directory::{self, ReplacedDirectory};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::store::Request;

/// Where Codex's configuration has what `workspace-write` allows.
const ROOTS: [&str; 2] = ["sandbox_workspace_write", "writable_roots"];
const NETWORK: [&str; 2] = ["sandbox_workspace_write", "network_access"];

/// How long a question stays open, if nobody says otherwise.
pub const QUESTION_LIMIT: Duration = Duration::from_secs(300);

/// Settings of a call. A job keeps them as JSON; what a newer program adds is refused, as
/// it might narrow what the job may do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallSettings {
    /// Overrides of `config.toml`, by their dotted or nested keys.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Directories that commands may write to in `workspace-write`, beside the working
    /// directory and those that are configured; absolute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands may use the network in `workspace-write`; as configured if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Whether the time limit of tools was asked for.
    #[serde(skip_serializing_if = "LimitOrigin::is_default")]
    pub tool_timeout: LimitOrigin,
    /// Who decides what Codex asks.
    #[serde(skip_serializing_if = "Approval::is_default")]
    pub approval: Approval,
    /// How long a question stays open, in milliseconds; [`QUESTION_LIMIT`] if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout_ms: Option<u32>,
    /// Who is told when the job ends, and of each question.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notifier>,
    /// Whether the thread may use the mail of who has submitted the job.
    #[serde(skip_serializing_if = "ThreadMail::is_withheld")]
    pub mail: ThreadMail,
    /// The team of who has submitted the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// The home directory of teams, for mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atm_home: Option<PathBuf>,
}

/// Whether the threads of a job get the mail of who has submitted it as a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadMail {
    /// They have no mail.
    #[default]
    Withheld,
    /// They write and read in the name of who has submitted it.
    Given,
}

impl ThreadMail {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    pub(crate) fn is_withheld(&self) -> bool {
        *self == Self::Withheld
    }
}

/// Who decides what Codex asks in a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// Nobody: Codex does not ask, and what it asks nevertheless is declined.
    #[default]
    Never,
    /// The user: questions stay open until somebody answers, or their time is over.
    Ask,
}

impl Approval {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl CallSettings {
    /// How long a question stays open.
    pub(crate) fn question_limit(&self) -> Duration {
        let asked = self.approval_timeout_ms;
        asked.map_or(QUESTION_LIMIT, |millis| {
            Duration::from_millis(millis.into())
        })
    }

    /// The settings of a request.
    ///
    /// # Errors
    ///
    /// If they cannot be read: a newer program may have written them.
    pub fn of(request: &Request) -> Result<Self, serde_json::Error> {
        match &request.settings {
            Some(settings) => serde_json::from_value(settings.clone()),
            None => Ok(Self::default()),
        }
    }

    /// As a job keeps them; `None` if nothing is set.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn kept(&self) -> Result<Option<Value>, serde_json::Error> {
        match *self == Self::default() {
            true => Ok(None),
            false => serde_json::to_value(self).map(Some),
        }
    }

    /// Resolves all directories, so that [`CallSettings::check_directories`] can detect
    /// one that is replaced later. Relative writable roots count from `cwd`, where the job
    /// works.
    pub(crate) fn resolve_directories(&mut self, cwd: &Path) {
        for path in &mut self.add_dirs {
            *path = directory::resolved(path);
        }
        writable_roots::resolve(&mut self.config, cwd);
    }

    /// Checks that no directory was replaced since.
    pub(crate) fn check_directories(&self) -> Result<(), ReplacedDirectory> {
        writable_roots::check(&self.overrides(|_| None))
    }

    /// All of them as overrides of `config.toml`. `configured` is what the configuration
    /// has for a key: directories are added to those that it names.
    #[must_use]
    pub fn overrides(&self, configured: impl Fn(&str) -> Option<Value>) -> Map<String, Value> {
        let mut config = self.config.clone();
        if !self.add_dirs.is_empty() {
            let key = ROOTS.join(".");
            let roots = get(&config, &key).cloned().or_else(|| configured(&key));
            let mut roots = match roots {
                Some(Value::Array(roots)) => roots,
                _ => Vec::new(),
            };
            roots.extend(
                self.add_dirs
                    .iter()
                    .map(|path| json!(path.to_string_lossy())),
            );
            set(&mut config, &ROOTS, roots.into());
        }
        if let Some(network) = self.network {
            set(&mut config, &NETWORK, network.into());
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_added_to_those_that_are_configured() {
        let settings = CallSettings {
            config: Map::from_iter([("model".to_owned(), json!("m"))]),
            add_dirs: vec!["/a".into()],
            network: Some(true),
            ..CallSettings::default()
        };
        let configured =
            |key: &str| (key == "sandbox_workspace_write.writable_roots").then(|| json!(["/u"]));
        assert_eq!(
            Value::Object(settings.overrides(configured)),
            json!({ "model": "m", "sandbox_workspace_write.network_access": true,
                "sandbox_workspace_write.writable_roots": ["/u", "/a"] })
        );
        let nested = CallSettings {
            config: Map::from_iter([(
                "sandbox_workspace_write".to_owned(),
                json!({ "writable_roots": ["/c"] }),
            )]),
            ..settings
        };
        assert_eq!(
            Value::Object(nested.overrides(configured)),
            json!({ "sandbox_workspace_write": { "network_access": true,
                "writable_roots": ["/c", "/a"] } })
        );
    }

    #[test]
    fn settings_are_read_as_they_were_kept() {
        assert_eq!(CallSettings::default().kept().unwrap(), None);
        let settings = CallSettings {
            network: Some(false),
            tool_timeout: LimitOrigin::Asked,
            ..CallSettings::default()
        };
        let mut request = Request::new("a", "/b");
        request.settings = settings.kept().unwrap();
        assert_eq!(
            request.settings,
            Some(json!({ "network": false, "tool_timeout": "asked" }))
        );
        assert_eq!(CallSettings::of(&request).unwrap(), settings);
        request.settings = Some(json!({ "made_up": 1 }));
        assert!(CallSettings::of(&request).is_err());
    }
}
