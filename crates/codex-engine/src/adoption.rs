//! Adopts the app-servers of a host that was killed.
//!
//! ```text
//!   host ── values ──► guard ─┐
//!     ✗ killed                │ values, and a new connection to Codex
//!   next host ◄───────────────┘
//!     │ an entry for each session, with its record
//!     │ its client returns, or does not within 3 s; at once if the session has no work, or
//!     │ something is done to it
//!     └─ thread/resume ──► the steps of the last turn, and the open questions again
//! ```
//!
//! A host stores its own state of an app-server in the memory of the app-server's guard: which
//! engines may share it ([`Agreement`]), and the settings and the [`SessionRecord`] of each session.
//! Codex has the rest, and repeats its open questions when a thread is resumed on the new
//! connection.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{
    Method, Release, ThreadId, ThreadNotification, TurnId, TurnInterruptParams, TurnStatus,
};
use codex_protocol::json_values;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use supervise::adoptable::Adopted;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::app_server::{AppServer, AppServerSetup, StartError};
use super::backend::{Launch, Supervisor};
use super::command::{SessionId, TurnRef};
use super::connection::Listener;
use super::effects::perform;
use super::engine::Engine;
use super::entry::{Entry, Repetition};
use super::error::EngineError;
use super::hub::{self, Hub};
use super::kept::{AGREEMENT, KeptSession, KeptSteps, RECORD, SETTINGS, TOKEN};
use super::requests::call;
use super::sessions::AddedSession;
use super::shared::{Agreement, AppServers, SharedCodex};
use super::unloading::unload_when_ended;
use crate::logic::session::{Effect, Expected, ListedTurn, Session, SessionRecord, State};

/// The first release that is known to return the last turns of a thread alone (0.135.0 does not).
const FIRST_WITH_PAGES: Release = Release::new(0, 140, 0);

/// How long a restored session waits for its client, which provides its tools and keeps its audit.
/// After that, the session continues without the client. A client that has lost its host connects
/// to the next one at once. Only sessions that may have work wait.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a request, such as a cancellation, waits until its session is restored (5 s). The client
/// waits 10 s for the answer.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long Codex may take to repeat the open questions of a session whose threads are resumed. It takes
/// some milliseconds.
const REPETITION_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an app-server cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptionError {
    /// A value kept by the guard is missing or cannot be parsed.
    #[error("cannot read the state that the guard has kept: {0}")]
    Kept(String),
    /// The app-server does not answer.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl AppServers {
    /// Takes over an app-server of a host that was killed, with its sessions. Each continues
    /// when its client has [returned](Engine::take_back), or after 3 s, or at once if it has no work.
    ///
    /// # Errors
    ///
    /// [`AdoptionError`]; the app-server is ended then.
    pub async fn adopt(&self, adopted: Adopted) -> Result<(), AdoptionError> {
        let agreement: Agreement = parse(adopted.kept.get(AGREEMENT))?;
        let codex = self.add(agreement.clone(), &agreement.launch()?, &[]);
        take_over(&codex, &agreement, adopted).await?;
        tokio::spawn(restore_without_clients(codex));
        Ok(())
    }
}

impl Agreement {
    fn launch(&self) -> Result<Launch, AdoptionError> {
        let missing = || AdoptionError::Kept("it has no launch".to_owned());
        self.launch.clone().ok_or_else(missing)
    }
}

/// Takes over an app-server with its sessions, which are still to be restored. `agreement` is that of
/// its earlier owner.
pub(super) async fn take_over(
    codex: &SharedCodex,
    agreement: &Agreement,
    adopted: Adopted,
) -> Result<(), AdoptionError> {
    let Adopted {
        process,
        connection,
        kept,
    } = adopted;
    let token = parse(kept.get(TOKEN))?;
    let program = agreement.program().map(Path::to_owned).unwrap_or_default();
    let listener: Arc<dyn Listener> = codex.hub.clone();
    let (ending, ended) = watch::channel(None);
    let supervisor = Arc::clone(&codex.hub);
    let generation = codex.backend.next_generation(ended);
    let on_exit = move |exit, cause| supervisor.on_exit(generation, exit, cause);
    let setup = AppServerSetup {
        line_limit: agreement.launch()?.line_limit,
        listener,
        ending,
    };
    let server = AppServer::adopt(process, (connection, token, program), setup, on_exit).await?;
    let running = codex.backend.adopt(server, generation).await;
    interrupt_unknown(&running.0, &kept);
    let mut sessions: Vec<_> = sessions(&kept).collect();
    sessions.sort_by_key(|(_, steps)| steps.record.created());
    for (session, steps) in sessions {
        tracing::info!("continues session {}", session.session);
        let entry = Entry::restored(session, steps, running.clone());
        if let Ok(AddedSession::New { entry, .. }) = codex.hub.sessions.add(entry) {
            for child in entry.kept_children() {
                codex.hub.sessions.adopt(&child, &entry);
            }
            entry.keep();
        }
    }
    Ok(())
}

