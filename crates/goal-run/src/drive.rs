//! A run from its beginning to its end: prompts Codex, looks at what has come of it,
//! and does what the machine decides.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use codex_engine::command::{Opened, Prompt, Refusals, Resume, SessionId, Start, TurnRef, joined};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::{
    Engine, EngineError, GitGrant, Granted, Grants, LaunchError, PauseError, Paused, Shutdown,
};
use codex_protocol::codex::{Keeping, RateLimits, Release, ReviewTarget, SandboxMode, ThreadId};
use git_probe::private::{self, PrivateGit, Takeover};
use git_probe::{Git, Submodules};
use safe_files::directory;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::clock::RunClock;
use super::error::RunError;
use super::evidence::EvidenceFile;
use super::failing;
use super::look::{LocalState, RepoInspector};
use super::order::Order;
use super::turn::{Came, Leash, Turn};
use super::watcher::{Leave, News, Watcher};
use crate::logic::artifacts::{self, Shown};
use crate::logic::criteria::{Grant, Judging};
use crate::logic::findings::{Verdict, judge};
use crate::logic::machine::{
    AnswerNovelty, Conversation, End, Next, Prompt as Wanted, Report, Run, TurnEnd, milliseconds,
};
use crate::logic::names::CommandLine;
use crate::logic::outcome::{Outcome, RunEvidence, TurnRecord, Usage, notes};
use crate::logic::promises::promises;
use crate::logic::prompts::{Inserts, Templates};
use crate::logic::review::{self, ReviewEnd};
use crate::logic::snapshot::{Answer, CommandEnd, Probe, Snapshot, Work};
use crate::reviewer::{Asked, Reviewed, reviewed};

/// How long one command of a criterion may take (5 min); less where the run has less
/// time left.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// How long a review may take (10 min); less where the run has less time left.
const REVIEW_LIMIT: Duration = Duration::from_secs(600);

/// How long a turn may take to begin that is to be ended already.
const BEGIN_PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two looks whether the last turn of a thread has ended.
const ENDING_PAUSE: Duration = Duration::from_millis(100);

/// What has come of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Done {
    /// What was asked for, and what is there.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The conversation with Codex, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// How far its commands could reach, where Codex tells; for people.
    #[serde(skip)]
    pub sandbox: Option<SandboxMode>,
    /// How many tokens were used.
    pub usage: Usage,
    /// How much of the account's limits is used, where Codex tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
    /// Whether the last turn failed at a usage limit of the account.
    #[serde(skip)]
    pub at_usage_limit: bool,
    /// What Codex said last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response: String,
    /// Where the evidence is kept, a line of JSON for each turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_file: Option<PathBuf>,
    /// What was left out, and what to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a run works with.
pub struct RunContext<'a, W> {
    /// Has Codex.
    pub engine: &'a Engine,
    /// Is told.
    pub watcher: &'a W,
    /// Cancelled when nobody wants the run any more.
    pub stop: &'a CancellationToken,
    /// What Codex is told.
    pub templates: &'a Templates,
    /// Where the evidence goes.
    pub evidence: Option<EvidenceFile>,
    /// What the caller is told besides.
    pub warnings: Vec<String>,
    /// The repository's submodules as they were before Codex began.
    pub submodules: &'a Submodules,
    /// The name of the run, by which a second attempt finds what the first one has left:
    /// letters, digits and dashes.
    pub name: String,
}

impl<W: Watcher> RunContext<'_, W> {
    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.watcher.hears(News::Warning(&warning));
                self.warnings.push(warning);
            }
        }
    }
}

