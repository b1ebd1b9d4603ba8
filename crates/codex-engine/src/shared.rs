//! An app-server with its sessions, which several engines may share.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::sync::lock;
use futures::future::join_all;
use safe_files::off_runtime;
use serde::{Deserialize, Serialize};
use supervise::adoptable::ADOPTION_WAIT;
use supervise::search_path::{protected_in, warn_of_replaceable};
use tokio::time::timeout;

use super::backend::{Backend, Launch, NewAdoptionSocket};
use super::binary;
use super::cached_usage::LastQuery;
use super::command::SessionInfo;
use super::entry::Entry;
use super::hub::Hub;
use super::mount_targets::{MountTargets, register_in};
use super::unloading::UNLOAD_TIMEOUT;
use crate::logic::session::Session;

/// How long shutting down may take: 5 s for Codex to exit by itself, 2 s for its guard to end it,
/// and a margin.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);

/// How long a restart waits for an app-server that is being started, which the next process could
/// not take over.
const HANDOVER_START_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to write what the next process needs.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether Codex has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// It has, and so have all processes that it started.
    Complete,
    /// Some of its processes may still run.
    Unfinished,
}

/// The effect of a restart on the app-servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// The next process can take over those that have turns, and gets the calls that wait for one that
    /// is being started.
    Possible,
    /// There is none to take over, and none has a turn.
    Needless,
    /// This many turns would end, as their app-servers cannot be taken over.
    Harmful(usize),
}

/// The end of the host process before this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// By itself, with its sessions, or there was none.
    #[default]
    Ended,
    /// It was killed. Clients may know sessions of it that this process does not know.
    Killed,
}

/// An app-server, started on demand, with its sessions.
pub(super) struct SharedCodex {
    /// The settings of all engines that share it.
    agreement: Agreement,
    pub(super) backend: Backend,
    pub(super) hub: Arc<Hub>,
    pub(super) predecessor: Predecessor,
    mount_targets: Mutex<MountTargets>,
    /// Codex's register of mount targets.
    register: PathBuf,
    /// The last query of the limits. Locked while Codex is asked.
    pub(super) last_query: tokio::sync::Mutex<Option<LastQuery>>,
}

/// Settings that engines sharing an app-server must have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreement {
    pub(super) launch: Option<Launch>,
    /// The program file as it was found. A changed file, as after an update, is another program.
    program: Option<ProgramFile>,
    /// The search paths of the process, without the directory of the client: Codex's commands can
    /// write there, and Codex must not find a program there.
    search_paths: Vec<(OsString, OsString)>,
    /// Further terms of the engines' owners, such as bounds, which must be equal.
    terms: String,
}

/// A file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// When its contents last changed: seconds and nanoseconds.
    modified: (i64, i64),
}

impl Agreement {
    /// The agreement of an engine that shares its app-server with no other.
    pub(super) fn of_one(launch: &Launch) -> Self {
        Self {
            launch: Some(launch.clone()),
            program: ProgramFile::of(launch),
            ..Self::default()
        }
    }

    /// The program of Codex, if it was found.
    pub(super) fn program(&self) -> Option<&Path> {
        Some(&self.program.as_ref()?.path)
    }

    /// Whether these agreements are equal except for the program.
    fn agrees_but_for_program(&self, other: &Self) -> bool {
        let with_its_program = Self {
            program: other.program.clone(),
            ..self.clone()
        };
        with_its_program == *other
    }
}

impl ProgramFile {
    /// The Codex that a launch would start now; `None` if there is none.
    fn of(launch: &Launch) -> Option<Self> {
        let path = binary::find(launch.codex.clone()).ok()?.native;
        let about = fs::metadata(&path).ok()?;
        Some(Self {
            path,
            device: about.dev(),
            inode: about.ino(),
            modified: (about.mtime(), about.mtime_nsec()),
        })
    }
}

/// How an app-server is started.
#[derive(Debug, Clone)]
pub(super) struct CodexStart {
    pub(super) launch: Launch,
    /// Variables on top of our environment.
    pub(super) env: Vec<(OsString, OsString)>,
    /// The directory of the process; ours by default.
    pub(super) directory: Option<PathBuf>,
}

