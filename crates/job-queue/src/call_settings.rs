//! The settings of a call that are not fields of the contract of `call_codex`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::logic::TeamName;
use codex_config::layers::get;
use codex_config::writable_roots;
use codex_engine::overrides::set;
use codex_engine::tool_timeout::LimitOrigin;
use goal_run::logic::notifier::Notifier;
use safe_files::directory::{self, ReplacedDirectory};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use settings::bounds::SubmitterBound;

use super::store::Request;

/// The keys of Codex's configuration that extend `workspace-write`.
const ROOTS: [&str; 2] = ["sandbox_workspace_write", "writable_roots"];
const NETWORK: [&str; 2] = ["sandbox_workspace_write", "network_access"];

/// How long a question stays open by default.
pub const QUESTION_LIMIT: Duration = Duration::from_secs(300);

/// The settings of a call. A job stores them as JSON. Unknown fields of a newer program are
/// refused, as they might narrow the job's permissions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallSettings {
    /// Overrides of `config.toml`, by their dotted or nested keys.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Absolute paths of directories that commands may write to in `workspace-write`, in addition
    /// to the working directory and the configured ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands may use the network in `workspace-write`; as configured if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Whether the time limit of tools was requested or is the default.
    #[serde(skip_serializing_if = "LimitOrigin::is_default")]
    pub tool_timeout: LimitOrigin,
    /// Who answers Codex's questions.
    #[serde(skip_serializing_if = "Approval::is_default")]
    pub approval: Approval,
    /// How long a question stays open, in milliseconds; [`QUESTION_LIMIT`] if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout_ms: Option<u32>,
    /// Who is notified of the end of the job, and of each question.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notifier>,
    /// Whether the thread may use the submitter's mail.
    #[serde(skip_serializing_if = "ThreadMail::is_withheld")]
    pub mail: ThreadMail,
    /// The submitter's team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// The home directory of teams, for mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atm_home: Option<PathBuf>,
    /// The bound on the submitter's sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<SubmitterBound>,
}

/// Whether the threads of a job get a tool for the submitter's mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadMail {
    /// The threads have no mail.
    #[default]
    Withheld,
    /// The threads write and read mail in the submitter's name.
    Given,
}

impl ThreadMail {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    pub(crate) fn is_withheld(&self) -> bool {
        *self == Self::Withheld
    }
}

/// Who answers Codex's questions in a job.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Approval {
    /// No one: Codex does not ask, and any question is declined.
    #[default]
    Never,
    /// The user: a question stays open until someone answers it, or until its time limit.
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

    /// The settings as a job stores them; `None` if nothing is set.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn to_json(&self) -> Result<Option<Value>, serde_json::Error> {
        match *self == Self::default() {
            true => Ok(None),
            false => serde_json::to_value(self).map(Some),
        }
    }

    /// Resolves all directories, so that [`CallSettings::check_directories`] can detect
    /// a replaced one later. Relative writable roots start at `cwd`, the job's directory.
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

    /// The settings as overrides of `config.toml`. `configured` returns the configured value of
    /// a key: the directories are added to the configured ones.
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
    fn add_dirs_extend_the_configured_roots() {
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
    fn stored_settings_are_read_back() {
        assert_eq!(CallSettings::default().to_json().unwrap(), None);
        let settings = CallSettings {
            network: Some(false),
            tool_timeout: LimitOrigin::Requested,
            ..CallSettings::default()
        };
        let mut request = Request::new("a", "/b");
        request.settings = settings.to_json().unwrap();
        assert_eq!(
            request.settings,
            Some(json!({ "network": false, "tool_timeout": "asked" }))
        );
        assert_eq!(CallSettings::of(&request).unwrap(), settings);
        request.settings = Some(json!({ "made_up": 1 }));
        assert!(CallSettings::of(&request).is_err());
    }
}
