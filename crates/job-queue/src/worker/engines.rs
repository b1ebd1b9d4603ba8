//! The engines of a worker: jobs with the same Codex, CODEX_HOME, login, configuration and
//! mail share an app-server.
//!
//! An unused app-server is ended after a while. An app-server whose Codex, login or configuration
//! was replaced gets no more jobs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use codex_engine::binary::{self, NoCodex, Source};
use codex_engine::command::SessionId;
use codex_engine::logic::session::Timeouts;
use codex_engine::{AdoptionError, Engine, Launch, LeftAppServer, Options, ThreadTools};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use safe_files::off_runtime::{self, OffRuntimeError};
use supervise::adoptable::AdoptionSockets;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until, timeout};

use super::{JobTools, MailAccess};
use crate::logic::JobId;

/// How long an app-server may take to answer its new owner.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a session that an earlier worker has left may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long an app-server is kept that no job uses.
const KEPT: Duration = Duration::from_secs(60);

/// Codex's file of the login, in its home. A running app-server does not notice a change.
const LOGIN: &str = "auth.json";

/// Codex's configuration file, which decides whether a login is needed. A running app-server
/// reports that as of its start.
const CONFIG: &str = "config.toml";

/// Jobs with the same key share an app-server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EngineKey {
    codex: Stamp,
    codex_home: PathBuf,
    login: Stamp,
    config: Stamp,
    mail: Option<MailAccess>,
}

impl EngineKey {
    /// Whether `newer` differs only by a replaced Codex, login or configuration.
    fn is_replaced_by(&self, newer: &Self) -> bool {
        self.codex_home == newer.codex_home
            && (&self.codex, &self.login, &self.config)
                != (&newer.codex, &newer.login, &newer.config)
    }
}

/// The path, length and modification time of a file, which change when it is replaced.
type Stamp = (PathBuf, u64, Option<SystemTime>);

/// The login of a CODEX_HOME at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Login(Stamp);

impl Login {
    /// The current login.
    pub(super) async fn of(codex_home: &Path) -> Result<Self, OffRuntimeError> {
        let file = codex_home.join(LOGIN);
        off_runtime::run(move || Self(stamp(&file))).await
    }

    /// The jobs whose login was replaced. A removed login does not count, as no job can run
    /// without one. Each file is read once.
    pub(super) async fn changed(
        logins: &HashMap<JobId, Self>,
    ) -> Result<Vec<JobId>, OffRuntimeError> {
        let files: HashSet<PathBuf> = logins.values().map(|login| login.0.0.clone()).collect();
        let now = off_runtime::run(move || -> HashSet<Stamp> {
            let stamps = files.iter().map(|file| stamp(file));
            stamps.filter(|(_, _, written)| written.is_some()).collect()
        });
        let now = now.await?;
        let has_changed = |login: &Self| {
            let (file, ..) = &login.0;
            !now.contains(&login.0) && now.iter().any(|(found, ..)| found == file)
        };
        let changed = logins.iter().filter(|(_, login)| has_changed(login));
        Ok(changed.map(|(job, _)| job.clone()).collect())
    }
}

/// Why an app-server cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeoverError {
    #[error(transparent)]
    Adoption(#[from] AdoptionError),
    #[error("it does not answer within {} s", ADOPTION_TIMEOUT.as_secs())]
    Silent,
}

/// All engines of a worker.
pub(super) struct Engines {
    /// The engines that get jobs.
    current: RefCell<HashMap<EngineKey, Rc<SharedEngine>>>,
    /// The engines that get no more jobs.
    retired: RefCell<Vec<Rc<SharedEngine>>>,
    /// Woken when a job has stopped using an engine.
    changed: Notify,
    /// Where the next worker finds the app-servers of this one, if it is killed, and how long they wait
    /// for it; `None` if it cannot.
    sockets: Option<(AdoptionSockets, Duration)>,
}

pub(super) struct SharedEngine {
    engine: Engine,
    users: Cell<usize>,
    idle_since: Cell<Instant>,
    /// Held while the commands that a job has left are killed: no other job may begin then.
    tidying: Mutex<()>,
}

impl SharedEngine {
    fn new(engine: Engine) -> Rc<Self> {
        Rc::new(Self {
            engine,
            users: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            tidying: Mutex::default(),
        })
    }
}

/// A job's handle on an engine, which keeps the engine in use.
pub(super) struct EngineHandle<'a> {
    engines: &'a Engines,
    shared: Rc<SharedEngine>,
}

