//! Alerts: notifications that a session or a run needs a person, or has ended.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use agent_team::Member;
use codex_engine::command::{OpenQuestion, SessionAlert, SessionId};
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::session::Alert;
use codex_engine::{Engine, SessionHandle};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use goal_run::logic::mail_answers::{self, Offer, answer_warnings};
use goal_run::notify::{Alerts, MailQuestion, Notice, NotifierCheck, NotifierContext, Timeouts};
use mcp_server::Warnings;
use safe_files::off_runtime;
use serde_json::json;
use settings::{Config, Setting};
use uuid::Uuid;

use super::services::Identity;

/// The engine of a client, for answers by mail. It is set when the engine is shared.
pub(super) type SharedEngine = Arc<OnceLock<Weak<Engine>>>;

/// A question of a session that agents may answer by mail.
struct SessionQuestion {
    engine: SharedEngine,
    session: SessionId,
    id: ActionId,
}

impl SessionQuestion {
    /// The engine that began the session, unless its client has disconnected.
    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.get()?.upgrade()
    }

    fn session(&self) -> Option<SessionHandle> {
        self.engine()?.handle(&self.session).ok()
    }

    fn question(&self) -> Option<OpenQuestion> {
        let open = self.session()?.questions();
        open.into_iter().find(|open| open.id == self.id)
    }

    fn decide_now(&self, decision: &Decision, by: &str) -> Result<(), String> {
        let session = self.session().ok_or("the session has ended")?;
        session
            .respond(DecidedBy::Mail, &self.id, decision, Some(by))
            .map_err(|error| error.to_string())
    }
}

impl MailQuestion for SessionQuestion {
    fn offer(&self) -> Offer {
        if self.engine().is_none() {
            // Another client may have another identity than the mail tools of the session's thread,
            // so the thread could answer in the name of a recipient.
            tracing::warn!(
                "a question of session {} cannot be answered by mail: the client that began the \
                 session has disconnected",
                self.session
            );
        }
        let both = self.session().zip(self.question());
        both.map_or_else(Offer::default, |(session, question)| {
            let is_bounded = session.sandbox_bound().is_some();
            mail_answers::offer(&question.ask, is_bounded)
        })
    }

    fn is_open(&self) -> bool {
        self.question().is_some()
    }

    fn closing(&self) -> Option<String> {
        self.session()?.closing_of(&self.id)
    }

    fn decide(&self, decision: Decision, by: String) -> BoxFuture<'_, Result<(), String>> {
        ready(self.decide_now(&decision, &by)).boxed()
    }

    fn audited(&self) -> Option<(Uuid, String)> {
        // The observer of the engine writes each decision into the audit log.
        None
    }
}

/// Adds alerts to the engine. The configured notifiers get the alerts of the kinds in `notify_on`:
/// that a session waits for an answer, has stalled, or has ended a turn. A notifier that cannot
/// work becomes a warning a moment later. `shared` is the engine once it is at work.
pub(super) fn with_session_alerts(
    engine: Engine,
    config: &Config,
    identity: &Identity,
    warnings: &Warnings,
    shared: &SharedEngine,
) -> Engine {
    if config.alerts.answer_by_mail.value {
        warn_of_missing_codes(config, identity, warnings);
    }
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
    let answer_by_mail = config.alerts.answer_by_mail.value;
    let shared = Arc::clone(shared);
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
        let notice = Notice::of(&format!("session {session}"), &names, &alert);
        match alert {
            Alert::Question { id, .. } if answer_by_mail => {
                let question = SessionQuestion {
                    engine: Arc::clone(&shared),
                    session,
                    id,
                };
                alerts.ask(notice, Arc::new(question));
            }
            _ => alerts.give(notice),
        }
    })
}

/// Warns of recipients of notices that get no code, and if there is no recipient.
fn warn_of_missing_codes(config: &Config, identity: &Identity, warnings: &Warnings) {
    let Member {
        identity: asking,
        team,
    } = &identity.member;
    let user = config.user_identity.as_ref();
    for warning in answer_warnings(&config.alerts.notifiers(), asking, user, team.as_ref()) {
        warnings.push(warning);
    }
}

/// The context of the notifiers, whose commands run in this directory.
pub(super) fn notifiers(
    config: &Config,
    identity: &Identity,
    directory: PathBuf,
) -> NotifierContext {
    NotifierContext {
        member: Some(identity.member.clone()),
        user_identity: config.user_identity.clone(),
        mail_client: identity.services.mail_client.clone(),
        atm_home: config.atm_home.clone(),
        audit_limit: config.retention.audit_bytes.value,
        directory,
        env: Vec::new(),
        timeouts: Timeouts::default(),
    }
}
