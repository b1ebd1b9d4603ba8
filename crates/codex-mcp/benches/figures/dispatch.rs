//! Notifications on their way from Codex's output to their session: split into lines, parsed,
//! dispatched and taken in by the session's machine.
//!
//! A peer in memory plays the app-server, on the same core. It has written the
//! whole of its turns beforehand, so that its share of the time is a copy of the
//! bytes. Beside it: how many a real Codex sends at most.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use codex_engine::command::{Prompt, StartThread, TurnRef};
use codex_engine::in_memory::engine_over;
use codex_engine::logic::session::Timeouts;
use codex_engine::{Engine, Launch, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use scripted_model::Reply;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::oneshot;

use crate::fixture::Fixture;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In notifications per second.
const TARGET: f64 = 500_000.0;

/// Notifications in a round. Their text stays below what a session keeps of an
/// unfinished message (1 MiB).
const COUNT: u32 = 100_000;

/// The text that each notification adds to the message.
const DELTA: &str = " Hello";

/// The capacity of a pipe on Linux, see pipe(7).
const PIPE: usize = 64 * 1024;

/// How many a real Codex is made to send in a round.
const REAL_COUNT: usize = 20_000;

/// Every round of it is a second of waiting for the model, so there are few.
const REAL_ROUNDS: u16 = 3;

pub(crate) fn measure(rounds: u16) -> Vec<Row> {
    let real = Summary::of(crate::block_on(real_codex(rounds.min(REAL_ROUNDS))));
    let (mut one, mut many) = (Vec::new(), Vec::new());
    in_memory(1);
    for _ in 0..rounds {
        one.push(in_memory(1));
        many.push(in_memory(100));
    }
    let row = |figure, rates| Row {
        figure,
        unit: Unit::PerSecond,
        ours: Summary::of(rates),
        direct: Some(real.clone()),
        target: Target::AtLeast(TARGET),
        notes: Vec::new(),
    };
    let mut all = vec![
        row("notifications taken in, one session", one),
        row("notifications taken in, 100 sessions in turn", many),
    ];
    all[1].notes = vec![format!(
        "on one core, {} bytes each; `direct` is what a real Codex sends",
        delta_line(&thread(0)).len()
    )];
    all
}

/// Notifications per second that a real Codex sends.
async fn real_codex(rounds: u16) -> Vec<f64> {
    let fixture = Fixture::with_answer(Reply::deltas(REAL_COUNT, DELTA));
    let server = fixture.fresh_direct().await;
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let before = server.notifications_seen();
        let begin = Instant::now();
        let text = fixture.turn_direct(&server).await;
        let took = begin.elapsed().as_secs_f64();
        assert_eq!(text.len(), REAL_COUNT * DELTA.len());
        let sent = u32::try_from(server.notifications_seen() - before).unwrap();
        rates.push(f64::from(sent) / took);
    }
    rates
}

/// Notifications per second that an engine takes in, spread over some sessions.
fn in_memory(sessions: u32) -> f64 {
    crate::block_on(async {
        let (near, far) = duplex(PIPE);
        let (go, told_to_go) = oneshot::channel();
        let peer = tokio::spawn(Peer::new(far).play(sessions, told_to_go));
        let (reader, writer) = split(near);
        let engine = engine_over(options(), reader, writer).await.unwrap();
        let mut turns = Vec::new();
        for _ in 0..sessions {
            let opened = engine.start(StartThread::default()).await.unwrap();
            turns.push(
                engine
                    .prompt(&opened.session, Prompt::text("Say hello."))
                    .await
                    .unwrap(),
            );
        }
        let begin = Instant::now();
        go.send(()).unwrap();
        let mut heard = 0;
        for turn in &turns {
            heard += text_of(&engine, turn).await.len();
        }
        let took = begin.elapsed().as_secs_f64();
        assert_eq!(heard, usize::try_from(COUNT).unwrap() * DELTA.len());
        peer.abort();
        f64::from(COUNT) / took
    })
}

