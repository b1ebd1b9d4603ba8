//! Runs Codex in a separate terminal inside the user's, with the loop between the two.
//!
//! Bytes pass from one terminal to the other as they arrive. [`Screen`] parses a copy of the
//! output, and is inspected after a pause in the output. The requests are read at that time too, as
//! they were written before Codex printed its marker. [`Machine`] decides what happens.
//!
//! ```text
//!   user's terminal ──keys──► Codex's terminal ── Codex
//!          ▲                        │
//!          └────────────────────────┴──► screen ─► look ─► machine ─► end, resume
//!                                            requests ──┘
//! ```
//!
//! Everything happens on the runtime's thread, file access included: the files are small, and
//! nothing else waits for this thread.

mod effects;
mod terminal_io;

use std::io;
use std::time::Duration;

use codex_protocol::codex::ThreadId;
use safe_files::scratch;
use supervise::exit::Exit;
use tokio::time::{Instant, sleep_until};

use super::codex::{CodexLauncher, RunningCodex, machine_exit};
use super::conversation;
use super::copies::Copies;
use super::queue::QueueReader;
use super::screen::Screen;
use super::signals::{SignalEvent, Signals};
use super::user_terminal::UserTerminal;
use crate::ImageRoot;
use crate::logic::arguments::Attachment;
use crate::logic::machine::{Effect, Input, Machine, Shutdown};
use crate::logic::queue::{Request, RequestNumber};

/// How long to wait for a terminal that accepts no output (2 s), when Codex or the wrapper ends or
/// is stopped.
const FLUSH: Duration = Duration::from_secs(2);

/// How much of Codex's output is read at once, in bytes.
const DRAWN: usize = 64 * 1024;

/// The directory for the copies of all wrappers, in the state directory.
const COPIES: &str = "eyes";

/// How much of the user's input is read at once, in bytes.
const TYPED: usize = 4096;

/// The parts and settings of a wrapper.
pub struct WrapperConfig {
    /// The user's terminal.
    pub terminal: UserTerminal,
    /// Starts Codex.
    pub codex: CodexLauncher,
    /// Reads the pictures.
    pub image_root: ImageRoot,
    /// The requests, if pictures come later; `None` if the tool answers with them.
    pub requests: Option<QueueReader>,
    /// The limit of restarts with pictures in 5 minutes.
    pub most_restarts: usize,
}

/// The result of a wrapper.
#[derive(Debug)]
pub struct WrapperResult {
    /// The exit code and the error.
    pub shutdown: Shutdown,
    /// The conversation of the last request for a picture, if there was one.
    pub conversation: Option<ThreadId>,
    /// An error that could not be shown while Codex ran.
    pub trouble: Option<String>,
}

struct Wrapper {
    config: WrapperConfig,
    signals: Signals,
    screen: Screen,
    machine: Machine,
    begun: Instant,
    running: Option<RunningCodex>,
    copies: Copies,
    attachments: Vec<Attachment>,
    /// Input on its way to Codex.
    typed: Vec<u8>,
    /// Output on its way to the terminal.
    shown: Vec<u8>,
    keys: Box<[u8]>,
    drawn: Box<[u8]>,
    /// The time at which pending output is parsed.
    read_at: Instant,
    /// The time at which the screen is inspected, if it has changed.
    look_at: Option<Instant>,
    streams: StreamState,
    trouble: Option<String>,
}

/// The state of both ends.
#[derive(Debug, Clone, Copy, Default)]
struct StreamState {
    /// The user's terminal was closed.
    user_gone: bool,
    /// No process has Codex's terminal open any more.
    codex_closed: bool,
    /// Codex is being ended, or does not run.
    ending: bool,
}

/// An event of the loop.
enum WrapperEvent {
    Signal(SignalEvent),
    Typed(io::Result<usize>),
    Passed(io::Result<usize>),
    Drawn(io::Result<usize>),
    Shown(io::Result<usize>),
    Exited(io::Result<Exit>),
    Deadline,
}

/// Runs Codex until it has ended, attaching the pictures that it asks for, and restores the
/// terminal.
///
/// # Errors
///
/// The error of the operating system, if Codex cannot be started at all.
pub async fn run(config: WrapperConfig) -> io::Result<WrapperResult> {
    let signals = Signals::listen()?;
    let copies = Copies::new(scratch::place(COPIES)?)?;
    let terminal = &config.terminal;
    let size = terminal.size()?;
    terminal.restore_on_panic();
    terminal.make_raw()?;
    let running = config.codex.begin(size, terminal.attributes())?;
    let wrapper = Wrapper {
        screen: Screen::new(size),
        machine: Machine::default().with_most_restarts(config.most_restarts),
        config,
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
        streams: StreamState::default(),
        trouble: None,
    };
    Ok(wrapper.until_left().await)
}

impl Wrapper {
    async fn until_left(mut self) -> WrapperResult {
        loop {
            let event = self.next().await;
            let mut effect = self.handle(event).await;
            while let Some(requested) = effect {
                effect = match requested {
                    Effect::ShutDown(shutdown) => return self.shutdown(shutdown).await,
                    requested => self.perform(requested).await,
                };
            }
        }
    }

