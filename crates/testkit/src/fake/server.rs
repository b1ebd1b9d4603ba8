//! Reads requests and carries out the plan.
//!
//! One thread, one task for each request, so that a request that hangs or asks holds up no other.
//! Writes block, so that lines stay whole and in order.

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::future;
use std::io::{self, BufRead, Write};
use std::process::{self, ExitCode};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, spawn_local, yield_now};

use super::dialect::{Call, Dialect, Kind, Notification, Refusal, Threads};
use super::log::{Event, Log};
use super::plan::{Action, Occasion, Plan, Question, Session, Stdio, TurnEnd};
use super::running::RunningScript;
use super::{PLAN, gate};
use crate::wait::wait_for_file;

/// The piece in which a giant line is written.
const PIECE: usize = 64 * 1024;

/// The final message after a script.
const RAN: &str = "ok";

/// An id that no client uses.
const UNKNOWN_ID: u64 = 987_654_321;

pub(super) struct Server {
    dialect: Box<dyn Dialect>,
    plan: Plan,
    log: Log,
    launch: u32,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    occasions: HashMap<Occasion, u32>,
    threads: Vec<String>,
    /// The settings with which each thread was last started or resumed.
    settings: HashMap<String, Value>,
    /// The turn that runs on a thread.
    turns: HashMap<String, String>,
    /// The thread and the turn that runs for a request, by its id as JSON text.
    requests: HashMap<String, (String, String)>,
    /// The tasks that carry out turns.
    tasks: HashMap<String, AbortHandle>,
    /// The last message of the agent in each turn.
    said: HashMap<String, String>,
    asked: Vec<Option<oneshot::Sender<()>>>,
    ids: u32,
    ignores_eof: bool,
}

impl Threads for State {
    fn knows(&self, thread: &str) -> bool {
        self.threads.iter().any(|known| known == thread)
    }

    fn running_turn(&self, thread: &str) -> Option<String> {
        self.turns.get(thread).cloned()
    }

    fn turn_of_request(&self, id: &Value) -> Option<(String, String)> {
        self.requests.get(&id.to_string()).cloned()
    }

    /// In the form of Codex's ids (UUID version 7), different in each process.
    fn new_id(&mut self) -> String {
        self.ids += 1;
        format!(
            "019fa4e0-0000-7000-8{:03x}-{:012x}",
            self.ids,
            process::id()
        )
    }

    fn ids(&self) -> Vec<String> {
        self.threads.clone()
    }
}

impl Server {
    /// The start must be in the log already.
    pub(super) fn new(dialect: Box<dyn Dialect>, plan: Plan, log: Log) -> Self {
        Self {
            dialect,
            plan,
            launch: log.launch(),
            log,
            state: RefCell::default(),
        }
    }

