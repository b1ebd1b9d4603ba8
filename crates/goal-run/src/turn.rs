//! One turn of a run, from its start to its result.

use std::collections::HashMap;
use std::future::pending;
use std::time::Duration;

use codex_engine::command::{OpenQuestion, TurnRef, TurnView};
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::approval_text;
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::session::{Steps, TurnOutcome};
use codex_engine::logic::work::{FailureClass, Refusal};
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::Ask;
use common::text::one_line;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::clock::RunClock;
use super::error::RunError;
use super::turn_failure;
use super::watcher::{RunEvent, Watcher};
use crate::logic::machine::{NextStep, Run, TurnEnd};
use crate::logic::outcome::Usage;

/// How long a person has to answer one of Codex's questions (10 min). The time counts
/// toward neither the turn's limit nor the run's.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// The result of a turn.
#[derive(Debug)]
pub(super) struct TurnResult {
    pub(super) end: TurnEnd,
    pub(super) steps: Steps,
    /// Declined questions that are not steps, a line each.
    pub(super) denied: Vec<String>,
    /// The tokens of the turn.
    pub(super) usage: Usage,
    /// The last message, or all messages if the turn did not complete.
    pub(super) text: String,
    /// Why the turn failed.
    pub(super) failure: Option<String>,
    /// Whether the turn failed at a usage limit of the account.
    pub(super) at_usage_limit: bool,
}

/// The longest line about a declined question, in bytes.
const DENIED: usize = 400;

impl TurnResult {
    /// A turn that did not begin.
    pub(super) fn nothing(end: TurnEnd) -> Self {
        Self {
            end,
            steps: Steps::default(),
            denied: Vec::new(),
            usage: Usage::default(),
            text: String::new(),
            failure: None,
            at_usage_limit: false,
        }
    }

    /// A turn that the run's own checks did not let begin.
    pub(super) fn refused_by(error: &RunError) -> Self {
        Self {
            failure: Some(error.to_string()),
            ..Self::nothing(TurnEnd::Failed(FailureClass::Sandbox))
        }
    }

    /// The number of refusals, of steps and of other questions.
    pub(super) fn refused(&self) -> u64 {
        let denied = u64::try_from(self.denied.len()).unwrap_or(u64::MAX);
        self.steps.refused.saturating_add(denied)
    }

    /// Whether anything was refused, and whether steps followed. Questions that are not steps have
    /// no position among the steps.
    pub(super) fn refusal(&self) -> Refusal {
        match (self.steps.refusal, self.steps.succeeded) {
            (Refusal::None, 0) if !self.denied.is_empty() => Refusal::Last,
            (Refusal::None, _) if !self.denied.is_empty() => Refusal::Followed,
            (refusal, _) => refusal,
        }
    }

    /// A turn that could not begin, or whose session was lost.
    pub(super) fn failed(error: &EngineError) -> Self {
        Self {
            failure: Some(error.to_string()),
            ..Self::nothing(turn_failure::of_start(error))
        }
    }
}

/// The conditions that end a turn early: time, tokens and cancellation.
pub(super) struct TurnDeadline<'a> {
    pub(super) run: &'a mut Run,
    /// The clock of the run.
    pub(super) clock: &'a RunClock,
    /// Cancelled when the run is no longer wanted.
    pub(super) stop: &'a CancellationToken,
    /// The end to report if the turn was interrupted.
    interrupted_as: Option<TurnEnd>,
    /// Whether the machine knows of the cancellation.
    stopped: bool,
}

impl<'a> TurnDeadline<'a> {
    pub(super) fn new(run: &'a mut Run, clock: &'a RunClock, stop: &'a CancellationToken) -> Self {
        Self {
            run,
            clock,
            stop,
            interrupted_as: None,
            stopped: false,
        }
    }

    /// Reports the tokens of the run to the machine, and returns whether it interrupts the
    /// turn.
    fn count_tokens(&mut self, tokens: u64) -> bool {
        let is_too_many = self.run.tokens_used(tokens) == Some(NextStep::Interrupt);
        if is_too_many {
            self.interrupted_as = Some(TurnEnd::Interrupted);
        }
        is_too_many
    }

    /// Waits until the turn has to be interrupted, and returns the reason. Returns only once for
    /// each reason.
    pub(super) async fn expired(&mut self) -> TurnEnd {
        loop {
            let deadline = self.run.deadline();
            let late = async {
                match deadline {
                    Some(deadline) => self.clock.reaches(deadline).await,
                    None => pending().await,
                }
            };
            let stopped = async {
                match self.stopped {
                    true => pending().await,
                    false => self.stop.cancelled().await,
                }
            };
            let (next, why) = tokio::select! {
                () = stopped => (self.run.stop(), TurnEnd::Interrupted),
                () = late => (self.run.tick(self.clock.elapsed()), TurnEnd::TimedOut),
            };
            self.interrupted_as = Some(why);
            self.stopped |= why == TurnEnd::Interrupted;
            if next == Some(NextStep::Interrupt) {
                return why;
            }
        }
    }
}

/// A running turn.
pub(super) struct Turn<'a, W> {
    pub(super) engine: &'a Engine,
    pub(super) watcher: &'a W,
    pub(super) turn: TurnRef,
    /// The open questions that the watcher was asked. Dropping a guard cancels the watcher's
    /// answer.
    open_questions: HashMap<ActionId, DropGuard>,
    denied: Vec<String>,
    reported_step: CurrentStep,
    /// The tokens of the run before this turn.
    used: u64,
    /// The tokens of the run that were reported to the watcher.
    tokens_reported: u64,
}