impl Engines {
    pub(super) fn new(sockets: Option<(AdoptionSockets, Duration)>) -> Self {
        Self {
            current: RefCell::default(),
            retired: RefCell::default(),
            changed: Notify::new(),
            sockets,
        }
    }

    /// Where the next worker finds the app-servers.
    pub(super) fn sockets(&self) -> Option<&AdoptionSockets> {
        let (sockets, _) = self.sockets.as_ref()?;
        Some(sockets)
    }

    /// Takes over an app-server of an earlier worker. It gets no other jobs, and lives as long as there
    /// are handles on it.
    ///
    /// # Errors
    ///
    /// [`TakeoverError`]; the app-server has ended then.
    pub(super) async fn adopt(
        &self,
        left: LeftAppServer,
        codex: Option<(PathBuf, Source)>,
        codex_home: &Path,
        tools: Arc<dyn ThreadTools>,
    ) -> Result<EngineHandle<'_>, TakeoverError> {
        let engine = self.engine(codex, codex_home, tools);
        adopt(&engine, left).await?;
        let shared = SharedEngine::new(engine);
        let handle = self.handle(&shared);
        self.retired.borrow_mut().push(shared);
        Ok(handle)
    }

    /// One more handle on an engine.
    pub(super) fn handle(&self, shared: &Rc<SharedEngine>) -> EngineHandle<'_> {
        shared.users.set(shared.users.get() + 1);
        EngineHandle {
            engines: self,
            shared: Rc::clone(shared),
        }
    }

    /// The engine for a job with this Codex, home and mail.
    ///
    /// # Errors
    ///
    /// [`NoCodex`].
    pub(super) fn of(
        &self,
        codex: Option<(PathBuf, Source)>,
        codex_home: &Path,
        mail: Option<MailAccess>,
        tools: &JobTools,
    ) -> Result<EngineHandle<'_>, NoCodex> {
        let key = EngineKey {
            codex: stamp(&binary::find(codex.clone())?.native),
            codex_home: codex_home.to_owned(),
            login: stamp(&codex_home.join(LOGIN)),
            config: stamp(&codex_home.join(CONFIG)),
            mail,
        };
        let mut current = self.current.borrow_mut();
        let old = current.extract_if(|one, _| one.is_replaced_by(&key));
        self.retired
            .borrow_mut()
            .extend(old.map(|(_, shared)| shared));
        let mail = key.mail.clone();
        let shared = current.entry(key).or_insert_with(|| {
            SharedEngine::new(self.engine(codex, codex_home, tools.with(mail.as_ref())))
        });
        Ok(self.handle(shared))
    }

    /// Shuts unneeded engines down, for as long as it is polled.
    pub(super) async fn shut_down_unneeded(&self) -> Infallible {
        loop {
            for shared in self.unneeded() {
                shared.engine.shut_down().await;
            }
            let next = self.next_end();
            tokio::select! {
                () = self.changed.notified() => {}
                () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {}
            }
        }
    }

    /// Removes the engines that are no longer needed.
    fn unneeded(&self) -> Vec<Rc<SharedEngine>> {
        let is_idle = |shared: &Rc<SharedEngine>| shared.users.get() == 0;
        let mut retired = self.retired.borrow_mut();
        let mut unneeded: Vec<_> = retired.extract_if(.., |shared| is_idle(shared)).collect();
        let is_cold = |shared: &Rc<SharedEngine>| {
            is_idle(shared) && shared.idle_since.get().elapsed() >= KEPT
        };
        let mut current = self.current.borrow_mut();
        let cold = current.extract_if(|_, shared| is_cold(shared));
        unneeded.extend(cold.map(|(_, shared)| shared));
        unneeded
    }

    /// When the next idle engine is no longer needed.
    fn next_end(&self) -> Option<Instant> {
        let current = self.current.borrow();
        let idle = current.values().filter(|shared| shared.users.get() == 0);
        idle.map(|shared| shared.idle_since.get() + KEPT).min()
    }

    /// An engine for jobs, which is not started.
    fn engine(
        &self,
        codex: Option<(PathBuf, Source)>,
        codex_home: &Path,
        tools: Arc<dyn ThreadTools>,
    ) -> Engine {
        self.adoptable(engine(codex, codex_home).with_tools(tools))
    }

    /// The engine, whose app-server the next worker can take over if this one is killed.
    pub(super) fn adoptable(&self, engine: Engine) -> Engine {
        match self.sockets.clone() {
            Some((sockets, wait)) => engine.adoptable(wait, move || sockets.new_socket()),
            None => engine,
        }
    }

    /// Shuts all engines down.
    pub(super) async fn shut_down(&self) {
        let current = self.current.take().into_values();
        let all: Vec<Rc<SharedEngine>> = current.chain(self.retired.take()).collect();
        futures::future::join_all(all.iter().map(|shared| shared.engine.shut_down())).await;
    }
}