    /// Serves until stdin ends.
    pub(super) async fn serve(self: Rc<Self>) -> ExitCode {
        let start = self.plan.actions(&Occasion::Start, 1, self.launch);
        for action in start.unwrap_or_default() {
            self.perform(action, &Call::default()).await;
        }
        let mut lines = stdin_lines();
        while let Some(line) = lines.recv().await {
            match serde_json::from_slice(&line) {
                Ok(message) => {
                    self.take_in(message);
                    // Lets the request's task begin before the next line is read.
                    yield_now().await;
                }
                Err(_) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    self.log.add(Event::ReceivedGarbage(line));
                }
            }
        }
        self.log.add(Event::Eof);
        if self.state.borrow().ignores_eof {
            future::pending::<()>().await;
        }
        ExitCode::SUCCESS
    }

    fn take_in(self: &Rc<Self>, message: Value) {
        self.log.add(Event::Received(message.clone()));
        match message["method"].as_str() {
            Some(method) => self.take_in_call(method, &message),
            None => self.take_in_answer(&message["id"]),
        }
    }

    fn take_in_answer(&self, id: &Value) {
        let place = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let mut state = self.state.borrow_mut();
        let waiting = place.and_then(|place| state.asked.get_mut(place)?.take());
        if let Some(waiting) = waiting {
            // The task that asked may have been interrupted.
            let _ = waiting.send(());
        }
    }

    fn take_in_call(self: &Rc<Self>, method: &str, message: &Value) {
        let call = Call {
            id: message["id"].clone(),
            method: method.to_owned(),
            params: message["params"].clone(),
            ..Call::default()
        };
        let mut state = self.state.borrow_mut();
        let call = self.dialect.understand(call, &mut *state);
        if call.kind == Kind::Thread {
            let settings = call.params.clone();
            state.settings.insert(call.thread.clone(), settings);
            if !state.knows(&call.thread) {
                state.threads.push(call.thread.clone());
            }
        }
        let actions = self.actions(&call, &mut state);
        let (turn, kind) = (call.turn.clone(), call.kind);
        if kind == Kind::Turn {
            let place = (call.thread.clone(), turn.clone());
            state.requests.insert(call.id.to_string(), place);
        }
        let server = Rc::clone(self);
        let task = spawn_local(async move {
            for action in &actions {
                server.perform(action, &call).await;
            }
        });
        if kind == Kind::Turn {
            state.tasks.insert(turn, task.abort_handle());
        }
    }

    fn actions(&self, call: &Call, state: &mut State) -> Vec<Action> {
        let when = Occasion::Request(call.method.clone());
        let nth = state.occasions.entry(when.clone()).or_default();
        *nth += 1;
        match self.plan.actions(&when, *nth, self.launch) {
            Some(actions) => actions.to_vec(),
            None => vec![Action::Proceed],
        }
    }

    async fn perform(&self, action: &Action, call: &Call) {
        match action {
            // Most notifications need no action.
            Action::Proceed if call.id.is_null() => {}
            Action::Proceed => {
                for action in self.dialect.proceed(call) {
                    self.perform_one(&action, call).await;
                }
            }
            action => self.perform_one(action, call).await,
        }
    }

    async fn perform_one(&self, action: &Action, call: &Call) {
        match action {
            Action::Answer => self.send(self.answer(call)),
            Action::AnswerTwice => {
                self.send(self.answer(call));
                self.send(self.answer(call));
            }
            Action::HalfAnswer => {
                let line = self.line(self.answer(call));
                write(&line[..line.len() / 2]);
            }
            Action::Error { code, message } => {
                let refusal = Err((*code, message.clone()));
                self.send(response(&call.id, refusal));
            }
            Action::AnswerUnder { id } => {
                let mut answer = self.answer(call);
                answer["id"] = id.clone();
                self.send(answer);
            }
            Action::AnswerUnknownId => self.send(response(&json!(UNKNOWN_ID), Ok(json!({})))),
            Action::StartTurn => self.start_turn(call),
            Action::Say { text } => self.say(call, text),
            Action::Run { script } => self.run(call, script).await,
            Action::EndTurn(end) => self.end_turn(call, end),
            Action::Ask { method, params } => self.ask(call, method, params).await.unwrap(),
            Action::AskTogether(questions) => self.ask_together(call, questions).await,
            Action::Notify { method, params } => {
                let mut params = params.clone();
                self.dialect.place(call, &mut params);
                self.send(json!({"method": method, "params": params}));
            }
            Action::Flood { notifications } => {
                for number in 0..*notifications {
                    self.notify(self.dialect.delta(call, &format!("{number} ")));
                }
            }
            Action::GiantLine { bytes } => self.giant_line(call, *bytes),
            action => self.perform_on_process(action).await,
        }
    }

    /// The actions that are about the process and not about a request.
    async fn perform_on_process(&self, action: &Action) {
        match action {
            Action::Write { bytes } => write(bytes),
            Action::WriteStderr { text } => {
                eprintln!("{text}");
            }
            Action::Gate { name } => wait_at_gate(name).await,
            Action::Sleep { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
            }
            Action::SpawnSleep {
                seconds,
                session,
                stdio,
            } => {
                let pid = spawn_sleep(*seconds, *session, *stdio);
                self.log.add(Event::Spawned(pid));
            }
            Action::IgnoreSigterm => self.ignore_sigterm(),
            Action::IgnoreEof => self.state.borrow_mut().ignores_eof = true,
            Action::Exit { code } => process::exit((*code).into()),
            Action::Kill { signal } => {
                let signal = Signal::try_from(*signal).unwrap();
                kill(Pid::this(), signal).unwrap();
                // The first SIGSEGV or SIGBUS only ends the handler that Rust's
                // runtime has for it.
                kill(Pid::this(), signal).unwrap();
            }
            _ => {}
        }
    }

    fn answer(&self, call: &Call) -> Value {
        let mut state = self.state.borrow_mut();
        let said = state.said.get(&call.turn).cloned().unwrap_or_default();
        let answer = self.dialect.answer(call, &*state, &said);
        if call.kind == Kind::Turn && state.requests.contains_key(&call.id.to_string()) {
            state.turns.insert(call.thread.clone(), call.turn.clone());
        }
        response(&call.id, answer)
    }

    fn start_turn(&self, call: &Call) {
        let (thread, turn) = (call.thread.clone(), call.turn.clone());
        self.state.borrow_mut().turns.insert(thread, turn);
        self.notify_all(self.dialect.turn_started(call));
    }

    async fn run(&self, call: &Call, script: &str) {
        self.start_turn(call);
        let mut running = {
            let state = self.state.borrow();
            RunningScript::start(script, call, &state.settings[&call.thread])
        };
        while let Some(line) = running.line().await {
            if let Ok(item @ Value::Object(_)) = serde_json::from_str(&line) {
                let mut params = json!({ "item": item });
                self.dialect.place(call, &mut params);
                self.send(json!({"method": "item/completed", "params": params}));
            }
        }
        match running.failure().await {
            None => {
                self.say(call, RAN);
                self.end_turn(call, &TurnEnd::Completed);
            }
            Some(why) => self.end_turn(call, &TurnEnd::Failed(why)),
        }
    }

    fn say(&self, call: &Call, text: &str) {
        let turn = call.turn.clone();
        self.state.borrow_mut().said.insert(turn, text.to_owned());
        self.notify_all(self.dialect.said(call, text));
    }

    fn end_turn(&self, call: &Call, end: &TurnEnd) {
        let mut state = self.state.borrow_mut();
        let said = state.said.get(&call.turn).cloned().unwrap_or_default();
        state.turns.remove(&call.thread);
        state.requests.retain(|_, (_, turn)| *turn != call.turn);
        let task = state.tasks.remove(&call.turn);
        // The turn's own task continues: the plan may have actions after the end.
        if let Some(task) = task.filter(|_| call.kind != Kind::Turn) {
            task.abort();
        }
        self.notify_all(self.dialect.turn_ended(call, end, &said));
    }

    async fn ask_together(&self, call: &Call, questions: &[Question]) {
        let asked: Vec<_> = questions
            .iter()
            .map(|question| self.ask(call, &question.method, &question.params))
            .collect();
        for answered in asked {
            answered.await.unwrap();
        }
    }

    fn ask(&self, call: &Call, method: &str, params: &Value) -> oneshot::Receiver<()> {
        let (sender, answered) = oneshot::channel();
        let mut params = params.clone();
        self.dialect.place(call, &mut params);
        let id = {
            let asked = &mut self.state.borrow_mut().asked;
            asked.push(Some(sender));
            asked.len() - 1
        };
        self.send(json!({"method": method, "id": id, "params": params}));
        answered
    }

    fn ignore_sigterm(&self) {
        let mut sigterm = signal(SignalKind::terminate()).unwrap();
        let log = self.log.clone();
        spawn_local(async move {
            while sigterm.recv().await.is_some() {
                log.add(Event::Sigterm);
            }
        });
    }

    fn giant_line(&self, call: &Call, bytes: usize) {
        const FILLER: &str = "<>";
        let (method, params) = self.dialect.delta(call, FILLER);
        let line = self.line(json!({"method": method, "params": params}));
        let place = line
            .windows(FILLER.len())
            .position(|window| window == FILLER.as_bytes())
            .unwrap();
        let mut left = bytes.saturating_sub(line.len() - FILLER.len());
        write(&line[..place]);
        let piece = vec![b'x'; PIECE];
        while left > 0 {
            let size = left.min(PIECE);
            write(&piece[..size]);
            left -= size;
        }
        write(&line[place + FILLER.len()..]);
    }

    fn notify_all(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            self.notify(notification);
        }
    }

    fn notify(&self, (method, params): Notification) {
        self.send(json!({"method": method, "params": params}));
    }

    fn send(&self, message: Value) {
        write(&self.line(message));
    }

    fn line(&self, mut message: Value) -> Vec<u8> {
        self.dialect.envelop(&mut message);
        format!("{message}\n").into_bytes()
    }
}

