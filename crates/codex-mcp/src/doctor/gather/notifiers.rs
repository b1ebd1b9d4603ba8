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
    let errors = checked.await.unwrap_or_default();
    let warning = |error: goal_run::notify::UnusableNotifier| Warning {
        message: format!(
            "notify ({source}): cannot notify {}: {}",
            error.notifier, error.why
        ),
        hint: "Correct it, or remove it from `notify`.".to_owned(),
    };
    errors.into_iter().map(warning).collect()
}
