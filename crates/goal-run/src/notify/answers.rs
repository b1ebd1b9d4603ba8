//! Answers by mail to the questions whose notices were sent by mail. [`MailAnswers`] decides; this
//! module makes the codes and reads the replies.
//!
//! Only this process knows the codes. While it waits for replies, it looks at the inbox of the asking
//! member once a second.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_team::audit::AuditOutcome;
use agent_team::logic::inbox::FirstLine;
use agent_team::logic::{Address, AgentName};
use agent_team::mail::{Fingerprint, MessageContent, Receipt};
use agent_team::{MailClient, MailClientError, MailDecision, Member};
use codex_engine::logic::action::Decision;
use common::secrets::mask;
use common::sync::lock;
use common::text::one_line;
use futures::future::BoxFuture;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::NotifierContext;
use crate::logic::mail_answers::{
    AnswerCode, MailAnswers, Offer, SentCode, Verdict, cannot_answer, instructions,
};
use crate::logic::notifier::Notifier;
use crate::logic::outcome::NOTICE_LIMIT;

/// The interval between two looks at the inbox. A look costs some microseconds, on a thread of its
/// own.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A question of Codex that agents may answer by mail.
pub trait MailQuestion: Send + Sync {
    /// The decisions that can be made by mail now.
    fn offer(&self) -> Offer;

    /// Whether the question is open.
    fn is_open(&self) -> bool;

    /// How the closed question was closed, and by whom; `None` if that is unknown.
    fn closing(&self) -> Option<String>;

    /// Decides the question for an agent. The error says why the decision was refused.
    fn decide(&self, decision: Decision, by: String) -> BoxFuture<'_, Result<(), String>>;

    /// The job of the question, with the question in one line, for the audit log; `None` if the
    /// decision is recorded elsewhere.
    fn audited(&self) -> Option<(Uuid, String)>;
}

type Question = Arc<dyn MailQuestion>;

/// The answers by mail to the questions of one member.
pub(super) struct Answers {
    member: Member,
    user_identity: Option<AgentName>,
    pub(super) mail_client: MailClient,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: MailAnswers<Question>,
    is_watching: bool,
}

impl Answers {
    /// The answers to the sender of notices; `None` if it has no mail.
    pub(super) fn of(context: &NotifierContext) -> Option<Arc<Self>> {
        let member = context.member.clone()?;
        let opened = match &context.mail_client {
            Some(mail_client) => Ok(Some(mail_client.clone())),
            None if !context.atm_home.is_absolute() => Ok(None),
            None => MailClient::of(&member, &context.atm_home, context.audit_limit),
        };
        let opened = opened.inspect_err(|error| {
            tracing::warn!("questions cannot be answered by mail: {error}");
        });
        Some(Arc::new(Self {
            member,
            user_identity: context.user_identity.clone(),
            mail_client: opened.ok()??,
            state: Mutex::default(),
        }))
    }

    /// Makes codes for the recipients that may answer a question, and waits for their replies.
    /// Returns the end of each notifier's mail.
    pub(super) async fn offer(
        self: &Arc<Self>,
        question: Question,
        notifiers: &[Notifier],
        notice: &str,
        limit: Duration,
    ) -> Vec<Option<String>> {
        let offer = question.offer();
        if offer.decisions.is_empty() || !self.can_get_replies(limit).await {
            return Vec::new();
        }
        let mut state = lock(&self.state);
        let ends = notifiers.iter().map(|notifier| {
            let code = self.code_for(notifier, &question, &offer, notice)?;
            let end = instructions(&offer, &code.code);
            state.answers.add(code);
            Some(end)
        });
        let ends: Vec<_> = ends.collect();
        if ends.iter().any(Option::is_some) && !state.is_watching {
            state.is_watching = true;
            tokio::spawn(Arc::clone(self).watch());
        }
        ends
    }

    /// Whether replies would arrive: not if the member has left its team.
    async fn can_get_replies(&self, limit: Duration) -> bool {
        match timeout(limit, self.mail_client.is_in_team()).await {
            Ok(Ok(is_in_team)) => is_in_team,
            Ok(Err(error)) => {
                tracing::warn!("a question cannot be answered by mail: {error}");
                false
            }
            Err(_) => {
                tracing::warn!("a question cannot be answered by mail: a lock of the team is held");
                false
            }
        }
    }

    fn code_for(
        &self,
        notifier: &Notifier,
        question: &Question,
        offer: &Offer,
        notice: &str,
    ) -> Option<SentCode<Question>> {
        let (Notifier::Mail(recipient), Some(team)) = (notifier, &self.member.team) else {
            return None;
        };
        let (asking, user) = (&self.member.identity, self.user_identity.as_ref());
        if cannot_answer(recipient, asking, user, Some(team)).is_some() {
            return None;
        }
        Some(SentCode {
            code: new_code()?,
            question: Arc::clone(question),
            recipient: recipient.agent.clone(),
            team: team.clone(),
            decisions: offer.decisions.clone(),
            notice: notice.to_owned(),
        })
    }

