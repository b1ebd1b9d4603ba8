//! A thread in the registry, and how it changes.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::{AgentName, RoleName, TeamName, ThreadName};

/// The longest path in an entry, in bytes: Linux takes no longer ones.
pub(super) const LONGEST_PATH: usize = 4096;

/// The longest beginning of a prompt in an entry, in bytes.
pub(super) const LONGEST_PROMPT: usize = 200;

/// The mark at the end of a cut prompt. Lists show prompts with it.
const CUT: char = '…';

/// The longest other text in an entry, in bytes.
pub(super) const LONGEST_TEXT: usize = 512;

/// How far a recorded time may be ahead of the clock. A time further ahead came from a wrong clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(24 * 3600);

/// A thread (FR-5.2), with the settings that it was begun with, so that it can be resumed with the
/// same settings. Their values are Codex's words, which differ between releases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Codex's ID of the thread.
    pub thread_id: ThreadName,
    /// The identity that began it.
    pub identity: AgentName,
    /// The team of that identity.
    #[serde(default)]
    pub team: Option<TeamName>,
    /// The top directory of the repository that it works in, as of its last turn.
    #[serde(default)]
    pub repo_root: Option<String>,
    /// The repository's name.
    #[serde(default)]
    pub repo_name: Option<String>,
    /// The branch, as of its last turn.
    #[serde(default)]
    pub branch: Option<String>,
    /// The directory that it works in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The time of its beginning, in RFC 3339.
    #[serde(with = "moment")]
    pub started_at: SystemTime,
    /// The time of its last use, in RFC 3339.
    #[serde(with = "moment")]
    pub last_active: SystemTime,
    /// The status of the thread.
    pub status: Status,
    /// The caller's name for it.
    #[serde(default)]
    pub tag: Option<String>,
    /// The preset that it was begun with.
    #[serde(default)]
    pub role: Option<RoleName>,
    /// The interface of Codex that it was begun through.
    #[serde(default)]
    pub backend: Option<String>,
    /// The number of its turns.
    #[serde(default)]
    pub turns: u64,
    /// The first words of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The state of its last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_turn: Option<TurnState>,
    /// Why an interrupted thread has no summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_summary: Option<String>,
    /// The settings for resuming it.
    #[serde(flatten)]
    pub settings: Settings,
    /// Unknown keys.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The settings of a thread; `None` leaves a setting to Codex's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The model.
    pub model: Option<String>,
    /// The sandbox of commands.
    pub sandbox: Option<String>,
    /// The approval policy.
    pub approval_policy: Option<String>,
    /// The reasoning effort.
    pub reasoning_effort: Option<String>,
    /// Codex's profile.
    pub profile: Option<String>,
    /// `off` for a thread without MCP servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<String>,
}

/// The status of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A server holds the thread.
    Active,
    /// The thread ended with a summary.
    Ended,
    /// The thread ended without a summary: its server died, or had no time for one.
    Interrupted,
    /// A value of a newer program.
    #[serde(untagged)]
    Other(String),
}

impl Status {
    /// The name of the value in files.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "active",
            Self::Ended => "ended",
            Self::Interrupted => "interrupted",
            Self::Other(word) => word,
        }
    }

    /// The word for people: whether a server has the thread. "interrupted" would be read as if the work
    /// were not finished.
    #[must_use]
    pub fn shown(&self) -> &str {
        match self {
            Self::Interrupted => "ended",
            other => other.as_str(),
        }
    }
}

/// The state of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnState {
    /// Codex works on the turn.
    Running,
    /// Codex completed the turn.
    Completed,
    /// The turn was interrupted.
    Interrupted,
    /// The turn failed, or Codex died.
    Failed,
    /// A value of a newer program.
    #[serde(untagged)]
    Other(String),
}

impl TurnState {
    /// The name of the value in files.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Other(word) => word,
        }
    }
}

/// The changed values of a thread; `None` keeps a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadUpdate {
    /// The number of turns that were begun.
    pub turns: u64,
    /// The top directory of the repository.
    pub repo_root: Option<String>,
    /// The repository's name.
    pub repo_name: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The directory.
    pub cwd: Option<String>,
    /// The caller's name for it.
    pub tag: Option<String>,
    /// The prompt of a turn that has begun; the first one is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The settings for resuming it.
    #[serde(flatten)]
    pub settings: Settings,
}

impl Entry {
    /// Whether its last use is recorded with a time far ahead of `now`, from a wrong clock.
    fn is_ahead_of(&self, now: SystemTime) -> bool {
        let ahead = self.last_active.duration_since(now);
        ahead.is_ok_and(|ahead| ahead > CLOCK_TOLERANCE)
    }

