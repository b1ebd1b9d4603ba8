//! Runs a turn of Codex for a job of `call_codex`.
//!
//! ```text
//!  Request ──► prepare ──► thread/start, thread/resume ──► prompt ──► hearing ──► News, Digest
//!                          git, before ────────────────────┘ │
//!  Outcome ◄── judge ◄── git, after ◄── nothing is left ◄── end, time-out, cancel, death
//! ```
//!
//! Where a person answers Codex's questions, the questions are reported as they open and close,
//! and answered by directives. The turn's time limit is paused while a question is open.
//!
//! Another process can continue a call whose process was killed, see `continuation`.
//!
//! The app-server is shared with other jobs. Codex gets the prompt when the state of the
//! repository is known, so that no change is missed. However the turn ends, its session is
//! closed, and all processes of its commands are ended, also those in sessions of their own.

mod continuation;
mod control;
mod event_sink;
mod events;
mod git;
mod record;
mod refused;
mod steps;
mod thread;

use std::ffi::OsString;
use std::mem;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use agent_team::Member;
use codex_config::profile::ProfileName;
use codex_engine::command::{OpenQuestion, OpenThread, Prompt, StartThread, TurnRef};
use codex_engine::logic::session::{TurnEnding, TurnOutcome};
use codex_engine::logic::work::event::WorkEvent;
use codex_engine::logic::work::{Changes, Digest, Failure, FailureClass, WorkEnding, judge};
use codex_engine::picture::Picture;
use codex_engine::tool_timeout::ToolLimit;
use codex_engine::{CommandMark, Engine, EngineError, LimitReached, UnloadState};
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use common::json::as_word;
use safe_files::off_runtime;
use serde_json::{Map, Value};
use supervise::exit::Exit;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::control::Directives;
use self::event_sink::EventSink;
use self::events::EventQueue;
use self::git::{TreeComparison, TreeState};
use self::thread::{Prepared, TurnProgress};
use crate::call_settings::CallSettings;
use crate::directive::Directive;

pub(crate) use self::continuation::resume;
pub use self::control::{Control, PendingDirective};
pub use self::event_sink::{STREAM_LIMIT, Stream};
pub use self::record::CallRecord;
pub(crate) use self::steps::KnownSteps;
pub(crate) use self::thread::{PROVIDER, provider};

/// How long each question to git may take: normally, and after the job was cancelled.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);
const GIT_TIMEOUT_WHEN_CANCELLED: Duration = Duration::from_secs(1);

/// How long Codex may take to end an interrupted turn: less than the time that a worker has
/// before its lease ends. It takes some 20 ms.
const END_TIMEOUT: Duration = Duration::from_millis(1500);

/// The number of the turn: the session of a call has no other.
const ONLY_TURN: u64 = 1;

/// A request for one turn. Codex's configuration decides where a field is `None`.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The home of the engine's Codex, CODEX_HOME.
    pub codex_home: PathBuf,
    /// Variables for git on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// The prompt.
    pub prompt: String,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The thread to resume; a new one otherwise.
    pub resume: Option<ThreadId>,
    /// The model.
    pub model: Option<String>,
    /// The sandbox of commands; [`DEFAULT_SANDBOX`](settings::DEFAULT_SANDBOX) if Codex's
    /// configuration sets none either.
    pub sandbox: Option<SandboxMode>,
    /// The reasoning effort of the model.
    pub effort: Option<Effort>,
    /// The profile.
    pub profile: Option<ProfileName>,
    /// Overrides of Codex's configuration. Null leaves a key alone.
    pub settings: CallSettings,
    /// Pictures in the prompt.
    pub images: Vec<Picture>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// The time limit of the turn.
    pub timeout: Duration,
    /// The time limit of a call of an MCP server's tool; as configured if unset.
    pub tool_limit: Option<ToolLimit>,
    /// Whether the events are kept for the outcome, up to [`STREAM_LIMIT`]; the digest is kept
    /// always.
    pub keep_stream: bool,
    /// The member for whom Codex works; a new thread is told.
    pub member: Option<Member>,
    /// Until when an earlier turn of the job was refused for a usage limit, if that is known.
    pub refused_until: Option<SystemTime>,
}