/// The sessions whose state is complete. A session is left out if the host was killed before it had
/// stored all of the session's state: such a session has just begun, and has no turn.
fn sessions(
    kept: &BTreeMap<String, String>,
) -> impl Iterator<Item = (KeptSession, KeptSteps)> + use<'_> {
    let ids = kept.keys().filter_map(|key| key.strip_prefix(SETTINGS));
    ids.filter_map(|id| {
        let session = parse(kept.get(&format!("{SETTINGS}{id}")));
        let steps = parse(kept.get(&format!("{RECORD}{id}")));
        match (session, steps) {
            (Ok(session), Ok(steps)) => Some((session, steps)),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!("cannot continue session {id}: {error}");
                None
            }
        }
    })
}

/// Interrupts the turns of sessions that cannot be continued: nobody would see what they do.
fn interrupt_unknown(server: &AppServer, kept: &BTreeMap<String, String>) {
    for (thread, turn) in unknown_turns(kept) {
        tracing::error!(
            "the guard had no room for the settings of a session of the thread {thread}; \
             interrupts its turn"
        );
        let params = TurnInterruptParams {
            thread_id: &thread,
            turn_id: &turn,
        };
        server.connection().cast(Method::TurnInterrupt, &params);
    }
}

/// The running turns of sessions whose settings the guard has dropped, as they are too long.
fn unknown_turns(kept: &BTreeMap<String, String>) -> Vec<(ThreadId, TurnId)> {
    let records = kept.iter().filter_map(|(key, value)| {
        let id = key.strip_prefix(RECORD)?;
        (!kept.contains_key(&format!("{SETTINGS}{id}"))).then_some(value)
    });
    let turns = records.filter_map(|value| {
        let KeptSteps { thread, record, .. } = parse(Some(value)).ok()?;
        Some((thread?, record.running_turn()?.clone()))
    });
    turns.collect()
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(
    kept: Option<&String>,
) -> Result<T, AdoptionError> {
    let kept = kept.ok_or_else(|| AdoptionError::Kept("a value is missing".to_owned()))?;
    serde_json::from_str(kept).map_err(|error| AdoptionError::Kept(error.to_string()))
}

impl Engine {
    /// Takes the sessions that an earlier host, or an earlier engine, has opened for the client of
    /// this engine (see [`with_client`](Self::with_client)), and continues those that wait for it.
    pub async fn take_back(&self) {
        let Some(client) = &self.owner.client else {
            return;
        };
        for entry in self.codex.hub.sessions.all() {
            let owner = entry.owner();
            if owner.client.as_ref() == Some(client) && !owner.is(&self.owner) {
                entry.set_owner(self.owner.clone());
                self.report_continued_turn(&entry);
                restore(&self.codex.hub, &entry).await;
                if entry.state() != State::Cancelled {
                    self.owner.observer.taken_back(&entry.thread);
                }
            }
        }
    }

    fn report_continued_turn(&self, entry: &Entry) {
        if let Some(number) = entry.continued_turn() {
            let session = entry.id.clone();
            let turn = TurnRef { session, number };
            self.owner.observer.continued(&turn, &entry.thread);
        }
    }

    /// A session to which something is about to be done, [restored](restore_now).
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub(super) async fn restored(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        let entry = self.entry(session)?;
        restore_now(&self.codex.hub, &entry).await;
        Ok(entry)
    }
}

/// Whether a session of an earlier host needs its client to continue: a turn runs, another client of
/// Codex may have begun one, or sub-agents of earlier turns may be at work.
fn may_have_work(entry: &Entry) -> bool {
    let record = entry.earlier_record();
    let has_turn = record.is_some_and(|record| record.is_running() || record.is_attached());
    has_turn || !entry.kept_children().is_empty()
}

/// Restores the sessions without work at once: until then, their clients wait as if the last turn were
/// running. The other sessions wait for their clients.
async fn restore_without_clients(codex: Arc<SharedCodex>) {
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    for entry in codex.hub.sessions.all() {
        if !may_have_work(&entry) {
            restore(&codex.hub, &entry).await;
        }
    }
    sleep_until(deadline).await;
    for entry in codex.hub.sessions.all() {
        restore(&codex.hub, &entry).await;
    }
}

/// [Restores](restore) a session to which something is about to be done, without waiting for its
/// client. The session is used as it is if Codex takes too long: it can always be cancelled.
pub(super) async fn restore_now(hub: &Arc<Hub>, entry: &Arc<Entry>) {
    if timeout(RESTORE_TIMEOUT, restore(hub, entry)).await.is_err() {
        tracing::warn!("session {} is not restored in time", entry.id);
    }
}

/// Continues a session of an earlier host. Does nothing if it has been restored already. Until then, the
/// session looks as if its last turn were starting, the next host does not learn what is done to it, and
/// a new turn would be dropped.
pub(super) async fn restore(hub: &Arc<Hub>, entry: &Arc<Entry>) {
    if entry.earlier_record().is_none() {
        return;
    }
    // A caller that goes away must not leave Codex's messages held back. A panic ends the task alone.
    let _ = tokio::spawn(restore_alone(Arc::clone(hub), Arc::clone(entry))).await;
}

async fn restore_alone(hub: Arc<Hub>, entry: Arc<Entry>) {
    // One session at a time: Codex's messages are held back meanwhile.
    let _one = hub.restoring.lock().await;
    let Some(record) = entry.earlier_record() else {
        return;
    };
    let number = entry.access(|machine, _| machine.turns());
    if number != record.turns() {
        // Codex has died, and the session has already begun a turn in its successor.
        entry.set_repetition(Repetition::Over);
        return entry.finish_restoring();
    }
    if record.is_running() {
        tokio::spawn(hub::run_timer(Arc::clone(&entry), number, None));
    }
    let (server, _) = entry.server();
    server.connection().hold();
    let loaded = loaded_threads(&server).await;
    let last = last_turns(&server, &entry, &record, &loaded).await;
    entry.span.in_scope(|| {
        let last = last.unwrap_or_else(|error| {
            tracing::warn!("cannot resume the thread: {error}");
            entry.mark_unloaded();
            Vec::new()
        });
        replay_last_turn(&hub, &entry, &record, &last);
    });
    entry.finish_restoring();
    server.connection().release(&*hub);
    hub::ensure_end(&entry);
    for child in hub.sessions.children(&entry) {
        // A request for a thread that is not loaded would load it.
        if loaded.contains(child.as_str()) {
            resume_child(&server, &child).await;
        }
    }
    entry.set_repetition(Repetition::Due);
    tokio::spawn(end_repetition(Arc::clone(&entry)));
    if entry.state() == State::Cancelled {
        tokio::spawn(unload_when_ended(Arc::clone(&hub), entry));
    }
}

/// Marks the repetition as over after a timeout, so that a question that was closed in the meantime is no
/// longer listed as open.
async fn end_repetition(entry: Arc<Entry>) {
    wait_for_repetition(&entry).await;
    entry.set_repetition(Repetition::Over);
}

/// Waits until Codex has repeated the open questions of a restored session, within a limit.
pub(super) async fn wait_for_repetition(entry: &Entry) {
    let is_due = || {
        let awaits = entry.access(|machine, _| machine.awaits_questions());
        awaits && entry.repetition() == Repetition::Due
    };
    entry.wait_while(REPETITION_TIMEOUT, is_due).await;
}

async fn resume_child(server: &AppServer, child: &str) {
    let params = json!({ "threadId": child });
    let resumed: Result<IgnoredAny, EngineError> =
        call(server, Method::ThreadResume, &params).await;
    if let Err(error) = resumed {
        tracing::warn!("the thread {child} of a sub-agent is not resumed: {error}");
    }
}

/// The threads that Codex has loaded; empty if Codex cannot list them.
async fn loaded_threads(server: &AppServer) -> HashSet<String> {
    #[derive(Deserialize)]
    struct Loaded {
        data: HashSet<String>,
    }
    let loaded = call(server, Method::ThreadLoadedList, &json!({})).await;
    loaded.map_or_else(
        |error: EngineError| {
            tracing::warn!("Codex does not tell which threads it has loaded: {error}");
            HashSet::new()
        },
        |loaded: Loaded| loaded.data,
    )
}

/// A turn of Codex's history.
#[derive(Debug, Deserialize)]
struct PastTurn {
    id: TurnId,
    status: TurnStatus,
    #[serde(default)]
    items: Vec<Box<RawValue>>,
    #[serde(default)]
    error: Option<Value>,
}

/// Codex's response to the request to resume a thread.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resumed {
    thread: WithTurns,
    initial_turns_page: Option<Page>,
}

