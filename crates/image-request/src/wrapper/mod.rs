//! Codex in a terminal of its own, inside of the user's, and the loop between the two.
//!
//! Bytes go from one terminal to the other as they come. Beside that, what goes to the
//! user's is read by [`Screen`], and looked at when it has been still for a moment:
//! then also the requests are read, which were written before Codex could say that it
//! waits. What is done about it is decided by [`Machine`].
//!
//! ```text
//!   user's terminal ──keys──► Codex's terminal ── Codex
//!          ▲                        │
//!          └────────────────────────┴──► screen ─► look ─► machine ─► end, resume
//!                                            requests ──┘
//! ```
//!
//! Everything happens on the runtime's thread, files included: they are small, and there
//! is nobody else to wait for us.

mod acts;
mod passing;

use std::io;
use std::time::Duration;

use codex_protocol::codex::ThreadId;
use safe_files::scratch;
use supervise::exit::Exit;
use tokio::time::{Instant, sleep_until};

use super::codex::{Codex, Running, exit_of};
use super::conversation;
use super::copies::Copies;
use super::queue::Reader;
use super::screen::Screen;
use super::signals::{Heard, Signals};
use super::user_terminal::UserTerminal;
use crate::ImageRoot;
use crate::logic::arguments::Attachment;
use crate::logic::machine::{Effect, Input, Leave, Machine};
use crate::logic::queue::{Number, Request};

/// How long a terminal that takes nothing is waited for when something is to end.
const FLUSH: Duration = Duration::from_secs(2);

/// How much is read of what Codex draws at once, in bytes.
const DRAWN: usize = 64 * 1024;

/// Where the copies of all wrappers are, in the state directory.
const COPIES: &str = "eyes";

/// How much is read of what is typed at once, in bytes.
const TYPED: usize = 4096;

/// What a wrapper is made of.
pub struct Parts {
    /// Where it is shown.
    pub terminal: UserTerminal,
    /// What is run.
    pub codex: Codex,
    /// Where pictures may be.
    pub place: ImageRoot,
    /// What Codex asks for, where pictures come later; else the tool answers with them.
    pub requests: Option<Reader>,
    /// How often Codex is restarted with pictures in 5 minutes.
    pub most_restarts: usize,
}

/// How a wrapper has ended.
#[derive(Debug)]
pub struct Ended {
    /// With which code and why.
    pub leave: Leave,
    /// The conversation that had pictures, if there was one.
    pub conversation: Option<ThreadId>,
    /// What was wrong meanwhile, and could not be shown.
    pub trouble: Option<String>,
}

struct Wrapper {
    parts: Parts,
    signals: Signals,
    screen: Screen,
    machine: Machine,
    begun: Instant,
    running: Option<Running>,
    copies: Copies,
    attachments: Vec<Attachment>,
    /// On its way to Codex.
    typed: Vec<u8>,
    /// On its way to the terminal.
    shown: Vec<u8>,
    keys: Box<[u8]>,
    drawn: Box<[u8]>,
    /// When what was drawn is to be read, if there is something.
    read_at: Instant,
    /// When the screen is to be looked at, if it has changed.
    look_at: Option<Instant>,
    flow: Flow,
    trouble: Option<String>,
}

/// What there is no more to come from.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// The user's terminal has gone.
    user_gone: bool,
    /// Nobody has Codex's terminal open any more.
    codex_closed: bool,
    /// Codex is being ended, or is not there.
    ending: bool,
}

/// What the loop waits for.
enum Happened {
    Heard(Heard),
    Typed(io::Result<usize>),
    Passed(io::Result<usize>),
    Drawn(io::Result<usize>),
    Shown(io::Result<usize>),
    Gone(io::Result<Exit>),
    Time,
}

/// Runs Codex until it has ended, bringing it the pictures that it asks for. The
/// terminal is as before then.
///
/// # Errors
///
/// When Codex can't be started at all.
pub async fn run(parts: Parts) -> io::Result<Ended> {
    let signals = Signals::hear()?;
    let copies = Copies::new(scratch::place(COPIES)?)?;
    let terminal = &parts.terminal;
    let size = terminal.size()?;
    terminal.put_back_on_panic();
    terminal.make_raw()?;
    let running = parts.codex.begin(size, terminal.manner())?;
    let wrapper = Wrapper {
        screen: Screen::new(size),
        machine: Machine::default().with_most_restarts(parts.most_restarts),
        parts,
        signals,
        begun: Instant::now(),
        read_at: Instant::now(),
        running: Some(running),
        copies,
        attachments: Vec::new(),
        typed: Vec::new(),
        shown: Vec::new(),
        keys: vec![0; TYPED].into(),
        drawn: vec![0; DRAWN].into(),
        look_at: None,
        flow: Flow::default(),
        trouble: None,
    };
    Ok(wrapper.until_left().await)
}

impl Wrapper {
    async fn until_left(mut self) -> Ended {
        loop {
            let happened = self.next().await;
            let mut effect = self.take(happened).await;
            while let Some(wanted) = effect {
                effect = match wanted {
                    Effect::Leave(leave) => return self.leave(leave).await,
                    wanted => self.perform(wanted).await,
                };
            }
        }
    }

