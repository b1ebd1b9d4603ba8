//! Checks that the configured team exists.

use agent_team::mail::MailStore;
use safe_files::off_runtime;
use settings::{Config, Setting, Warning};

/// A warning if there is no mail in the team.
pub(super) async fn check(config: &Config) -> Option<Warning> {
    let Setting { value, source } = config.team.clone()?;
    let atm_home = config.atm_home.clone();
    let members = off_runtime::run(move || MailStore::new(&atm_home).members(&value));
    let error = match members.await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(error) => format!("the team cannot be checked: {error}"),
    };
    Some(Warning {
        message: format!("team ({source}): {error}"),
        hint: "Create the team in Claude Code. ATM_TEAM, or `team` in the configuration, names another."
            .to_owned(),
    })
}
