//! Decides whether a default from our configuration may apply to a call.

use codex_engine::command::Settings;
use serde_json::{Map, Value};

/// The parts of a call, other than the parameters themselves, that can give its settings. A default
/// of ours would take precedence over them in Codex.
#[derive(Debug, Clone, Copy)]
pub struct ExplicitSettings<'a> {
    /// Whether the call names a profile of Codex's.
    pub has_profile: bool,
    /// The call's overrides of Codex's configuration.
    pub config: &'a Map<String, Value>,
}

impl<'a> ExplicitSettings<'a> {
    /// The explicit settings of a thread.
    #[must_use]
    pub fn of(settings: &'a Settings) -> Self {
        Self {
            has_profile: settings.profile.is_some(),
            config: &settings.thread.config,
        }
    }

    /// Our default, unless the call names a profile or sets `key` of Codex's configuration.
    #[must_use]
    pub fn default_unless_set<T: Clone>(&self, key: &str, default: &Option<T>) -> Option<T> {
        let is_set = self.has_profile || self.config.contains_key(key);
        default.clone().filter(|_| !is_set)
    }
}