/// Drives a run until it is over.
///
/// # Errors
///
/// [`RunError`] if it could not be begun: Codex has not been asked to do anything then.
pub async fn drive<W: Watcher>(
    mut context: RunContext<'_, W>,
    order: &Order,
    mut looker: RepoInspector,
) -> Result<Done, RunError> {
    order.check()?;
    if let Some(git) = git_for_commits(order, &looker) {
        // Before the start is looked at: commits of earlier runs are none of this run.
        let recovered = private::recover(git, &context.name, context.stop).await;
        context.warn(recovered);
    }
    let start = looker.start().await?;
    let private = private_git(&context.name, order, &looker).await?;
    if private.is_some() {
        let caller = context.watcher.caller();
        context.warn(uncommitted(&start, caller));
    }
    let of_rules = context
        .engine
        .git_rules_warning(order.settings.thread.sandbox);
    context.warn(of_rules);
    let grants = grants(order, private.as_ref());
    let mut settings = order.settings.clone();
    settings.thread.cwd = Some(looker.top().to_owned());
    if private.is_some() {
        let behind = &mut settings.added.behind;
        *behind = joined(behind.take(), Some(ABOUT_GIT.to_owned()));
    }
    let granted = context.engine.granting(settings, &grants).await;
    let granted = granted.map_err(RunError::from)?;
    let verdict = judge(
        &order.criteria,
        &start,
        &start,
        &Work::default(),
        order.preexisting,
    );
    context.watcher.hears(News::Begins {
        top: looker.top(),
        verdict: &verdict,
    });
    let driver = Driver {
        context,
        order,
        looker,
        granted,
        grants,
        private,
        not_taken: None,
        start,
        clock: Rc::new(RunClock::start()),
        shown: Shown::default(),
        work: Work::default(),
        verdict,
        usage: Usage::default(),
        log: Vec::new(),
        thread: order.thread.clone(),
        session: None,
        sandbox: None,
        anew: None,
        not_opened: None,
        errors: Vec::new(),
        failure: None,
        at_usage_limit: false,
        response: String::new(),
    };
    driver.drive().await
}

/// What Codex is told of the git directory that it is given.
const ABOUT_GIT: &str = "Git uses a private git directory here (GIT_DIR, GIT_COMMON_DIR and \
    GIT_WORK_TREE are set); what you commit, push or check out is taken over into the repository \
    after your turn. Its settings cannot be changed: use `git -c KEY=VALUE`. \
    Before you run git in another repository, or tests that do, run: \
    unset $(git rev-parse --local-env-vars)";

/// Git, if criteria want commits and there is a repository.
fn git_for_commits<'a>(order: &Order, looker: &'a RepoInspector) -> Option<&'a Git> {
    let is_wanted = order.criteria.grants().contains(&Grant::GitDirectory);
    looker.git().filter(|_| is_wanted)
}

/// The git directory in which Codex commits, if criteria want commits.
async fn private_git(
    run: &str,
    order: &Order,
    looker: &RepoInspector,
) -> Result<Option<PrivateGit>, RunError> {
    let Some(git) = git_for_commits(order, looker) else {
        return Ok(None);
    };
    let opened = PrivateGit::open(git, run).await;
    let opened = opened.map_err(|error| RunError::PrivateGit(error.to_string()))?;
    Ok(Some(opened))
}

/// How many files of the user's are named that Codex may commit.
const FILES_NAMED: usize = 3;

/// What the user is told where Codex may commit changes that are not its own.
fn uncommitted(start: &Snapshot, caller: Caller) -> Option<String> {
    let dirty = &start.tree.found()?.state.dirty;
    let mut names: Vec<&str> = dirty.keys().map(String::as_str).take(FILES_NAMED).collect();
    if dirty.len() > FILES_NAMED {
        names.push("…");
    }
    (!dirty.is_empty()).then(|| {
        format!(
            "uncommitted changes of yours ({}: {}) can get into Codex's commits, as by `git add \
             --all`: with {} Codex works on a copy without them",
            dirty.len(),
            names.join(", "),
            caller.worktree()
        )
    })
}

/// What the user is told where Codex may write nothing, and no criterion needs it to.
fn may_not_write(caller: Caller) -> String {
    format!(
        "Codex's sandbox is read-only here, so it can read and answer, and change nothing. If the \
         task is to change files, add {}",
        caller.workspace_write()
    )
}

/// What it takes for the criteria.
fn grants(order: &Order, private: Option<&PrivateGit>) -> Grants {
    let grants = order.criteria.grants();
    Grants {
        git: private.map(|private| GitGrant {
            directory: private.path(),
            variables: private.variables().into(),
        }),
        network: grants.contains(&Grant::Network),
    }
}

/// What was found after a turn.
struct Look {
    now: Snapshot,
    /// The local state that the verdict rests on, with what the commands of criteria have
    /// changed.
    judged: LocalState,
    /// What runs below Codex, which goes on when this is dropped.
    paused: Paused,
}

