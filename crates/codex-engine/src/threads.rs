//! Beginning, taking up and forking threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codex_config::layers::{CodexConfig, UserConfig, configured_instructions, get};
use codex_config::rules::GitRules;
use codex_config::trust::directory_trust;
use codex_config::{profile, writable_roots};
use codex_protocol::codex::{
    Keeping, Method, Release, SandboxMode, ThreadForkParams, ThreadId, ThreadResponse,
    ThreadResumeParams, ThreadSettings, ThreadStartParams, ToldSandbox,
};
use safe_files::{directory, off_runtime};
use serde_json::{Value, json};

use super::app_server::AppServer;
use super::backend::Running;
use super::command::{
    Effective, Known, McpServers, Opened, Refusals, Resume, SessionId, Settings, Start,
};
use super::confinement::{ConfiguredSandbox, Conversation, Wanted, Workplace, left_out};
use super::rollouts::{self, Begun};
use super::sessions::{Added, Entry, Full, Origin};
use super::{Act, Engine, EngineError, call, hub, workspace};
use crate::logic::session::{PromptRefused, State};

/// The writable directories in Codex's configuration.
const ROOTS: &str = "sandbox_workspace_write.writable_roots";

impl Engine {
    /// Begins a thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; there is no thread then.
    pub async fn start(&self, mut start: Start) -> Result<Opened, EngineError> {
        let thread = &mut start.settings.thread;
        let cwd = self.working_directory(thread.cwd.take())?;
        writable_roots::resolve(&mut thread.config, &cwd);
        thread.cwd = Some(cwd);
        let running = self.backend.ready(&self.hub).await?;
        let settings = self.confined(&start.settings, &running.0, Conversation::New)?;
        if running.0.account.stops_new(&settings) {
            return Err(self.without_login(&running.0));
        }
        let tools = self.hub.tools().describe();
        let params = ThreadStartParams {
            settings: &settings,
            keeping: start.settings.keeping,
            raw_events: start.refusals == Refusals::Told,
            dynamic_tools: &tools,
        };
        let begun: ThreadResponse = call(&running.0, Method::ThreadStart, &params).await?;
        let entry = self.enter(&begun, Origin::Begun, start, running)?;
        Ok(opened(&entry, begun.sandbox))
    }

    /// Takes up a thread: one of ours, or any other that Codex can resume. What
    /// was set for it before is set again.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the thread is as it was then.
    pub async fn resume(&self, resume: Resume) -> Result<Opened, EngineError> {
        let Resume { thread, mut start } = resume;
        if start.settings.keeping == Keeping::Ephemeral {
            return Err(EngineError::AlreadyWritten);
        }
        let given = &mut start.settings.thread;
        if let Some(cwd) = given.cwd.take() {
            given.cwd = Some(self.working_directory(Some(cwd))?);
        }
        let base = match &given.cwd {
            Some(cwd) => cwd.clone(),
            None => self.working_directory(None)?,
        };
        writable_roots::resolve(&mut given.config, &base);
        if let Some(entry) = self.hub.sessions.by_thread(thread.as_str()) {
            match entry.state() {
                State::Cancelled if entry.look(|machine, _| machine.has_turn()) => {
                    return Err(EngineError::StillEnding(thread));
                }
                State::Cancelled => {}
                _ => return self.resume_live(&entry, start).await,
            }
        }
        let before = self.hub.sessions.recall(thread.as_str());
        let before = before.unwrap_or_else(|| self.recorded(&thread));
        start.settings = start.settings.over(before.settings);
        start.patience = start.patience.or(before.patience);
        if start.settings.thread.cwd.is_none() {
            start.settings.thread.cwd = self.begun_in(&thread).await?;
        }
        let running = self.backend.ready(&self.hub).await?;
        let settings = self.confined(&start.settings, &running.0, Conversation::Resumed)?;
        let directories = start.directories.take();
        let resumed = resume_in(&running.0, &thread, &settings, directories.as_deref()).await?;
        if running.0.account.stops_resumed(&resumed) {
            return Err(self.without_login(&running.0));
        }
        if start.settings.thread.cwd.is_none() {
            start.settings.thread.cwd = told_directory(&running.0, &resumed)?;
        }
        self.tell_missing_tools(&resumed).await;
        let entry = self.enter(&resumed, Origin::Before, start, running)?;
        Ok(opened(&entry, resumed.sandbox))
    }