impl EngineHandle<'_> {
    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Starts Codex, if it does not run, once the commands of an earlier job have ended.
    pub(super) async fn start(&self) {
        drop(self.shared.tidying.lock().await);
        start(&self.shared.engine).await;
    }

    /// The engine, for further [handles](Engines::handle).
    pub(super) fn shared(&self) -> Rc<SharedEngine> {
        Rc::clone(&self.shared)
    }

    /// Gives the engine to no further job, and lets it end when no job uses it.
    pub(super) fn retire(&self) {
        let mut current = self.engines.current.borrow_mut();
        let is_it = |shared: &mut Rc<SharedEngine>| Rc::ptr_eq(shared, &self.shared);
        let retired = current.extract_if(|_, shared| is_it(shared));
        let retired = retired.map(|(_, shared)| shared);
        self.engines.retired.borrow_mut().extend(retired);
    }

    /// Kills processes that have escaped from the job that started them, unless other jobs run.
    pub(super) async fn tidy(&self) {
        let _tidying = self.shared.tidying.lock().await;
        if self.shared.users.get() == 1
            && let Err(error) = self.shared.engine.kill_all_commands().await
        {
            tracing::warn!("{error}");
        }
    }
}

impl Drop for EngineHandle<'_> {
    fn drop(&mut self) {
        let users = self.shared.users.get();
        self.shared.users.set(users.saturating_sub(1));
        self.shared.idle_since.set(Instant::now());
        self.engines.changed.notify_one();
    }
}

pub(super) fn engine(codex: Option<(PathBuf, Source)>, codex_home: &Path) -> Engine {
    let options = Options {
        launch: Launch {
            codex,
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: codex_home.to_owned(),
        // Jobs answer questions themselves, and notice stalled turns themselves.
        timeouts: Timeouts {
            approval: KEPT,
            stall: Duration::from_secs(24 * 60 * 60),
        },
    };
    let env = vec![("CODEX_HOME".into(), codex_home.into())];
    // Jobs report unused configuration themselves.
    Engine::new(options).with_env(env).with_warnings(drop)
}

/// Takes over an app-server of an earlier worker.
///
/// # Errors
///
/// [`TakeoverError`]; the app-server has ended then.
pub(super) async fn adopt(engine: &Engine, left: LeftAppServer) -> Result<(), TakeoverError> {
    let error = match timeout(ADOPTION_TIMEOUT, engine.adopt(left)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.into(),
        Err(_) => TakeoverError::Silent,
    };
    engine.shut_down().await;
    Err(error)
}

/// Closes the sessions that an earlier worker has left, except for these.
pub(super) async fn close_others(engine: &Engine, continued: &HashSet<SessionId>) {
    for session in engine.session_ids() {
        if !continued.contains(&session) {
            close(engine, &session).await;
        }
    }
}

/// Ends the turn of a session that an earlier worker has left, and closes the session. Codex itself
/// is ended if it takes too long.
pub(super) async fn close(engine: &Engine, session: &SessionId) {
    let closing = async {
        // A session that has gone meanwhile is closed as well.
        let _ = engine.continue_session(session).await;
        let _ = engine.close(session, "its job has ended").await;
    };
    if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
        tracing::warn!("session {session} does not end; ending Codex");
        engine.give_up_codex();
    }
}

/// Starts Codex if it does not run. The turn tells why it cannot be started.
pub(super) async fn start(engine: &Engine) {
    let _: Result<_, _> = engine.introduce().await;
}