impl<'a, W: Watcher> Turn<'a, W> {
    /// `reported_step` is the session's step before the turn, `used` the tokens of the run.
    pub(super) fn new(
        engine: &'a Engine,
        watcher: &'a W,
        turn: TurnRef,
        reported_step: CurrentStep,
        used: u64,
    ) -> Self {
        Self {
            engine,
            watcher,
            turn,
            open_questions: HashMap::new(),
            denied: Vec::new(),
            reported_step,
            used,
            tokens_reported: used,
        }
    }

    /// Watches the turn, and answers its questions, until it has ended.
    pub(super) async fn wait_for_end(
        mut self,
        mut deadline: TurnDeadline<'_>,
    ) -> Result<TurnResult, EngineError> {
        let (engine, watcher) = (self.engine, self.watcher);
        let mut deciding = FuturesUnordered::new();
        loop {
            let view = engine.inspect(&self.turn.session)?;
            self.report(&view);
            if let Some((number, outcome)) = &view.outcome
                && *number >= self.turn.number
            {
                return Ok(self.result(outcome, deadline.interrupted_as));
            }
            if deadline.count_tokens(self.tokens_reported) {
                watcher.on_event(RunEvent::Interrupted);
                engine.interrupt(&self.turn)?;
            }
            self.open_questions
                .retain(|id, _| view.actions.iter().any(|open| open.id == *id));
            for (open, closed) in self.new_questions(view.actions) {
                let until = Instant::now() + ANSWER_LIMIT;
                deciding.push(async move {
                    tokio::select! {
                        decision = watcher.decide(&open.ask, until) => Some((decision, open)),
                        () = closed.cancelled() => None,
                    }
                });
            }
            match self.open_questions.is_empty() {
                true => deadline.clock.resume(),
                false => deadline.clock.pause(),
            }
            tokio::select! {
                changed = engine.changed(&self.turn.session, view.revision) => changed?,
                Some(decided) = deciding.next() => {
                    if let Some(((by, decision), open)) = decided {
                        self.answer(by, &open, &decision);
                    }
                }
                _ = deadline.expired() => {
                    watcher.on_event(RunEvent::Interrupted);
                    engine.interrupt(&self.turn)?;
                }
            }
        }
    }

    fn report(&mut self, view: &TurnView) {
        let (before, now) = (&self.reported_step, &view.progress);
        if (before.number, &before.words) != (now.number, &now.words) {
            self.reported_step.clone_from(now);
            self.watcher.on_event(RunEvent::Step(&self.reported_step));
        }
        let tokens = self.used + Usage::from(view.spent).total_tokens;
        if tokens > self.tokens_reported {
            self.tokens_reported = tokens;
            self.watcher.on_event(RunEvent::Tokens(tokens));
        }
    }

    /// The new questions, each with a token that is cancelled when the question is closed.
    fn new_questions(&mut self, open: Vec<OpenQuestion>) -> Vec<(OpenQuestion, CancellationToken)> {
        let mut new = Vec::new();
        for open in open {
            if !self.open_questions.contains_key(&open.id) {
                let closed = CancellationToken::new();
                self.open_questions
                    .insert(open.id.clone(), closed.clone().drop_guard());
                new.push((open, closed));
            }
        }
        new
    }

    fn answer(&mut self, by: DecidedBy, open: &OpenQuestion, decision: &Decision) {
        let Err(error) = self.respond(by, &open.id, decision) else {
            if *decision == Decision::Decline {
                self.note_denied(&open.ask);
            }
            return;
        };
        // A question for a text cannot be approved.
        tracing::debug!("{decision:?} is no answer to {:?}: {error}", open.id);
        match self.respond(DecidedBy::Settings, &open.id, &Decision::Decline) {
            Ok(()) => self.note_denied(&open.ask),
            // The question was answered or withdrawn meanwhile.
            Err(error) => tracing::debug!("{:?} is answered already: {error}", open.id),
        }
    }

    fn respond(
        &self,
        by: DecidedBy,
        action: &ActionId,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        let session = &self.turn.session;
        let session = self.engine.handle(session)?;
        session.respond(by, action, decision, None)
    }

    /// Notes a declined question. Declined commands and changes are steps that Codex reports
    /// itself.
    fn note_denied(&mut self, ask: &Ask) {
        match ask {
            Ask::Command(_) | Ask::LegacyCommand(_) | Ask::FileChange(_) | Ask::LegacyPatch(_) => {}
            Ask::Permissions(_) | Ask::McpElicitation(_) | Ask::UserInput(_) => {
                self.denied
                    .push(one_line(&approval_text::question(ask), DENIED));
            }
        }
    }

    fn result(self, outcome: &TurnOutcome, interrupted_as: Option<TurnEnd>) -> TurnResult {
        let (end, failure) = match (turn_failure::of_turn(&outcome.ending), interrupted_as) {
            ((TurnEnd::Interrupted, _), Some(TurnEnd::TimedOut)) => (
                TurnEnd::TimedOut,
                Some(turn_failure::of_time(&self.reported_step.words)),
            ),
            ((TurnEnd::Interrupted, _), Some(why)) => (why, None),
            (wait_for_end, _) => wait_for_end,
        };
        TurnResult {
            end,
            steps: outcome.facts.steps.clone(),
            denied: self.denied,
            usage: outcome.facts.spent.into(),
            text: outcome.text.clone(),
            failure,
            at_usage_limit: turn_failure::is_at_usage_limit(&outcome.ending),
        }
    }
}
