//! The engines of a worker: jobs with the same Codex, CODEX_HOME, login, configuration and
//! mail share an app-server.
//!
//! An app-server that nobody uses is ended after a while. One whose Codex, login or
//! configuration was replaced gets no more jobs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use codex_engine::binary::{self, NoCodex, Source};
use codex_engine::logic::session::Patience;
use codex_engine::{Engine, Launch, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use safe_files::off_runtime::{self, OffRuntimeError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{MailOf, ToolsOfJobs};
use crate::logic::JobId;

/// How long an app-server is kept that no job uses.
const KEPT: Duration = Duration::from_secs(60);

/// Where Codex keeps its login, in its home. An app-server never sees a later one.
const LOGIN: &str = "auth.json";

/// Where it keeps its configuration, which decides whether a login is needed: an
/// app-server tells that of when it was started.
const CONFIG: &str = "config.toml";

/// What decides which app-server a job runs in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    codex: Stamp,
    codex_home: PathBuf,
    login: Stamp,
    config: Stamp,
    mail: Option<MailOf>,
}

impl Key {
    /// Whether it is the same but for a newer Codex, login or configuration.
    fn is_replaced_by(&self, newer: &Self) -> bool {
        self.codex_home == newer.codex_home
            && (&self.codex, &self.login, &self.config)
                != (&newer.codex, &newer.login, &newer.config)
    }
}

/// A file as it is now: one that is replaced is another one.
type Stamp = (PathBuf, u64, Option<SystemTime>);

/// The login of a CODEX_HOME as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Login(Stamp);

impl Login {
    /// The login as it is now.
    pub(super) async fn of(codex_home: &Path) -> Result<Self, OffRuntimeError> {
        let file = codex_home.join(LOGIN);
        off_runtime::run(move || Self(stamp(&file))).await
    }

    /// Which of these jobs have another login now. While there is none, a job cannot be run.
    /// Each file is looked at once.
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

/// All engines of a worker.
#[derive(Default)]
pub(super) struct Engines {
    /// Those that get jobs.
    current: RefCell<HashMap<Key, Rc<Shared>>>,
    /// Those that get no more.
    retired: RefCell<Vec<Rc<Shared>>>,
    /// Woken when something changes.
    changed: Notify,
}

struct Shared {
    engine: Engine,
    at_work: Cell<usize>,
    idle_since: Cell<Instant>,
}

/// The use of an engine by a job.
pub(super) struct InUse<'a> {
    engines: &'a Engines,
    shared: Rc<Shared>,
}

impl Engines {
    /// The engine for a job with this Codex, home and mail.
    ///
    /// # Errors
    ///
    /// [`NoCodex`].
    pub(super) fn of(
        &self,
        codex: Option<(PathBuf, Source)>,
        codex_home: &Path,
        mail: Option<MailOf>,
        tools: &ToolsOfJobs,
    ) -> Result<InUse<'_>, NoCodex> {
        let key = Key {
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
            let engine = engine(codex, codex_home);
            let tools = tools.with(mail.as_ref());
            Rc::new(Shared {
                engine: engine.with_tools(tools),
                at_work: Cell::new(0),
                idle_since: Cell::new(Instant::now()),
            })
        });
        shared.at_work.set(shared.at_work.get() + 1);
        Ok(InUse {
            engines: self,
            shared: Rc::clone(shared),
        })
    }

    /// Ends those that nobody needs any more, for as long as it is polled.
    pub(super) async fn tend(&self) -> Infallible {
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

    /// Takes out those that nobody needs any more.
    fn unneeded(&self) -> Vec<Rc<Shared>> {
        let is_idle = |shared: &Rc<Shared>| shared.at_work.get() == 0;
        let mut retired = self.retired.borrow_mut();
        let mut unneeded: Vec<_> = retired.extract_if(.., |shared| is_idle(shared)).collect();
        let is_cold =
            |shared: &Rc<Shared>| is_idle(shared) && shared.idle_since.get().elapsed() >= KEPT;
        let mut current = self.current.borrow_mut();
        let cold = current.extract_if(|_, shared| is_cold(shared));
        unneeded.extend(cold.map(|(_, shared)| shared));
        unneeded
    }

    /// When the next one is not needed any more.
    fn next_end(&self) -> Option<Instant> {
        let current = self.current.borrow();
        let idle = current.values().filter(|shared| shared.at_work.get() == 0);
        idle.map(|shared| shared.idle_since.get() + KEPT).min()
    }

    /// Ends all of them.
    pub(super) async fn shut_down(&self) {
        let current = self.current.take().into_values();
        let all: Vec<Rc<Shared>> = current.chain(self.retired.take()).collect();
        futures::future::join_all(all.iter().map(|shared| shared.engine.shut_down())).await;
    }
}

