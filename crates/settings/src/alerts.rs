//! The settings of alerts: who is notified of sessions, of which events, after what time without
//! progress, and who may answer. Only the user can set them, as a notifier can name a program.

use std::time::Duration;

use codex_engine::logic::session::AlertKind;
use goal_run::logic::notifier::Notifier;
use goal_run::spec::MOST_NOTIFIERS;

use crate::error::ConfigError;
use crate::file::{File, Scope};
use crate::lookup::{Lookup, of_user, within};
use crate::server::TIMEOUTS;
use crate::source::{Setting, Source, Warning};

/// The default of `stall_timeout_secs`.
const DEFAULT_STALL: Duration = Duration::from_secs(300);

/// The default of `notify_on`: the events that may need a person.
const DEFAULT_ALERTS: [AlertKind; 2] = [AlertKind::Asks, AlertKind::Stalls];

/// The settings of alerts.
#[derive(Debug)]
pub struct AlertSettings {
    /// The notifiers that are told of sessions.
    pub notify: Option<Setting<Vec<Notifier>>>,
    /// The events of which they are told.
    pub notify_on: Setting<Vec<AlertKind>>,
    /// Whether agents that are told of a question by mail may answer it.
    pub answer_by_mail: Setting<bool>,
    /// The time without events after which a turn or job counts as stalled.
    pub stall_timeout: Setting<Duration>,
}

impl AlertSettings {
    /// The notifiers; none if unset.
    #[must_use]
    pub fn notifiers(&self) -> Vec<Notifier> {
        let set = self.notify.as_ref();
        set.map(|set| set.value.clone()).unwrap_or_default()
    }
}

impl Lookup<'_> {
    pub(super) fn alerts(
        &self,
        allow_commands: &Setting<bool>,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<AlertSettings, ConfigError> {
        warn_about_repository(files, &self.user_file_hint(), warnings);
        let mut notify = notifiers(files)?;
        if let Some(Setting { value, source }) = &mut notify {
            if value.len() > MOST_NOTIFIERS {
                return Err(ConfigError::Invalid {
                    key: "notify",
                    from: source.clone(),
                    why: format!("has more than {MOST_NOTIFIERS} recipients"),
                });
            }
            if !allow_commands.value {
                let left_out = value.extract_if(.., |to| matches!(to, Notifier::Command(_)));
                warnings.extend(left_out.map(|to| {
                    Warning {
                        message: format!(
                            "notify ({source}): {to} is left out, as allow_commands ({}) forbids \
                         programs",
                            allow_commands.source
                        ),
                        hint:
                            "Name an agent (mail:), a channel (irc:), desktop, webhook: or ntfy: \
                           instead."
                                .to_owned(),
                    }
                }));
            }
        }
        Ok(AlertSettings {
            notify,
            notify_on: of_user(files, |file| file.section.notify_on.clone())
                .unwrap_or_else(|| Setting::new(DEFAULT_ALERTS.to_vec(), Source::Default)),
            answer_by_mail: of_user(files, |file| file.section.answer_by_mail)
                .unwrap_or_else(|| Setting::new(false, Source::Default)),
            stall_timeout: stall_timeout(files)?,
        })
    }
}

fn notifiers(files: &[File]) -> Result<Option<Setting<Vec<Notifier>>>, ConfigError> {
    let Some(Setting { value, source }) = of_user(files, |file| file.section.notify.clone()) else {
        return Ok(None);
    };
    let parsed: Result<_, _> = value.iter().map(|text| text.parse::<Notifier>()).collect();
    match parsed {
        Ok(notifiers) => Ok(Some(Setting::new(notifiers, source))),
        Err(error) => Err(ConfigError::Invalid {
            key: "notify",
            from: source,
            why: error.to_string(),
        }),
    }
}

fn stall_timeout(files: &[File]) -> Result<Setting<Duration>, ConfigError> {
    let Some(Setting { value, source }) = of_user(files, |file| file.section.stall_timeout_secs)
    else {
        return Ok(Setting::new(DEFAULT_STALL, Source::Default));
    };
    within("stall_timeout_secs", value, source, &TIMEOUTS)
}

fn warn_about_repository(files: &[File], hint: &str, warnings: &mut Vec<Warning>) {
    for file in files.iter().filter(|file| file.scope == Scope::Repository) {
        let section = &file.section;
        let set = [
            ("notify", section.notify.is_some()),
            ("notify_on", section.notify_on.is_some()),
            ("answer_by_mail", section.answer_by_mail.is_some()),
            ("stall_timeout_secs", section.stall_timeout_secs.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            warnings.push(Warning {
                message: format!(
                    "{key} in {} is left out: alerts are the user's, not a repository's",
                    file.path.display()
                ),
                hint: hint.to_owned(),
            });
        }
    }
}
