//! Checks of the notifiers in the user's configuration, without delivering anything, and of who
//! can answer by mail.

use goal_run::logic::mail_answers::answer_warnings;
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

/// A warning for each agent in `notify` that cannot answer by mail, or if there is none, where the
/// user wants such answers.
pub(super) fn mail_answers(config: &Config) -> Vec<Warning> {
    if !config.alerts.answer_by_mail.value {
        return Vec::new();
    }
    let asking = &config.identity.value;
    let user = config.user_identity.as_ref();
    let team = config.team.as_ref().map(|team| &team.value);
    let warnings = answer_warnings(&config.alerts.notifiers(), asking, user, team);
    let warnings = warnings.into_iter().map(|message| Warning {
        message,
        hint: "Name another agent of the server's team in `notify` (mail:AGENT), or remove \
               `answer_by_mail`."
            .to_owned(),
    });
    warnings.collect()
}
