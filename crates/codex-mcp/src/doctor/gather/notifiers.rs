//! Checks of the notifiers in the user's configuration, without delivering anything.

use goal_run::notify::NotifierCheck;
use safe_files::off_runtime;
use settings::{Config, Setting, Warning};

/// A warning for each notifier that cannot work.
pub(super) async fn check(config: &Config) -> Vec<Warning> {
    let Some(Setting { value, source }) = config.alerts.notify.clone() else {
        return Vec::new();
    };
    let lookup = NotifierCheck {
        team: config.team.as_ref().map(|team| team.value.clone()),
        atm_home: config.atm_home.clone(),
        directory: config.directory.clone(),
    };
    let checked = off_runtime::run(move || {
        let errors = value
            .iter()
            .filter_map(|one| lookup.check(std::slice::from_ref(one)).err());
        errors.collect::<Vec<_>>()
    });
    let warning = |message: String, hint: &str| Warning {
        message: format!("notify ({source}): {message}"),
        hint: hint.to_owned(),
    };
    let errors = match checked.await {
        Ok(errors) => errors,
        Err(error) => {
            let message = format!("the notifiers cannot be checked: {error}");
            return vec![warning(message, "Run `codex-mcp doctor` again.")];
        }
    };
    let warnings = errors.into_iter().map(|error| {
        let message = format!("cannot notify {}: {}", error.notifier, error.why);
        warning(message, "Correct it, or remove it from `notify`.")
    });
    warnings.collect()
}