/// An update about a running call.
#[derive(Debug)]
pub enum CallUpdate<'a> {
    /// The ID of the thread. Reported once, before the event that has it.
    Session(&'a ThreadId),
    /// An event, parsed and as JSON.
    Event(&'a WorkEvent, &'a str),
    /// The number of events that were lost, as the job was too slow.
    Lost(u64),
    /// The questions that are open now.
    Questions(&'a [OpenQuestion]),
    /// A directive that was followed.
    Followed(&'a Directive),
    /// The state with which another process can continue the call. Reported before the prompt is sent,
    /// and at each change.
    Record(&'a CallRecord),
}

/// The outcome of a call. None of its processes runs any more.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    /// The failure; `None` if the turn was completed.
    pub failure: Option<Failure>,
    /// The digest of Codex's events, also when the call failed.
    pub digest: Digest,
    /// The effective sandbox: a mode, or the name of permissions. `None` if there was no thread.
    pub sandbox: Option<String>,
    /// The exit of Codex's process, if it ended during the turn.
    pub exit: Option<Exit>,
    /// The usage limit of the account, if the call failed because of it.
    pub limit: Option<LimitReached>,
    /// Whether Codex's process ended during the turn.
    pub lost_codex: bool,
    /// Whether Codex may keep threads of the call loaded: threads of sub-agents, or the call's own
    /// thread if it could not be unloaded. A later job that resumes a loaded thread gets the
    /// thread's sandbox instead of the requested one.
    pub leaves_threads: bool,
    /// The files that changed during the turn.
    pub changes: Changes,
    /// The changes by Codex's own patches, as a unified diff; bounded.
    pub diff: String,
    /// The events, if they were to be kept.
    pub stream: Stream,
    /// The duration of the call.
    pub took: Duration,
}

/// Runs one turn. When the call is cancelled, or its time is up, interrupts the turn and ends all
/// processes that the turn has started, which takes at most a little more than a second.
///
/// Failures are reported in [`CallOutcome::failure`].
pub async fn run(
    engine: &Engine,
    request: &CallRequest,
    mut on_update: impl FnMut(CallUpdate<'_>),
    control: impl Into<Control<'_>>,
) -> CallOutcome {
    let Control { cancel, directives } = control.into();
    let mut call = Call::new(engine, request, &cancel, &mut on_update);
    let ended = Box::pin(call.execute(directives)).await;
    call.finish(ended).await
}

/// The exit of Codex's process whose end was described as `how`, unless we ended it.
fn exit_of(engine: &Engine, how: &str) -> Option<Exit> {
    let exit = engine.last_unexpected_exit()?.exit;
    (exit.to_string() == how).then_some(exit)
}

/// The next event in the loop of a turn.
enum LoopEvent {
    Event,
    Directive(PendingDirective),
    Progress(Result<Result<TurnProgress, EngineError>, WorkEnding>),
}

/// A running call.
struct Call<'a> {
    engine: &'a Engine,
    request: &'a CallRequest,
    mark: CommandMark,
    /// When the call began, also if that was in another process.
    begun: SystemTime,
    /// When time is up.
    limit: Option<Instant>,
    cancel: &'a CancellationToken,
    sink: EventSink<'a>,
    sandbox: Option<String>,
    /// The model provider of the turn, unless it is that of the configuration.
    provider: Option<String>,
    leaves_threads: bool,
    /// Since when a question has been open.
    waiting_since: Option<Instant>,
    /// The answer to a question that ends the turn, if there was one.
    declined: Option<WorkEnding>,
    /// The working tree before the turn.
    before: TreeState,
    /// The same for another process, if it is not too long.
    kept_before: TreeState,
    /// Whether another process has begun the call.
    is_continued: bool,
    diff: String,
}

impl<'a> Call<'a> {
    fn new(
        engine: &'a Engine,
        request: &'a CallRequest,
        cancel: &'a CancellationToken,
        on_update: &'a mut dyn FnMut(CallUpdate<'_>),
    ) -> Self {
        Self {
            engine,
            request,
            mark: CommandMark::random(),
            begun: SystemTime::now(),
            limit: Instant::now().checked_add(request.timeout),
            cancel,
            sink: EventSink::new(request.keep_stream, on_update),
            sandbox: None,
            provider: None,
            leaves_threads: false,
            waiting_since: None,
            declined: None,
            before: TreeState::NotInspected,
            kept_before: TreeState::NotInspected,
            is_continued: false,
            diff: String::new(),
        }
    }

    /// The outcome, when none of its processes runs any more.
    async fn finish(self, (comparison, ending): (TreeComparison, WorkEnding)) -> CallOutcome {
        let exit = match &ending {
            WorkEnding::Died(how) | WorkEnding::Killed(how) => exit_of(self.engine, how),
            _ => None,
        };
        let lost_codex = matches!(ending, WorkEnding::Died(_) | WorkEnding::Killed(_));
        let limit = self.limit(&ending).await;
        let (digest, stream) = self.sink.finish();
        let changes = comparison.changes(&digest);
        CallOutcome {
            failure: judge(&ending, &digest),
            digest,
            sandbox: self.sandbox,
            exit,
            limit,
            lost_codex,
            leaves_threads: self.leaves_threads,
            changes,
            diff: self.diff,
            stream,
            took: self.begun.elapsed().unwrap_or_default(),
        }
    }
}

impl Call<'_> {
    /// Runs the call from the check of the account to the last inspection by git.
    async fn execute(&mut self, directives: Directives<'_>) -> (TreeComparison, WorkEnding) {
        let nothing = TreeComparison::none();
        let (start, sandbox) = match self.prepare().await {
            Ok(prepared) => prepared,
            Err(ending) => return (nothing, ending),
        };
        let halt = CancellationToken::new();
        let digest = self.sink.digest();
        let inspection = git::inspect(&self.request.cwd, &self.request.env, GIT_TIMEOUT, &halt);
        let opening = async {
            let opened = thread::open(self.engine, self.request.resume.as_ref(), start).await;
            // Subscribe at once, so that no other job that resumes the thread gets this session.
            let opened = opened.and_then(|opened| {
                let events = EventQueue::of(self.engine, &opened, digest)?;
                Ok((opened, events))
            });
            if opened.is_err() {
                halt.cancel();
            }
            opened
        };
        let mut both = pin!(async { tokio::join!(inspection, opening) });
        let (before, (opened, mut events)) = match self.until_cancelled(&mut both).await {
            Ok((before, Ok(opened))) => (before, opened),
            Ok((_, Err(error))) => return (nothing, thread::ending(error)),
            Err(ending) => {
                halt.cancel();
                // Codex may have started the thread already.
                match timeout(END_TIMEOUT, both).await {
                    Ok((_, Ok((opened, _)))) => self.close(&opened).await,
                    Ok((_, Err(_))) => {}
                    // Codex may still start the thread, and nothing would unload it.
                    Err(_) => self.leaves_threads = true,
                }
                return (nothing, ending);
            }
        };
        self.kept_before = record::kept(&before);
        self.before = before;
        self.sandbox = sandbox.or_else(|| opened.sandbox.and_then(as_word));
        self.sink.session(&opened.thread, self.sandbox.as_deref());
        self.sink.warn(opened.warning());
        self.note_record(&opened.session);
        self.engine.flush_kept().await;
        let ending = match self.begin_turn(&opened, &mut events).await {
            Ok(turn) => {
                self.follow_turn(&opened, turn, &mut events, directives)
                    .await
            }
            Err(ending) => ending,
        };
        self.end_turn(&opened, events, ending).await
    }

    /// Closes the session of a turn that has ended, and inspects the tree again.
    async fn end_turn(
        &mut self,
        opened: &OpenThread,
        events: EventQueue,
        ending: WorkEnding,
    ) -> (TreeComparison, WorkEnding) {
        self.leaves_threads |= events.has_subagents();
        let comparison = self.close_and_inspect(opened, &ending).await;
        if self.request.resume.is_some() || self.is_continued {
            let codex_home = self.request.codex_home.clone();
            let (thread, since) = (opened.thread.clone(), self.begun);
            for event in refused::calls(codex_home, thread, since, events.recorder()).await {
                self.sink.record(&event);
            }
        }
        (comparison, ending)
    }

    /// The settings of the thread and its effective sandbox, if the account is not used up.
    async fn prepare(&mut self) -> Result<(StartThread, Option<String>), WorkEnding> {
        // The settings of the thread depend on the release of Codex.
        let release = match self.until_cancelled(self.engine.introduce()).await? {
            Ok(_) => self.engine.release(),
            Err(error) => return Err(WorkEnding::NotStarted(error.to_string())),
        };
        let (own, mark) = (self.request.clone(), self.mark.clone());
        let prepared = off_runtime::run(move || thread::prepare(&own, release, &mark)).await;
        let prepared = prepared.unwrap_or_else(|error| Err(error.to_string()));
        let Prepared {
            start,
            sandbox,
            provider,
            left_out,
        } = prepared.map_err(WorkEnding::NotStarted)?;
        self.sink.warn(left_out);
        self.provider = self.provider(provider).await;
        let used_up = self.engine.used_up(
            self.provider.as_deref(),
            self.request.model.as_deref(),
            self.request.refused_until,
        );
        match self.until_cancelled(used_up).await? {
            None => Ok((start, sandbox)),
            Some(until) => Err(WorkEnding::UsedUp(until)),
        }
    }

    /// The model provider of the turn, unless it is that of the configuration.
    async fn provider(&self, named: Option<String>) -> Option<String> {
        let (codex_home, thread) = (self.request.codex_home.clone(), self.request.resume.clone());
        let provider = move || thread::provider(&codex_home, thread.as_ref(), named);
        off_runtime::run(provider).await.ok().flatten()
    }

    /// The reached usage limit, if the turn ended because of it.
    async fn limit(&self, ending: &WorkEnding) -> Option<LimitReached> {
        match ending {
            WorkEnding::UsedUp(until) => Some(LimitReached {
                reset: Some(*until),
            }),
            WorkEnding::Failed(error) if error.is_of_the_account() => {
                let (provider, model) = (self.provider.as_deref(), self.request.model.as_deref());
                self.engine
                    .limit_reached(provider, model, self.cancel)
                    .await
            }
            _ => None,
        }
    }

    /// Waits for a future until the call is cancelled, or its time is up.
    async fn until_cancelled<T>(&self, doing: impl Future<Output = T>) -> Result<T, WorkEnding> {
        let timed_out = WorkEnding::TimedOut(self.request.timeout);
        let left = self
            .limit
            .filter(|_| self.waiting_since.is_none())
            .map(|limit| limit.saturating_duration_since(Instant::now()));
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(WorkEnding::Cancelled),
            done = doing => Ok(done),
            () = sleep(left.unwrap_or(Duration::MAX)) => Err(timed_out),
        }
    }

    /// Prompts Codex.
    async fn begin_turn(
        &mut self,
        opened: &OpenThread,
        events: &mut EventQueue,
    ) -> Result<TurnRef, WorkEnding> {
        let prompt = self.request.turn_prompt();
        let prompting = self.engine.prompt(&opened.session, prompt);
        match self.until_cancelled(prompting).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(error)) => Err(thread::ending(error)),
            Err(ending) => {
                self.interrupt_turn(opened, events).await;
                Err(ending)
            }
        }
    }

    /// Follows a turn until it ends.
    async fn follow_turn(
        &mut self,
        opened: &OpenThread,
        turn: TurnRef,
        events: &mut EventQueue,
        mut directives: Directives<'_>,
    ) -> WorkEnding {
        let mut told = Vec::new();
        loop {
            let approval = self.request.settings.approval;
            let progress = thread::progress(self.engine, &turn, approval, &told);
            let step = tokio::select! {
                progress = self.until_cancelled(progress) => LoopEvent::Progress(progress),
                () = events.ready() => LoopEvent::Event,
                given = control::next(&mut directives) => LoopEvent::Directive(given),
            };
            events.emit(&mut self.sink);
            match step {
                LoopEvent::Event => {}
                LoopEvent::Directive(given) => self.follow(&opened.session, given).await,
                LoopEvent::Progress(Ok(Ok(TurnProgress::Asking(open)))) => {
                    told = open.iter().map(|one| one.id.clone()).collect();
                    self.update_questions(&opened.session, &open);
                }
                LoopEvent::Progress(Ok(Ok(TurnProgress::Ended(outcome)))) => {
                    self.note_end(&outcome);
                    return self.ending(Ok(outcome.ending.clone()));
                }
                LoopEvent::Progress(Ok(Err(error))) => return self.ending(Err(error)),
                LoopEvent::Progress(Err(ending)) => {
                    return match self.interrupt_turn(opened, events).await {
                        // The turn had just been completed.
                        Some(TurnEnding::Completed) => WorkEnding::Completed,
                        _ => ending,
                    };
                }
            }
        }
    }

    /// Interrupts the turn, and waits until it has ended. If Codex does not end it, Codex
    /// itself is ended.
    async fn interrupt_turn(
        &mut self,
        opened: &OpenThread,
        events: &mut EventQueue,
    ) -> Option<TurnEnding> {
        let turn = TurnRef {
            session: opened.session.clone(),
            number: ONLY_TURN,
        };
        if self.engine.inspect(&turn.session).ok()?.turn < ONLY_TURN {
            return None;
        }
        // A turn that has ended needs no interrupt.
        let _ = self.engine.interrupt(&turn);
        let ended = timeout(END_TIMEOUT, thread::wait_for_end(self.engine, &turn)).await;
        events.emit(&mut self.sink);
        match ended {
            Ok(Ok(ended)) => {
                self.note_end(&ended);
                Some(ended.ending.clone())
            }
            Ok(Err(_)) => None,
            Err(_) => {
                tracing::warn!("Codex has not ended the interrupted turn; ending Codex");
                self.engine.give_up_codex();
                None
            }
        }
    }

    fn note_end(&mut self, outcome: &TurnOutcome) {
        self.diff.clone_from(&outcome.facts.diff);
    }

    fn ending(&mut self, ended: Result<TurnEnding, EngineError>) -> WorkEnding {
        match ended {
            Ok(TurnEnding::Completed) => WorkEnding::Completed,
            Ok(TurnEnding::Failed(error)) => WorkEnding::Failed(error),
            Ok(TurnEnding::Interrupted) => self.declined.take().unwrap_or(WorkEnding::Interrupted),
            Ok(TurnEnding::Lost(how)) => {
                let how = how.strip_prefix("Codex ").unwrap_or(&how).to_owned();
                let exit = exit_of(self.engine, &how);
                thread::lost(how, exit)
            }
            Err(error) => thread::ending(error),
        }
    }

    /// Closes the session, ends the processes of its commands, and inspects the tree again.
    ///
    /// No process of a command or an MCP server may change files during the inspection. If any
    /// process runs below Codex, git waits until the thread is unloaded and the commands' processes
    /// are gone. If none runs, the ended turn cannot start one either, so git runs while Codex
    /// unloads the thread. The exception is a directory that contains CODEX_HOME: unloading moves a
    /// file there, so git waits.
    async fn close_and_inspect(
        &mut self,
        opened: &OpenThread,
        ending: &WorkEnding,
    ) -> TreeComparison {
        let (engine, request) = (self.engine, self.request);
        let timeout = match ending {
            WorkEnding::Cancelled => GIT_TIMEOUT_WHEN_CANCELLED,
            _ => GIT_TIMEOUT,
        };
        let before = mem::replace(&mut self.before, TreeState::NotInspected);
        let inspection = TreeComparison::complete(before, &request.cwd, &request.env, timeout);
        let begins_none = matches!(ending, WorkEnding::Completed) && !self.leaves_threads;
        let is_elsewhere = !request.codex_home.starts_with(&request.cwd);
        if begins_none && is_elsewhere && !engine.has_processes().await {
            engine.remove_mount_targets().await;
            return tokio::join!(self.unload(opened), inspection).1;
        }
        self.close(opened).await;
        inspection.await
    }

    /// Closes the session, and ends the processes of its commands.
    async fn close(&mut self, opened: &OpenThread) {
        self.unload(opened).await;
        self.kill_marked().await;
        self.engine.remove_mount_targets().await;
    }

    /// Ends the processes of the call's commands.
    async fn kill_marked(&self) {
        if let Err(error) = self.engine.kill_marked(&self.mark).await {
            tracing::warn!("{error}");
        }
    }

    /// Closes the session, and lets Codex unload its thread.
    async fn unload(&mut self, opened: &OpenThread) {
        let closing = self.engine.close(&opened.session, "its job has ended");
        match closing.await {
            Ok(UnloadState::Unloaded) => {}
            Ok(UnloadState::MaybeLoaded) => self.leaves_threads = true,
            Err(error) => tracing::debug!("the session cannot be closed: {error}"),
        }
    }
}

impl CallRequest {
    /// The prompt of the turn, with the form and the pictures.
    fn turn_prompt(&self) -> Prompt {
        Prompt {
            text: self.prompt.clone(),
            pictures: self.images.clone(),
            output_schema: self.output_schema.clone(),
            ..Prompt::default()
        }
    }
}

impl CallOutcome {
    /// Whether the call was cancelled.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.class() == Some(FailureClass::Cancelled)
    }

    /// The class of the failure, if the call failed.
    #[must_use]
    pub fn class(&self) -> Option<FailureClass> {
        self.failure.as_ref().map(|failure| failure.class)
    }

    /// Whether Codex has executed a step, or a file was changed.
    #[must_use]
    pub fn has_worked(&self) -> bool {
        let evidence = &self.digest.evidence;
        let steps = evidence.commands + evidence.file_changes + evidence.tool_calls;
        steps > 0 || !self.changes.files.is_empty()
    }
}