fn stamp(file: &Path) -> Stamp {
    let metadata = fs::metadata(file).ok();
    let length = metadata.as_ref().map_or(0, fs::Metadata::len);
    let written = metadata.and_then(|metadata| metadata.modified().ok());
    (file.to_owned(), length, written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_team::Member;
    use codex_engine::thread_tools::NoTools;
    use futures::FutureExt;
    use testkit::write_program;

    #[tokio::test]
    async fn replaced_login_is_detected() {
        let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let ids = [1, 2].map(JobId::from_random);
        for home in &homes {
            fs::write(home.path().join(LOGIN), "{}").unwrap();
        }
        let mut logins = HashMap::new();
        for (id, home) in ids.iter().zip(&homes) {
            logins.insert(id.clone(), Login::of(home.path()).await.unwrap());
        }
        let changed = async || Login::changed(&logins).await.unwrap();
        assert_eq!(changed().await, []);
        let login = homes[0].path().join(LOGIN);
        fs::remove_file(&login).unwrap();
        assert_eq!(changed().await, []);
        fs::write(&login, "{ }").unwrap();
        assert_eq!(changed().await, [ids[0].clone()]);
    }

    fn engines() -> Engines {
        Engines::new(None)
    }

    /// A directory with two programs and no login.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for name in ["one", "other"] {
            let path = place.path().join(name);
            write_program(&path, "#!/bin/sh\n");
        }
        place
    }

    fn used<'a>(engines: &'a Engines, place: &Path, codex: &str, home: &str) -> EngineHandle<'a> {
        used_with(None, engines, place, codex, home)
    }

    fn used_with<'a>(
        mail: Option<MailAccess>,
        engines: &'a Engines,
        place: &Path,
        codex: &str,
        home: &str,
    ) -> EngineHandle<'a> {
        let codex = Some((place.join(codex), Source::FlagOrVariable));
        let tools = JobTools::new(|_| Arc::new(NoTools));
        engines.of(codex, &place.join(home), mail, &tools).unwrap()
    }

    fn is_same(one: &EngineHandle<'_>, other: &EngineHandle<'_>) -> bool {
        Rc::ptr_eq(&one.shared, &other.shared)
    }

    #[tokio::test]
    async fn jobs_with_the_same_codex_home_and_login_share_an_engine() {
        let (place, engines) = (place(), engines());
        let place = place.path();
        let first = used(&engines, place, "one", "a");
        assert!(is_same(&first, &used(&engines, place, "one", "a")));
        assert!(!is_same(&first, &used(&engines, place, "one", "b")));
        assert!(!is_same(&first, &used(&engines, place, "other", "a")));
        let before = used(&engines, place, "one", "b");
        fs::create_dir(place.join("b")).unwrap();
        fs::write(place.join("b").join(LOGIN), "{}").unwrap();
        assert!(!is_same(&before, &used(&engines, place, "one", "b")));
        fs::write(place.join("one"), "#!/bin/sh\necho newer\n").unwrap();
        let newer = used(&engines, place, "one", "a");
        assert!(!is_same(&first, &newer));
        newer.retire();
        assert!(!is_same(&newer, &used(&engines, place, "one", "a")));
        assert!(used_by_nobody(&engines, newer));
    }

    #[tokio::test]
    async fn jobs_with_mail_share_an_engine_with_those_of_the_same_member() {
        let (place, engines) = (place(), engines());
        let place = place.path();
        let of = |identity: &str| MailAccess {
            member: Member {
                identity: identity.parse().unwrap(),
                team: Some("builders".parse().unwrap()),
            },
            atm_home: "/home/me".into(),
        };
        let used = |mail| used_with(mail, &engines, place, "one", "a");
        let (nobody, first) = (used(None), used(Some(of("first"))));
        let second = used(Some(of("second")));
        assert!(!is_same(&nobody, &first) && !is_same(&first, &second));
        assert!(is_same(&nobody, &used(None)));
        assert!(is_same(&first, &used(Some(of("first")))));
        assert!(engines.unneeded().is_empty());
    }

    #[tokio::test]
    async fn job_begins_after_the_commands_of_an_earlier_one_were_killed() {
        let (place, engines) = (place(), engines());
        let codex = used(&engines, place.path(), "one", "a");
        let tidying = codex.shared.tidying.lock().await;
        assert!(codex.start().now_or_never().is_none());
        drop(tidying);
        // The program is no app-server, which is none of a job's concerns here.
        codex.start().await;
    }

    fn used_by_nobody(engines: &Engines, last: EngineHandle<'_>) -> bool {
        let before = engines.unneeded().len();
        drop(last);
        engines.unneeded().len() == 1 && before > 0
    }

    #[tokio::test(start_paused = true)]
    async fn idle_engine_is_kept_for_a_while() {
        let (place, engines) = (place(), engines());
        let next = used(&engines, place.path(), "one", "a");
        assert!(engines.unneeded().is_empty());
        assert_eq!(engines.next_end(), None);
        drop(next);
        assert_eq!(engines.next_end(), Some(Instant::now() + KEPT));
        assert!(engines.unneeded().is_empty());
        tokio::time::advance(KEPT).await;
        assert_eq!(engines.unneeded().len(), 1);
        assert_eq!(engines.next_end(), None);
    }
}