    /// Tells the user of tools that a thread was begun without: Codex gives none later.
    async fn tell_missing_tools(&self, resumed: &ThreadResponse) {
        let wanted = self.hub.tools().describe();
        let (false, Some(path)) = (wanted.is_empty(), resumed.thread.path.clone()) else {
            return;
        };
        // Where that can't be found out, nothing is said: the thread works all the same.
        let Ok(Some(has)) = off_runtime::run(move || rollouts::tools(&path)).await else {
            return;
        };
        let wanted = wanted.into_iter().map(|tool| tool.name);
        let missing: Vec<String> = wanted.filter(|name| !has.contains(name)).collect();
        if !missing.is_empty() {
            (self.warn)(format!(
                "the thread {} goes on without {}: it was begun without, and Codex gives tools \
                 to new threads only. Begin a new thread to have them.",
                resumed.thread.id,
                missing.join(", ")
            ));
        }
    }

    /// Where a thread works that was not begun here. Codex has to be told whether the user
    /// trusts that directory before it reads its files. `None` if Codex has no file of the
    /// thread; it refuses to resume it then.
    async fn begun_in(&self, thread: &ThreadId) -> Result<Option<PathBuf>, EngineError> {
        let (codex_home, id) = (self.options.codex_home.clone(), thread.clone());
        let begun = off_runtime::run(move || match rollouts::begun(&codex_home, &id) {
            Begun::In(cwd) if !cwd.is_dir() => Err(EngineError::NoDirectory(cwd)),
            Begun::In(cwd) => Ok(Some(cwd)),
            Begun::Missing => Ok(None),
            Begun::Unknown => Err(EngineError::UnknownDirectory(id)),
        });
        begun.await?
    }

    /// What is known of how a thread was set.
    #[must_use]
    pub fn known(&self, thread: &ThreadId) -> Known {
        match self.hub.sessions.remembers(thread.as_str()) {
            true => Known::Here,
            false => self
                .observer
                .recall(thread)
                .map_or(Known::Unknown, |settings| Known::Before(Box::new(settings))),
        }
    }

    /// How a thread from before the program started was set.
    fn recorded(&self, thread: &ThreadId) -> Start {
        Start {
            settings: self.observer.recall(thread).unwrap_or_default(),
            ..Start::default()
        }
    }

    /// A thread whose session we have: what is new of the settings holds from its
    /// next turn on.
    async fn resume_live(&self, entry: &Arc<Entry>, start: Start) -> Result<Opened, EngineError> {
        if entry.look(|machine, _| machine.has_turn()) && start != Start::default() {
            return Err(EngineError::Busy(PromptRefused::Running));
        }
        let pending = start.settings.changeable();
        let pending = pending.ok_or_else(|| EngineError::Live {
            thread: entry.thread.clone(),
            session: entry.id.clone(),
        })?;
        self.load(entry).await?;
        entry.set_pending(pending, start.settings.manner);
        if let Some(patience) = start.patience {
            entry.look(|machine, _| machine.set_patience(patience));
        }
        entry.change(|machine, _| machine.recovered());
        Ok(opened(entry, ToldSandbox::Unknown))
    }

