//! Our live handle on a Codex thread: from a prompt to its outcome.
//!
//! ```text
//!              prompt                       Codex asks
//!   ┌──────┐ ─────────► ┌───────────┐ ────────────────► ┌───────────┐
//!   │ Idle │            │  Running  │                    │  Waiting  │
//!   └──────┘ ◄───────── └───────────┘ ◄──────────────── └───────────┘
//!              ended,                   last question
//!              refused                  answered
//!
//!   any state ── Codex gone ──► Lost ── prompt ──► Running
//! ```
//!
//! Waiting is Running with open questions, so it is not stored but derived. A
//! turn exists from the moment its prompt is sent. It can be interrupted once
//! Codex says that it has started (Codex refuses it before that: "no active
//! turn to interrupt"), so an earlier interrupt is kept until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use codex_mcp_protocol::codex::{
    Ask, FileChange, Item, Notification, Turn, TurnError, TurnId, TurnStatus,
};
use codex_mcp_protocol::rpc::RequestId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::{self, Action, ActionId, Decision, WrongDecision};
use crate::describe;
use crate::text::BoundedText;

/// The most that is kept of what Codex says within one turn, in bytes, for the
/// case that the turn doesn't end by itself. A final message is always whole.
pub const PARTIAL_TEXT_LIMIT: usize = 1024 * 1024;

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing runs; a prompt is welcome.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs, and Codex waits for an answer.
    WaitingApproval,
    /// Codex has gone; the next prompt takes the thread up from its rollout.
    Lost,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As it should.
    Completed,
    /// Early, on request.
    Interrupted,
    /// By an error in Codex or at the model.
    Failed(TurnError),
    /// Codex went away in the middle; how it did.
    Lost(String),
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The last whole message of a completed turn, else all that was said.
    pub text: String,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Answer a question of Codex's.
    Answer {
        /// Codex's name for it.
        request: RequestId,
        /// The answer.
        result: Value,
    },
    /// Interrupt the turn.
    Interrupt(TurnId),
    /// End the commands that an interrupted turn has left running: 0.153.4 and
    /// 0.169.0 end the turn, not its commands.
    StopCommands,
}

/// Why a prompt can't be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptRefused {
    /// A turn runs.
    #[error("a turn of this thread is still running")]
    Running,
    /// A turn waits for an answer.
    #[error("a turn of this thread waits for the answer to a question")]
    Waiting,
}

/// Why a decision is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefused {
    /// There is no such open question.
    #[error("there is no open question of that name; it may have been answered or timed out")]
    NotOpen,
    /// It doesn't fit; the question stays open.
    #[error(transparent)]
    Wrong(#[from] WrongDecision),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The prompt is sent; Codex hasn't said that the turn has started.
    Prompted,
    Started,
}

#[derive(Debug)]
struct Running {
    id: Option<TurnId>,
    phase: Phase,
    interrupt_wanted: bool,
    /// An end that came before we knew whether it is this turn's.
    early_end: Option<Turn>,
    /// The last whole message.
    last: Option<String>,
    /// All whole messages.
    said: BoundedText,
    /// The message being written, and its item.
    writing: Option<(String, BoundedText)>,
    /// The last change of files that was begun, and its item.
    changing: Option<(String, Vec<FileChange>)>,
}

impl Running {
    fn new() -> Self {
        Self {
            id: None,
            phase: Phase::Prompted,
            interrupt_wanted: false,
            early_end: None,
            last: None,
            said: BoundedText::default(),
            writing: None,
            changing: None,
        }
    }

    /// Adds to a question about files what Codex told when it began the step.
    fn complete(&mut self, ask: &mut Ask) {
        if let (Ask::FileChange(asked), Some((item, changes))) = (ask, &self.changing)
            && asked.item_id == *item
        {
            asked.changes.clone_from(changes);
        }
    }

