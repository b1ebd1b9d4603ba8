//! The settings of a thread in the registry, where each setting is a word.

use std::path::PathBuf;

use codex_engine::command::Settings;
use codex_protocol::codex::{ModelOptions, ThreadSettings};
use common::json::as_word;
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error as ValueError};

use crate::logic::registry::{self, Entry};

/// The settings of a thread in the registry's form.
pub(super) fn settings_of(
    thread: &ThreadSettings,
    model_options: &ModelOptions,
) -> registry::Settings {
    registry::Settings {
        model: thread.model.clone(),
        sandbox: thread.sandbox.as_ref().and_then(as_word),
        approval_policy: thread.approval_policy.as_ref().and_then(as_word),
        reasoning_effort: model_options.effort.as_ref().and_then(as_word),
        profile: None,
        mcp_servers: None,
    }
}

/// The settings of a thread in the registry. Values that this program does not know are left out.
pub(super) fn settings_of_entry(entry: &Entry) -> Settings {
    let written = &entry.settings;
    let mut settings = Settings::default();
    let thread = &mut settings.thread;
    thread.cwd = entry.cwd.as_ref().map(PathBuf::from);
    // A directory that is gone must not keep the thread from being resumed.
    thread.cwd = thread.cwd.take().filter(|cwd| cwd.is_dir());
    thread.model.clone_from(&written.model);
    thread.sandbox = from_word(written.sandbox.as_deref());
    thread.approval_policy = from_word(written.approval_policy.as_deref());
    settings.model_options.effort = from_word(written.reasoning_effort.as_deref());
    settings.profile = from_word(written.profile.as_deref());
    settings.mcp_servers = from_word(written.mcp_servers.as_deref()).unwrap_or_default();
    settings
}

fn from_word<'de, T: Deserialize<'de>>(word: Option<&'de str>) -> Option<T> {
    T::deserialize(BorrowedStrDeserializer::<ValueError>::new(word?)).ok()
}
