//! A turn of Codex's for a job of `call_codex`.
//!
//! ```text
//!  Request ──► prepare ──► thread/start, thread/resume ──► prompt ──► hearing ──► News, Digest
//!                          git, before ────────────────────┘ │
//!  Outcome ◄── judge ◄── git, after ◄── nothing is left ◄── end, time-out, cancel, death
//! ```
//!
//! Where somebody decides what Codex asks, its questions are told as they open and close, and
//! answered by directives; the time that one is open is not the turn's.
//!
//! The app-server is shared with other jobs. Codex gets the prompt when the state of the
//! repository is known: until then it does nothing. However the turn ends, its session ends
//! with it, and so does all that its commands have started, also in sessions of their own.

mod control;
mod events;
mod git;
mod hearing;
mod refused;
mod thread;

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use agent_team::Member;
use codex_config::profile::ProfileName;
use codex_engine::command::{Open, Opened, Prompt, TurnRef};
use codex_engine::logic::session::Ending as TurnEnding;
use codex_engine::logic::work::event::WorkEvent;
use codex_engine::logic::work::{Changes, Digest, Ending, Failure, FailureClass, judge};
use codex_engine::picture::Picture;
use codex_engine::tool_limit::ToolLimit;
use codex_engine::{Closed, CommandMark, Engine, EngineError, LimitReached};
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use safe_files::off_runtime;
use serde_json::{Map, Value};
use supervise::exit::Exit;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::control::Directives;
use self::events::Events;
use self::git::Looks;
use self::hearing::Hearing;
use self::thread::{Prepared, Progress};
use crate::call_settings::CallSettings;
use crate::directive::Directive;

pub use self::control::{Control, Given};
pub use self::hearing::{STREAM_LIMIT, Stream};
pub(crate) use self::thread::{PROVIDER, provider};

/// How long each question to git may take, and once the job was cancelled.
const GIT_PATIENCE: Duration = Duration::from_secs(10);
const GIT_PATIENCE_WHEN_CANCELLED: Duration = Duration::from_secs(1);

/// How long Codex has to end a turn that was interrupted: less than a worker has whose
/// lease ends. It takes some 20 ms.
const END_PATIENCE: Duration = Duration::from_millis(1500);

/// The turn of a session that has no other.
const ONLY_TURN: u64 = 1;

/// What Codex is to do, and how. What is `None` is left to Codex's configuration.
#[derive(Debug, Clone)]
pub struct Request {
    /// The home of the engine's Codex, CODEX_HOME.
    pub codex_home: PathBuf,
    /// Variables for git on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// The prompt.
    pub prompt: String,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The conversation to go on with; a new one otherwise.
    pub resume: Option<ThreadId>,
    /// The model.
    pub model: Option<String>,
    /// How far commands may reach;
    /// [`DEFAULT_SANDBOX`](settings::DEFAULT_SANDBOX) if Codex's configuration does not
    /// say so either.
    pub sandbox: Option<SandboxMode>,
    /// How hard the model thinks.
    pub effort: Option<Effort>,
    /// The profile.
    pub profile: Option<ProfileName>,
    /// Overrides of Codex's configuration. Null leaves a key alone.
    pub settings: CallSettings,
    /// Pictures to look at.
    pub images: Vec<Picture>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long a call of an MCP server's tool may take; as configured if unset.
    pub tool_limit: Option<ToolLimit>,
    /// Whether the events are kept for the outcome.
    pub stream: KeepStream,
    /// For whom Codex works; a new conversation is told.
    pub member: Option<Member>,
    /// Until when an earlier turn of the job was refused for a usage limit, if that is known.
    pub refused_until: Option<SystemTime>,
}

/// Whether the events of a job are kept for its outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepStream {
    /// Only what matters of them.
    #[default]
    No,
    /// As they are, up to [`STREAM_LIMIT`].
    Yes,
}

