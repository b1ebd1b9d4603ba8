//! Beginning, resuming and forking threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codex_config::layers::{CodexConfig, UserConfig, configured_instructions, get};
use codex_config::profile::ProfileName;
use codex_config::rules::{GitRules, has_rules};
use codex_config::trust::{DirectoryTrust, TrustError, directory_trust, is_listed};
use codex_config::{profile, writable_roots};
use codex_protocol::codex::{
    Method, Persistence, Release, ReportedSandbox, SandboxMode, ThreadForkParams, ThreadId,
    ThreadResponse, ThreadResumeParams, ThreadSettings, ThreadStartParams,
};
use safe_files::{directory, off_runtime};
use serde_json::{Value, json};

use super::adoption::restore;
use super::app_server::AppServer;
use super::backend::Running;
use super::command::{
    EffectiveSettings, KnownSettings, McpServers, OpenThread, ReportDenied, ResumeThread,
    SessionId, Settings, StartThread,
};
use super::confinement::{
    ConfiguredSandbox, Conversation, RequestedSettings, ThreadContext, left_out,
};
use super::connection::Closing;
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use super::kept::Origin;
use super::observer::Act;
use super::requests::call;
use super::rollouts::{self, StartDirectory};
use super::sessions::{AddedSession, TooManySessions};
use super::unloading::unload_evicted;
use super::{closing, hub, overrides, workspace};
use crate::logic::session::{PromptRefused, State};

/// The key of the writable directories in Codex's configuration.
const ROOTS: &str = "sandbox_workspace_write.writable_roots";

impl Engine {
    /// Begins a thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no thread was begun then.
    pub async fn start(&self, mut start: StartThread) -> Result<OpenThread, EngineError> {
        let thread = &mut start.settings.thread;
        let cwd = self.working_directory(thread.cwd.take())?;
        writable_roots::resolve(&mut thread.config, &cwd);
        thread.cwd = Some(cwd);
        let running = self.codex.backend.ready(&self.codex.hub).await?;
        let settings = self
            .confined(&start.settings, &running.0, Conversation::New)
            .await?;
        if running.0.account().blocks_new(&settings) {
            return Err(self.login_error(&running.0));
        }
        let tools = self.owner.tools.describe();
        let params = ThreadStartParams {
            settings: &settings,
            persistence: start.settings.persistence,
            raw_events: start.report_denied == ReportDenied::On,
            dynamic_tools: &tools,
        };
        let started: ThreadResponse = call(&running.0, Method::ThreadStart, &params).await?;
        let (AddedSession::New { entry, .. } | AddedSession::Existing(entry)) =
            self.add_session(&started, Origin::New, start, running)?;
        Ok(opened(&entry, started.sandbox))
    }

    /// Resumes a thread, whether we or another client of Codex began it. Its earlier settings are
    /// applied again. An archived thread is unarchived.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the thread is unchanged then.
    pub async fn resume(&self, resume: ResumeThread) -> Result<OpenThread, EngineError> {
        let ResumeThread { thread, mut start } = resume;
        if start.settings.persistence == Persistence::Ephemeral {
            return Err(EngineError::AlreadyWritten);
        }
        let requested = &mut start.settings.thread;
        if let Some(cwd) = requested.cwd.take() {
            requested.cwd = Some(self.working_directory(Some(cwd))?);
        }
        let base = match &requested.cwd {
            Some(cwd) => cwd.clone(),
            None => self.working_directory(None)?,
        };
        writable_roots::resolve(&mut requested.config, &base);
        let earlier = self.codex.hub.sessions.by_thread(thread.as_str());
        let mut unloaded = None;
        if let Some(entry) = &earlier {
            restore(&self.codex.hub, entry).await;
            match entry.state() {
                State::Cancelled if entry.access(|machine, _| machine.has_turn()) => {
                    return Err(EngineError::StillEnding(thread));
                }
                // Codex would unload the thread that it has just resumed.
                State::Cancelled => unloaded = Some(entry.unloading.lock().await),
                _ => return self.resume_live(entry, start).await,
            }
        }
        let requested = start.clone();
        let before = self.earlier_settings(&thread);
        start.settings = start.settings.over(before.settings);
        start.timeouts = start.timeouts.or(before.timeouts);
        if start.settings.thread.cwd.is_none() {
            start.settings.thread.cwd = self.start_directory(&thread).await?;
        }
        let running = self.codex.backend.ready(&self.codex.hub).await?;
        let settings = self
            .confined(&start.settings, &running.0, Conversation::Resumed)
            .await?;
        let directories = start.directories.take();
        let resumed = resume_in(&running.0, &thread, &settings, directories.as_deref()).await?;
        if running.0.account().blocks_resumed(&resumed) {
            return Err(self.login_error(&running.0));
        }
        if start.settings.thread.cwd.is_none() {
            start.settings.thread.cwd = reported_directory(&running.0, &resumed)?;
        }
        let opened = self.add_existing(&resumed, requested, start, running).await;
        drop(unloaded);
        opened
    }