    /// Waits for the next event; keys have priority over Codex's output.
    async fn next(&mut self) -> WrapperEvent {
        let time = self.wakes_at();
        let StreamState {
            user_gone,
            codex_closed,
            ..
        } = self.streams;
        let user = self.config.terminal.tty();
        // While a shell has the terminal, reading would stop this process.
        let may_read = !user_gone && self.config.terminal.is_ours();
        let (typed, shown) = (self.typed.as_slice(), self.shown.as_slice());
        let (codex, process) = match &mut self.running {
            Some(RunningCodex { process, tty }) => (Some(&*tty), Some(process)),
            None => (None, None),
        };
        let writes = codex.filter(|_| !typed.is_empty());
        let reads = codex.filter(|_| shown.is_empty() && !codex_closed);
        tokio::select! {
            biased;
            signal_event = self.signals.next() => WrapperEvent::Signal(signal_event),
            read = user.read(&mut self.keys), if typed.is_empty() && may_read => {
                WrapperEvent::Typed(read)
            }
            Some(passed) = given(writes.map(|codex| codex.write(typed))) => {
                WrapperEvent::Passed(passed)
            }
            written = user.write(shown), if !shown.is_empty() => WrapperEvent::Shown(written),
            Some(read) = given(reads.map(|codex| codex.read(&mut self.drawn))) => {
                WrapperEvent::Drawn(read)
            }
            Some(exit) = given(process.map(|process| process.wait())) => WrapperEvent::Exited(exit),
            Some(()) = given(time.map(sleep_until)) => WrapperEvent::Deadline,
        }
    }

    async fn handle(&mut self, event: WrapperEvent) -> Option<Effect> {
        match event {
            WrapperEvent::Signal(signal_event) => self.on_signal(signal_event).await,
            WrapperEvent::Typed(Ok(read)) if read > 0 => self.typed(read),
            WrapperEvent::Typed(_) | WrapperEvent::Shown(Err(_)) => self.user_gone(),
            WrapperEvent::Passed(passed) => {
                // After an error nothing reads the rest.
                let passed = passed.unwrap_or(self.typed.len());
                self.typed.drain(..passed);
                None
            }
            WrapperEvent::Shown(Ok(written)) => {
                self.shown.drain(..written);
                None
            }
            WrapperEvent::Drawn(Ok(read)) if read > 0 => {
                self.drawn(read);
                self.pass_on();
                None
            }
            WrapperEvent::Drawn(_) => {
                self.streams.codex_closed = true;
                None
            }
            WrapperEvent::Exited(exit) => self.on_exit(exit.unwrap_or(Exit::Unknown)).await,
            WrapperEvent::Deadline => self.on_deadline(),
        }
    }

    async fn on_signal(&mut self, signal_event: SignalEvent) -> Option<Effect> {
        match signal_event {
            SignalEvent::End(signal) => self.apply(Input::Signalled(signal)),
            SignalEvent::Resized => {
                self.resize();
                None
            }
            // An ending Codex does not need the terminal.
            SignalEvent::Continued if self.streams.ending => None,
            SignalEvent::Continued => self.take_the_terminal(),
            SignalEvent::Child => match self.running.as_ref() {
                Some(running) if running.process.has_stopped() => match self.streams.ending {
                    true => {
                        running.process.resume();
                        None
                    }
                    false => self.stop().await,
                },
                _ => None,
            },
        }
    }

    /// Handles the last output and requests of Codex, and its exit.
    async fn on_exit(&mut self, exit: Exit) -> Option<Effect> {
        let until = Instant::now() + FLUSH;
        self.drain(until).await;
        self.running = None;
        self.read_requests();
        let undo = self.screen.undo();
        self.say(&undo);
        self.flush(until).await;
        self.config.terminal.set_undo(Vec::new());
        self.apply(Input::CodexExited(machine_exit(exit)))
    }

    fn wakes_at(&self) -> Option<Instant> {
        let deadline = self.machine.deadline().map(|after| self.begun + after);
        match self.screen.is_up_to_date() {
            true => [deadline, self.look_at].into_iter().flatten().min(),
            // Pending output must be parsed before an inspection; an ending Codex needs none.
            false => {
                let deadline = deadline.filter(|_| self.streams.ending);
                [deadline, Some(self.read_at)].into_iter().flatten().min()
            }
        }
    }

    fn on_deadline(&mut self) -> Option<Effect> {
        if !self.screen.is_up_to_date() {
            self.screen.process_next();
            if !self.streams.ending {
                return None;
            }
        } else if self.look_at.take().is_some() {
            self.look();
        }
        self.apply(Input::DeadlineReached)
    }

    fn look(&mut self) {
        let undo = self.screen.undo();
        self.config.terminal.set_undo(undo);
        if self.read_requests() {
            let screen_state = self.screen.screen_state();
            self.apply(Input::ScreenObserved(screen_state));
        }
    }

    /// Applies the open requests to the machine, and returns whether there are any.
    fn read_requests(&mut self) -> bool {
        let Some(requests) = &mut self.config.requests else {
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
        let open: Vec<(RequestNumber, Request)> = open
            .map(|(number, request)| (number, request.clone()))
            .collect();
        let Some((_, newest)) = open.last() else {
            return false;
        };
        let named = newest.thread.clone();
        if let Some(thread) = self.conversation(named) {
            self.apply(Input::ThreadIdentified(thread));
        }
        for (number, request) in open {
            self.apply(Input::Requested(number, request.path));
        }
        true
    }

    /// The conversation of the running Codex; `named` is the one that a request names. The known
    /// conversation stays if Codex is ending, as it may have closed its rollout already. It also
    /// stays if Codex has several rollouts open and the request names none of them: without a
    /// conversation, Codex would resume the latest one, which a command may have begun.
    fn conversation(&self, named: Option<ThreadId>) -> Option<ThreadId> {
        let running = self.running.as_ref().filter(|_| !self.streams.ending)?;
        conversation::of(running.process.pid()?, named, self.machine.thread())
    }

    fn apply(&mut self, input: Input) -> Option<Effect> {
        self.machine.apply(input, self.begun.elapsed())
    }
}

/// The output of a future, if there is one.
async fn given<F: Future>(future: Option<F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}
