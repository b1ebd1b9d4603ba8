//! One turn of a run: from the prompt to what Codex has done in it.

use std::collections::HashMap;
use std::future::pending;
use std::time::Duration;

use codex_engine::command::{Open, TurnRef, View};
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::approval_text;
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::session::{Outcome, Steps};
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
use super::failing;
use super::watcher::{News, Watcher};
use crate::logic::machine::{Next, Run, TurnEnd};
use crate::logic::outcome::Usage;

/// How long a person has to answer one of Codex's questions (10 min). The time counts
/// neither as the turn's nor as the run's.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(600);

/// What has come of a turn.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) end: TurnEnd,
    pub(super) steps: Steps,
    /// What Codex asked for and was denied, and that is no step: a line each.
    pub(super) denied: Vec<String>,
    /// What it used.
    pub(super) usage: Usage,
    /// What it said last, or all that it said if it didn't complete.
    pub(super) text: String,
    /// Why it failed.
    pub(super) failure: Option<String>,
    /// Whether it failed at a usage limit of the account.
    pub(super) at_usage_limit: bool,
}

/// The longest line about a declined question, in bytes.
const DENIED: usize = 400;

impl Came {
    /// One that had no time to begin.
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

    /// One that could not be begun, as nothing could come of it.
    pub(super) fn refused_by(error: &RunError) -> Self {
        Self {
            failure: Some(error.to_string()),
            ..Self::nothing(TurnEnd::Failed(FailureClass::Sandbox))
        }
    }

    /// How often Codex was denied what is no step.
    pub(super) fn refused(&self) -> u64 {
        let asked = u64::try_from(self.denied.len()).unwrap_or(u64::MAX);
        self.steps.refused.saturating_add(asked)
    }

    /// Whether steps were refused. Questions that are no steps have no place in their order.
    pub(super) fn refusal(&self) -> Refusal {
        match (self.steps.refusal, self.steps.succeeded) {
            (Refusal::None, 0) if !self.denied.is_empty() => Refusal::Last,
            (Refusal::None, _) if !self.denied.is_empty() => Refusal::Followed,
            (refusal, _) => refusal,
        }
    }

    /// One that could not be begun, or was lost sight of.
    pub(super) fn failed(error: &EngineError) -> Self {
        Self {
            failure: Some(error.to_string()),
            ..Self::nothing(failing::of_start(error))
        }
    }
}

/// The time and the will to go on that a turn has.
pub(super) struct Leash<'a> {
    pub(super) run: &'a mut Run,
    /// The time that counts.
    pub(super) clock: &'a RunClock,
    /// Cancelled when nobody wants the run any more.
    pub(super) stop: &'a CancellationToken,
    /// Why the turn was interrupted, if it was.
    pulled: Option<TurnEnd>,
    /// Whether the machine knows that nobody wants the run any more.
    stopped: bool,
}

impl<'a> Leash<'a> {
    pub(super) fn new(run: &'a mut Run, clock: &'a RunClock, stop: &'a CancellationToken) -> Self {
        Self {
            run,
            clock,
            stop,
            pulled: None,
            stopped: false,
        }
    }

    /// Takes how many tokens the run has used; whether the turn is to be interrupted for
    /// that.
    fn uses(&mut self, tokens: u64) -> bool {
        let is_too_many = self.run.used(tokens) == Some(Next::Interrupt);
        if is_too_many {
            self.pulled = Some(TurnEnd::Interrupted);
        }
        is_too_many
    }

    /// Waits until the turn is to be ended, and says why. Comes back once for each
    /// reason.
    pub(super) async fn pull(&mut self) -> TurnEnd {
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
            self.pulled = Some(why);
            self.stopped |= why == TurnEnd::Interrupted;
            if next == Some(Next::Interrupt) {
                return why;
            }
        }
    }
}

/// A turn that runs.
pub(super) struct Turn<'a, W> {
    pub(super) engine: &'a Engine,
    pub(super) watcher: &'a W,
    pub(super) turn: TurnRef,
    /// The open questions that were put to the watcher, who is given up on when one is
    /// closed.
    asked: HashMap<ActionId, DropGuard>,
    denied: Vec<String>,
    told: CurrentStep,
    /// How many tokens the run had used before.
    used: u64,
    /// How many of them the watcher was told.
    tokens_told: u64,
}

impl<'a, W: Watcher> Turn<'a, W> {
    /// `told` is how far the session had come before, `used` how many tokens the run has
    /// used.
    pub(super) fn new(
        engine: &'a Engine,
        watcher: &'a W,
        turn: TurnRef,
        told: CurrentStep,
        used: u64,
    ) -> Self {
        Self {
            engine,
            watcher,
            turn,
            asked: HashMap::new(),
            denied: Vec::new(),
            told,
            used,
            tokens_told: used,
        }
    }

