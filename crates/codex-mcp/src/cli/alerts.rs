//! Alerts: notifications that a session or a run needs a person, or has ended.

use std::path::PathBuf;

use codex_engine::Engine;
use codex_engine::command::SessionAlert;
use goal_run::notify::{Alerts, Notice, NotifierCheck, NotifierContext, Timeouts};
use mcp_server::Warnings;
use safe_files::off_runtime;
use serde_json::json;
use settings::{Config, Setting};

use super::services::Identity;

/// Adds alerts to the engine. The configured notifiers get the alerts of the kinds in `notify_on`:
/// that a session waits for an answer, has stalled, or has ended a turn. A notifier that cannot
/// work becomes a warning a moment later.
pub(super) fn with_session_alerts(
    engine: Engine,
    config: &Config,
    identity: &Identity,
    warnings: &Warnings,
) -> Engine {
    let Some(Setting { value, source }) = &config.alerts.notify else {
        return engine;
    };
    if value.is_empty() {
        return engine;
    }
    let directory = config.directory.clone();
    let lookup = NotifierCheck {
        team: identity.member.team.clone(),
        atm_home: config.atm_home.clone(),
        directory: directory.clone(),
    };
    let (notify, source, warnings) = (value.clone(), source.clone(), warnings.clone());
    tokio::spawn(async move {
        let checked = off_runtime::run(move || lookup.check(&notify)).await;
        if let Ok(Err(error)) = checked {
            let (to, why) = (error.notifier, error.why);
            warnings.push(format!("notify ({source}): cannot notify {to}: {why}"));
        }
    });
    let kinds = config.alerts.notify_on.value.clone();
    let alerts = Alerts::start(value.clone(), notifiers(config, identity, directory));
    engine.with_alerts(move |alerted| {
        let SessionAlert {
            session,
            thread,
            alert,
        } = alerted;
        if !kinds.contains(&alert.kind()) {
            return;
        }
        let names = json!({ "session_id": session, "thread_id": thread });
        alerts.give(Notice::of(&format!("session {session}"), &names, &alert));
    })
}

/// The context of the notifiers, whose commands run in this directory.
pub(super) fn notifiers(
    config: &Config,
    identity: &Identity,
    directory: PathBuf,
) -> NotifierContext {
    NotifierContext {
        member: Some(identity.member.clone()),
        mail_client: identity.services.mail_client.clone(),
        atm_home: config.atm_home.clone(),
        audit_limit: config.retention.audit_bytes.value,
        directory,
        env: Vec::new(),
        timeouts: Timeouts::default(),
    }
}
