//! A call of a classic tool, as its job stores it, and the end of its turn.

use std::path::Path;

use codex_config::writable_roots;
use codex_engine::command::{SessionId, Settings};
use codex_engine::logic::work::WorkEnding;
use codex_protocol::codex::{ReviewTarget, TurnError};
use common::secrets::MASK;
use safe_files::directory::ReplacedDirectory;
use serde::{Deserialize, Serialize};

/// A call of a classic tool. Its turn is that of a session of the server, with the settings of the
/// thread as they are, while a job of `call_codex` adds settings of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassicCall {
    /// The settings of the thread, with the defaults and within the bounds of the submitter.
    pub settings: Settings,
    /// The changes to review, if the call requests a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewTarget>,
    /// The warnings for the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ClassicCall {
    /// Resolves the writable directories, which may be relative to `cwd`.
    pub(crate) fn resolve_directories(&mut self, cwd: &Path) {
        writable_roots::resolve(&mut self.settings.thread.config, cwd);
    }

    /// Checks that no writable directory was replaced since.
    pub(crate) fn check_directories(&self) -> Result<(), ReplacedDirectory> {
        writable_roots::check(&self.settings.thread.config)
    }

    /// The call without the settings in which credentials were masked.
    pub(crate) fn unmasked(mut self) -> Self {
        let settings = &mut self.settings;
        let thread = &mut settings.thread;
        thread
            .config
            .retain(|_, value| !value.to_string().contains(MASK));
        for text in [
            &mut thread.base_instructions,
            &mut thread.developer_instructions,
            &mut settings.added.before,
            &mut settings.added.behind,
        ] {
            text.take_if(|text| text.contains(MASK));
        }
        self
    }
}

/// The end of the turn of a classic call, beside the text of its answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassicEnd {
    /// The session that the thread had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// How the turn failed, where the class of the failure does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<ClassicFailure>,
}

/// How the turn of a classic call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassicFailure {
    /// Codex reported this error.
    Turn(TurnError),
    /// Codex refused to begin the turn.
    Refused,
    /// The turn was interrupted.
    Interrupted,
    /// Codex's process ended.
    Died,
}

impl ClassicFailure {
    pub(crate) fn of(ending: &WorkEnding) -> Option<Self> {
        match ending {
            WorkEnding::Failed(error) => Some(Self::Turn(error.clone())),
            WorkEnding::Refused(_) => Some(Self::Refused),
            WorkEnding::Interrupted | WorkEnding::Declined(_) => Some(Self::Interrupted),
            WorkEnding::Died(_) | WorkEnding::Killed(_) => Some(Self::Died),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_protocol::codex::ThreadSettings;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn call_is_read_back() {
        let call = ClassicCall {
            settings: Settings {
                thread: ThreadSettings {
                    model: Some("m".to_owned()),
                    ..ThreadSettings::default()
                },
                ..Settings::default()
            },
            review: Some(ReviewTarget::UncommittedChanges),
            warnings: vec!["w".to_owned()],
        };
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<ClassicCall>(&text).unwrap(), call);
    }

    #[test]
    fn masked_settings_are_left_out() {
        let mut call = ClassicCall::default();
        let thread = &mut call.settings.thread;
        let masked = json!({ "env": { "API_KEY": MASK } });
        thread.config.insert("mcp_servers.x".to_owned(), masked);
        thread.config.insert("model".to_owned(), "m".into());
        thread.base_instructions = Some(format!("use {MASK}"));
        thread.developer_instructions = Some("be brief".to_owned());
        let kept = call.unmasked().settings.thread;
        assert_eq!(Value::Object(kept.config), json!({ "model": "m" }));
        assert_eq!(kept.base_instructions, None);
        assert_eq!(kept.developer_instructions.as_deref(), Some("be brief"));
    }
}