    /// Adds a session for a thread that was not begun by this request. `start` has the requested
    /// settings and those that the thread had before.
    async fn add_existing(
        &self,
        response: &ThreadResponse,
        requested: StartThread,
        start: StartThread,
        running: Running,
    ) -> Result<OpenThread, EngineError> {
        // The session is added before the next await: if several requests resume the thread, Codex
        // has the settings of the request that it has answered first.
        let entry = match self.add_session(response, Origin::Existing, start, running)? {
            AddedSession::New { entry, .. } => entry,
            AddedSession::Existing(entry) => return self.resume_live(&entry, requested).await,
        };
        let opened = OpenThread {
            missing_tools: self.missing_tools(response).await,
            ..opened(&entry, response.sandbox)
        };
        if let Some(warning) = opened.warning() {
            (self.warn)(warning);
        }
        Ok(opened)
    }

    /// The tools that a resumed thread lacks, since Codex accepts no tools later. Empty if they
    /// cannot be determined: the thread works anyway.
    async fn missing_tools(&self, resumed: &ThreadResponse) -> Vec<String> {
        let offered = self.owner.tools.describe();
        let (false, Some(path)) = (offered.is_empty(), resumed.thread.path.clone()) else {
            return Vec::new();
        };
        let Ok(Some(has)) = off_runtime::run(move || rollouts::tools(&path)).await else {
            return Vec::new();
        };
        let offered = offered.into_iter().map(|tool| tool.name);
        offered.filter(|name| !has.contains(name)).collect()
    }

    /// The directory of a thread that was not begun here. It must be known before Codex reads the
    /// directory's files, to state whether the user trusts it. `None` if Codex has no rollout of
    /// the thread; Codex then refuses to resume it.
    pub(super) async fn start_directory(
        &self,
        thread: &ThreadId,
    ) -> Result<Option<PathBuf>, EngineError> {
        let (codex_home, id) = (self.options.codex_home.clone(), thread.clone());
        let directory =
            off_runtime::run(move || match rollouts::start_directory(&codex_home, &id) {
                StartDirectory::In(cwd) if !cwd.is_dir() => Err(EngineError::NoDirectory(cwd)),
                StartDirectory::In(cwd) => Ok(Some(cwd)),
                StartDirectory::Missing => Ok(None),
                StartDirectory::Unknown => Err(EngineError::UnknownDirectory(id)),
            });
        directory.await?
    }

    /// The engine's knowledge of a thread's settings.
    #[must_use]
    pub fn known_settings(&self, thread: &ThreadId) -> KnownSettings {
        match self.codex.hub.sessions.remembers(thread.as_str()) {
            true => KnownSettings::Remembered,
            false => self
                .owner
                .observer
                .recall(thread)
                .map_or(KnownSettings::Unknown, |settings| {
                    KnownSettings::Recorded(Box::new(settings))
                }),
        }
    }