#[derive(Debug, Deserialize)]
struct WithTurns {
    turns: Vec<PastTurn>,
}

#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<PastTurn>,
}

/// The most reads of the last turns while the newest one looks interrupted, and the pause between two.
const READS: u32 = 6;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The last turns of a thread, newest first.
///
/// Codex stores the end of a turn a moment after the turn has ended. In between, it lists the turn as
/// interrupted, so it is asked again, unless the interruption was requested.
async fn last_turns(
    server: &AppServer,
    entry: &Entry,
    record: &SessionRecord,
    loaded: &HashSet<String>,
) -> Result<Vec<PastTurn>, EngineError> {
    let mut turns = read_last_turns(server, entry, loaded).await?;
    for _ in 1..READS {
        let newest = turns.first().map(|turn| turn.status);
        if newest != Some(TurnStatus::Interrupted) || !record.is_uninterrupted() {
            break;
        }
        sleep(READ_AGAIN_AFTER).await;
        match read_last_turns(server, entry, loaded).await {
            Ok(again) => turns = again,
            Err(error) => {
                tracing::warn!("cannot read the last turns again: {error}");
                break;
            }
        }
    }
    Ok(turns)
}

/// Resumes a thread, and returns its last turns, newest first. Two turns are read, since Codex
/// lists a review as two, and the last one may be a summary. A thread that Codex has unloaded is
/// not loaded again, and its turns are not read.
async fn read_last_turns(
    server: &AppServer,
    entry: &Entry,
    loaded: &HashSet<String>,
) -> Result<Vec<PastTurn>, EngineError> {
    if !loaded.contains(entry.thread.as_str()) {
        entry.mark_unloaded();
        return Ok(Vec::new());
    }
    let release = server.about.codex_version().and_then(Release::parse);
    let params = resume_params(entry.thread.as_str(), release);
    let resumed: Resumed = call(server, Method::ThreadResume, &params).await?;
    Ok(match resumed.initial_turns_page {
        Some(page) => page.data,
        None => resumed.thread.turns.into_iter().rev().take(2).collect(),
    })
}

