//! The progress of a run on stderr.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anstyle::Style;
use codex_engine::Grants;
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::progress::{CurrentStep, timed};
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use goal_run::logic::outcome::TurnRecord;
use goal_run::watcher::{RunEvent, Watcher, WriteConsent};
use goal_run::{Caller, words};
use tokio::time::sleep;

use super::approval::{Approver, Dialog};
use crate::cli::progress::{ProgressLine, Screen};
use crate::cli::times::took;

/// Shows the progress of a run on stderr, and answers Codex's questions.
pub(super) struct RunDisplay {
    progress: RefCell<ProgressLine>,
    approver: Approver,
    most_turns: u32,
    began: Cell<Instant>,
    /// How many tokens the run has used.
    tokens: Cell<u64>,
    /// The running turn and its current activity.
    doing: RefCell<Option<CurrentActivity>>,
    /// The number of the last of Codex's steps.
    steps: Cell<u64>,
    /// The number of questions that a person is being asked.
    asking: Cell<usize>,
}

/// The running turn and its current activity.
struct CurrentActivity {
    turn: u32,
    words: String,
    since: Instant,
}

/// How often the progress line is drawn.
const TICK: Duration = Duration::from_secs(1);

/// Marks a question to a person as open: while it exists, no progress line is drawn.
struct QuestionGuard<'a>(&'a Cell<usize>);

impl<'a> QuestionGuard<'a> {
    fn new(asking: &'a Cell<usize>) -> Self {
        asking.set(asking.get() + 1);
        Self(asking)
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl RunDisplay {
    pub(super) fn new(approver: Approver, most_turns: u32) -> Self {
        Self {
            progress: RefCell::new(ProgressLine::on_stderr()),
            approver,
            most_turns,
            began: Cell::new(Instant::now()),
            tokens: Cell::default(),
            doing: RefCell::default(),
            steps: Cell::default(),
            asking: Cell::default(),
        }
    }

    /// Whether a question was declined because there is no terminal.
    pub(super) fn missed_terminal(&self) -> bool {
        self.approver.missed_terminal()
    }

    fn say(&self, what: &str) {
        self.progress.borrow_mut().say(what);
    }

    /// Keeps the line up to date for as long as it is polled.
    pub(super) async fn tick(&self) -> Infallible {
        loop {
            sleep(TICK).await;
            self.draw();
        }
    }

    /// Shows a step of Codex's.
    fn step(&self, step: &CurrentStep) {
        // A step without a new number was shown before.
        let is_new = self.steps.replace(step.number) != step.number && step.number > 0;
        if let Some(doing) = self.doing.borrow_mut().as_mut() {
            doing.words.clone_from(&step.words);
            let now = Instant::now();
            doing.since = now.checked_sub(step.took).unwrap_or(now);
        }
        self.set_activity(&step.words, is_new);
    }

    /// Shows a step of ours.
    fn own_step(&self, words: &str) {
        if let Some(doing) = self.doing.borrow_mut().as_mut() {
            words.clone_into(&mut doing.words);
            doing.since = Instant::now();
        }
        self.set_activity(words, true);
    }

    /// Draws the progress line, or writes a line for a new step where lines cannot be redrawn.
    fn set_activity(&self, words: &str, is_new: bool) {
        let screen = self.progress.borrow().screen();
        match screen {
            Screen::Terminal => self.draw(),
            Screen::Plain if is_new => self.say(&format!("  {words}")),
            Screen::Plain => {}
        }
    }

    /// Draws turn, time, tokens and current activity, unless a person is asked.
    fn draw(&self) {
        let doing = self.doing.borrow();
        let Some(doing) = doing.as_ref().filter(|_| self.asking.get() == 0) else {
            return;
        };
        let took = took(self.began.get().elapsed());
        let mut numbers = format!("  {took}");
        if self.tokens.get() > 0 {
            numbers += &format!("  {}", words::tokens(self.tokens.get()));
        }
        let turn = format!("  turn {} of {}", doing.turn, self.most_turns);
        let step = timed(&doing.words, doing.since.elapsed());
        self.progress.borrow_mut().draw_parts(&[
            (Style::new().bold(), turn),
            (Style::new().dimmed(), numbers),
            (Style::new(), format!("  {step}")),
        ]);
    }

    fn thread(&self, thread: &ThreadId, sandbox: Option<SandboxMode>, grants: &Grants) {
        let reach = match sandbox {
            Some(SandboxMode::ReadOnly) => ", sandbox read-only",
            Some(SandboxMode::WorkspaceWrite) => ", sandbox workspace-write",
            Some(SandboxMode::DangerFullAccess) => ", without a sandbox",
            None => "",
        };
        self.say(&format!("  thread {thread}{reach}"));
        if let (Some(SandboxMode::WorkspaceWrite), Some(allowed)) = (sandbox, words::grants(grants))
        {
            self.say(&format!(
                "  Codex is allowed {allowed}, for what is asked for"
            ));
        }
    }

    fn turn_ended(&self, record: &TurnRecord) {
        let took = took(self.began.get().elapsed());
        self.say(&format!("{} in {took}", words::ended(record)));
        if let Some(promised) = words::promised(record) {
            self.say(&promised);
        }
        for denied in &record.denied {
            self.say(&format!("  denied   {denied}"));
        }
        for error in &record.errors {
            self.say(&format!("  failed   {error}"));
        }
        // If Codex could not work, there is no work to report.
        let has_worked = record.errors.is_empty() || record.evidence.executed() > 0;
        for line in words::verdict(&record.criteria) {
            if has_worked {
                self.say(&line);
            }
        }
    }
}

impl Watcher for RunDisplay {
    fn caller(&self) -> Caller {
        Caller::Shell
    }

    fn on_event(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Begins { top, verdict } => {
                self.say(&format!("in {}", top.display()));
                for line in words::to_do(verdict) {
                    self.say(&line);
                }
            }
            RunEvent::Thread {
                thread,
                sandbox,
                grants,
            } => self.thread(thread, sandbox, grants),
            RunEvent::Warning(warning) => self.say(&format!("warning: {warning}")),
            RunEvent::Turn(prompt) => {
                self.began.set(Instant::now());
                self.say(&words::turn(prompt, self.most_turns));
                self.doing.replace(Some(CurrentActivity {
                    turn: prompt.turn,
                    words: "starting the turn".to_owned(),
                    since: Instant::now(),
                }));
            }
            RunEvent::Step(step) => self.step(step),
            RunEvent::Tokens(tokens) => self.tokens.set(tokens),
            RunEvent::Interrupted => self.own_step("interrupted; waiting for Codex to stop"),
            RunEvent::Looking => self.own_step("inspecting the repository"),
            RunEvent::Reviewing => self.own_step("reviewing the changes"),
            RunEvent::TurnEnded(record) => {
                self.doing.replace(None);
                self.turn_ended(record);
            }
        }
    }

    async fn allows_writing(&self) -> WriteConsent {
        let _asking = QuestionGuard::new(&self.asking);
        self.approver.allows_writing(self).await
    }

    async fn decide(&self, ask: &Ask, until: tokio::time::Instant) -> (DecidedBy, Decision) {
        let _asking = QuestionGuard::new(&self.asking);
        self.approver.decide(ask, until, self).await
    }
}

impl Dialog for RunDisplay {
    fn put(&self, lines: &str) {
        self.progress.borrow_mut().ask(lines);
    }

    fn count_down(&self, left: Duration) {
        let mut progress = self.progress.borrow_mut();
        progress.draw(&format!("  {} left to answer: ", took(left)));
    }
}