    /// The settings that a thread had: the remembered ones, or else those recorded before the
    /// program started.
    pub(super) fn earlier_settings(&self, thread: &ThreadId) -> StartThread {
        let remembered = self.codex.hub.sessions.recall(thread.as_str());
        remembered.unwrap_or_else(|| StartThread {
            settings: self.owner.observer.recall(thread).unwrap_or_default(),
            ..StartThread::default()
        })
    }

    /// Resumes a thread that has a session: changes of the settings apply from its next
    /// turn on.
    async fn resume_live(
        &self,
        entry: &Arc<Entry>,
        start: StartThread,
    ) -> Result<OpenThread, EngineError> {
        let changes_settings = start != StartThread::default();
        let is_busy = || changes_settings && entry.access(|machine, _| machine.has_turn());
        if is_busy() {
            return Err(EngineError::Busy(PromptRefused::Running));
        }
        let pending = start.settings.changeable();
        let pending = pending.ok_or_else(|| EngineError::Live {
            thread: entry.thread.clone(),
            session: entry.id.clone(),
        })?;
        self.load(entry).await?;
        // A prompt may have arrived in the meantime. Once Codex accepts the prompt, later changes
        // would be lost.
        if is_busy() {
            return Err(EngineError::Busy(PromptRefused::Running));
        }
        entry.set_pending(pending, start.settings.model_options);
        if let Some(timeouts) = start.timeouts {
            entry.access(|machine, _| machine.set_timeouts(timeouts));
        }
        entry.change(|machine, _| machine.recovered());
        Ok(opened(entry, ReportedSandbox::Unknown))
    }

    /// Begins a thread that continues from the current state of a session's thread. The
    /// session itself is unchanged.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no thread was begun then.
    pub async fn fork(&self, session: &SessionId) -> Result<OpenThread, EngineError> {
        let entry = self.entry(session)?;
        if entry.state() == State::Cancelled {
            return Err(entry.cancelled());
        }
        let running = self.codex.backend.ready(&self.codex.hub).await?;
        let settings = entry.settings();
        let params = ThreadForkParams {
            thread_id: &entry.thread,
            exclude_turns: true,
            settings: &self
                .confined(&settings, &running.0, Conversation::Resumed)
                .await?,
        };
        let forked: Result<ThreadResponse, EngineError> =
            call(&running.0, Method::ThreadFork, &params).await;
        let forked = forked.map_err(|error| error.about_fork(&entry.thread))?;
        let act = Act::Forked(&forked.thread.id);
        self.owner.observer.acted(&entry.thread, act);
        let start = StartThread {
            settings,
            timeouts: Some(entry.access(|machine, _| machine.timeouts())),
            ..StartThread::default()
        };
        let requested = StartThread::default();
        self.add_existing(&forked, requested, start, running).await
    }

    /// Makes sure that the thread of a session is loaded in the current app-server, with
    /// its settings.
    pub(super) async fn load(&self, entry: &Arc<Entry>) -> Result<(), EngineError> {
        let running = self.codex.backend.ready(&self.codex.hub).await?;
        if entry.is_loaded_in(&running) {
            return Ok(());
        }
        let settings = self
            .confined(&entry.settings(), &running.0, Conversation::Resumed)
            .await?;
        let resumed = resume_in(&running.0, &entry.thread, &settings, None).await?;
        let effective = EffectiveSettings::from_response(&resumed, &entry.settings().thread);
        entry.access(|machine, _| machine.uses_model(resumed.model.as_deref()));
        entry.mark_loaded_in(running, effective);
        Ok(())
    }

    /// The error for a missing login, or for a configuration that Codex cannot load. Ends the
    /// app-server, since it would notice neither a later login nor a corrected configuration,
    /// unless it works for threads that need neither.
    fn login_error(&self, server: &AppServer) -> EngineError {
        if self.under_way().0 == 0 {
            server.connection().close(Closing::Abrupt);
        }
        match server.bad_configuration.clone() {
            Some(why) => EngineError::BadConfiguration(why),
            None => EngineError::NoLogin,
        }
    }