    fn wrote(&mut self, item: &str, delta: &str) {
        match &mut self.writing {
            Some((writing, text)) if writing == item => text.push(delta, PARTIAL_TEXT_LIMIT),
            other => {
                let mut text = BoundedText::default();
                text.push(delta, PARTIAL_TEXT_LIMIT);
                *other = Some((item.to_owned(), text));
            }
        }
    }

    fn said(&mut self, item: &str, text: String) {
        if self
            .writing
            .as_ref()
            .is_some_and(|(writing, _)| writing == item)
        {
            self.writing = None;
        }
        append(&mut self.said, &text);
        self.last = Some(text);
    }

    fn partial(&self) -> String {
        let mut all = self.said.clone();
        if let Some((_, text)) = &self.writing {
            append(&mut all, text.as_str());
        }
        all.as_str().to_owned()
    }

    fn outcome(self, ending: Ending) -> Outcome {
        let text = match (&ending, &self.last) {
            (Ending::Completed, Some(last)) => last.clone(),
            _ => self.partial(),
        };
        Outcome { ending, text }
    }
}

fn append(text: &mut BoundedText, paragraph: &str) {
    if !text.is_empty() {
        text.push("\n\n", PARTIAL_TEXT_LIMIT);
    }
    text.push(paragraph, PARTIAL_TEXT_LIMIT);
}

/// The machine.
#[derive(Debug)]
pub struct Session {
    approval_timeout: Duration,
    turn: Option<Running>,
    lost: bool,
    actions: Vec<Action>,
    opened: u64,
    outcome: Option<(u64, Arc<Outcome>)>,
    turns: u64,
    steps: u64,
    doing: String,
}

impl Session {
    /// A session in which nothing has happened yet. A question that stays
    /// unanswered for `approval_timeout` is declined.
    #[must_use]
    pub fn new(approval_timeout: Duration) -> Self {
        Self {
            approval_timeout,
            turn: None,
            lost: false,
            actions: Vec::new(),
            opened: 0,
            outcome: None,
            turns: 0,
            steps: 0,
            doing: String::new(),
        }
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> State {
        match (&self.turn, self.actions.is_empty(), self.lost) {
            (Some(_), true, _) => State::Running,
            (Some(_), false, _) => State::WaitingApproval,
            (None, _, true) => State::Lost,
            (None, _, false) => State::Idle,
        }
    }

    /// The open questions, oldest first.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// What came of the last turn that has ended, and the number of that turn.
    /// It stays while the next turn runs, so that nobody who waits for it can
    /// miss it.
    #[must_use]
    pub fn outcome(&self) -> Option<&(u64, Arc<Outcome>)> {
        self.outcome.as_ref()
    }

    /// Forgets what came of the last turn: nobody will ask for it any more.
    pub fn forget_outcome(&mut self) {
        self.outcome = None;
    }

    /// How many prompts were taken: the number of the current turn.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Codex's name for the running turn, once it is known.
    #[must_use]
    pub fn turn_id(&self) -> Option<&TurnId> {
        self.turn.as_ref()?.id.as_ref()
    }

    /// How many steps have been told, and the last one in words. The number
    /// only ever rises.
    #[must_use]
    pub fn progress(&self) -> (u64, &str) {
        (self.steps, &self.doing)
    }

    /// All that Codex has said in the running turn.
    #[must_use]
    pub fn partial_text(&self) -> String {
        self.turn.as_ref().map(Running::partial).unwrap_or_default()
    }

    /// Takes a prompt: the caller sends it to Codex next, and tells with
    /// [`accepted`](Self::accepted) or [`refused`](Self::refused) how that went.
    ///
    /// # Errors
    ///
    /// [`PromptRefused`] while a turn runs.
    pub fn prompt(&mut self) -> Result<(), PromptRefused> {
        match self.state() {
            State::Running => Err(PromptRefused::Running),
            State::WaitingApproval => Err(PromptRefused::Waiting),
            State::Idle | State::Lost => {
                self.turn = Some(Running::new());
                self.lost = false;
                self.turns += 1;
                Ok(())
            }
        }
    }

    /// Codex took the prompt. Its news of the turn may have overtaken this
    /// answer, even the news of its end.
    pub fn accepted(&mut self, id: TurnId) -> Vec<Effect> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        turn.id.get_or_insert(id);
        match turn.early_end.take() {
            Some(end) => self.ended(end),
            None => Vec::new(),
        }
    }