/// The settings of a loaded thread stay as they are.
fn resume_params(thread: &str, release: Option<Release>) -> Value {
    match release.is_some_and(|release| release >= FIRST_WITH_PAGES) {
        // The whole history may be longer than a message that is accepted.
        true => json!({
            "threadId": thread,
            "excludeTurns": true,
            "initialTurnsPage": { "limit": 2, "sortDirection": "desc", "itemsView": "full" },
        }),
        false => json!({ "threadId": thread }),
    }
}

/// Handles the last turn of the history as if Codex had just reported it, if it is the one that
/// the session waits for.
fn replay_last_turn(hub: &Hub, entry: &Arc<Entry>, record: &SessionRecord, last: &[PastTurn]) {
    let listed = last.iter().map(|turn| ListedTurn {
        id: turn.id.clone(),
        runs: turn.status == TurnStatus::InProgress,
        is_review: turn.items.iter().any(|item| is_of_kind(item, REVIEW)),
    });
    match record.expects(&listed.collect::<Vec<_>>()) {
        Expected::Turn(id) => replay(hub, entry, last, &id),
        Expected::Foreign(id) => {
            perform(entry, entry.change(Session::has_no_turn));
            replay(hub, entry, last, &id);
        }
        Expected::None => perform(entry, entry.change(Session::has_no_turn)),
        Expected::Lost => {
            if let Some(turn) = record.running_turn() {
                // The turn may still run, and nobody would learn of its result.
                perform(entry, vec![Effect::Interrupt(turn.clone())]);
            }
            let effects = entry.change(|machine, now| machine.lose(LOST, now));
            perform(entry, effects);
        }
    }
}

/// The message for a turn that Codex does not list, or whose history cannot be read.
const LOST: &str = "the last host process has ended, and the turn could not be continued";