    fn add_session(
        &self,
        response: &ThreadResponse,
        origin: Origin,
        start: StartThread,
        running: Running,
    ) -> Result<AddedSession, EngineError> {
        let timeouts = start.timeouts.unwrap_or(self.options.timeouts);
        let opened = start.clone();
        let effective = EffectiveSettings::from_response(response, &start.settings.thread);
        let settings = (start.settings, effective);
        let thread = response.thread.id.clone();
        let owner = self.owner.clone();
        let entry = Entry::new(thread, origin, settings, running, timeouts, owner);
        if let (Origin::New, Some(model)) = (origin, &response.model) {
            entry.access(|machine, _| machine.begins_with_model(model));
        }
        let sessions = &self.codex.hub.sessions;
        let added = sessions.add(entry);
        let added = added.map_err(|TooManySessions| EngineError::TooManySessions)?;
        let AddedSession::New { entry, evicted } = &added else {
            return Ok(added);
        };
        let begins = match origin {
            Origin::New => "a session begins",
            Origin::Existing => "a session begins, of a thread that was there before",
        };
        entry.span.in_scope(|| tracing::info!("{begins}"));
        entry.keep();
        self.owner.observer.opened(&entry.thread, &opened);
        if let Some(evicted) = evicted {
            hub::cancel(evicted, "it was not used for long, and new sessions began");
            let hub = Arc::clone(&self.codex.hub);
            tokio::spawn(unload_evicted(hub, Arc::clone(evicted)));
        }
        Ok(added)
    }

    /// Resolves a working directory to an absolute path without links, so that Codex gets the path
    /// that is checked before each prompt. Checks that the directory exists: Codex would accept a
    /// missing one, and every command in it would fail.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoDirectory`], and [`EngineError::NoCurrentDirectory`] if the engine's own
    /// directory is gone.
    pub fn working_directory(&self, cwd: Option<PathBuf>) -> Result<PathBuf, EngineError> {
        let cwd = self.directory()?.join(cwd.unwrap_or_default());
        match cwd.is_dir() {
            true => Ok(directory::resolved(&cwd)),
            false => Err(EngineError::NoDirectory(cwd)),
        }
    }

    /// The complete settings of a thread for Codex, confined so that no program of the
    /// repository runs outside of the sandbox.
    async fn confined(
        &self,
        settings: &Settings,
        server: &AppServer,
        conversation: Conversation,
    ) -> Result<ThreadSettings, EngineError> {
        workspace::check(&settings.thread)?;
        let mut thread = self.with_profile(settings)?;
        let cwd = thread.cwd.clone();
        let (trust, config) = self.configured(settings.profile.clone(), cwd).await?;
        if let Some(warning) = trust.as_ref().and_then(left_out) {
            (self.warn)(warning);
        }
        let called = thread.developer_instructions.take();
        thread.developer_instructions = settings
            .added
            .around(called, || configured_instructions(&thread.config, &config));
        self.note_writable(&thread, &config);
        let is_bounded =
            conversation == Conversation::Resumed && self.owner.sandbox_bound.is_some();
        if is_bounded
            && thread.sandbox.is_none()
            && let Some(configured) = ConfiguredSandbox::of(&thread.config, &config)
        {
            // The thread's earlier sandbox may exceed the bound.
            configured.set_in(&mut thread.config);
        }
        let workplace = ThreadContext {
            conversation,
            config: &config,
            release: server.about.codex_version().and_then(Release::parse),
            trust: trust.as_ref(),
        };
        workplace.confine(RequestedSettings {
            sandbox: &mut thread.sandbox,
            approval_policy: &mut thread.approval_policy,
            config: &mut thread.config,
        });
        match settings.mcp_servers {
            McpServers::Configured => {
                workplace.place_servers(&mut thread.config);
                workplace.without_delegation(&mut thread.config);
            }
            McpServers::Off => workplace.keep_apart(&mut thread.config),
        }
        if let Some(warning) = self.git_rules_warning(thread.sandbox) {
            (self.warn)(warning);
        }
        Ok(thread)
    }