    /// Begins a thread that goes on from where a session's thread stands now. The
    /// session itself stays as it is.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; there is no new thread then.
    pub async fn fork(&self, session: &SessionId) -> Result<Opened, EngineError> {
        let entry = self.entry(session)?;
        if entry.state() == State::Cancelled {
            return Err(entry.cancelled());
        }
        let running = self.backend.ready(&self.hub).await?;
        let settings = entry.settings();
        let params = ThreadForkParams {
            thread_id: &entry.thread,
            exclude_turns: true,
            settings: &self.confined(&settings, &running.0, Conversation::Resumed)?,
        };
        let forked: Result<ThreadResponse, EngineError> =
            call(&running.0, Method::ThreadFork, &params).await;
        let forked = forked.map_err(|error| error.about_fork(&entry.thread))?;
        let act = Act::Forked(&forked.thread.id);
        self.observer.acted(&entry.thread, act);
        let start = Start {
            settings,
            patience: Some(entry.look(|machine, _| machine.patience())),
            ..Start::default()
        };
        let entry = self.enter(&forked, Origin::Before, start, running)?;
        Ok(opened(&entry, forked.sandbox))
    }

    /// Sees to it that the thread of a session is loaded in the app-server that
    /// runs now, with its settings.
    pub(super) async fn load(&self, entry: &Arc<Entry>) -> Result<(), EngineError> {
        let running = self.backend.ready(&self.hub).await?;
        if entry.is_loaded_in(&running) {
            return Ok(());
        }
        let settings = self.confined(&entry.settings(), &running.0, Conversation::Resumed)?;
        let resumed = resume_in(&running.0, &entry.thread, &settings, None).await?;
        let effective = Effective::told(&resumed, &entry.settings().thread);
        entry.now_loaded_in(running, effective);
        Ok(())
    }

    /// Ends an app-server without a login, as it would not see one that comes later;
    /// unless it works for threads that need none.
    fn without_login(&self, server: &AppServer) -> EngineError {
        if self.under_way().0 == 0 {
            server.connection().close();
        }
        EngineError::NoLogin
    }

    fn enter(
        &self,
        response: &ThreadResponse,
        origin: Origin,
        start: Start,
        running: Running,
    ) -> Result<Arc<Entry>, EngineError> {
        let patience = start.patience.unwrap_or(self.options.patience);
        let opened = start.clone();
        let observer = Arc::clone(&self.observer);
        let on_alert = Arc::clone(&self.on_alert);
        let effective = Effective::told(response, &start.settings.thread);
        let settings = (start.settings, effective);
        let thread = response.thread.id.clone();
        let entry = Entry::new(
            thread, origin, settings, running, patience, observer, on_alert,
        );
        let Added { entry, evicted } = self
            .hub
            .sessions
            .add(entry)
            .map_err(|Full| EngineError::TooManySessions)?;
        let begins = match origin {
            Origin::Begun => "a session begins",
            Origin::Before => "a session begins, of a thread that was there before",
        };
        entry.span.in_scope(|| tracing::info!("{begins}"));
        self.observer.opened(&entry.thread, &opened);
        if let Some(evicted) = evicted {
            hub::cancel(&evicted, "it was not used for long, and others began");
        }
        Ok(entry)
    }

    /// A working directory, absolute and without links: Codex gets the path that is checked
    /// before each prompt. Codex runs happily in a directory that isn't there, and every
    /// command in it fails; so it is checked here.
    pub(super) fn working_directory(&self, cwd: Option<PathBuf>) -> Result<PathBuf, EngineError> {
        let here = std::env::current_dir().map_err(EngineError::NoCurrentDirectory)?;
        let cwd = here.join(cwd.unwrap_or_default());
        match cwd.is_dir() {
            true => Ok(directory::resolved(&cwd)),
            false => Err(EngineError::NoDirectory(cwd)),
        }
    }