impl SharedCodex {
    pub(super) fn new(start: CodexStart) -> Self {
        let CodexStart {
            launch,
            env,
            directory,
        } = start;
        let temporary = env.iter().rfind(|(name, _)| name == "TMPDIR");
        let temporary = temporary.map(|(_, path)| PathBuf::from(path));
        Self {
            register: register_in(&temporary.unwrap_or_else(std::env::temp_dir)),
            backend: Backend::new(launch, env, directory),
            agreement: Agreement::default(),
            hub: Arc::default(),
            predecessor: Predecessor::default(),
            mount_targets: Mutex::default(),
            last_query: tokio::sync::Mutex::default(),
        }
    }

    /// Whether this client has sessions here.
    fn has_sessions_of(&self, client: &str) -> bool {
        let all = self.hub.sessions.all();
        all.iter()
            .any(|entry| entry.owner().client.as_deref() == Some(client))
    }

    /// Whether another process can take the running app-server over.
    fn is_adoptable(&self) -> bool {
        let running = self.backend.running();
        running.is_some_and(|(server, _)| server.keeper().is_some())
    }

    /// Whether this process ends the app-server before a restart. One that is being started is left to
    /// its guard, which ends it after this process: otherwise the calls that wait for it would be answered
    /// here instead of being repeated.
    fn is_bound(&self) -> bool {
        !self.is_adoptable() && !self.backend.is_starting()
    }

    /// The number of sessions that have a turn.
    fn turns(&self) -> usize {
        let all = self.hub.sessions.all();
        all.iter().filter(|one| one.state().is_at_work()).count()
    }

    /// Waits until the records of all sessions, and the values for the next process, are written.
    async fn flush(&self) {
        let all = self.hub.sessions.all();
        let recording = all.iter().map(|entry| {
            let observer = entry.owner().observer;
            async move { observer.flush().await }
        });
        join_all(recording).await;
        if let Some((server, _)) = self.backend.running()
            && let Some(keeper) = server.keeper()
        {
            keeper.flush().await;
        }
    }

    /// Interrupts all turns, ends Codex and waits for its exit, at most [`SHUTDOWN_TIMEOUT`].
    pub(super) async fn shut_down(&self) -> Shutdown {
        for entry in self.hub.sessions.all() {
            let effects = entry.change(Session::interrupt);
            super::effects::perform(&entry, effects);
        }
        let _none_is_archived = timeout(UNLOAD_TIMEOUT, self.hub.unloading.write()).await;
        match timeout(SHUTDOWN_TIMEOUT, self.backend.end()).await {
            Ok(()) => {
                self.remove_mount_targets().await;
                Shutdown::Complete
            }
            Err(_) => {
                tracing::warn!("Codex has not ended in time; its guard will end it");
                Shutdown::Unfinished
            }
        }
    }

    /// Notes the mount targets that are missing in a directory which commands may write to.
    pub(super) fn note_mount_targets(&self, directory: &Path) {
        lock(&self.mount_targets).note_missing_in(directory);
    }

    /// Removes the mount targets that killed sandboxes have left, unless one still runs.
    pub(super) async fn remove_mount_targets(&self) {
        let targets = lock(&self.mount_targets).clone();
        let register = self.register.clone();
        if let Err(error) = off_runtime::run(move || targets.remove(&register)).await {
            tracing::warn!("mount targets of Codex's sandbox may be left: {error}");
        }
    }
}

/// The app-servers of a process that serves several clients, one for each [`Launch`]. Engines
/// [join](crate::Engine::joining) one; it runs on when they have gone, until
/// [`end_unused`](Self::end_unused).
#[derive(Default)]
pub struct AppServers {
    all: Mutex<Vec<Member>>,
    new_adoption_socket: Option<Arc<NewAdoptionSocket>>,
    predecessor: Predecessor,
}

/// A session of a process that serves several clients.
#[derive(Debug)]
pub struct SharedSession {
    /// The session.
    pub info: SessionInfo,
    /// The terms of those who share it, see [`Engine::joining`](crate::Engine::joining).
    pub terms: String,
}

