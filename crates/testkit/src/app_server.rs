//! A direct client of `codex app-server`, to compare the same work without our program in
//! between.
//!
//! Newline-delimited JSON without a `jsonrpc` field. Many tasks may use one
//! [`AppServer`] at the same time; it is cheap to clone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::codex;
use crate::home::Home;
use crate::launch::{Launch, Output, RunningProgram, Stdin};

/// How long one answer, or one turn, may take. Generous: a benchmark keeps a
/// hundred threads busy at once.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The answer to a server request that no handler takes: "method not found",
/// <https://www.jsonrpc.org/specification#error_object>.
const METHOD_NOT_FOUND: i64 = -32601;

/// A running app-server. When the last clone is dropped, its process group is
/// killed.
#[derive(Clone)]
pub struct AppServer(Arc<Shared>);

struct Shared {
    process: RunningProgram,
    stdin: Stdin,
    handler: Handler,
    next_id: AtomicU64,
    notifications: AtomicU64,
    state: Mutex<State>,
}

type Handler = Box<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

#[derive(Default)]
struct State {
    /// The reason why the output has ended.
    ended: Option<String>,
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    threads: HashMap<String, Events>,
}

/// The notifications of one thread. The receiver waits here until somebody asks,
/// because notifications overtake the answer that names the thread.
struct Events {
    sender: Option<mpsc::UnboundedSender<Value>>,
    receiver: Option<mpsc::UnboundedReceiver<Value>>,
}

impl AppServer {
    /// Starts the native binary of a release in the home's work directory and shakes
    /// hands.
    pub async fn real(version: &str, home: &Home) -> Self {
        let launch = home
            .launch(codex::native_binary(version))
            .args(["app-server"]);
        let server = Self::start(&launch, |_| None);
        server.initialize().await;
        server
    }

