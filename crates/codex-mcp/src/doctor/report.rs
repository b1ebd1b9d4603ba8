//! The report and its findings.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The checks, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// This copy of codex-mcp.
    CodexMcp,
    /// Our own settings.
    Settings,
    /// The files of the repository that count once it is trusted.
    Repository,
    /// Which Codex is run.
    Codex,
    /// The version of Codex.
    Version,
    /// The commands of this Codex.
    Commands,
    /// Whether the app-server answers.
    AppServer,
    /// The login at the model provider.
    Login,
    /// The usage limits of the account.
    Limits,
    /// Codex's home directory.
    CodexHome,
    /// Codex's `config.toml`.
    Config,
    /// Whether a command runs in Codex's sandbox.
    Sandbox,
    /// Git.
    Git,
    /// GitHub's program.
    Gh,
    /// Private git directories of runs.
    PrivateGit,
    /// The program's state directory.
    StateDir,
    /// The job store.
    Store,
}

impl Check {
    /// The name in both forms of the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CodexMcp => "codex-mcp",
            Self::Settings => "settings",
            Self::Repository => "repository",
            Self::Codex => "codex",
            Self::Version => "version",
            Self::Commands => "commands",
            Self::AppServer => "app-server",
            Self::Login => "login",
            Self::Limits => "limits",
            Self::CodexHome => "codex-home",
            Self::Config => "config",
            Self::Sandbox => "sandbox",
            Self::Git => "git",
            Self::Gh => "gh",
            Self::PrivateGit => "private-git",
            Self::StateDir => "state-dir",
            Self::Store => "store",
        }
    }
}

/// The effect of a finding on work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Needs no action, or could not be checked.
    Note,
    /// Some work will fail.
    Warning,
    /// No work can be done.
    Problem,
}

impl Status {
    /// The name in both forms of the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The check.
    #[serde(rename = "name")]
    pub check: Check,
    /// The status.
    pub status: Status,
    /// The finding, in one line; an excerpt of a file has lines of its own.
    pub message: String,
    /// The finding for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The remedy, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    fn new(check: Check, status: Status, message: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            check,
            status,
            message: message.into(),
            value: None,
            hint,
        }
    }

    pub(super) fn ok(check: Check, message: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, message, None)
    }

    pub(super) fn note(check: Check, message: impl Into<String>) -> Self {
        Self::new(check, Status::Note, message, None)
    }

    pub(super) fn not_checked(check: Check, why: &str) -> Self {
        Self::note(check, format!("not checked: {why}"))
    }

    pub(super) fn warning(
        check: Check,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, Status::Warning, message, Some(hint.into()))
    }

    pub(super) fn problem(
        check: Check,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, Status::Problem, message, Some(hint.into()))
    }

    pub(super) fn with_value(mut self, value: impl Into<Value>) -> Self {
        self.value = Some(value.into());
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All findings.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// One for each check, in the order of [`Check`].
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings have this status.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        let fits = |finding: &&Finding| finding.status == status;
        self.findings.iter().filter(fits).count()
    }

    /// The findings by which some work or all work fails.
    #[must_use]
    pub fn only_failures(&self) -> Self {
        let fails =
            |finding: &&Finding| matches!(finding.status, Status::Warning | Status::Problem);
        Self {
            findings: self.findings.iter().filter(fails).cloned().collect(),
        }
    }

    /// Whether work can be done.
    #[must_use]
    pub fn works(&self) -> bool {
        self.count(Status::Problem) == 0
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Object<'a> {
            codex_mcp: &'static str,
            works: bool,
            checks: &'a [Finding],
        }
        Object {
            codex_mcp: env!("CARGO_PKG_VERSION"),
            works: self.works(),
            checks: &self.findings,
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_equal_in_text_and_json() {
        for check in [
            Check::CodexMcp,
            Check::Settings,
            Check::Codex,
            Check::Version,
            Check::Commands,
            Check::AppServer,
            Check::Login,
            Check::CodexHome,
            Check::Config,
            Check::Sandbox,
            Check::Git,
            Check::Gh,
            Check::PrivateGit,
            Check::StateDir,
            Check::Store,
        ] {
            assert_eq!(json!(check), check.name());
        }
        for status in [Status::Ok, Status::Note, Status::Warning, Status::Problem] {
            assert_eq!(json!(status), status.name());
        }
    }
}
