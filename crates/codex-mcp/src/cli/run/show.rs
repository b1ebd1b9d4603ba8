//! What a person sees of a run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use codex_mcp_core::action::Decision;
use codex_mcp_core::run::outcome::TurnRecord;
use codex_mcp_protocol::codex::{Ask, SandboxMode, ThreadId};

use super::approval::{Approver, Dialog};
use crate::cli::teller::{Screen, Teller};
use crate::cli::times::took;
use crate::engine::Grants;
use crate::run::watcher::{Leave, News, Watcher};
use crate::run::words;

/// Tells a run on stderr, and answers Codex's questions.
pub(super) struct Show {
    teller: RefCell<Teller>,
    approver: Approver,
    most_turns: u32,
    began: Cell<Instant>,
    /// How many tokens the run has used.
    tokens: Cell<u64>,
}

impl Show {
    pub(super) fn new(approver: Approver, most_turns: u32) -> Self {
        Self {
            teller: RefCell::new(Teller::on_stderr()),
            approver,
            most_turns,
            began: Cell::new(Instant::now()),
            tokens: Cell::default(),
        }
    }

    fn say(&self, what: &str) {
        self.teller.borrow_mut().say(what);
    }

    /// A step: a line of its own where lines can't be drawn again.
    fn step(&self, doing: &str) {
        let mut teller = self.teller.borrow_mut();
        let took = took(self.began.get().elapsed());
        match teller.screen() {
            Screen::Terminal => teller.draw(&format!("  {took}  {doing}")),
            Screen::Plain => teller.say(&format!("  {doing}")),
        }
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
        for line in words::verdict(&record.criteria) {
            self.say(&line);
        }
    }
}

impl Watcher for Show {
    fn hears(&self, news: News<'_>) {
        match news {
            News::Begins { top, verdict } => {
                self.say(&format!("in {}", top.display()));
                for line in words::verdict(verdict) {
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
            }
            News::Step(_, doing) => self.step(doing),
            News::Tokens(tokens) => self.tokens.set(tokens),
            News::Interrupted => self.step("interrupted; waiting for Codex to let go"),
            News::Looking => self.step("looking at what is there"),
            News::TurnEnded(record) => self.turn_ended(record),
        }
    }

    async fn lets_write(&self) -> Leave {
        self.approver.lets_write(self).await
    }

    async fn decides(&self, ask: &Ask, until: tokio::time::Instant) -> Decision {
        self.approver.decide(ask, until, self).await
    }
}

impl Dialog for Show {
    fn put(&self, lines: &str) {
        self.say(lines);
    }

    fn count_down(&self, left: Duration) {
        let mut teller = self.teller.borrow_mut();
        teller.draw(&format!("  {} left to answer: ", took(left)));
    }
}