/// What happens while Codex is at work.
#[derive(Debug)]
pub enum News<'a> {
    /// Codex's name for the conversation. Told once, before the event that has it.
    Session(&'a ThreadId),
    /// An event, and the same as JSON.
    Event(&'a WorkEvent, &'a str),
    /// So many events were lost, as they came too fast.
    Lost(u64),
    /// These questions are open now, and no others.
    Questions(&'a [Open]),
    /// This was done as it was directed.
    Followed(&'a Directive),
}

/// What came of a request. Nothing of it runs any more.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Why it failed; `None` if Codex did what it was to do.
    pub failure: Option<Failure>,
    /// What matters of what Codex did, also when it failed.
    pub digest: Digest,
    /// The sandbox that was in force: a mode, or the name of permissions. `None` if there
    /// was no thread.
    pub sandbox: Option<String>,
    /// How Codex ended, if it did during the turn.
    pub exit: Option<Exit>,
    /// The usage limit of the account, if it failed for that.
    pub limit: Option<LimitReached>,
    /// Whether Codex went away during the turn.
    pub lost_codex: bool,
    /// Whether Codex may have threads of it until Codex ends: those of sub-agents, or its own,
    /// if it was not unloaded. A job that takes up a loaded thread gets its sandbox, and not
    /// the one that it asks for.
    pub leaves_threads: bool,
    /// The files that were changed meanwhile.
    pub changes: Changes,
    /// What Codex's own patches have changed, as a unified diff; bounded.
    pub diff: String,
    /// The events, if they were to be kept.
    pub stream: Stream,
    /// How long it took.
    pub took: Duration,
}

/// Has Codex do what is wanted. When that is cancelled, or time is up, the turn is
/// interrupted, and all that it has started is ended: in the time that this takes, up to
/// a second and a bit.
///
/// There are no errors beside [`Outcome::failure`].
pub async fn run(
    engine: &Engine,
    request: &Request,
    mut on_news: impl FnMut(News<'_>),
    control: impl Into<Control<'_>>,
) -> Outcome {
    let Control { cancel, directives } = control.into();
    let (begun, since) = (Instant::now(), SystemTime::now());
    let mut call = Call {
        engine,
        request,
        mark: CommandMark::random(),
        limit: begun.checked_add(request.timeout),
        cancel: &cancel,
        hearing: Hearing::new(request.stream, &mut on_news),
        sandbox: None,
        provider: None,
        leaves_threads: false,
        waiting_since: None,
        declined: None,
        diff: String::new(),
    };
    let (looks, ending) = Box::pin(call.attempted(since, directives)).await;
    let exit = match &ending {
        Ending::Died(how) | Ending::Killed(how) => exit_of(engine, how),
        _ => None,
    };
    let lost_codex = matches!(ending, Ending::Died(_) | Ending::Killed(_));
    let limit = call.limit(&ending).await;
    let Call {
        hearing,
        sandbox,
        leaves_threads,
        diff,
        ..
    } = call;
    let (digest, stream) = hearing.heard();
    let changes = looks.changes(&digest);
    Outcome {
        failure: judge(&ending, &digest),
        digest,
        sandbox,
        exit,
        limit,
        lost_codex,
        leaves_threads,
        changes,
        diff,
        stream,
        took: begun.elapsed(),
    }
}

/// How Codex ended that went away in this way, unless it was we who ended it.
fn exit_of(engine: &Engine, how: &str) -> Option<Exit> {
    let exit = engine.last_death()?.exit;
    (exit.to_string() == how).then_some(exit)
}

/// What happens next in a turn.
enum Step {
    Event,
    Directive(Given),
    Progress(Result<Result<Progress, EngineError>, Ending>),
}

/// A request that is at work.
struct Call<'a> {
    engine: &'a Engine,
    request: &'a Request,
    mark: CommandMark,
    /// When time is up.
    limit: Option<Instant>,
    cancel: &'a CancellationToken,
    hearing: Hearing<'a>,
    sandbox: Option<String>,
    /// The model provider of the turn, unless it is that of the configuration.
    provider: Option<String>,
    leaves_threads: bool,
    /// Since when a question has been open.
    waiting_since: Option<Instant>,
    /// The answer to a question that ends the turn, if there was one.
    declined: Option<Ending>,
    diff: String,
}

impl Call<'_> {
    /// What git saw, and how it ended.
    async fn attempted(
        &mut self,
        since: SystemTime,
        directives: Directives<'_>,
    ) -> (Looks, Ending) {
        let nothing = Looks::none();
        // Its release decides what Codex is given.
        let release = match self.before_the_end(self.engine.introduce()).await {
            Ok(Ok(_)) => self.engine.release(),
            Ok(Err(error)) => return (nothing, Ending::NotStarted(error.to_string())),
            Err(ending) => return (nothing, ending),
        };
        let (own, mark) = (self.request.clone(), self.mark.clone());
        let prepared = off_runtime::run(move || thread::prepare(&own, release, &mark)).await;
        let prepared = prepared.unwrap_or_else(|error| Err(error.to_string()));
        let Prepared {
            start,
            sandbox,
            provider,
            left_out,
        } = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return (nothing, Ending::NotStarted(why)),
        };
        self.hearing.warn(left_out);
        self.provider = self.provider(provider).await;
        let used_up = self
            .engine
            .used_up(self.provider.as_deref(), self.request.refused_until);
        match self.before_the_end(used_up).await {
            Ok(None) => {}
            Ok(Some(until)) => return (nothing, Ending::UsedUp(until)),
            Err(ending) => return (nothing, ending),
        }
        let halt = CancellationToken::new();
        let digest = self.hearing.digest();
        let looking = git::look(&self.request.cwd, &self.request.env, GIT_PATIENCE, &halt);
        let opening = async {
            let opened = thread::open(self.engine, self.request.resume.as_ref(), start).await;
            // At once, so that no other job that takes up the thread gets this session.
            let opened = opened.and_then(|opened| {
                let events = Events::of(self.engine, &opened, digest)?;
                Ok((opened, events))
            });
            if opened.is_err() {
                halt.cancel();
            }
            opened
        };
        let mut both = pin!(async { tokio::join!(looking, opening) });
        let (before, (opened, mut events)) = match self.before_the_end(&mut both).await {
            Ok((before, Ok(opened))) => (before, opened),
            Ok((_, Err(error))) => return (nothing, thread::ending(error)),
            Err(ending) => {
                halt.cancel();
                // What Codex has begun is not to stay behind.
                match timeout(END_PATIENCE, both).await {
                    Ok((_, Ok((opened, _)))) => self.closed(&opened).await,
                    Ok((_, Err(_))) => {}
                    // Codex may begin it yet, and nobody would unload it.
                    Err(_) => self.leaves_threads = true,
                }
                return (nothing, ending);
            }
        };
        self.sandbox = Some(sandbox);
        self.hearing.session(&opened.thread);
        let ending = self.prompted(&opened, &mut events, directives).await;
        self.leaves_threads |= events.has_subagents();
        let looks = self.ended(&opened, before, &ending).await;
        if self.request.resume.is_some() {
            let codex_home = self.request.codex_home.clone();
            let thread = opened.thread.clone();
            for event in refused::calls(codex_home, thread, since, events.recorder()).await {
                self.hearing.hear(&event);
            }
        }
        (looks, ending)
    }

    /// The model provider of the turn, unless it is that of the configuration.
    async fn provider(&self, named: Option<String>) -> Option<String> {
        let (codex_home, thread) = (self.request.codex_home.clone(), self.request.resume.clone());
        let provider = move || thread::provider(&codex_home, thread.as_ref(), named);
        off_runtime::run(provider).await.ok().flatten()
    }

    /// What is known of the usage limit, if that is why it ended so.
    async fn limit(&self, ending: &Ending) -> Option<LimitReached> {
        match ending {
            Ending::UsedUp(until) => Some(LimitReached {
                reset: Some(*until),
            }),
            Ending::Failed(error) if error.is_of_the_account() => {
                let provider = self.provider.as_deref();
                self.engine.limit_reached(provider, self.cancel).await
            }
            _ => None,
        }
    }

    /// Waits for something until it is cancelled, or time is up.
    async fn before_the_end<T>(&self, doing: impl Future<Output = T>) -> Result<T, Ending> {
        let timed_out = Ending::TimedOut(self.request.timeout);
        let left = self
            .limit
            .filter(|_| self.waiting_since.is_none())
            .map(|limit| limit.saturating_duration_since(Instant::now()));
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Ending::Cancelled),
            done = doing => Ok(done),
            () = sleep(left.unwrap_or(Duration::MAX)) => Err(timed_out),
        }
    }

    /// Prompts Codex and hears it out.
    async fn prompted(
        &mut self,
        opened: &Opened,
        events: &mut Events,
        mut directives: Directives<'_>,
    ) -> Ending {
        let prompt = Prompt {
            text: self.request.prompt.clone(),
            pictures: self.request.images.clone(),
            output_schema: self.request.output_schema.clone(),
            ..Prompt::default()
        };
        let prompting = self.engine.prompt(&opened.session, prompt);
        let turn = match self.before_the_end(prompting).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(error)) => return thread::ending(error),
            Err(ending) => {
                self.interrupted(opened, events).await;
                return ending;
            }
        };
        let mut told = Vec::new();
        loop {
            let approval = self.request.settings.approval;
            let progress = thread::progress(self.engine, &turn, approval, &told);
            let step = tokio::select! {
                progress = self.before_the_end(progress) => Step::Progress(progress),
                () = events.come() => Step::Event,
                given = control::next(&mut directives) => Step::Directive(given),
            };
            events.tell(&mut self.hearing);
            match step {
                Step::Event => {}
                Step::Directive(given) => self.follow(&opened.session, given).await,
                Step::Progress(Ok(Ok(Progress::Asking(open)))) => {
                    told = open.iter().map(|one| one.id.clone()).collect();
                    self.asked(&open);
                }
                Step::Progress(Ok(Ok(Progress::Ended(outcome)))) => {
                    self.diff.clone_from(&outcome.facts.diff);
                    return self.ending(Ok(outcome.ending.clone()));
                }
                Step::Progress(Ok(Err(error))) => return self.ending(Err(error)),
                Step::Progress(Err(ending)) => {
                    return match self.interrupted(opened, events).await {
                        // It had ended just before.
                        Some(TurnEnding::Completed) => Ending::Completed,
                        _ => ending,
                    };
                }
            }
        }
    }

    /// Interrupts the turn, and waits until it has ended. A Codex that does not end it is
    /// ended itself.
    async fn interrupted(&mut self, opened: &Opened, events: &mut Events) -> Option<TurnEnding> {
        let turn = TurnRef {
            session: opened.session.clone(),
            number: ONLY_TURN,
        };
        if self.engine.inspect(&turn.session).ok()?.turn < ONLY_TURN {
            return None;
        }
        // One that is not there needs no interrupting.
        let _ = self.engine.interrupt(&turn);
        let ended = timeout(END_PATIENCE, thread::ended(self.engine, &turn)).await;
        events.tell(&mut self.hearing);
        match ended {
            Ok(Ok(ended)) => {
                self.diff.clone_from(&ended.facts.diff);
                Some(ended.ending.clone())
            }
            Ok(Err(_)) => None,
            Err(_) => {
                tracing::warn!("Codex does not end the turn that was interrupted: it is ended");
                self.engine.give_up_codex();
                None
            }
        }
    }

    fn ending(&mut self, ended: Result<TurnEnding, EngineError>) -> Ending {
        match ended {
            Ok(TurnEnding::Completed) => Ending::Completed,
            Ok(TurnEnding::Failed(error)) => Ending::Failed(error),
            Ok(TurnEnding::Interrupted) => self.declined.take().unwrap_or(Ending::Interrupted),
            Ok(TurnEnding::Lost(how)) => {
                let how = how.strip_prefix("Codex ").unwrap_or(&how).to_owned();
                match exit_of(self.engine, &how) {
                    Some(Exit::Signal(_)) => Ending::Killed(how),
                    _ => Ending::Died(how),
                }
            }
            Err(error) => thread::ending(error),
        }
    }

    /// Ends the session and what its commands have left, and has git look once more.
    ///
    /// Nothing that a command or an MCP server has left may change files while git looks. Where
    /// anything runs below Codex, git waits until the thread is unloaded and what its commands
    /// have left is gone. Where nothing does, a turn that is over begins nothing, and git looks
    /// while Codex unloads the thread. Not so with a CODEX_HOME in the directory: unloading
    /// moves a file there.
    async fn ended(&mut self, opened: &Opened, before: git::Seen, ending: &Ending) -> Looks {
        let (engine, request) = (self.engine, self.request);
        let patience = match ending {
            Ending::Cancelled => GIT_PATIENCE_WHEN_CANCELLED,
            _ => GIT_PATIENCE,
        };
        let looking = Looks::complete(before, &request.cwd, &request.env, patience);
        let begins_none = matches!(ending, Ending::Completed) && !self.leaves_threads;
        let is_elsewhere = !request.codex_home.starts_with(&request.cwd);
        if begins_none && is_elsewhere && !engine.has_processes().await {
            engine.remove_mount_targets().await;
            return tokio::join!(self.unloaded(opened), looking).1;
        }
        self.closed(opened).await;
        looking.await
    }

    /// Ends the session and what its commands have left.
    async fn closed(&mut self, opened: &Opened) {
        self.unloaded(opened).await;
        if let Err(error) = self.engine.kill_marked(&self.mark).await {
            tracing::warn!("{error}");
        }
        self.engine.remove_mount_targets().await;
    }

    /// Ends the session, and has Codex unload its thread.
    async fn unloaded(&mut self, opened: &Opened) {
        let closing = self.engine.close(&opened.session, "its job has ended");
        match closing.await {
            Ok(Closed::Unloaded) => {}
            Ok(Closed::MaybeLoaded) => self.leaves_threads = true,
            Err(error) => tracing::debug!("the session is not there: {error}"),
        }
    }
}

impl Outcome {
    /// Whether it was ended because it was no longer wanted.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.class() == Some(FailureClass::Cancelled)
    }

    /// What kind of failure it was, if it was one.
    #[must_use]
    pub fn class(&self) -> Option<FailureClass> {
        self.failure.as_ref().map(|failure| failure.class)
    }

    /// Whether Codex has executed anything, or a file was changed.
    #[must_use]
    pub fn has_worked(&self) -> bool {
        let evidence = &self.digest.evidence;
        let steps = evidence.commands + evidence.file_changes + evidence.tool_calls;
        steps > 0 || !self.changes.files.is_empty()
    }
}