    /// A key that sorts threads by their last use. Those with times of a wrong clock come first.
    #[must_use]
    pub fn used_at(&self, now: SystemTime) -> (bool, SystemTime) {
        (!self.is_ahead_of(now), self.last_active)
    }

    /// Notes a use of the thread.
    pub(super) fn touch(&mut self, at: SystemTime, update: &ThreadUpdate) {
        // Clocks are set back now and then.
        self.last_active = match self.is_ahead_of(at) {
            true => at,
            false => self.last_active.max(at),
        };
        self.status = Status::Active;
        self.no_summary = None;
        self.turns = self.turns.saturating_add(update.turns);
        overwrite(&mut self.repo_root, &update.repo_root);
        overwrite(&mut self.repo_name, &update.repo_name);
        overwrite(&mut self.branch, &update.branch);
        overwrite(&mut self.cwd, &update.cwd);
        overwrite(&mut self.tag, &update.tag);
        if self.prompt.is_none() {
            self.prompt.clone_from(&update.prompt);
        }
        if update.turns > 0 {
            self.last_turn = Some(TurnState::Running);
        }
        self.settings.overwrite(&update.settings);
    }

    /// Notes that the thread is resumed; `again` is how it begins now.
    pub(super) fn resume(&mut self, again: &Self) {
        let update = ThreadUpdate {
            turns: again.turns,
            repo_root: again.repo_root.clone(),
            repo_name: again.repo_name.clone(),
            branch: again.branch.clone(),
            cwd: again.cwd.clone(),
            tag: again.tag.clone(),
            prompt: again.prompt.clone(),
            settings: again.settings.clone(),
        };
        self.touch(again.last_active, &update);
        self.status = again.status.clone();
        self.identity = again.identity.clone();
        overwrite(&mut self.team, &again.team);
        overwrite(&mut self.role, &again.role);
        overwrite(&mut self.backend, &again.backend);
        self.rest.extend(again.rest.clone());
    }

    /// Cuts texts that are too long.
    pub(super) fn truncate_texts(&mut self) {
        for path in [&mut self.repo_root, &mut self.cwd] {
            truncate(path, LONGEST_PATH);
        }
        truncate_prompt(&mut self.prompt);
        let Settings {
            model,
            sandbox,
            approval_policy,
            reasoning_effort,
            profile,
            mcp_servers,
        } = &mut self.settings;
        for text in [
            model,
            sandbox,
            approval_policy,
            reasoning_effort,
            profile,
            mcp_servers,
        ] {
            truncate(text, LONGEST_TEXT);
        }
        let Self {
            repo_name,
            branch,
            tag,
            backend,
            no_summary,
            ..
        } = self;
        for text in [repo_name, branch, tag, backend, no_summary] {
            truncate(text, LONGEST_TEXT);
        }
    }
}

impl Settings {
    fn overwrite(&mut self, new: &Self) {
        overwrite(&mut self.model, &new.model);
        overwrite(&mut self.sandbox, &new.sandbox);
        overwrite(&mut self.approval_policy, &new.approval_policy);
        overwrite(&mut self.reasoning_effort, &new.reasoning_effort);
        overwrite(&mut self.profile, &new.profile);
    }
}

fn overwrite<T: Clone>(old: &mut Option<T>, new: &Option<T>) {
    if new.is_some() {
        old.clone_from(new);
    }
}

fn truncate_prompt(prompt: &mut Option<String>) {
    if let Some(text) = prompt.as_mut().filter(|text| text.len() > LONGEST_PROMPT) {
        let kept = LONGEST_PROMPT.saturating_sub(CUT.len_utf8());
        text.truncate(text.floor_char_boundary(kept));
        text.push(CUT);
    }
}

fn truncate(text: &mut Option<String>, limit: usize) {
    if let Some(text) = text {
        text.truncate(text.floor_char_boundary(limit));
    }
}

/// Moments in RFC 3339, UTC, milliseconds.
pub(super) mod moment {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use common::timestamp::timestamp;

    pub(in super::super) fn serialize<S: Serializer>(
        at: &SystemTime,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(&timestamp(*at))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_rfc3339(&text).map_err(de::Error::custom)
    }

    /// The same for an optional time.
    pub(in super::super) mod optional {
        use std::time::SystemTime;

        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Moment(#[serde(with = "super")] SystemTime);

        pub(in super::super::super) fn serialize<S: Serializer>(
            at: &Option<SystemTime>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            at.map(Moment).serialize(out)
        }

        pub(in super::super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            let at = Option::<Moment>::deserialize(from)?;
            Ok(at.map(|Moment(at)| at))
        }
    }
}