/// Whether a turn began.
enum Begun {
    /// It did, and this is how far the session had come before.
    Turn(TurnRef, CurrentStep),
    /// It did not before it was to be ended, for this reason.
    TooLate(TurnEnd),
}

struct Driver<'a, W> {
    context: RunContext<'a, W>,
    order: &'a Order,
    looker: RepoInspector,
    granted: Granted,
    grants: Grants,
    /// Where Codex commits.
    private: Option<PrivateGit>,
    /// Why the repository does not have all of what Codex has committed.
    not_taken: Option<String>,
    /// What sandboxes may leave.
    start: Snapshot,
    clock: Rc<RunClock>,
    shown: Shown,
    work: Work,
    verdict: Verdict,
    /// What all turns together have used.
    usage: Usage,
    log: Vec<TurnRecord>,
    thread: Option<ThreadId>,
    session: Option<SessionId>,
    /// How far commands may reach, if Codex tells.
    sandbox: Option<SandboxMode>,
    /// The sandbox of a thread that was taken up, until its commands are held to what is
    /// allowed now.
    anew: Option<SandboxMode>,
    /// Why there is no conversation yet, until the first turn tells it.
    not_opened: Option<EngineError>,
    /// What went wrong in the last turn, a line each, for Codex.
    errors: Vec<String>,
    /// Why the last turn failed.
    failure: Option<String>,
    /// Whether it failed at a usage limit of the account.
    at_usage_limit: bool,
    response: String,
}

