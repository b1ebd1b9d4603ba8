//! What a person sees of a run.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anstyle::Style;
use codex_engine::Grants;
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::progress::{CurrentStep, timed};
use codex_protocol::codex::{Ask, SandboxMode, ThreadId};
use goal_run::logic::outcome::TurnRecord;
use goal_run::watcher::{Leave, News, Watcher};
use goal_run::{Caller, words};
use tokio::time::sleep;

use super::approval::{Approver, Dialog};
use crate::cli::teller::{Screen, Teller};
use crate::cli::times::took;

/// Tells a run on stderr, and answers Codex's questions.
pub(super) struct Show {
    teller: RefCell<Teller>,
    approver: Approver,
    most_turns: u32,
    began: Cell<Instant>,
    /// How many tokens the run has used.
    tokens: Cell<u64>,
    /// The running turn, and what is done in it.
    doing: RefCell<Option<Doing>>,
    /// The number of the last of Codex's steps.
    steps: Cell<u64>,
    /// How many questions are put to a person.
    asking: Cell<usize>,
}

/// The running turn, and what is done in it.
struct Doing {
    turn: u32,
    words: String,
    since: Instant,
}

/// How often the line is drawn that shows what goes on.
const TICK: Duration = Duration::from_secs(1);

/// A question that is put to a person: the line is left to it.
struct Asking<'a>(&'a Cell<usize>);

impl<'a> Asking<'a> {
    fn new(asking: &'a Cell<usize>) -> Self {
        asking.set(asking.get() + 1);
        Self(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl Show {
    pub(super) fn new(approver: Approver, most_turns: u32) -> Self {
        Self {
            teller: RefCell::new(Teller::on_stderr()),
            approver,
            most_turns,
            began: Cell::new(Instant::now()),
            tokens: Cell::default(),
            doing: RefCell::default(),
            steps: Cell::default(),
            asking: Cell::default(),
        }
    }

    fn say(&self, what: &str) {
        self.teller.borrow_mut().say(what);
    }

    /// Keeps the line up to date for as long as it is polled.
    pub(super) async fn tick(&self) -> Infallible {
        loop {
            sleep(TICK).await;
            self.draw();
        }
    }

    /// A step of Codex's.
    fn step(&self, step: &CurrentStep) {
        // One that has no new number was told before.
        let is_new = self.steps.replace(step.number) != step.number && step.number > 0;
        if let Some(doing) = self.doing.borrow_mut().as_mut() {
            doing.words.clone_from(&step.words);
            let now = Instant::now();
            doing.since = now.checked_sub(step.took).unwrap_or(now);
        }
        self.doing_now(&step.words, is_new);
    }

    /// A step of ours.
    fn own_step(&self, words: &str) {
        if let Some(doing) = self.doing.borrow_mut().as_mut() {
            words.clone_into(&mut doing.words);
            doing.since = Instant::now();
        }
        self.doing_now(words, true);
    }

    /// Draws the line, or writes one for a new step where lines can't be drawn again.
    fn doing_now(&self, words: &str, is_new: bool) {
        let screen = self.teller.borrow().screen();
        match screen {
            Screen::Terminal => self.draw(),
            Screen::Plain if is_new => self.say(&format!("  {words}")),
            Screen::Plain => {}
        }
    }

    /// Draws turn, time, tokens, and what Codex does, unless a person is asked.
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
        self.teller.borrow_mut().draw_parts(&[
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
        // Where Codex could not work, nothing is to be said of the work.
        let has_worked = record.errors.is_empty() || record.evidence.executed() > 0;
        for line in words::verdict(&record.criteria) {
            if has_worked {
                self.say(&line);
            }
        }
    }
}

impl Watcher for Show {
    fn caller(&self) -> Caller {
        Caller::Shell
    }

    fn hears(&self, news: News<'_>) {
        match news {
            News::Begins { top, verdict } => {
                self.say(&format!("in {}", top.display()));
                for line in words::to_do(verdict) {
                    self.say(&line);
                }
            }
            News::Thread {
                thread,
                sandbox,
                grants,
            } => self.thread(thread, sandbox, grants),
            News::Warning(warning) => self.say(&format!("warning: {warning}")),
            News::Turn(prompt) => {
                self.began.set(Instant::now());
                self.say(&words::turn(prompt, self.most_turns));
                self.doing.replace(Some(Doing {
                    turn: prompt.turn,
                    words: "starting the turn".to_owned(),
                    since: Instant::now(),
                }));
            }
            News::Step(step) => self.step(step),
            News::Tokens(tokens) => self.tokens.set(tokens),
            News::Interrupted => self.own_step("interrupted; waiting for Codex to let go"),
            News::Looking => self.own_step("looking at what is there"),
            News::Reviewing => self.own_step("reviewing the changes"),
            News::TurnEnded(record) => {
                self.doing.replace(None);
                self.turn_ended(record);
            }
        }
    }

    async fn lets_write(&self) -> Leave {
        let _asking = Asking::new(&self.asking);
        self.approver.lets_write(self).await
    }

    async fn decides(&self, ask: &Ask, until: tokio::time::Instant) -> (DecidedBy, Decision) {
        let _asking = Asking::new(&self.asking);
        self.approver.decide(ask, until, self).await
    }
}

impl Dialog for Show {
    fn put(&self, lines: &str) {
        self.teller.borrow_mut().ask(lines);
    }

    fn count_down(&self, left: Duration) {
        let mut teller = self.teller.borrow_mut();
        teller.draw(&format!("  {} left to answer: ", took(left)));
    }
}