/// One of the app-servers of this process.
struct Member {
    codex: Arc<SharedCodex>,
    /// The time from which on it was seen unused.
    unused_since: Option<Instant>,
}

impl Member {
    /// Whether an engine has joined it, a session is working, or a session is open in Codex's own
    /// program.
    fn is_used(&self) -> bool {
        let all = self.codex.hub.sessions.all();
        let is_used = |entry: &Arc<Entry>| entry.state().is_at_work() || entry.is_attached();
        Arc::strong_count(&self.codex) > 1 || all.iter().any(is_used)
    }
}

impl AppServers {
    /// Creates a set of app-servers that the next process can [take over](Self::adopt) if this one
    /// is killed, where Codex can listen on a port. `new_adoption_socket` returns a new path for
    /// the adoption socket of each app-server.
    #[must_use]
    pub fn adoptable(
        predecessor: Predecessor,
        new_adoption_socket: impl Fn() -> PathBuf + Send + Sync + 'static,
    ) -> Self {
        Self {
            new_adoption_socket: Some(Arc::new(new_adoption_socket)),
            predecessor,
            ..Self::default()
        }
    }

    /// The app-server whose agreement equals that of this client; it is added if there is none. A
    /// client whose ID has sessions from before an update of Codex keeps the app-server with those
    /// sessions.
    pub(super) fn of(
        &self,
        client: &CodexStart,
        terms: String,
        id: Option<&str>,
    ) -> Arc<SharedCodex> {
        let directory = client.directory.as_deref();
        let launch = client.launch.found_for(directory);
        let agreement = Agreement {
            launch: Some(launch.clone()),
            program: ProgramFile::of(&launch),
            search_paths: protected_in(directory),
            terms,
        };
        let earlier = id.and_then(|id| {
            self.find(|codex| {
                codex.agreement.agrees_but_for_program(&agreement) && codex.has_sessions_of(id)
            })
        });
        let found = earlier.or_else(|| self.find(|codex| codex.agreement == agreement));
        if let Some(found) = found {
            return found;
        }
        if let Some(program) = agreement.program() {
            warn_of_replaceable(program, directory);
        }
        self.add(agreement, &launch, &client.env)
    }

    fn find(&self, is_wanted: impl Fn(&SharedCodex) -> bool) -> Option<Arc<SharedCodex>> {
        let all = lock(&self.all);
        let found = all.iter().find(|one| is_wanted(&one.codex));
        found.map(|found| Arc::clone(&found.codex))
    }

    /// Adds an app-server, which is not started yet.
    pub(super) fn add(
        &self,
        agreement: Agreement,
        launch: &Launch,
        env: &[(OsString, OsString)],
    ) -> Arc<SharedCodex> {
        let start = CodexStart {
            launch: launch.clone(),
            env: [agreement.search_paths.as_slice(), env].concat(),
            // Not the directory of a client, which may be removed while other clients still work.
            directory: Some(PathBuf::from("/")),
        };
        let mut codex = SharedCodex::new(start);
        if let Some(new_socket) = &self.new_adoption_socket {
            let kept = serde_json::to_string(&agreement).unwrap_or_default();
            codex
                .backend
                .make_adoptable(Arc::clone(new_socket), ADOPTION_WAIT, kept);
        }
        let codex = Arc::new(SharedCodex {
            agreement,
            predecessor: self.predecessor,
            ..codex
        });
        tokio::spawn(super::unloading::sweep(Arc::downgrade(&codex.hub)));
        lock(&self.all).push(Member {
            codex: Arc::clone(&codex),
            unused_since: None,
        });
        codex
    }

    /// The sessions of all app-servers.
    pub(super) fn entries(&self) -> Vec<(Arc<Hub>, Arc<Entry>)> {
        let all = lock(&self.all);
        let of_one = |one: &Member| {
            let hub = &one.codex.hub;
            let entries = hub.sessions.all().into_iter();
            entries
                .map(|entry| (Arc::clone(hub), entry))
                .collect::<Vec<_>>()
        };
        all.iter().flat_map(of_one).collect()
    }

