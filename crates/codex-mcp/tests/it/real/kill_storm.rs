//! Hosts, servers, guards and Codex are killed at random moments while clients call: each call, and
//! each task, has a result or an error, no turn is executed twice, and nothing is left at the end.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scripted_model::{Reply, Request, Script, Shell};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use super::stored_files::check_files;
use super::{CodexFixture, VERSION};
use crate::random::Random;

/// How many processes are killed. The variable has it killed more often.
const KILLS: usize = 24;
const VARIABLE: &str = "CODEX_MCP_TEST_KILLS";

/// The clients that call at the same time.
pub(super) const CLIENTS: [Style; 4] = [Style::Plain, Style::Asking, Style::Tasks, Style::Tasks];

/// How long a call may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The longest time between two kills, in milliseconds. A turn takes some 300 ms.
const PAUSE: u64 = 1500;

/// The kinds of processes that are killed.
const KINDS: [Kind; 4] = [Kind::Host, Kind::Server, Kind::Guard, Kind::Codex];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Host,
    Server,
    Guard,
    Codex,
    /// The worker of jobs.
    Worker,
}

impl Kind {
    fn of(command: &str) -> Option<Self> {
        let kinds = [
            (" guard ", Self::Guard),
            (" app-server", Self::Codex),
            (" host run", Self::Host),
            (" serve ", Self::Server),
            (" worker ", Self::Worker),
        ];
        let found = kinds.iter().find(|(words, _)| command.contains(words));
        found.map(|(_, kind)| *kind)
    }
}

/// How a call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    /// With this code.
    Failed(String),
    /// The client's server was killed.
    ServerGone,
}

/// A call that has ended.
pub(super) struct EndedCall {
    number: usize,
    outcome: Outcome,
    /// How many questions were allowed, if the turn asks before it executes anything.
    pub(super) approvals: Option<usize>,
}

#[expect(clippy::print_stderr, reason = "a failed test shows it")]
pub(super) fn report(text: &str) {
    eprintln!("{text}");
}

/// Which answers a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Results only: it waits for them.
    Plain,
    /// The same, in turns that ask before they execute anything. It allows what it is asked for.
    Asking,
    /// Tasks too, whose results it fetches later (MCP 2026-07-28).
    Tasks,
}

/// A server and its streams.
pub(super) struct Server {
    style: Style,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    next_id: u64,
    /// How many questions the client has allowed.
    approvals: usize,
}

impl Server {
    /// `None` if it was killed meanwhile.
    async fn start(stage: &CodexFixture, style: Style) -> Option<Self> {
        Self::start_with(stage, style, &[]).await
    }

    /// The same with more arguments.
    pub(super) async fn start_with(
        stage: &CodexFixture,
        style: Style,
        args: &[&str],
    ) -> Option<Self> {
        let mut child = stage
            .program(&["serve", "--host"])
            .args(args)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut server = Self {
            style,
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            next_id: 0,
            approvals: 0,
        };
        if style == Style::Tasks {
            // Each of its requests introduces it.
            return Some(server);
        }
        let capabilities = match style {
            Style::Asking => json!({ "elicitation": {} }),
            _ => json!({}),
        };
        let introduction = json!({ "protocolVersion": VERSION, "capabilities": capabilities,
            "clientInfo": { "name": "storm", "version": "1" } });
        server.call("initialize", introduction).await?;
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        server.write(&begun).await?;
        Some(server)
    }

    async fn write(&mut self, message: &Value) -> Option<()> {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.ok()
    }