    /// The user's trust in a directory, and Codex's configuration there. Reads the directory's own
    /// files on another thread.
    ///
    /// Codex's own `config/read` considers only its list of trusted directories. It would use a
    /// repository's file that has changed since the user trusted the repository.
    pub(super) async fn configured(
        &self,
        profile: Option<ProfileName>,
        cwd: Option<PathBuf>,
    ) -> Result<(Option<DirectoryTrust>, CodexConfig), EngineError> {
        let user = UserConfig::read(&self.options.codex_home);
        let is_listed = match &cwd {
            Some(cwd) => is_listed(cwd, &user)?,
            None => false,
        };
        let read = move || -> Result<_, TrustError> {
            let trust = cwd.map(|cwd| directory_trust(&cwd, &user)).transpose()?;
            let config = user.layers(profile.as_ref(), trust.as_ref());
            Ok((trust, config))
        };
        Ok(match is_listed {
            true => off_runtime::run(read).await??,
            false => read()?,
        })
    }

    /// Notes the directories that a thread may write to in `workspace-write`.
    fn note_writable(&self, thread: &ThreadSettings, config: &CodexConfig) {
        let roots = get(&thread.config, ROOTS).or_else(|| config.get(ROOTS));
        let roots = roots.and_then(Value::as_array).into_iter().flatten();
        let roots = roots.filter_map(Value::as_str).map(Path::new);
        let absolute = roots.filter(|root| root.is_absolute());
        for directory in thread.cwd.as_deref().into_iter().chain(absolute) {
            self.codex.note_mount_targets(directory);
        }
    }

    /// A warning about the user's rules that let git leave this sandbox, if there are any.
    pub fn git_rules_warning(&self, sandbox: Option<SandboxMode>) -> Option<String> {
        let rules = GitRules::of(&self.options.codex_home);
        let rules = rules.filter(|_| sandbox != Some(SandboxMode::DangerFullAccess))?;
        Some(format!("{rules}. {}", GitRules::HINT))
    }

    /// Whether the user, or the repository with this top directory, has rules that let a command
    /// leave the sandbox without a question.
    pub fn has_command_rules(&self, top: &Path) -> bool {
        has_rules(&self.options.codex_home) || has_rules(&top.join(".codex"))
    }

    /// The thread's settings, merged over those of the profile. No override is left outside of the
    /// table that it belongs to.
    pub(super) fn with_profile(&self, settings: &Settings) -> Result<ThreadSettings, EngineError> {
        let mut thread = settings.thread.clone();
        if let Some(profile) = &settings.profile {
            let mut config = profile::overrides(&self.options.codex_home, profile)?;
            profile::overlay(&mut config, std::mem::take(&mut thread.config));
            thread.config = config;
        }
        overrides::complete_tables(&mut thread.config);
        Ok(thread)
    }
}

fn opened(entry: &Entry, sandbox: ReportedSandbox) -> OpenThread {
    OpenThread {
        session: entry.id.clone(),
        thread: entry.thread.clone(),
        sandbox: sandbox.mode(),
        missing_tools: Vec::new(),
    }
}

/// The directory of a resumed thread, as reported by Codex because nobody else knows it. If the
/// directory is refused, the thread is unloaded, so that it can be resumed with another directory.
fn reported_directory(
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
    let resuming = async || {
        let resumed = call(server, Method::ThreadResume, &params).await;
        resumed.map_err(|error: EngineError| error.about(thread))
    };
    match resuming().await {
        // The thread may be archived: unloading archives it for a moment, and this process may have
        // been killed in that moment.
        Err(EngineError::NoThread(_)) => {
            // Another process may have restored it just now: only the attempt to resume it counts.
            if let Err(error) = closing::unarchive(server, thread).await {
                tracing::debug!("the thread is not restored: {error}");
            }
            resuming().await
        }
        resumed => resumed,
    }
}