fn replay(hub: &Hub, entry: &Entry, last: &[PastTurn], id: &TurnId) {
    // Always found: the record chose the turn from this list.
    let Some(turn) = last.iter().find(|turn| turn.id == *id) else {
        return;
    };
    let thread = &entry.thread;
    let of_turn = |status: TurnStatus| {
        json!({
            "threadId": thread,
            "turn": { "id": turn.id, "status": status, "items": [], "error": turn.error },
        })
    };
    notify(hub, "turn/started", &of_turn(TurnStatus::InProgress));
    for item in &turn.items {
        let method = match is_in_progress(item) {
            true => "item/started",
            false => "item/completed",
        };
        let params = ItemParams {
            thread_id: thread,
            turn_id: &turn.id,
            item,
        };
        notify(hub, method, &params);
    }
    if turn.status != TurnStatus::InProgress {
        notify(hub, "turn/completed", &of_turn(turn.status));
    }
}

/// The first step of a review.
const REVIEW: &str = "enteredReviewMode";

fn is_of_kind(item: &RawValue, kind: &str) -> bool {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(item.get()).is_ok_and(|item: Item<'_>| item.kind == kind)
}

fn is_in_progress(item: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Item {
        #[serde(default)]
        status: Value,
    }
    let item = serde_json::from_str(item.get());
    item.is_ok_and(|item: Item| item.status == "inProgress")
}

/// The parameters of a notification about an item.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ItemParams<'a> {
    thread_id: &'a ThreadId,
    turn_id: &'a TurnId,
    item: &'a RawValue,
}