    /// `None` if the server was killed meanwhile.
    pub(super) async fn call(&mut self, method: &str, mut params: Value) -> Option<Value> {
        self.next_id += 1;
        if self.style == Style::Tasks {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "storm", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities":
                    { "extensions": { "io.modelcontextprotocol/tasks": {} } },
            });
        }
        let id = self.next_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&request).await?;
        let answered = async {
            while let Ok(Some(line)) = self.output.next_line().await {
                // The last line of a server that was killed may be torn.
                let message: Value = serde_json::from_str(&line).unwrap_or_default();
                if message["method"] == "elicitation/create" {
                    self.allow(&message["id"]).await?;
                } else if message["id"] == id && message.get("method").is_none() {
                    return Some(message);
                }
            }
            None
        };
        let answer = timeout(TIME_LIMIT, answered).await;
        answer.unwrap_or_else(|_| panic!("no answer to {request}"))
    }

    /// Allows what a question asks for. Counts that first, as a server that is killed then may have
    /// passed the answer on.
    async fn allow(&mut self, question: &Value) -> Option<()> {
        self.approvals += 1;
        let result = json!({ "action": "accept", "content": { "decision": "accept" } });
        let answer = json!({ "jsonrpc": "2.0", "id": question, "result": result });
        self.write(&answer).await
    }

    pub(super) async fn finish(self) {
        drop(self.input);
        let mut child = self.child;
        let ended = timeout(TIME_LIMIT, child.wait()).await;
        assert!(ended.is_ok(), "a server does not end");
    }
}

/// The number in `turn N` and `ask N`.
fn number_of(prompt: &str) -> &str {
    prompt.rsplit(' ').next().unwrap_or_default()
}

/// The turn writes its number into a file, that of `ask N` after it has asked, and then says it.
pub(super) fn count(request: &Request) -> Reply {
    let prompt = request.prompt();
    let number = number_of(prompt);
    let command = format!("echo {number} >> ran.txt");
    match (request.round(), prompt.starts_with("ask ")) {
        (0, true) => Reply::shell(Shell::escalated(command, "it is needed")),
        (0, false) => Reply::shell(command),
        _ => Reply::say(format!("done {number}")),
    }
}

/// Calls until the storm is over; returns how each call has ended.
pub(super) async fn calls(
    stage: Arc<CodexFixture>,
    style: Style,
    numbers: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
) -> Vec<EndedCall> {
    let mut ended = Vec::new();
    let mut server = None;
    while !is_over.load(Ordering::Relaxed) {
        let mut current = match server.take() {
            Some(server) => server,
            None => match Server::start(&stage, style).await {
                Some(server) => server,
                None => continue,
            },
        };
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let is_asking = style == Style::Asking;
        let (word, sandbox, policy) = match is_asking {
            true => ("ask", "read-only", "on-request"),
            false => ("turn", "workspace-write", "never"),
        };
        let arguments = json!({ "prompt": format!("{word} {number}"),
            "sandbox": sandbox, "approval-policy": policy });
        let params = json!({ "name": "codex", "arguments": arguments });
        current.approvals = 0;
        let answer = current.call("tools/call", params).await;
        let approvals = is_asking.then_some(current.approvals);
        let outcome = match answer {
            None => Outcome::ServerGone,
            Some(answer) => {
                server = Some(current);
                let result = match answer["result"]["taskId"].as_str() {
                    Some(task) => result_of_task(&stage, &mut server, task).await,
                    None => answer["result"].clone(),
                };
                outcome(number, &result)
            }
        };
        ended.push(EndedCall {
            number,
            outcome,
            approvals,
        });
    }
    if let Some(server) = server {
        server.finish().await;
    }
    ended
}