    /// Waits for whatever comes first; keys before all that Codex draws.
    async fn next(&mut self) -> Happened {
        let time = self.wakes_at();
        let Flow {
            user_gone,
            codex_closed,
            ..
        } = self.flow;
        let user = self.parts.terminal.tty();
        // While a shell has it, reading would stop us.
        let may_read = !user_gone && self.parts.terminal.is_ours();
        let (typed, shown) = (self.typed.as_slice(), self.shown.as_slice());
        let (codex, process) = match &mut self.running {
            Some(Running { process, tty }) => (Some(&*tty), Some(process)),
            None => (None, None),
        };
        let writes = codex.filter(|_| !typed.is_empty());
        let reads = codex.filter(|_| shown.is_empty() && !codex_closed);
        tokio::select! {
            biased;
            heard = self.signals.next() => Happened::Heard(heard),
            read = user.read(&mut self.keys), if typed.is_empty() && may_read => {
                Happened::Typed(read)
            }
            Some(passed) = given(writes.map(|codex| codex.write(typed))) => {
                Happened::Passed(passed)
            }
            written = user.write(shown), if !shown.is_empty() => Happened::Shown(written),
            Some(read) = given(reads.map(|codex| codex.read(&mut self.drawn))) => {
                Happened::Drawn(read)
            }
            Some(exit) = given(process.map(|process| process.wait())) => Happened::Gone(exit),
            Some(()) = given(time.map(sleep_until)) => Happened::Time,
        }
    }

    async fn take(&mut self, happened: Happened) -> Option<Effect> {
        match happened {
            Happened::Heard(heard) => self.heard(heard).await,
            Happened::Typed(Ok(read)) if read > 0 => self.typed(read),
            Happened::Typed(_) | Happened::Shown(Err(_)) => self.user_gone(),
            Happened::Passed(passed) => {
                // What nobody reads any more is of no interest.
                let passed = passed.unwrap_or(self.typed.len());
                self.typed.drain(..passed);
                None
            }
            Happened::Shown(Ok(written)) => {
                self.shown.drain(..written);
                None
            }
            Happened::Drawn(Ok(read)) if read > 0 => {
                self.drawn(read);
                self.pass_on();
                None
            }
            Happened::Drawn(_) => {
                self.flow.codex_closed = true;
                None
            }
            Happened::Gone(exit) => self.gone(exit.unwrap_or(Exit::Unknown)).await,
            Happened::Time => self.time(),
        }
    }

    async fn heard(&mut self, heard: Heard) -> Option<Effect> {
        match heard {
            Heard::End(signal) => self.apply(Input::Told(signal)),
            Heard::Resized => {
                self.resize();
                None
            }
            // What ends has no use for the terminal, and may not have it.
            Heard::Continued if self.flow.ending => None,
            Heard::Continued => self.take_the_terminal(),
            Heard::Child => match self.running.as_ref() {
                Some(running) if running.process.has_stopped() => match self.flow.ending {
                    true => {
                        running.process.go_on();
                        None
                    }
                    false => self.stop().await,
                },
                _ => None,
            },
        }
    }

    /// What Codex has drawn last, and the requests that it has made.
    async fn gone(&mut self, exit: Exit) -> Option<Effect> {
        let until = Instant::now() + FLUSH;
        self.drain(until).await;
        self.running = None;
        self.read_requests();
        let undo = self.screen.undo();
        self.say(&undo);
        self.flush(until).await;
        self.parts.terminal.undo_with(Vec::new());
        self.apply(Input::Exited(exit_of(exit)))
    }

    fn wakes_at(&self) -> Option<Instant> {
        let deadline = self.machine.deadline().map(|after| self.begun + after);
        match self.screen.is_up_to_date() {
            true => [deadline, self.look_at].into_iter().flatten().min(),
            // What has not been read can't be looked at; the end needs no look.
            false => {
                let deadline = deadline.filter(|_| self.flow.ending);
                [deadline, Some(self.read_at)].into_iter().flatten().min()
            }
        }
    }

    fn time(&mut self) -> Option<Effect> {
        if !self.screen.is_up_to_date() {
            self.screen.read_on();
            if !self.flow.ending {
                return None;
            }
        } else if self.look_at.take().is_some() {
            self.look();
        }
        self.apply(Input::Time)
    }

    fn look(&mut self) {
        let undo = self.screen.undo();
        self.parts.terminal.undo_with(undo);
        if self.read_requests() {
            let sight = self.screen.sight();
            self.apply(Input::Saw(sight));
        }
    }

    /// Tells the machine of the open requests, and says whether there are any.
    fn read_requests(&mut self) -> bool {
        let Some(requests) = &mut self.parts.requests else {
            return false;
        };
        let queue = match requests.read() {
            Ok(queue) => queue,
            Err(error) => {
                self.trouble.get_or_insert(error.to_string());
                return false;
            }
        };
        let open = queue.open(self.machine.answered());
        let open: Vec<(Number, Request)> = open
            .map(|(number, request)| (number, request.clone()))
            .collect();
        let Some((_, newest)) = open.last() else {
            return false;
        };
        let told = newest.thread.clone();
        let guard = self
            .running
            .as_ref()
            .and_then(|running| running.process.pid());
        let thread = told.or_else(|| conversation::of(guard?));
        // Of a Codex that ends, what was known stays.
        if thread.is_some() || !self.flow.ending {
            self.apply(Input::Named(thread));
        }
        for (number, request) in open {
            self.apply(Input::Asked(number, request.path));
        }
        true
    }

    fn apply(&mut self, input: Input) -> Option<Effect> {
        self.machine.apply(input, self.begun.elapsed())
    }
}

/// What a future gives, if there is one.
async fn given<F: Future>(future: Option<F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}