    /// Starts an app-server. The handler gets each request of the server and
    /// returns the result to answer with; without one the answer is an error.
    pub fn start(
        launch: &Launch,
        handler: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        let (process, stdin, output) = RunningProgram::start(launch);
        let shared = Arc::new(Shared {
            process,
            stdin,
            handler: Box::new(handler),
            next_id: AtomicU64::new(1),
            notifications: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let reader = Arc::downgrade(&shared);
        tokio::spawn(async move {
            let mut output = output;
            while let Some(output) = output.recv().await {
                let Some(shared) = reader.upgrade() else {
                    return;
                };
                if let Err(problem) = shared.take_in(output) {
                    return shared.state().end(problem);
                }
            }
            if let Some(shared) = reader.upgrade() {
                shared.state().end("closed stdout".to_owned());
            }
        });
        Self(shared)
    }

    /// Shakes hands and returns the server's answer.
    pub async fn initialize(&self) -> Value {
        let params = json!({
            "clientInfo": {
                "name": "testkit",
                "title": "Test kit",
                "version": env!("CARGO_PKG_VERSION"),
            },
            "capabilities": {"experimentalApi": true},
        });
        let result = self.call("initialize", params).await;
        self.0.send(&json!({"method": "initialized"}));
        result
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The `error` object of the answer.
    ///
    /// # Panics
    /// If the app-server ends or takes too long.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.0.state().wait(id, sender);
        self.0
            .send(&json!({"id": id, "method": method, "params": params}));
        let mut answer = match timeout(TIME_LIMIT, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => self.0.fail(&format!("no answer to {method}")),
        };
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Sends a request and waits for its result.
    ///
    /// # Panics
    /// If it is answered with an error, or like [`AppServer::request`].
    pub async fn call(&self, method: &str, params: Value) -> Value {
        match self.request(method, params).await {
            Ok(result) => result,
            Err(error) => self.0.fail(&format!("{method} failed: {error}")),
        }
    }

    /// Starts a thread with these `thread/start` parameters and returns its id.
    pub async fn start_thread(&self, params: Value) -> String {
        let result = self.call("thread/start", params).await;
        result["thread"]["id"].as_str().unwrap().to_owned()
    }

    /// The notifications of a thread, from its first on.
    ///
    /// # Panics
    /// If they were taken before: there is one receiver for each thread.
    #[must_use]
    pub fn notifications(&self, thread: &str) -> mpsc::UnboundedReceiver<Value> {
        self.0.state().events(thread).receiver.take().unwrap()
    }

    /// Runs one turn on a new thread and returns Codex's last message.
    ///
    /// # Panics
    /// If the turn does not complete.
    pub async fn hello_turn(&self, prompt: &str) -> String {
        let thread = self.start_thread(json!({})).await;
        let mut notifications = self.notifications(&thread);
        self.turn(&thread, &mut notifications, prompt).await
    }

    /// Runs one turn on a thread and returns Codex's last message.
    ///
    /// # Panics
    /// If the turn does not complete.
    pub async fn turn(
        &self,
        thread: &str,
        notifications: &mut mpsc::UnboundedReceiver<Value>,
        prompt: &str,
    ) -> String {
        self.turn_with(thread, notifications, prompt, json!({}))
            .await
    }

    /// The same with more parameters for `turn/start`.
    ///
    /// # Panics
    /// If the turn does not complete, or `more` is not an object.
    pub async fn turn_with(
        &self,
        thread: &str,
        notifications: &mut mpsc::UnboundedReceiver<Value>,
        prompt: &str,
        mut more: Value,
    ) -> String {
        let params = more.as_object_mut().unwrap();
        params.insert("threadId".to_owned(), thread.into());
        params.insert(
            "input".to_owned(),
            json!([{"type": "text", "text": prompt}]),
        );
        let params = more;
        let turn = self.call("turn/start", params).await["turn"]["id"].take();
        let ended = timeout(TIME_LIMIT, last_message(&turn, notifications)).await;
        match ended {
            Ok(Ok(text)) => text,
            Ok(Err(problem)) => self.0.fail(&problem),
            Err(_) => self.0.fail("the turn did not end"),
        }
    }

    /// How many notifications have come so far, of all threads and of none.
    #[must_use]
    pub fn notifications_seen(&self) -> u64 {
        self.0.notifications.load(Ordering::Relaxed)
    }

    /// The app-server's process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.process.pid()
    }

    /// What it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.0.process.stderr()
    }
}

/// Follows a turn to its end and returns the text of its last agent message.
async fn last_message(
    turn: &Value,
    notifications: &mut mpsc::UnboundedReceiver<Value>,
) -> Result<String, String> {
    let mut text = String::new();
    while let Some(notification) = notifications.recv().await {
        let params = &notification["params"];
        let item = &params["item"];
        if params["turnId"] == *turn && item["type"] == "agentMessage" {
            item["text"].as_str().unwrap().clone_into(&mut text);
        }
        if notification["method"] != "turn/completed" {
            continue;
        }
        let ended = &params["turn"];
        if ended["id"] == *turn && ended["status"] == "completed" {
            return Ok(text);
        }
        if ended["id"] == *turn {
            return Err(format!(
                "the turn ended {}: {}",
                ended["status"], ended["error"]
            ));
        }
    }
    Err("the turn did not end".to_owned())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn send(&self, message: &Value) {
        self.stdin.send(format!("{message}\n").into_bytes());
    }

    fn take_in(&self, output: Output) -> Result<(), String> {
        let (Output::Line(line) | Output::Rest(line)) = output;
        let message: Value = serde_json::from_slice(&line).map_err(|error| {
            let line = String::from_utf8_lossy(&line);
            format!("sent what is not JSON ({error}): {line}")
        })?;
        match (message.get("method"), message["id"].as_u64()) {
            (None, Some(id)) => {
                if let Some(waiting) = self.state().waiting.remove(&id) {
                    // The caller may have given up.
                    let _ = waiting.send(message);
                }
            }
            (Some(_), None) => self.notified(message),
            _ => self.answer(&message),
        }
        Ok(())
    }

    fn notified(&self, message: Value) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
        let Some(thread) = thread_of(&message).map(str::to_owned) else {
            return;
        };
        if let Some(sender) = &self.state().events(&thread).sender {
            // The receiver may have been dropped.
            let _ = sender.send(message);
        }
    }

    fn answer(&self, request: &Value) {
        let id = &request["id"];
        self.send(&match (self.handler)(request) {
            Some(result) => json!({"id": id, "result": result}),
            None => {
                let message = format!("no handler for {}", request["method"]);
                json!({"id": id, "error": {"code": METHOD_NOT_FOUND, "message": message}})
            }
        });
    }

    fn fail(&self, problem: &str) -> ! {
        let ended = match &self.state().ended {
            Some(reason) => format!(" (it {reason})"),
            None => String::new(),
        };
        let stderr = self.process.stderr();
        panic!("codex app-server: {problem}{ended}\n--- stderr\n{stderr}---")
    }
}

impl State {
    fn wait(&mut self, id: u64, sender: oneshot::Sender<Value>) {
        // After the end nobody would drop the sender, and the wait would never end.
        if self.ended.is_none() {
            self.waiting.insert(id, sender);
        }
    }

    /// Ends all waits, as no more output will come.
    fn end(&mut self, reason: String) {
        self.ended = Some(reason);
        self.waiting.clear();
        for events in self.threads.values_mut() {
            events.sender = None;
        }
    }

    fn events(&mut self, thread: &str) -> &mut Events {
        self.threads.entry(thread.to_owned()).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            Events {
                sender: self.ended.is_none().then_some(sender),
                receiver: Some(receiver),
            }
        })
    }
}

/// The thread that a notification is about; 0.104 also sends `codex/event/…`
/// notifications with a `conversationId`.
fn thread_of(notification: &Value) -> Option<&str> {
    let params = &notification["params"];
    [
        &params["threadId"],
        &params["thread"]["id"],
        &params["conversationId"],
    ]
    .into_iter()
    .find_map(Value::as_str)
}