    /// Reads replies until no question has a code any more.
    async fn watch(self: Arc<Self>) {
        let mut seen: Option<Fingerprint> = None;
        let mut is_failing = false;
        loop {
            sleep(POLL_INTERVAL).await;
            let (is_waiting, closed) = self.update();
            for code in closed {
                self.report_closed(code).await;
            }
            if !is_waiting {
                return;
            }
            match self.read_replies(&mut seen).await {
                Ok(()) => is_failing = false,
                Err(error) if is_failing => tracing::debug!("replies cannot be read: {error}"),
                Err(error) => {
                    is_failing = true;
                    tracing::warn!("replies to questions cannot be read: {error}");
                }
            }
        }
    }

    /// Whether to wait for replies, and the codes whose questions were closed just now.
    fn update(&self) -> (bool, Vec<SentCode<Question>>) {
        let mut state = lock(&self.state);
        let is_open = |question: &Question| question.is_open();
        state.is_watching = state.answers.update(Instant::now(), is_open);
        (state.is_watching, state.answers.take_closed())
    }

    async fn read_replies(&self, seen: &mut Option<Fingerprint>) -> Result<(), MailClientError> {
        // Before the mail is read: mail that arrives meanwhile causes another look.
        let now = self.mail_client.fingerprint().await?;
        if seen.as_ref() == Some(&now) {
            return Ok(());
        }
        let lines = self.mail_client.first_lines().await?;
        *seen = Some(now);
        for (line, receipts) in lines {
            self.handle(&line, receipts).await;
        }
        Ok(())
    }

    async fn handle(&self, line: &FirstLine, receipts: Vec<Receipt>) {
        let verdict = lock(&self.state).answers.judge(line);
        match verdict {
            Verdict::Ordinary => {}
            Verdict::Decided {
                question,
                decision,
                by,
                code,
            } => {
                self.mail_client.mark_read(receipts);
                let decided = self.decide(&question, decision, &by).await;
                // It knows of its own decision, and hears of an earlier one by the refusal.
                if decided.is_ok() || !question.is_open() {
                    let is_question = |one: &Question| Arc::ptr_eq(one, &question);
                    lock(&self.state).answers.informed(&by, is_question);
                }
                if let Err(why) = decided {
                    lock(&self.state).answers.refused(&code);
                    self.report(by, &why).await;
                }
            }
            Verdict::NotOffered { by, offered } => {
                self.mail_client.mark_read(receipts);
                let why = format!("the question does not offer it; it offers {offered}");
                self.report(by, &why).await;
            }
            Verdict::Wrong { by } => {
                tracing::warn!("{by} has answered a question by mail with a wrong code");
            }
            Verdict::Exhausted { by } => tracing::warn!(
                "an answer of {by} by mail is not taken: too many earlier ones were wrong or refused"
            ),
        }
    }

    async fn decide(
        &self,
        question: &Question,
        decision: Decision,
        by: &Address,
    ) -> Result<(), String> {
        let name = decision.name();
        let made = question.audited().map(|(job, asked)| MailDecision {
            job,
            question: asked,
            decision: name,
            agent: by.to_string(),
        });
        let noted = self.note(made.clone(), AuditOutcome::Started, None).await;
        noted.map_err(|error| error.to_string())?;
        let decided = question.decide(decision, by.to_string()).await;
        let outcome = match &decided {
            Ok(()) => AuditOutcome::Succeeded,
            Err(_) => AuditOutcome::Refused,
        };
        let refusal = decided.as_ref().err().cloned();
        if let Err(error) = self.note(made, outcome, refusal).await {
            tracing::error!("the result of an answer by mail is not audited: {error}");
        }
        decided?;
        tracing::info!("{by} has decided a question by mail: {name}");
        Ok(())
    }

    /// Writes a decision on a question of a job to the audit log.
    async fn note(
        &self,
        made: Option<MailDecision>,
        outcome: AuditOutcome,
        error: Option<String>,
    ) -> Result<(), MailClientError> {
        match made {
            Some(made) => self.mail_client.note_decision(made, outcome, error).await,
            None => Ok(()),
        }
    }

    /// Tells an agent that its answer was refused.
    async fn report(&self, to: Address, why: &str) {
        tracing::warn!("an answer of {to} by mail was refused: {why}");
        let text = one_line(&format!("Your answer was not taken: {why}"), NOTICE_LIMIT);
        let content = MessageContent {
            summary: Some(text.clone()),
            text,
        };
        if let Err(error) = self.mail_client.send(to, content).await {
            tracing::warn!("the refusal of an answer cannot be sent: {error}");
        }
    }

    /// Tells the recipient of a code how its question was closed.
    async fn report_closed(&self, code: SentCode<Question>) {
        let to = code.address();
        let summary = match code.question.closing() {
            Some(how) => format!("The question is closed: {}", mask(&how)),
            None => "The question can no longer be answered by mail".to_owned(),
        };
        let summary = one_line(&summary, NOTICE_LIMIT);
        let content = MessageContent {
            text: format!("{summary}\n\n{}", code.notice),
            summary: Some(summary),
        };
        if let Err(error) = self.mail_client.send(to, content).await {
            tracing::warn!("cannot tell an agent that a question is closed: {error}");
        }
    }
}

/// A new code; `None` if the system has no random bits.
fn new_code() -> Option<AnswerCode> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).ok()?;
    Some(AnswerCode::from_random(u128::from_le_bytes(random)))
}