    /// Codex didn't take the prompt, so there is no turn.
    pub fn refused(&mut self) -> Vec<Effect> {
        let unstarted = |turn: &mut Running| turn.phase == Phase::Prompted;
        match self.turn.take_if(unstarted) {
            Some(_) => self.decline_all(),
            None => Vec::new(),
        }
    }

    /// Codex tells something about the thread.
    pub fn heard(&mut self, news: Notification<'_>) -> Vec<Effect> {
        match news {
            Notification::AgentMessageDelta(delta) => {
                if let Some(turn) = &mut self.turn {
                    turn.wrote(&delta.item_id, &delta.delta);
                }
            }
            Notification::TurnStarted(turn) => return self.started(turn.id),
            Notification::TurnCompleted(turn) => return self.ended(turn),
            Notification::ItemStarted(item) => {
                self.step(describe::item(&item));
                if let (Some(turn), Item::FileChange { id, changes }) = (&mut self.turn, item) {
                    turn.changing = Some((id, changes));
                }
            }
            Notification::ItemCompleted(Item::AgentMessage { id, text }) => {
                if let Some(turn) = &mut self.turn {
                    turn.said(&id, text);
                }
            }
            Notification::ItemCompleted(_) => {}
            Notification::Error {
                error,
                will_retry: true,
            } => self.step(Some(describe::line(&error.message))),
            // Its particulars come again with the end of the turn.
            Notification::Error { .. } => {}
            Notification::RequestResolved(request) => {
                self.actions.retain(|action| action.request != request);
            }
        }
        Vec::new()
    }

    /// Codex asks something. Outside a turn, and in one that is to be
    /// interrupted, it is declined at once.
    pub fn asked(&mut self, request: RequestId, mut ask: Ask, now: Instant) -> Vec<Effect> {
        let wanted = |turn: &&mut Running| !turn.interrupt_wanted;
        let Some(turn) = self.turn.as_mut().filter(wanted) else {
            return decline(&ask, request);
        };
        turn.complete(&mut ask);
        self.opened += 1;
        self.step(Some(describe::ask(&ask)));
        self.actions.push(Action {
            id: ActionId(format!("req_{}", self.opened)),
            request,
            ask,
            deadline: now + self.approval_timeout,
        });
        Vec::new()
    }

    /// Somebody answers an open question.
    ///
    /// # Errors
    ///
    /// [`DecisionRefused`]; the question, if there is one, stays open.
    pub fn decide(
        &mut self,
        id: &ActionId,
        decision: &Decision,
    ) -> Result<Vec<Effect>, DecisionRefused> {
        let position = self.actions.iter().position(|action| action.id == *id);
        let position = position.ok_or(DecisionRefused::NotOpen)?;
        let action = self.actions.get(position).ok_or(DecisionRefused::NotOpen)?;
        let answer = action::answer(&action.ask, decision)?;
        let action = self.actions.remove(position);
        let mut effects = vec![Effect::Answer {
            request: action.request,
            result: answer.result,
        }];
        if answer.interrupt {
            effects.extend(self.interrupt());
        }
        Ok(effects)
    }

    /// Declines what nobody has answered in time.
    pub fn tick(&mut self, now: Instant) -> Vec<Effect> {
        let (late, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.actions)
            .into_iter()
            .partition(|action| action.deadline <= now);
        self.actions = open;
        late.into_iter()
            .flat_map(|action| decline(&action.ask, action.request))
            .collect()
    }

