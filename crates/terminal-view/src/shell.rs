//! The loop: takes keys and news, draws, and has effects performed concurrently.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use common::sync::lock;
use crossterm::event::{self, Event};
use host_process::logic::handshake::SessionAnswer;
use job_queue::job_json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use work_board::logic::conversation::Conversation;
use work_board::{AllWork, WorkBoard};

use crate::acts::{self, ActionOutcome, NotDone};
use crate::logic::app::App;
use crate::logic::job;
use crate::logic::mode::{Effect, Target};
use crate::logic::opened::Content;
use crate::terminal::Screen;
use crate::view;

/// How often clocks tick, and the store of jobs is looked at.
const TICK: Duration = Duration::from_secs(1);

/// The shortest time between two drawings: news of a model that writes gathers in it.
const FRAME: Duration = Duration::from_millis(40);

/// An input of the loop.
enum Incoming {
    Event(Event),
    /// The terminal cannot be read.
    Lost(io::Error),
    Work(AllWork),
    Content(Target, Content),
    Done(Result<Option<ActionOutcome>, NotDone>),
}

/// Shows all work until somebody quits, or `closing` completes. The terminal is then as it was.
///
/// # Errors
///
/// When the terminal cannot be read or written.
pub async fn run(
    board: Arc<WorkBoard>,
    has_colours: bool,
    closing: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut continued = signal(SignalKind::from_raw(nix::libc::SIGCONT))?;
    let mut screen = Screen::take()?;
    let (sender, mut incoming) = unbounded_channel();
    tokio::spawn(Arc::clone(&board).follow());
    tokio::spawn(follow_work(Arc::clone(&board), sender.clone()));
    let reader = sender.clone();
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || read_keys(&reader))?;
    let mut shell = Shell {
        board,
        app: App::new(SystemTime::now()),
        sender,
        followed: None,
    };
    let mut closing = std::pin::pin!(closing);
    loop {
        shell.draw(&mut screen, has_colours)?;
        let drawn = Instant::now();
        tokio::select! {
            () = &mut closing => return Ok(()),
            _ = continued.recv() => screen.resume()?,
            () = sleep(TICK) => {}
            ended = shell.take_some(&mut incoming, &mut screen) => {
                if ended? {
                    return Ok(());
                }
                sleep_until(drawn + FRAME).await;
            }
        }
    }
}

/// The state, and the ways to change it.
struct Shell {
    board: Arc<WorkBoard>,
    app: App,
    sender: UnboundedSender<Incoming>,
    /// The task that follows the open work.
    followed: Option<JoinHandle<()>>,
}

impl Shell {
    fn draw(&mut self, screen: &mut Screen, has_colours: bool) -> io::Result<()> {
        self.app.now = SystemTime::now();
        screen.draw(|frame| view::draw(frame, &mut self.app, has_colours))
    }

    /// Waits for something, and takes all that has come; `true` at the end.
    async fn take_some(
        &mut self,
        incoming: &mut UnboundedReceiver<Incoming>,
        screen: &mut Screen,
    ) -> io::Result<bool> {
        // This has a sender, so that there is always a next one.
        let Some(mut next) = incoming.recv().await else {
            return Ok(true);
        };
        loop {
            if self.take(next, screen)? {
                return Ok(true);
            }
            match incoming.try_recv() {
                Ok(more) => next = more,
                Err(_) => return Ok(false),
            }
        }
    }