impl InUse<'_> {
    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Sees to it that Codex runs.
    pub(super) async fn start(&self) {
        start(&self.shared.engine).await;
    }

    /// Gives it to no further job, and has it ended as soon as none uses it.
    pub(super) fn retire(&self) {
        let mut current = self.engines.current.borrow_mut();
        let is_it = |shared: &mut Rc<Shared>| Rc::ptr_eq(shared, &self.shared);
        let retired = current.extract_if(|_, shared| is_it(shared));
        let retired = retired.map(|(_, shared)| shared);
        self.engines.retired.borrow_mut().extend(retired);
    }

    /// Kills what hides from the job that has started it, unless others are at work.
    pub(super) async fn tidy(&self) {
        if self.shared.at_work.get() == 1
            && let Err(error) = self.shared.engine.kill_all_commands().await
        {
            tracing::warn!("{error}");
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let at_work = self.shared.at_work.get();
        self.shared.at_work.set(at_work.saturating_sub(1));
        self.shared.idle_since.set(Instant::now());
        self.engines.changed.notify_one();
    }
}

fn engine(codex: Option<(PathBuf, Source)>, codex_home: &Path) -> Engine {
    let options = Options {
        launch: Launch {
            codex,
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: codex_home.to_owned(),
        // Jobs answer questions at once, and notice themselves when their turns stall.
        patience: Patience {
            approval: KEPT,
            stall: Duration::from_secs(24 * 60 * 60),
        },
    };
    let env = vec![("CODEX_HOME".into(), codex_home.into())];
    // Jobs tell what was left out.
    Engine::new(options).with_env(env).with_warnings(drop)
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
    use std::sync::Arc;

    use super::*;
    use agent_team::Member;
    use codex_engine::thread_tools::NoTools;

    #[tokio::test]
    async fn login_has_changed_when_there_is_another_one() {
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

    /// A place with programs, and no login.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for name in ["one", "other"] {
            let path = place.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&path, executable).unwrap();
        }
        place
    }

    fn used<'a>(engines: &'a Engines, place: &Path, codex: &str, home: &str) -> InUse<'a> {
        used_with(None, engines, place, codex, home)
    }

    fn used_with<'a>(
        mail: Option<MailOf>,
        engines: &'a Engines,
        place: &Path,
        codex: &str,
        home: &str,
    ) -> InUse<'a> {
        let codex = Some((place.join(codex), Source::FlagOrVariable));
        let tools = ToolsOfJobs::new(|_| Arc::new(NoTools));
        engines.of(codex, &place.join(home), mail, &tools).unwrap()
    }

    fn is_same(one: &InUse<'_>, other: &InUse<'_>) -> bool {
        Rc::ptr_eq(&one.shared, &other.shared)
    }

    #[tokio::test]
    async fn jobs_with_the_same_codex_home_and_login_share_an_engine() {
        let (place, engines) = (place(), Engines::default());
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
        let (place, engines) = (place(), Engines::default());
        let place = place.path();
        let of = |identity: &str| MailOf {
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

    fn used_by_nobody(engines: &Engines, last: InUse<'_>) -> bool {
        let before = engines.unneeded().len();
        drop(last);
        engines.unneeded().len() == 1 && before > 0
    }

    #[tokio::test(start_paused = true)]
    async fn engine_is_kept_for_a_while() {
        let (place, engines) = (place(), Engines::default());
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