impl<W: Watcher> Driver<'_, W> {
    async fn drive(mut self) -> Result<Done, RunError> {
        self.open_first().await?;
        let (mut run, mut wanted) = Run::start(self.order.limits);
        let (end, look) = loop {
            self.context.watcher.hears(News::Turn(&wanted));
            let began = self.clock.elapsed();
            let came = self.turn(&mut run, &wanted).await?;
            let took = self.clock.elapsed().saturating_sub(began);
            self.context.watcher.hears(News::Looking);
            let look = self.look(&came).await;
            let report = self.report(&came, &look.now);
            self.record(&wanted, came, &report, took);
            if self.context.stop.is_cancelled() {
                // There is no turn to interrupt; it only has to know.
                run.stop();
            }
            match run.step(&report, self.clock.elapsed()) {
                Some(Next::Prompt(next)) => wanted = next,
                Some(Next::End(end)) => break (end, look),
                // The machine interrupts nothing that has ended.
                Some(Next::Interrupt) | None => break (End::Cancelled, look),
            }
        };
        let (end, now) = self.confirmed(end, look).await;
        Ok(self.done(end, &now, run.turns()))
    }

    /// Gives Codex a prompt and waits until the turn has ended.
    async fn turn(&mut self, run: &mut Run, wanted: &Wanted) -> Result<Came, RunError> {
        if self.context.stop.is_cancelled() {
            run.stop();
            return Ok(Came::nothing(TurnEnd::Interrupted));
        }
        let text = self.prompt(wanted);
        if wanted.conversation == Conversation::New {
            (self.thread, self.session) = (None, None);
        }
        let clock = Rc::clone(&self.clock);
        let mut leash = Leash::new(run, &clock, self.context.stop);
        let (turn, told) = match self.begun(text, &mut leash).await {
            Ok(Begun::Turn(turn, told)) => (turn, told),
            Ok(Begun::TooLate(why)) => return Ok(Came::nothing(why)),
            Err(RunError::Engine(error)) => return Ok(Came::failed(&error)),
            // It was there before the first turn.
            Err(RunError::NoCodex(none)) => {
                let error = Arc::new(LaunchError::NoCodex(none));
                return Ok(Came::failed(&error.into()));
            }
            // What was done by then is not lost.
            Err(error) if !self.log.is_empty() => return Ok(Came::refused_by(&error)),
            Err(error) => return Err(error),
        };
        let used = self.usage.total_tokens;
        let turn = Turn::new(self.context.engine, self.context.watcher, turn, told, used);
        let ended = turn.ended(leash).await;
        // Also after a turn that was lost in the middle of a question.
        clock.resume();
        Ok(ended.unwrap_or_else(|error| Came::failed(&error)))
    }

    /// Begins the turn. One that is to be ended by then has a moment to begin, as only
    /// then it can be.
    async fn begun(&mut self, text: String, leash: &mut Leash<'_>) -> Result<Begun, RunError> {
        let engine = self.context.engine;
        let late = {
            let mut begin = pin!(self.begin(text));
            let why = tokio::select! {
                begun = &mut begin => return begun,
                why = leash.pull() => why,
            };
            match timeout(BEGIN_PATIENCE, begin).await {
                Ok(begun) => {
                    let begun = begun?;
                    if let Begun::Turn(turn, _) = &begun {
                        engine.interrupt(turn)?;
                    }
                    return Ok(begun);
                }
                Err(_) => why,
            }
        };
        // Nobody knows how far it has come. The thread is taken up anew.
        if let Some(session) = self.session.take() {
            engine.cancel(&session, "its turn did not begin in time")?;
        }
        Ok(Begun::TooLate(late))
    }

    /// Opens the conversation before the first turn, so that a person learns in time what
    /// the sandbox does not allow, and that there is no Codex or no login. What else Codex
    /// fails at is the first turn's failure.
    async fn open_first(&mut self) -> Result<(), RunError> {
        let (stop, limit) = (self.context.stop, self.order.limits.turn());
        let clock = Rc::clone(&self.clock);
        let opened = tokio::select! {
            opened = self.open() => opened,
            () = stop.cancelled() => return Ok(()),
            () = clock.reaches(limit) => return Ok(()),
        };
        match opened {
            Err(RunError::Engine(error)) if !matches!(error, EngineError::NoLogin) => {
                self.not_opened = Some(error);
                Ok(())
            }
            opened => opened.map(drop),
        }
    }

    /// Begins the turn, and the conversation before it if there is none.
    async fn begin(&mut self, text: String) -> Result<Begun, RunError> {
        let session = match self.session.clone() {
            Some(session) => session,
            None => match self.not_opened.take() {
                None => self.open().await?,
                Some(error) => return Err(error.into()),
            },
        };
        let engine = self.context.engine;
        let before = engine.inspect(&session)?.progress;
        let mut prompt = Prompt::text(text);
        prompt.overrides.sandbox = self.anew.take();
        let turn = engine.prompt(&session, prompt).await?;
        Ok(Begun::Turn(turn, before))
    }

    async fn open(&mut self) -> Result<SessionId, RunError> {
        let opened = self.opened_in_the_end().await?;
        let opened = match opened.sandbox {
            Some(SandboxMode::ReadOnly) => self.with_leave_to_write(opened).await?,
            _ => opened,
        };
        if let Err(error) = self.check_protection(opened.sandbox) {
            self.give_up(&opened)?;
            return Err(error);
        }
        self.sandbox = opened.sandbox;
        // Newer releases remember what a thread was allowed before.
        self.anew = opened.sandbox.filter(|_| self.thread.is_some());
        let watcher = self.context.watcher;
        watcher.hears(News::Thread {
            thread: &opened.thread,
            sandbox: opened.sandbox,
            grants: &self.grants,
        });
        self.thread = Some(opened.thread);
        self.session = Some(opened.session.clone());
        Ok(opened.session)
    }

    /// A conversation in which the run can do its work, where Codex may write nothing. A
    /// run whose criteria need something written asks for leave, and is refused without;
    /// another one says what its user may have to add.
    async fn with_leave_to_write(&mut self, opened: Opened) -> Result<Opened, RunError> {
        let is_wanted = self.order.settings.thread.sandbox == Some(SandboxMode::ReadOnly);
        match (self.has_to_write(), is_wanted) {
            (true, true) => {
                self.give_up(&opened)?;
                return Err(RunError::ReadOnly);
            }
            (false, true) => return Ok(opened),
            (false, false) => {
                let caller = self.context.watcher.caller();
                self.context.warn([may_not_write(caller)]);
                return Ok(opened);
            }
            (true, false) => {}
        }
        self.clock.pause();
        let leave = self.context.watcher.lets_write().await;
        self.clock.resume();
        self.give_up(&opened)?;
        if leave == Leave::Refused {
            return Err(RunError::ReadOnly);
        }
        self.granted.settings.thread.sandbox = Some(SandboxMode::WorkspaceWrite);
        self.opened_in_the_end().await.map_err(RunError::from)
    }

    /// Ends a conversation in which Codex was asked nothing. One that was begun for this
    /// run is forgotten, so that nobody is offered to go on in it.
    fn give_up(&self, opened: &Opened) -> Result<(), RunError> {
        let engine = self.context.engine;
        match self.thread {
            None => engine.discard(&opened.session)?,
            Some(_) => engine.cancel(&opened.session, "the run did not begin")?,
        }
        Ok(())
    }

    /// Whether the sandbox keeps the repository's own git directory from being written, and
    /// what the program keeps of the repository.
    fn check_protection(&self, sandbox: Option<SandboxMode>) -> Result<(), RunError> {
        if sandbox == Some(SandboxMode::WorkspaceWrite) {
            self.check_state_directory()?;
        }
        let version = self.context.engine.codex_version();
        let release = version.as_deref().and_then(Release::parse);
        match (sandbox, release) {
            (Some(SandboxMode::WorkspaceWrite), Some(release))
                if self.private.is_some() && release < Release::FIRST_WITH_PROTECTED_GIT =>
            {
                Err(RunError::UnprotectedGit { release })
            }
            _ => Ok(()),
        }
    }

    /// The program's git reads settings in the state directory, outside of the sandbox.
    fn check_state_directory(&self) -> Result<(), RunError> {
        let state = self.looker.git().and_then(Git::state_directory);
        let Some(state) = state.as_deref().map(directory::resolved) else {
            return Ok(());
        };
        let Granted {
            directories,
            temporary,
            ..
        } = &self.granted;
        let mut writable = directories.iter().chain(temporary);
        match writable.find(|path| state.starts_with(directory::resolved(path))) {
            Some(writable) => Err(RunError::StateInWorkspace {
                writable: writable.clone(),
                state,
            }),
            None => Ok(()),
        }
    }

    async fn opened_in_the_end(&self) -> Result<Opened, EngineError> {
        loop {
            match self.opened().await {
                Err(EngineError::StillEnding(_)) => sleep(ENDING_PAUSE).await,
                opened => return opened,
            }
        }
    }

    async fn opened(&self) -> Result<Opened, EngineError> {
        self.granted.check()?;
        let Granted {
            settings,
            directories,
            ..
        } = self.granted.clone();
        let start = Start {
            settings,
            refusals: Refusals::Told,
            directories: Some(directories),
            ..Start::default()
        };
        match self.thread.clone() {
            Some(thread) => self.context.engine.resume(Resume { thread, start }).await,
            None => self.context.engine.start(start).await,
        }
    }

    /// Whether a criterion can only be met by something new.
    fn has_to_write(&self) -> bool {
        let mut criteria = self.order.criteria.iter();
        criteria.any(|criterion| criterion.judging() == Judging::BySomethingNew)
    }

    fn prompt(&self, wanted: &Wanted) -> String {
        let criteria = self.order.criteria.iter();
        let criteria: Vec<String> = criteria.map(|criterion| criterion.wanted()).collect();
        let directory = self.looker.top().display().to_string();
        let inserts = Inserts {
            task: &self.order.task,
            repo: &directory,
            criteria: &criteria,
            missing: &self.verdict.instructions(),
            errors: &self.errors,
            turn: wanted.turn,
            max_turns: self.order.limits.turns(),
        };
        self.context.templates.get(wanted.kind).fill(&inserts)
    }

    /// Looks at what is there, and judges it. Commands are run where nothing else is
    /// missing, and after Codex's own were killed.
    async fn look(&mut self, came: &Came) -> Look {
        self.usage += came.usage;
        self.work.add(&came.steps, came.refusal());
        let has_answered = came.end == TurnEnd::Completed && !came.text.trim().is_empty();
        self.work.answer = match has_answered {
            true => Answer::Given,
            false => Answer::Missing,
        };
        let looked = self.paused_look().await;
        looked.unwrap_or_else(|error| self.no_look(&error))
    }

    async fn paused_look(&mut self) -> Result<Look, PauseError> {
        let mut paused = self.context.engine.pause_commands().await?;
        let restored = self.context.submodules.restore().await;
        self.context.warn(restored);
        self.take_over().await;
        let mut now = self.looker.now().await;
        if let Some(why) = &self.not_taken {
            now = self.looker.without_git(now, why);
        }
        self.verdict = self.judge(&now);
        let mut judged = LocalState::from(&now);
        if self.looker.has_commands() && self.verdict.is_worth_commands() {
            // They run outside of the sandbox, and read what has just been judged.
            paused.kill_commands().await?;
            now.commands = self.commands().await;
            judged = self.looker.local().await;
            self.verdict = self.judge(&now);
        }
        if self.verdict.is_worth_review() {
            // The reviewer's own commands have to run, beside nothing else. What changes
            // meanwhile is found when the run is confirmed.
            paused.kill_commands().await?;
            drop(paused);
            now.review = Some(self.review().await);
            paused = self.context.engine.pause_commands().await?;
            self.verdict = self.judge(&now);
        }
        Ok(Look {
            now,
            judged,
            paused,
        })
    }

    /// A look that could not be taken, as Codex's background processes still run.
    fn no_look(&mut self, error: &PauseError) -> Look {
        let why = format!("{error}. The repository was not looked at");
        let now = self.looker.nothing(&why);
        self.verdict = self.judge(&now);
        self.context.warn([why]);
        Look {
            now,
            judged: LocalState::default(),
            paused: Paused::default(),
        }
    }

    /// Has another thread review what the run has made.
    async fn review(&mut self) -> Probe<ReviewEnd> {
        let watcher = self.context.watcher;
        watcher.hears(News::Reviewing);
        let head = self.start.head.found();
        let commit = head.and_then(|head| head.line.tip.as_deref());
        let instructions = review::instructions(commit, &self.order.task);
        let mut settings = self.order.settings.clone();
        settings.thread.cwd = Some(self.looker.top().to_owned());
        settings.keeping = Keeping::Ephemeral;
        let left = self
            .order
            .limits
            .total()
            .saturating_sub(self.clock.elapsed());
        let asked = Asked {
            target: ReviewTarget::Custom { instructions },
            limit: left.min(REVIEW_LIMIT),
            stop: self.context.stop,
            hears: &|step| watcher.hears(News::Step(step)),
        };
        match reviewed(self.context.engine, settings, asked).await {
            Ok(Reviewed { text, spent, .. }) => {
                self.usage += spent.into();
                match review::end(&text) {
                    Ok(end) => Probe::Found(end),
                    Err(why) => Probe::Failed(why),
                }
            }
            Err(error) => Probe::Failed(error.to_string()),
        }
    }

    async fn commands(&self) -> BTreeMap<CommandLine, Probe<CommandEnd>> {
        let elapsed = self.clock.elapsed();
        let left = self.order.limits.total().saturating_sub(elapsed);
        let until = Instant::now() + left;
        self.looker
            .commands(COMMAND_LIMIT, until, self.context.stop)
            .await
    }

    /// How the run ends, once nothing of Codex's can change the repository any more: what
    /// held when it was judged must still be so then.
    async fn confirmed(&mut self, end: End, look: Look) -> (End, Snapshot) {
        let Look {
            now,
            judged,
            paused,
        } = look;
        let killed = paused.kill_commands().await;
        // MCP servers are told to end, for which they have to run.
        drop(paused);
        if killed.is_ok() {
            self.context.engine.remove_mount_targets().await;
        }
        if end != End::Satisfied || !self.verdict.has_criteria() {
            return (end, now);
        }
        let ended = self.context.engine.shut_down().await;
        let changed = match (killed, ended) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Shutdown::Unfinished) => {
                "Codex has not ended in time, and may still change the repository".to_owned()
            }
            (Ok(()), Shutdown::Complete) => match self.looker.local().await.difference(&judged) {
                None => return (end, now),
                Some(what) => format!(
                    "all held when it was judged, but this changed before Codex had ended: \
                     {what}. Look at `git status`"
                ),
            },
        };
        self.failure = Some(changed);
        (End::Unconfirmed, now)
    }

    /// Takes over what Codex has committed. What fails is told; the criteria don't hold
    /// then.
    async fn take_over(&mut self) {
        let Some(private) = &mut self.private else {
            return;
        };
        let (warnings, not_taken) = match private.take_over(self.context.stop).await {
            Ok(Takeover {
                warnings,
                complete: true,
                ..
            }) => (warnings, None),
            Ok(Takeover { warnings, .. }) => {
                let why = warnings.last().cloned().unwrap_or_default();
                (warnings, Some(why))
            }
            Err(error) => {
                let pushed = private.pushed();
                let pushed = match pushed.is_empty() {
                    true => String::new(),
                    false => format!(
                        ". What Codex has pushed is at the remote all the same: {}",
                        pushed.join(", ")
                    ),
                };
                let why = format!("Codex's commits cannot be taken over: {error}{pushed}");
                (vec![why.clone()], Some(why))
            }
        };
        self.not_taken = not_taken;
        self.context.warn(warnings);
    }

    fn judge(&self, now: &Snapshot) -> Verdict {
        let Order {
            criteria,
            preexisting,
            ..
        } = self.order;
        judge(criteria, &self.start, now, &self.work, *preexisting)
    }

    fn report(&mut self, came: &Came, now: &Snapshot) -> Report {
        Report {
            end: came.end,
            evidence: came.steps.evidence,
            denied: came.refused(),
            failed: came.steps.failed,
            standing: self.verdict.standing(),
            gain: self.shown.take(&self.start, now),
            answer: self.novelty(came),
            tokens: self.usage.total_tokens,
        }
    }

    /// Whether a turn answered something else than the one before. One that was cut short
    /// has no answer.
    fn novelty(&self, came: &Came) -> AnswerNovelty {
        let answer = came.text.trim();
        let has_answered = came.end == TurnEnd::Completed && !answer.is_empty();
        match has_answered && answer == self.response.trim() {
            true => AnswerNovelty::Repeated,
            false => AnswerNovelty::New,
        }
    }

    /// Writes down what has come of a turn.
    fn record(&mut self, wanted: &Wanted, came: Came, report: &Report, took: Duration) {
        let Came {
            end,
            steps,
            denied,
            usage,
            text,
            failure,
            at_usage_limit,
        } = came;
        let denied = notes(steps.denied.into_iter().chain(denied));
        let errors = notes(failure.clone().into_iter().chain(steps.errors));
        let not_allowed = denied.iter().map(|what| format!("not allowed: {what}"));
        let advice = (end == TurnEnd::TimedOut).then(|| failing::IN_SMALLER_STEPS.to_owned());
        let told = errors.iter().cloned().chain(not_allowed).chain(advice);
        self.errors = told.collect();
        self.failure = failure;
        self.at_usage_limit = at_usage_limit;
        let record = TurnRecord {
            turn: wanted.turn,
            prompt: wanted.kind,
            conversation: wanted.conversation,
            end: end.name(),
            duration_ms: milliseconds(took),
            evidence: steps.evidence,
            usage,
            denied,
            errors,
            promises: promises(&text),
            gain: report.gain,
            criteria: self.verdict.clone(),
        };
        if !text.is_empty() {
            self.response = text;
        }
        if let Some(file) = &mut self.context.evidence {
            file.write(&record);
        }
        self.context.watcher.hears(News::TurnEnded(&record));
        self.log.push(record);
    }

    fn done(mut self, end: End, now: &Snapshot, turns: u32) -> Done {
        let kept = self.private.take().and_then(|private| private.keep());
        self.context.warn(kept);
        let made = artifacts::listed(&self.start, now);
        let evidence = RunEvidence {
            total: self.work.evidence,
            criteria: self.verdict,
            log: self.log,
        };
        let why = match end {
            End::CouldNotRun(_) | End::Unconfirmed => self.failure,
            _ => None,
        };
        let evidence_file = self.context.evidence.and_then(EvidenceFile::close);
        Done {
            outcome: Outcome::new(end, made, evidence, turns, why),
            thread_id: self.thread,
            sandbox: self.sandbox,
            usage: self.usage,
            rate_limits: self.context.engine.rate_limits(),
            at_usage_limit: self.at_usage_limit,
            response: self.response,
            evidence_file,
            warnings: self.context.warnings,
        }
    }
}