fn options() -> Options {
    Options {
        launch: Launch {
            codex: None,
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: PathBuf::new(),
        timeouts: Timeouts {
            approval: Duration::from_secs(60),
            stall: Duration::from_secs(300),
        },
    }
}

/// The text of a turn, once it has ended.
async fn text_of(engine: &Engine, turn: &TurnRef) -> String {
    loop {
        let view = engine.inspect(&turn.session).unwrap();
        if let Some((_, outcome)) = view.outcome {
            return outcome.text.clone();
        }
        engine.changed(&turn.session, view.revision).await.unwrap();
    }
}

/// The other end of the engine's connection.
struct Peer {
    requests: BufReader<ReadHalf<DuplexStream>>,
    answers: WriteHalf<DuplexStream>,
}

impl Peer {
    fn new(stream: DuplexStream) -> Self {
        let (reader, answers) = split(stream);
        Self {
            requests: BufReader::new(reader),
            answers,
        }
    }

    /// Takes on `sessions` turns and plays them all when told to.
    async fn play(mut self, sessions: u32, told_to_go: oneshot::Receiver<()>) {
        let all = script(sessions);
        let mut threads = 0;
        let mut turns = 0;
        while turns < sessions {
            let mut line = String::new();
            self.requests.read_line(&mut line).await.unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let result = match request["method"].as_str().unwrap() {
                "initialize" => json!({"userAgent": "codex-mcp/0.0.0"}),
                "account/read" => json!({"account": null, "requiresOpenaiAuth": false}),
                "thread/start" => {
                    threads += 1;
                    json!({"thread": {"id": thread(threads - 1)}})
                }
                "turn/start" => {
                    turns += 1;
                    json!({"turn": {"id": TURN, "status": "inProgress"}})
                }
                _ => continue,
            };
            self.send(&json!({"id": request["id"], "result": result}))
                .await;
        }
        told_to_go.await.unwrap();
        self.answers.write_all(all.as_bytes()).await.unwrap();
        // The connection stays open until the round is over.
        std::future::pending::<()>().await;
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.answers.write_all(line.as_bytes()).await.unwrap();
    }
}

const TURN: &str = "01a1fc80-aa05-76b2-8218-4576886fccde";

/// The name of a thread, as long as Codex's are.
fn thread(number: u32) -> String {
    format!("01a1fc80-a9f5-7b73-ab58-{number:012x}")
}

/// The whole of the turns, with their notifications in turn.
fn script(sessions: u32) -> String {
    let threads: Vec<String> = (0..sessions).map(thread).collect();
    let started = threads.iter().map(|thread| turn_line(thread, "started"));
    let deltas: Vec<String> = threads.iter().map(|thread| delta_line(thread)).collect();
    let deltas = deltas.into_iter().cycle();
    let completed = threads.iter().map(|thread| turn_line(thread, "completed"));
    started
        .chain(deltas.take(usize::try_from(COUNT).unwrap()))
        .chain(completed)
        .collect()
}

/// As Codex 0.169.0 writes it.
fn delta_line(thread: &str) -> String {
    format!(
        "{{\"method\":\"item/agentMessage/delta\",\"params\":{{\"threadId\":\"{thread}\",\
         \"turnId\":\"{TURN}\",\"itemId\":\"msg_1\",\"delta\":\"{DELTA}\"}},\
         \"emittedAtMs\":1795237653044}}\n"
    )
}

fn turn_line(thread: &str, what: &str) -> String {
    let status = if what == "started" {
        "inProgress"
    } else {
        what
    };
    let turn = json!({"id": TURN, "status": status, "items": [], "error": null});
    let params = json!({"threadId": thread, "turn": turn});
    format!(
        "{}\n",
        json!({"method": format!("turn/{what}"), "params": params})
    )
}