    /// Ends the app-servers that have been seen unused for at least `long`: no engine has joined
    /// them, and no session works. Their threads can be resumed.
    pub async fn end_unused(&self, long: Duration) {
        let mut unused = Vec::new();
        lock(&self.all).retain_mut(|one| {
            if one.is_used() {
                one.unused_since = None;
                return true;
            }
            let since = *one.unused_since.get_or_insert_with(Instant::now);
            let is_over = since.elapsed() >= long;
            if is_over {
                unused.push(Arc::clone(&one.codex));
            }
            !is_over
        });
        join_all(unused.iter().map(|codex| codex.shut_down())).await;
    }

    /// All sessions, those of one app-server after those of another. This does not count as a
    /// use of them.
    #[must_use]
    pub fn sessions(&self) -> Vec<SharedSession> {
        let all = lock(&self.all);
        let sessions = all.iter().flat_map(|one| {
            let entries = one.codex.hub.sessions.all();
            entries.into_iter().map(move |entry| SharedSession {
                info: entry.info(),
                terms: one.codex.agreement.terms.clone(),
            })
        });
        sessions.collect()
    }

    /// A number that changes whenever a session is added, changed or removed, but not with Codex's
    /// texts.
    #[must_use]
    pub fn revision(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (_, entry) in self.entries() {
            (&entry.id, *entry.watch().borrow()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn codexes(&self) -> Vec<Arc<SharedCodex>> {
        let all = lock(&self.all);
        all.iter().map(|one| Arc::clone(&one.codex)).collect()
    }

    /// Determines what a restart of this process does to the app-servers. Waits a few seconds for
    /// those that are being started.
    pub async fn handover(&self) -> Handover {
        let all = self.codexes();
        let starting = join_all(all.iter().map(|codex| codex.backend.current()));
        if timeout(HANDOVER_START_TIMEOUT, starting).await.is_err() {
            tracing::warn!("a Codex that is being started is not waited for");
        }
        let bound = all.iter().filter(|codex| !codex.is_adoptable());
        let turns: usize = bound.map(|codex| codex.turns()).sum();
        match turns {
            0 if all.iter().all(|codex| codex.is_bound()) => Handover::Needless,
            0 => Handover::Possible,
            turns => Handover::Harmful(turns),
        }
    }

    /// Ends the app-servers that cannot be taken over, and writes what the next process needs for
    /// the others. Afterwards the process must exit without dropping the app-servers, because dropping
    /// one ends it.
    pub async fn hand_over(&self) {
        let all = self.codexes();
        let bound = all.iter().filter(|codex| codex.is_bound());
        join_all(bound.map(|codex| codex.shut_down())).await;
        let writing = join_all(all.iter().map(|codex| codex.flush()));
        if timeout(FLUSH_TIMEOUT, writing).await.is_err() {
            tracing::warn!("some records of sessions were not written in time");
        }
    }

    /// Prevents other processes from taking the app-servers over if this one dies.
    pub fn be_last_owner(&self) {
        for one in lock(&self.all).iter() {
            let running = one.codex.backend.running();
            if let Some(keeper) = running.as_ref().and_then(|(server, _)| server.keeper()) {
                keeper.be_last();
            }
        }
    }

    /// Interrupts all turns, ends all app-servers and waits for their exits, a few seconds at
    /// most.
    pub async fn shut_down(&self) -> Shutdown {
        let all = std::mem::take(&mut *lock(&self.all));
        let ended = join_all(all.iter().map(|one| one.codex.shut_down())).await;
        match ended.contains(&Shutdown::Unfinished) {
            true => Shutdown::Unfinished,
            false => Shutdown::Complete,
        }
    }
}

/// Who ends the app-server of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The engine itself.
    Own,
    /// The process, when it ends.
    Shared,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn app_server_that_is_being_started_is_not_ended_by_a_restart() {
        let servers = AppServers::adoptable(Predecessor::Ended, || "/nowhere".into());
        let launch = Launch {
            codex: None,
            line_limit: 1,
        };
        let codex = servers.add(Agreement::default(), &launch, &[]);
        assert_eq!(servers.handover().await, Handover::Needless);
        let starting = codex.backend.hold().await;
        assert_eq!(servers.handover().await, Handover::Possible);
        servers.hand_over().await;
        assert!(!codex.backend.is_ending());
        drop(starting);
    }
}
