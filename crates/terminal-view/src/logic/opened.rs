//! The work that is open: what is shown of it, and where it is scrolled to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::sync::lock;
use ratatui::layout::Size;
use serde_json::Value;
use work_board::logic::conversation::Conversation;
use work_board::{Group, Kind, Work};

use super::choices::Asked;
use super::mode::{Act, Target};
use super::rows::{self, Row};
use super::transcript::StepRows;
use super::{choices, transcript};

/// The state of a session that no host has any longer.
const GONE: &str = "gone";

/// For how long a question that has taken the place of another one takes no choice: about the time in
/// which a person sees that it is another one.
const NOTICE_TIME: Duration = Duration::from_millis(500);

/// Whether some work has ended for good, as far as it is listed.
pub(crate) fn has_ended(target: &Target, work: Option<&Work>) -> bool {
    work.is_some_and(|work| match target.is_session() {
        true => work.is_cancelled(),
        false => work.group() == Group::Ended,
    })
}

/// What is known of the work.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Nothing yet.
    Unknown,
    Conversation(Arc<Mutex<Conversation>>),
    /// A job as rows.
    Job(Vec<Row>),
    /// It is not there.
    Missing(String),
}

/// The question that was asked last, also when it is no longer open.
#[derive(Debug)]
struct LastAsked {
    id: String,
    /// When it has taken the place of another one.
    replaced_at: Option<SystemTime>,
}

/// The work that is open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) target: Target,
    /// As it was last listed.
    pub(crate) work: Option<Work>,
    last_asked: Option<LastAsked>,
    content: Content,
    /// Whether the rows are older than the content.
    is_stale: bool,
    pub(crate) shows_diff: bool,
    /// All rows that can be scrolled to.
    pub(crate) rows: Vec<Row>,
    /// How many of them, at the end, are about the open question.
    question_rows: usize,
    /// Where the steps of a conversation are among them.
    steps: StepRows,
    /// How many rows are below the last one that is shown: 0 follows the end.
    pub(crate) below: usize,
    /// The size of the screen, which each row fits.
    pub(crate) screen: Size,
}

impl Opened {
    pub(crate) fn new(target: Target, work: Option<Work>) -> Self {
        let is_session = target.is_session();
        let mut opened = Self {
            target,
            work,
            last_asked: None,
            content: Content::Unknown,
            is_stale: true,
            shows_diff: false,
            rows: Vec::new(),
            question_rows: 0,
            steps: Vec::new(),
            below: 0,
            screen: Size::default(),
        };
        opened.note_question(None);
        // A job is read from its beginning, unless it asks something.
        if !is_session && opened.question().is_none() {
            opened.below = usize::MAX;
        }
        opened
    }

    pub(crate) fn set_work(&mut self, work: Option<&Work>, now: SystemTime) {
        // Work that has gone from the list is shown as it was.
        if let Some(work) = work {
            self.work = Some(work.clone());
        } else if let Some(work) = &mut self.work {
            if self.target.is_session() {
                work.state = GONE.to_owned();
            }
            work.step = None;
            work.questions.clear();
        }
        self.note_question(Some(now));
        self.is_stale = true;
    }

    /// Notes which question is shown now.
    fn note_question(&mut self, now: Option<SystemTime>) {
        let Some(id) = self.question().map(|asked| asked.id.to_owned()) else {
            return;
        };
        let replaced_at = match &self.last_asked {
            Some(last) if last.id == id => return,
            Some(_) => now,
            None => None,
        };
        self.last_asked = Some(LastAsked { id, replaced_at });
    }

    /// Whether the question has just taken the place of another one: a number may be meant
    /// for the earlier question.
    pub(crate) fn has_just_changed(&self, now: SystemTime) -> bool {
        let replaced_at = self.last_asked.as_ref().and_then(|last| last.replaced_at);
        let age = replaced_at.and_then(|at| now.duration_since(at).ok());
        age.is_some_and(|age| age < NOTICE_TIME)
    }

    pub(crate) fn set_content(&mut self, content: Content) {
        self.content = content;
        self.is_stale = true;
    }

    /// Whether the state of the work allows an action.
    pub(crate) fn allows(&self, act: Act) -> bool {
        let is_session = self.target.is_session();
        let work = self.work.as_ref();
        let is_busy = work.is_none_or(|work| work.group() != Group::Ended);
        let is_over = has_ended(&self.target, work) || (is_session && self.is_gone());
        match act {
            Act::Send => !is_over && self.target.kind != Kind::Run,
            Act::End => !is_over,
            Act::Interrupt => is_session && !is_over && is_busy,
            Act::ShowDiff => is_session,
            Act::Fork => is_session && !is_over,
            Act::Retry => !is_session && is_over,
        }
    }