    /// Somebody wants the turn to end. Open questions are declined with it.
    pub fn interrupt(&mut self) -> Vec<Effect> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        let asked_before = std::mem::replace(&mut turn.interrupt_wanted, true);
        let target = match (&turn.id, turn.phase) {
            (Some(id), Phase::Started) if !asked_before => Some(id.clone()),
            _ => None,
        };
        let mut effects = self.decline_all();
        effects.extend(target.map(Effect::Interrupt));
        effects
    }

    /// The turn has not ended although it was interrupted; asks once more,
    /// whether or not Codex has said that it has started.
    pub fn interrupt_again(&mut self) -> Vec<Effect> {
        let interrupted = self.turn.as_ref().filter(|turn| turn.interrupt_wanted);
        let id = interrupted.and_then(|turn| turn.id.clone());
        id.map(Effect::Interrupt).into_iter().collect()
    }

    /// Gives up a turn that does not end, so that the thread can be used again.
    pub fn abandon(&mut self, why: &str) -> Vec<Effect> {
        let effects = self.decline_all();
        self.lose(why);
        effects
    }

    /// Ends the turn as failed, because news of its end can't be read.
    pub fn cut_off(&mut self, why: &str) -> Vec<Effect> {
        let Some(id) = self.turn_id().cloned() else {
            return Vec::new();
        };
        self.ended(Turn {
            id,
            status: TurnStatus::Failed,
            error: Some(failure(why.to_owned())),
        })
    }

    /// Codex is gone, and with it all that it held; `how` is told to whoever
    /// waits for the turn.
    pub fn lose(&mut self, how: &str) {
        self.actions.clear();
        self.lost = true;
        if let Some(turn) = self.turn.take() {
            self.conclude(turn, Ending::Lost(how.to_owned()));
        }
    }

    fn decline_all(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.actions)
            .into_iter()
            .flat_map(|action| decline(&action.ask, action.request))
            .collect()
    }

    fn started(&mut self, id: TurnId) -> Vec<Effect> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        turn.id = Some(id.clone());
        let before = std::mem::replace(&mut turn.phase, Phase::Started);
        if turn.interrupt_wanted && before == Phase::Prompted {
            vec![Effect::Interrupt(id)]
        } else {
            Vec::new()
        }
    }

    fn ended(&mut self, ended: Turn) -> Vec<Effect> {
        // News of an earlier turn may still be under way when the next one is
        // prompted, so an end counts only for the turn that it names.
        let Some(running) = &mut self.turn else {
            return Vec::new();
        };
        if running.id.is_none() {
            running.early_end = Some(ended);
            return Vec::new();
        }
        let ours = |turn: &mut Running| turn.id.as_ref() == Some(&ended.id);
        let Some(turn) = self.turn.take_if(ours) else {
            return Vec::new();
        };
        self.actions.clear();
        let ending = match ended.status {
            TurnStatus::Completed => Ending::Completed,
            TurnStatus::Interrupted => Ending::Interrupted,
            TurnStatus::Failed => Ending::Failed(
                ended
                    .error
                    .unwrap_or_else(|| failure("Codex gave no reason".to_owned())),
            ),
            TurnStatus::InProgress | TurnStatus::Unknown => Ending::Failed(failure(
                "the turn ended in a way that this codex-mcp does not know".to_owned(),
            )),
        };
        let effects = match turn.interrupt_wanted {
            true => vec![Effect::StopCommands],
            false => Vec::new(),
        };
        self.conclude(turn, ending);
        effects
    }

    fn conclude(&mut self, turn: Running, ending: Ending) {
        self.outcome = Some((self.turns, Arc::new(turn.outcome(ending))));
    }

    fn step(&mut self, words: Option<String>) {
        if let Some(words) = words {
            self.steps += 1;
            self.doing = words;
        }
    }
}

fn decline(ask: &Ask, request: RequestId) -> Vec<Effect> {
    // Declining fits every question; a test of `action` says so.
    action::answer(ask, &Decision::Decline)
        .map(|answer| Effect::Answer {
            request,
            result: answer.result,
        })
        .into_iter()
        .collect()
}

fn failure(message: String) -> TurnError {
    TurnError {
        message,
        codex_error_info: None,
        additional_details: None,
    }
}

#[cfg(test)]
mod tests;