fn response(id: &Value, answer: Result<Value, Refusal>) -> Value {
    match answer {
        Ok(result) => json!({"id": id, "result": result}),
        Err((code, message)) => json!({"id": id, "error": {"code": code, "message": message}}),
    }
}

fn write(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    // A closed stdout is no reason to stop: this is a hostile program.
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

async fn wait_at_gate(name: &str) {
    let plan = env::var_os(PLAN).unwrap();
    // If a test never opens the gate, the panic ends this action, and no answer comes either way.
    wait_for_file(&gate(plan.as_ref(), name)).await;
}

fn stdin_lines() -> mpsc::UnboundedReceiver<Vec<u8>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn spawn_sleep(seconds: u32, session: Session, stdio: Stdio) -> u32 {
    let mut command = match session {
        Session::Shared => process::Command::new("sleep"),
        Session::Own => {
            // It is no group leader, so setsid becomes the sleep without a fork.
            let mut setsid = process::Command::new("setsid");
            setsid.arg("sleep");
            setsid
        }
    };
    command.arg(seconds.to_string());
    if stdio == Stdio::Null {
        command
            .stdin(process::Stdio::null())
            .stdout(process::Stdio::null())
            .stderr(process::Stdio::null());
    }
    command.spawn().unwrap().id()
}