    /// Whether no host has the session: it ended with its host, or the next host has not taken it
    /// over yet.
    fn is_gone(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.state == GONE)
    }

    /// Why an action is not allowed.
    pub(crate) fn refusal(&self, act: Act) -> &'static str {
        match (self.target.is_session(), act) {
            (true, Act::Send | Act::End | Act::Interrupt | Act::Fork) if self.is_gone() => {
                "No host has this session now."
            }
            (false, Act::Interrupt | Act::ShowDiff | Act::Fork) => "Only sessions have that.",
            (true, Act::Retry) => "Only jobs and runs have that.",
            (false, Act::Retry) => "It has not ended yet.",
            (false, Act::Send) if !has_ended(&self.target, self.work.as_ref()) => {
                "A run takes no messages."
            }
            (true, Act::Interrupt) => "No turn is running.",
            _ => "It has ended.",
        }
    }

    /// The question that is shown: the first one that is open.
    pub(crate) fn question(&self) -> Option<Asked<'_>> {
        let asked = self.work.as_ref()?.questions.first()?;
        Some(Asked {
            id: &asked.id,
            question: &asked.question,
        })
    }

    /// The tokens that Codex has counted.
    pub(crate) fn tokens(&self) -> Option<u64> {
        let counted = match &self.content {
            Content::Conversation(conversation) => lock(conversation)
                .tokens()
                .and_then(|tokens| tokens.pointer("/total/totalTokens"))
                .and_then(Value::as_u64),
            _ => None,
        };
        counted.or(self.work.as_ref()?.tokens)
    }

    /// Makes the rows again if needed, for a screen of this size. Who has scrolled back keeps seeing
    /// the same ones.
    pub(crate) fn refresh(&mut self, screen: Size) {
        let before = std::mem::replace(&mut self.screen, screen);
        if !std::mem::take(&mut self.is_stale) && before == screen {
            return;
        }
        let (parts, steps) = self.all_rows();
        let [content, question] = parts.map(|part| rows::fitting(part, screen));
        if self.below > 0 && !self.shows_diff && before.width == screen.width {
            let gone = self.question_rows + self.dropped_rows(&steps);
            let kept = self.rows.len().saturating_sub(gone);
            let more = content.len().saturating_sub(kept);
            self.below = match self.below.checked_sub(self.question_rows) {
                Some(below) => below.saturating_add(more + question.len()),
                // Within the question, what is added above it moves nothing.
                None => self.below.min(question.len()),
            };
        }
        self.question_rows = question.len();
        self.steps = steps;
        self.rows = content;
        self.rows.extend(question);
    }

    /// How many rows, at the beginning, are of steps that the conversation has dropped since.
    fn dropped_rows(&self, steps: &[(u64, usize)]) -> usize {
        let first = steps.first().map(|(number, _)| *number);
        let kept = self.steps.iter().find(|(number, _)| Some(*number) >= first);
        kept.map_or(0, |(_, above)| *above)
    }

    /// The rows of the content, those about the open question, and where the steps are.
    fn all_rows(&self) -> ([Vec<Row>; 2], StepRows) {
        let mut steps = Vec::new();
        let mut all = match &self.content {
            Content::Conversation(conversation) if self.shows_diff => {
                return ([rows::diff(lock(conversation).diff()), Vec::new()], steps);
            }
            Content::Conversation(conversation) => {
                let (all, begins) = transcript::rows(&lock(conversation));
                steps = begins;
                all
            }
            Content::Job(rows) => rows.clone(),
            Content::Missing(why) => {
                let mut rows = Vec::new();
                rows::push(&mut rows, rows::BAD, "", why);
                rows
            }
            Content::Unknown => vec![Row::styled("Loading …", rows::DIM)],
        };
        let content = all.len();
        if let Some(question) = self.question() {
            let open = self.work.as_ref().map_or(1, |work| work.questions.len());
            rows::gap(&mut all);
            all.extend(choices::rows(question, open));
        }
        let question = all.split_off(content);
        ([all, question], steps)
    }

    /// Shows the diff of the turn from its beginning, or the end of the conversation.
    pub(crate) fn show_diff(&mut self, shows_diff: bool) {
        self.shows_diff = shows_diff;
        self.is_stale = true;
        self.below = match shows_diff {
            true => usize::MAX,
            false => 0,
        };
    }
}