    fn take(&mut self, incoming: Incoming, screen: &mut Screen) -> io::Result<bool> {
        self.app.now = SystemTime::now();
        match incoming {
            Incoming::Event(event) => {
                if let Some(effect) = self.app.take(event) {
                    return self.perform(effect, screen);
                }
            }
            Incoming::Lost(error) => return Err(error),
            Incoming::Work(work) => self.app.set_work(work),
            Incoming::Content(of, content) => self.app.set_content(&of, content),
            Incoming::Done(Ok(Some(ActionOutcome::Said(words)))) => self.app.notify(words, false),
            Incoming::Done(Ok(Some(ActionOutcome::Begun { from, new, warning }))) => {
                let effect = self.app.begun(&from, new);
                if let Some(warning) = warning {
                    self.app.notify(format!("Submitted, but {warning}."), true);
                }
                if let Some(effect) = effect {
                    return self.perform(effect, screen);
                }
            }
            Incoming::Done(Ok(None)) => {}
            Incoming::Done(Err(NotDone::NotSent(draft))) => self.app.not_sent(draft),
            Incoming::Done(Err(error)) => self.app.notify(error.to_string(), true),
        }
        Ok(false)
    }

    fn perform(&mut self, effect: Effect, screen: &mut Screen) -> io::Result<bool> {
        match effect {
            Effect::Quit => return Ok(true),
            Effect::Suspend => screen.suspend()?,
            Effect::Follow(target) => self.follow(target),
            Effect::Unfollow => self.unfollow(),
            effect => {
                let (board, sender) = (Arc::clone(&self.board), self.sender.clone());
                tokio::spawn(async move {
                    let done = acts::act(&board, effect).await;
                    // At the end, nobody waits for it.
                    let _ = sender.send(Incoming::Done(done));
                });
            }
        }
        Ok(false)
    }

    fn unfollow(&mut self) {
        if let Some(followed) = self.followed.take() {
            followed.abort();
        }
    }

    fn follow(&mut self, target: Target) {
        self.unfollow();
        let (board, sender) = (Arc::clone(&self.board), self.sender.clone());
        self.followed = Some(match target.is_session() {
            true => tokio::spawn(follow_session(board, target, sender)),
            false => tokio::spawn(follow_job(board, target, sender)),
        });
    }
}

fn read_keys(sender: &UnboundedSender<Incoming>) {
    loop {
        let read = event::read();
        let is_lost = read.is_err();
        let sent = sender.send(read.map_or_else(Incoming::Lost, Incoming::Event));
        if is_lost || sent.is_err() {
            return;
        }
    }
}

async fn follow_work(board: Arc<WorkBoard>, sender: UnboundedSender<Incoming>) {
    let mut changes = board.hosts.changes();
    loop {
        changes.mark_unchanged();
        if sender.send(Incoming::Work(board.work().await)).is_err() {
            return;
        }
        // The sender lives as long as the hosts, which the board has.
        let _ = timeout(TICK, changes.changed()).await;
        sleep(FRAME).await;
    }
}

async fn follow_session(board: Arc<WorkBoard>, target: Target, sender: UnboundedSender<Incoming>) {
    let conversation = Arc::<Mutex<Conversation>>::default();
    let next = || lock(&conversation).next();
    let take = |answer| {
        let SessionAnswer::News { news, first, .. } = answer else {
            return;
        };
        {
            let mut conversation = lock(&conversation);
            conversation.begin(first);
            for one in news {
                conversation.take(one);
            }
        }
        let content = Content::Conversation(Arc::clone(&conversation));
        // At the end, nobody waits for it.
        let _ = sender.send(Incoming::Content(target.clone(), content));
    };
    board.follow_session(&target.id, next, take).await;
}

async fn follow_job(board: Arc<WorkBoard>, target: Target, sender: UnboundedSender<Incoming>) {
    loop {
        let content = match board.jobs.job(&target.id).await {
            Ok(Some(shown)) => {
                let record = job_json::record(&shown.view.job, &shown.view.questions);
                Content::Job(job::rows(&record, &shown.criteria))
            }
            Ok(None) => Content::Missing("there is no such job".to_owned()),
            Err(error) => Content::Missing(error.to_string()),
        };
        if sender
            .send(Incoming::Content(target.clone(), content))
            .is_err()
        {
            return;
        }
        sleep(TICK).await;
    }
}
