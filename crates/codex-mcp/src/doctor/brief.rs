//! Codex and its login in brief: the facts that two short programs can report. No process of Codex
//! is left running, and no file is written.

use std::time::Duration;

use codex_engine::binary::NoCodex;
use settings::Config;

use super::facts::{CommandOutcome, Home};
use super::gather::inspect_briefly;
use super::judge::{codex_version, command_name, judge_login};
use super::report::Status;
use super::settings::Credential;

/// The state of Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CodexState {
    /// There is none.
    NotInstalled,
    /// It does not work, for this reason.
    Unusable(String),
    /// It works, as far as its version tells.
    Found {
        /// Its version.
        version: String,
        /// Its path, as chosen.
        path: String,
        /// Its login.
        login: LoginState,
    },
}

/// The state of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginState {
    /// The model provider can be used; the text says how.
    Usable(String),
    /// Codex is not logged in; the text is the command that logs in.
    Missing(String),
    /// Something else is wrong, or the state is unknown; the text says what.
    Unclear(String),
}

/// The command that installs Codex.
pub(crate) use super::judge::INSTALL;

/// Looks at the Codex of a configuration; each program may take `limit`.
pub(crate) async fn brief(config: &Config, limit: Duration) -> CodexState {
    let (found, home) = inspect_briefly(config, limit).await;
    let codex = match found {
        Ok(codex) => codex,
        Err(NoCodex::NotOnPath) => return CodexState::NotInstalled,
        Err(error @ (NoCodex::NotExecutable { .. } | NoCodex::NoSuchName { .. })) => {
            return CodexState::Unusable(error.to_string());
        }
    };
    let path = codex.binary.chosen.to_string_lossy().into_owned();
    match (codex_version(&codex.version), &codex.login) {
        (Some((version, _)), Some(status)) => CodexState::Found {
            version: version.to_owned(),
            login: login(&home, status, &command_name(&codex.binary)),
            path,
        },
        _ => CodexState::Unusable(format!("{path} does not tell the version of a Codex")),
    }
}

fn login(home: &Home, status: &CommandOutcome, command: &str) -> LoginState {
    let finding = judge_login(home, status, command);
    match (finding.status, &home.settings.credential) {
        (Status::Ok, _) => LoginState::Usable(finding.message),
        (Status::Problem, Credential::Login) => LoginState::Missing(format!("{command} login")),
        _ => LoginState::Unclear(finding.message),
    }
}