    /// The thread's settings as Codex gets them: complete, and such that nothing of the
    /// repository runs outside of the sandbox.
    fn confined(
        &self,
        settings: &Settings,
        server: &AppServer,
        conversation: Conversation,
    ) -> Result<ThreadSettings, EngineError> {
        workspace::check(&settings.thread)?;
        let mut thread = self.with_profile(settings)?;
        let user = UserConfig::read(&self.options.codex_home);
        let trust = match &thread.cwd {
            Some(cwd) => Some(directory_trust(cwd, &user)?),
            None => None,
        };
        if let Some(warning) = trust.as_ref().and_then(left_out) {
            (self.warn)(warning);
        }
        let config = user.layers(settings.profile.as_ref(), trust.as_ref());
        let called = thread.developer_instructions.take();
        thread.developer_instructions = settings
            .added
            .around(called, || configured_instructions(&thread.config, &config));
        self.note_writable(&thread, &config);
        let is_bounded = conversation == Conversation::Resumed && self.sandbox_bound.is_some();
        if is_bounded
            && thread.sandbox.is_none()
            && let Some(configured) = ConfiguredSandbox::of(&thread.config, &config)
        {
            // Of what the thread had before, nobody knows that it is within the bound.
            configured.set_in(&mut thread.config);
        }
        let workplace = Workplace {
            conversation,
            config: &config,
            release: server.about.codex_version().and_then(Release::parse),
            trust: trust.as_ref(),
        };
        workplace.confine(Wanted {
            sandbox: &mut thread.sandbox,
            approval_policy: &mut thread.approval_policy,
            config: &mut thread.config,
        });
        match settings.mcp_servers {
            McpServers::Configured => workplace.place_servers(&mut thread.config),
            McpServers::Off => workplace.switch_servers_off(&mut thread.config),
        }
        if let Some(warning) = self.git_rules_warning(thread.sandbox) {
            (self.warn)(warning);
        }
        Ok(thread)
    }

    /// Notes the directories that a thread may write to in `workspace-write`.
    fn note_writable(&self, thread: &ThreadSettings, config: &CodexConfig) {
        let roots = get(&thread.config, ROOTS).or_else(|| config.get(ROOTS));
        let roots = roots.and_then(Value::as_array).into_iter().flatten();
        let roots = roots.filter_map(Value::as_str).map(Path::new);
        let absolute = roots.filter(|root| root.is_absolute());
        for directory in thread.cwd.as_deref().into_iter().chain(absolute) {
            self.note_mount_targets(directory);
        }
    }

    /// Warns of rules of the user's by which git leaves this sandbox.
    pub fn git_rules_warning(&self, sandbox: Option<SandboxMode>) -> Option<String> {
        let rules = GitRules::of(&self.options.codex_home);
        let rules = rules.filter(|_| sandbox != Some(SandboxMode::DangerFullAccess))?;
        Some(format!("{rules}. {}", GitRules::HINT))
    }

    /// The thread's settings with the profile's below them.
    pub(super) fn with_profile(&self, settings: &Settings) -> Result<ThreadSettings, EngineError> {
        let mut thread = settings.thread.clone();
        if let Some(profile) = &settings.profile {
            let mut config = profile::overrides(&self.options.codex_home, profile)?;
            profile::lay_over(&mut config, std::mem::take(&mut thread.config));
            thread.config = config;
        }
        Ok(thread)
    }
}

fn opened(entry: &Entry, sandbox: ToldSandbox) -> Opened {
    Opened {
        session: entry.id.clone(),
        thread: entry.thread.clone(),
        sandbox: sandbox.mode(),
    }
}

/// Where a thread works that was not begun here, which only Codex knows. One that is
/// refused is unloaded, so that it can be resumed with another directory.
fn told_directory(
    server: &AppServer,
    resumed: &ThreadResponse,
) -> Result<Option<PathBuf>, EngineError> {
    let Some(cwd) = &resumed.cwd else {
        return Ok(None);
    };
    if let Err(replaced) = directory::check(cwd) {
        let thread = json!({ "threadId": resumed.thread.id });
        server.connection().cast(Method::ThreadUnsubscribe, &thread);
        return Err(replaced.into());
    }
    Ok(Some(cwd.clone()))
}

async fn resume_in(
    server: &AppServer,
    thread: &ThreadId,
    settings: &ThreadSettings,
    directories: Option<&[PathBuf]>,
) -> Result<ThreadResponse, EngineError> {
    let params = ThreadResumeParams {
        thread_id: thread,
        exclude_turns: true,
        settings,
        runtime_workspace_roots: directories,
    };
    let resumed = call(server, Method::ThreadResume, &params).await;
    resumed.map_err(|error: EngineError| error.about(thread))
}