fn notify(hub: &Hub, method: &str, params: &impl Serialize) {
    // A value in memory is always written.
    let Ok(params) = to_raw_value(params) else {
        return;
    };
    let params = json_values::reduced(&params, ThreadNotification::MAX_VALUES);
    match ThreadNotification::read(method, &params) {
        Ok(Some(notification)) => hub.on_notification(notification),
        Ok(None) => {}
        Err(error) => tracing::warn!("a step of an earlier turn is not understood: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use codex_protocol::lines::DEFAULT_LINE_LIMIT;
    use futures::FutureExt as _;
    use supervise::clock::now;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
    use tokio::sync::mpsc;

    use super::*;
    use crate::command::{EffectiveSettings, Overrides, Settings};
    use crate::in_memory::engine_over;
    use crate::kept::Origin;
    use crate::logic::session::{Form, Timeouts};
    use crate::{Launch, Options};

    const THREAD: &str = "01a200a4-af16-7971-bdb2-000000000001";

    const TIMEOUTS: Timeouts = Timeouts {
        approval: Duration::from_secs(60),
        stall: Duration::from_secs(300),
    };

    /// A session of an earlier host whose turn runs and whose client does not return.
    struct TakenOver {
        engine: Engine,
        entry: Arc<Entry>,
        /// The methods of Codex's requests.
        requests: mpsc::UnboundedReceiver<String>,
    }

    impl TakenOver {
        async fn new() -> Self {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let (heard, requests) = mpsc::unbounded_channel();
            tokio::spawn(answer(theirs, heard));
            let options = Options {
                launch: Launch {
                    codex: None,
                    line_limit: DEFAULT_LINE_LIMIT,
                },
                codex_home: "/nowhere".into(),
                timeouts: TIMEOUTS,
            };
            let (reader, writer) = split(ours);
            let engine = engine_over(options, reader, writer).await.unwrap();
            let running = engine.codex.backend.running().unwrap();
            let entry = Entry::restored(kept_session(), steps_of(&running_session()), running);
            let Ok(AddedSession::New { entry, .. }) = engine.codex.hub.sessions.add(entry) else {
                panic!("one session");
            };
            Self {
                engine,
                entry,
                requests,
            }
        }

        /// The next host would get the session as it is now, and Codex was told to interrupt the turn.
        async fn assert_interrupted(mut self) {
            assert!(self.entry.earlier_record().is_none());
            let record = self.entry.access(|machine, _| machine.record());
            assert!(!record.unwrap().is_uninterrupted());
            while self.requests.recv().await.unwrap() != "turn/interrupt" {}
        }
    }

    fn kept_session() -> KeptSession {
        KeptSession {
            session: SessionId::named("sess_1"),
            thread: ThreadId::parse(THREAD).unwrap(),
            origin: Origin::New,
            settings: Settings::default(),
            effective: EffectiveSettings::default(),
            pending: Overrides::default(),
            timeouts: TIMEOUTS,
            sandbox_bound: None,
            client: None,
            children: Vec::new(),
        }
    }

    fn running_session() -> Session {
        let mut session = Session::new(THREAD, TIMEOUTS, now());
        session.prompt(Form::Text, now()).unwrap();
        assert!(session.sending(1));
        let _ = session.accepted(1, TurnId("turn-1".to_owned()), now());
        session
    }

    fn steps_of(session: &Session) -> KeptSteps {
        KeptSteps {
            thread: None,
            record: session.record().unwrap(),
            calls: Vec::new(),
            begun_by: None,
        }
    }

    /// A Codex whose turn does not end.
    async fn answer(stream: DuplexStream, heard: mpsc::UnboundedSender<String>) {
        let (reader, mut writer) = split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&line).unwrap();
            let method = request["method"].as_str().unwrap();
            let result = match method {
                "initialize" => json!({ "userAgent": "codex/0.169.0 (test)" }),
                "account/read" => {
                    json!({ "account": { "type": "chatgpt" }, "requiresOpenaiAuth": true })
                }
                "thread/loaded/list" => json!({ "data": [THREAD] }),
                "thread/resume" => {
                    let turn = json!({ "id": "turn-1", "status": "inProgress", "items": [] });
                    json!({ "thread": { "turns": [] }, "initialTurnsPage": { "data": [turn] } })
                }
                _ => json!({}),
            };
            // The test may be over.
            let _ = heard.send(method.to_owned());
            if request.get("id").is_some() {
                let answer = json!({ "id": request["id"], "result": result });
                let line = format!("{answer}\n");
                writer.write_all(line.as_bytes()).await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn interruption_of_a_session_that_waits_for_its_client_is_kept() {
        let work = TakenOver::new().await;
        let session = &work.entry.id;
        work.engine.interrupt_session(session).await.unwrap();
        work.assert_interrupted().await;
    }

    #[tokio::test(start_paused = true)]
    async fn cancellation_of_a_session_that_waits_for_its_client_is_kept() {
        let work = TakenOver::new().await;
        work.engine.cancel(&work.entry.id, "test").await.unwrap();
        assert_eq!(work.entry.state(), State::Cancelled);
        work.assert_interrupted().await;
    }

    #[tokio::test(start_paused = true)]
    async fn turn_of_a_session_that_waits_for_its_client_takes_a_message() {
        let work = TakenOver::new().await;
        work.engine.steer(&work.entry.id, "more").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn session_is_restored_although_the_caller_goes_away() {
        let work = TakenOver::new().await;
        let interrupting = work.engine.interrupt_session(&work.entry.id);
        assert!(interrupting.now_or_never().is_none());
        let waits = || work.entry.earlier_record().is_some();
        work.entry.wait_while(RESTORE_TIMEOUT, waits).await;
        assert!(!waits());
    }

    #[tokio::test(start_paused = true)]
    async fn session_without_a_turn_is_listed_as_idle_before_it_is_restored() {
        let work = TakenOver::new().await;
        assert_eq!(work.entry.info().view.state, State::Running);
        let mut session = running_session();
        let turn = json!({ "id": "turn-1", "status": "completed", "items": [] });
        let params = to_raw_value(&json!({ "threadId": THREAD, "turn": turn })).unwrap();
        let end = ThreadNotification::read("turn/completed", &params).unwrap();
        let _ = session.on_notification(end.unwrap(), now());
        let idle = Entry::restored(kept_session(), steps_of(&session), work.entry.server());
        assert!(idle.earlier_record().is_some());
        assert_eq!(idle.info().view.state, State::Idle);
    }

    #[test]
    fn running_turn_without_settings_is_found() {
        let mut session = Session::new("t", TIMEOUTS, now());
        session.prompt(Form::Text, now()).unwrap();
        let thread = ThreadId::parse(THREAD).unwrap();
        let keep = |session: &Session| {
            let steps = KeptSteps {
                thread: Some(thread.clone()),
                record: session.record().unwrap(),
                calls: Vec::new(),
                begun_by: None,
            };
            let steps = serde_json::to_string(&steps).unwrap();
            BTreeMap::from([(format!("{RECORD}sess_1"), steps)])
        };
        assert_eq!(unknown_turns(&keep(&session)), []);
        assert!(session.sending(1));
        let turn = TurnId("turn-1".to_owned());
        let _ = session.accepted(1, turn.clone(), now());
        let mut kept = keep(&session);
        assert_eq!(unknown_turns(&kept), [(thread.clone(), turn)]);
        kept.insert(format!("{SETTINGS}sess_1"), "{}".to_owned());
        assert_eq!(unknown_turns(&kept), []);
    }
}