/// The result of a task, through as many servers as it takes.
async fn result_of_task(stage: &CodexFixture, server: &mut Option<Server>, task: &str) -> Value {
    let polling = async {
        loop {
            let Some(current) = server else {
                *server = Server::start(stage, Style::Tasks).await;
                continue;
            };
            let Some(answer) = current.call("tasks/get", json!({ "taskId": task })).await else {
                *server = None;
                continue;
            };
            // Its host may be starting, but nobody says that there is no such task.
            assert_ne!(answer["error"]["code"], -32602, "{answer:#}");
            let state = &answer["result"];
            if state["status"] == "completed" {
                return state["result"].clone();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let result = timeout(TIME_LIMIT, polling).await;
    result.unwrap_or_else(|_| panic!("the task {task} does not end"))
}

fn outcome(number: usize, result: &Value) -> Outcome {
    if result["isError"] == true {
        let code = result["structuredContent"]["error"]["code"].as_str();
        return Outcome::Failed(code.unwrap_or_else(|| panic!("{result:#}")).to_owned());
    }
    let content = &result["structuredContent"];
    assert_eq!(content["status"], "completed", "{result:#}");
    assert_eq!(content["content"], format!("done {number}"), "{result:#}");
    Outcome::Completed
}

/// How many processes are to be killed.
pub(super) fn wanted(usual: usize) -> usize {
    std::env::var(VARIABLE).map_or(usual, |kills| kills.parse().unwrap())
}

/// Kills one process of these kinds after the other; returns how many of each kind.
pub(super) async fn storm(
    stage: &CodexFixture,
    kinds: &[Kind],
    kills: usize,
) -> HashMap<Kind, usize> {
    let mut random = Random::seeded("storm");
    let mut killed = HashMap::new();
    let deadline =
        Instant::now() + TIME_LIMIT + Duration::from_secs(2) * u32::try_from(kills).unwrap();
    while killed.values().sum::<usize>() < kills {
        assert!(
            Instant::now() < deadline,
            "there is nothing to kill: {killed:?}"
        );
        sleep(Duration::from_millis(random.below(PAUSE))).await;
        let choice = random.below(u64::try_from(kinds.len()).unwrap());
        let kind = kinds[usize::try_from(choice).unwrap()];
        // Drawn also where nothing can be killed, so that the next choices are those of the seed.
        let chosen = random.below(u64::MAX);
        let all = stage.home.processes();
        let mut all: Vec<u32> = all
            .iter()
            .filter(|process| Kind::of(&process.command) == Some(kind))
            .map(|process| process.pid)
            .collect();
        if !all.is_empty() {
            let chosen = chosen % u64::try_from(all.len()).unwrap();
            let process = all.swap_remove(usize::try_from(chosen).unwrap());
            // It may have ended meanwhile.
            if kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL).is_ok() {
                *killed.entry(kind).or_default() += 1;
            }
        }
    }
    killed
}

#[tokio::test]
async fn each_call_is_answered_and_no_turn_runs_twice() {
    let stage = CodexFixture::new(testkit::codex::newest(), Script::by(count)).await;
    let stage = Arc::new(stage);
    let (numbers, is_over) = (
        Arc::new(AtomicUsize::new(1)),
        Arc::new(AtomicBool::new(false)),
    );
    let clients: Vec<_> = CLIENTS
        .into_iter()
        .map(|style| {
            let (numbers, is_over) = (Arc::clone(&numbers), Arc::clone(&is_over));
            tokio::spawn(calls(Arc::clone(&stage), style, numbers, is_over))
        })
        .collect();
    let killed = storm(&stage, &KINDS, wanted(KILLS)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut ended = Vec::new();
    for client in clients {
        ended.extend(client.await.unwrap());
    }
    stage.stop_hosts().await;
    stage.until_processes_end().await;

    let counted = check_calls(&stage, &ended);
    report(&format!("killed: {killed:?}; calls: {counted:?}"));
    assert!(counted.contains_key("Completed"), "{counted:?}");
    for directory in [stage.home.state_home(), stage.home.atm_home()] {
        check_files(&directory);
    }
}

/// How often the turn with a number was executed.
pub(super) fn times(stage: &CodexFixture, number: usize) -> usize {
    let ran = std::fs::read_to_string(stage.file("ran.txt")).unwrap_or_default();
    let number = number.to_string();
    ran.lines().filter(|line| **line == number).count()
}

/// Checks that a turn that has completed was executed once, none twice, and none without the approval
/// that it asks for; returns how many calls ended in which way.
pub(super) fn check_calls(stage: &CodexFixture, calls: &[EndedCall]) -> HashMap<String, usize> {
    let mut counted: HashMap<String, usize> = HashMap::new();
    for EndedCall {
        number,
        outcome,
        approvals,
    } in calls
    {
        *counted.entry(format!("{outcome:?}")).or_default() += 1;
        let times = times(stage, *number);
        match outcome {
            Outcome::Completed => assert_eq!(times, 1, "turn {number}"),
            _ => assert!(times <= 1, "turn {number}: {outcome:?}"),
        }
        let is_allowed = approvals.is_none_or(|approvals| times <= approvals);
        assert!(is_allowed, "turn {number} was executed without approval");
    }
    counted
}