    /// Sees to it until it has ended.
    pub(super) async fn ended(mut self, mut leash: Leash<'_>) -> Result<Came, EngineError> {
        let (engine, watcher) = (self.engine, self.watcher);
        let mut deciding = FuturesUnordered::new();
        loop {
            let view = engine.inspect(&self.turn.session)?;
            self.tell(&view);
            if let Some((number, outcome)) = &view.outcome
                && *number >= self.turn.number
            {
                return Ok(self.came(outcome, leash.pulled));
            }
            if leash.uses(self.tokens_told) {
                watcher.hears(News::Interrupted);
                engine.interrupt(&self.turn)?;
            }
            self.asked
                .retain(|id, _| view.actions.iter().any(|open| open.id == *id));
            for (open, closed) in self.new_questions(view.actions) {
                let until = Instant::now() + ANSWER_LIMIT;
                deciding.push(async move {
                    tokio::select! {
                        decision = watcher.decides(&open.ask, until) => Some((decision, open)),
                        () = closed.cancelled() => None,
                    }
                });
            }
            match self.asked.is_empty() {
                true => leash.clock.resume(),
                false => leash.clock.pause(),
            }
            tokio::select! {
                changed = engine.changed(&self.turn.session, view.revision) => changed?,
                Some(decided) = deciding.next() => {
                    if let Some(((by, decision), open)) = decided {
                        self.answer(by, &open, &decision);
                    }
                }
                _ = leash.pull() => {
                    watcher.hears(News::Interrupted);
                    engine.interrupt(&self.turn)?;
                }
            }
        }
    }

    fn tell(&mut self, view: &View) {
        let (before, now) = (&self.told, &view.progress);
        if (before.number, &before.words) != (now.number, &now.words) {
            self.told.clone_from(now);
            self.watcher.hears(News::Step(&self.told));
        }
        let tokens = self.used + Usage::from(view.spent).total_tokens;
        if tokens > self.tokens_told {
            self.tokens_told = tokens;
            self.watcher.hears(News::Tokens(tokens));
        }
    }

    /// The questions that were not there before, and what is cancelled when they are
    /// closed.
    fn new_questions(&mut self, open: Vec<Open>) -> Vec<(Open, CancellationToken)> {
        let mut new = Vec::new();
        for open in open {
            if !self.asked.contains_key(&open.id) {
                let closed = CancellationToken::new();
                self.asked
                    .insert(open.id.clone(), closed.clone().drop_guard());
                new.push((open, closed));
            }
        }
        new
    }

    fn answer(&mut self, by: DecidedBy, open: &Open, decision: &Decision) {
        let Err(error) = self.respond(by, &open.id, decision) else {
            if *decision == Decision::Decline {
                self.note(&open.ask);
            }
            return;
        };
        // A question for words has no yes.
        tracing::debug!("{decision:?} is no answer to {:?}: {error}", open.id);
        match self.respond(DecidedBy::Settings, &open.id, &Decision::Decline) {
            Ok(()) => self.note(&open.ask),
            // It was answered or withdrawn meanwhile.
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
        self.engine.respond_as(by, session, action, decision, None)
    }

    /// A command or a change that is declined is a step that Codex tells itself.
    fn note(&mut self, ask: &Ask) {
        match ask {
            Ask::Command(_) | Ask::LegacyCommand(_) | Ask::FileChange(_) | Ask::LegacyPatch(_) => {}
            Ask::Permissions(_) | Ask::McpElicitation(_) | Ask::UserInput(_) => {
                self.denied
                    .push(one_line(&approval_text::question(ask), DENIED));
            }
        }
    }

    fn came(self, outcome: &Outcome, pulled: Option<TurnEnd>) -> Came {
        let (end, failure) = match (failing::of_turn(&outcome.ending), pulled) {
            ((TurnEnd::Interrupted, _), Some(TurnEnd::TimedOut)) => {
                (TurnEnd::TimedOut, Some(failing::of_time(&self.told.words)))
            }
            ((TurnEnd::Interrupted, _), Some(why)) => (why, None),
            (ended, _) => ended,
        };
        Came {
            end,
            steps: outcome.facts.steps.clone(),
            denied: self.denied,
            usage: outcome.facts.spent.into(),
            text: outcome.text.clone(),
            failure,
            at_usage_limit: failing::is_at_usage_limit(&outcome.ending),
        }
    }
}
