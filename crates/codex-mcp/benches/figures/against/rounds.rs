//! The measurements of the servers, of which each has a turn in each round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use scripted_model::{Gate, Reply, Script};
use tokio::time::{sleep, timeout};

use super::side::{Client, SETTLE, Side};
use crate::block_on;
use crate::fixture::{Fixture, seconds};
use crate::model::ANSWER;
use crate::stats::Summary;

/// The sessions whose memory is measured.
pub(super) const SESSIONS: [usize; 3] = [1, 12, 50];

/// The calls that are made at once.
pub(super) const CROWD: usize = 12;

/// Calls before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 3;

/// The time within which all calls that are made at once have to reach the model.
const ARRIVAL: Duration = Duration::from_secs(180);

/// The most that is shown of a reason, in characters.
const REASON: usize = 160;

/// A measurement, or why there is none.
pub(super) type Measured<T> = Result<T, String>;

/// All that is measured of a server. Times are in seconds, memory in bytes.
pub(super) struct Figures {
    /// From the start of the process to the answer to `initialize`.
    pub(super) start: Summary,
    /// From there to the first answer of Codex.
    pub(super) first_call: Summary,
    pub(super) later_call: Summary,
    pub(super) crowd: Summary,
    pub(super) tools: Option<(usize, usize)>,
    pub(super) memory: [Measured<Memory>; 3],
}

/// The memory (PSS) of all processes of a server.
pub(super) struct Memory {
    /// While all sessions wait for the model.
    pub(super) at_work: Summary,
    /// When all have their answer.
    pub(super) idle: Summary,
}

/// Measures all servers. One that does not say hello when it is tried alone is left out, with the
/// reason.
pub(super) fn measure(sides: &[Side], rounds: u16) -> Vec<Measured<Figures>> {
    let tried: Vec<Measured<()>> = sides.iter().map(attempt).collect();
    let able: Vec<&Side> = sides
        .iter()
        .zip(&tried)
        .filter_map(|(side, tried)| tried.is_ok().then_some(side))
        .collect();
    let mut measured = block_on(times(&able, rounds)).into_iter();
    let mut memories = memories(&able, rounds.div_ceil(5)).into_iter();
    let finished = tried.into_iter().map(|tried| {
        tried?;
        let mut figures = measured.next().unwrap();
        figures.memory = memories.next().unwrap();
        Ok(figures)
    });
    finished.collect()
}

fn attempt(side: &Side) -> Measured<()> {
    eprintln!("trying: {}", side.title);
    caught(|| async {
        let fixture = Fixture::new();
        let mut client = side.start(&fixture).await;
        client.hello(&fixture, 1).await;
        side.end(client, &fixture).await;
    })
}

/// Runs something, and turns a panic into the line that tells why.
fn caught<T, F: Future<Output = T>>(something: impl FnOnce() -> F) -> Measured<T> {
    let done = catch_unwind(AssertUnwindSafe(|| block_on(something())));
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        reason(text.unwrap_or("it failed"))
    })
}

/// The last error that a server has reported on stderr, or else what the client says.
fn reason(text: &str) -> String {
    let reported = text.lines().rev().find(|line| line.contains("Error: "));
    let line = reported.or_else(|| text.lines().next()).unwrap_or(text);
    line.chars().take(REASON).collect()
}

/// A server, whose turns share a home, and what was measured of it.
struct Contestant<'a> {
    side: &'a Side,
    fixture: Fixture,
    start: Vec<f64>,
    first_call: Vec<f64>,
    later_call: Vec<f64>,
    crowd: Vec<f64>,
    tools: Option<(usize, usize)>,
}

impl<'a> Contestant<'a> {
    fn new(side: &'a Side) -> Self {
        Self {
            side,
            fixture: Fixture::new(),
            start: Vec::new(),
            first_call: Vec::new(),
            later_call: Vec::new(),
            crowd: Vec::new(),
            tools: None,
        }
    }

    /// Starts the server and calls it for the first time.
    async fn started(&mut self) -> Client {
        let begin = Instant::now();
        let mut client = self.side.start(&self.fixture).await;
        self.start.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        client.hello(&self.fixture, 1).await;
        self.first_call.push(begin.elapsed().as_secs_f64());
        client
    }

    fn figures(self) -> Figures {
        Figures {
            start: Summary::of(self.start),
            first_call: Summary::of(self.first_call),
            later_call: Summary::of(self.later_call),
            crowd: Summary::of(self.crowd),
            tools: self.tools,
            memory: SESSIONS.map(|_| Err(String::new())),
        }
    }
}

async fn times(sides: &[&Side], rounds: u16) -> Vec<Figures> {
    let mut all: Vec<Contestant> = sides.iter().map(|side| Contestant::new(side)).collect();
    // The first start reads the programs from the disk and makes Codex's databases.
    for round in 0..=rounds {
        eprintln!("starts: {round} of {rounds}");
        for one in &mut all {
            let client = one.started().await;
            one.side.end(client, &one.fixture).await;
            if round == 0 {
                one.start.clear();
                one.first_call.clear();
            }
        }
    }
    let mut clients = Vec::new();
    for one in &mut all {
        let mut client = one.side.start(&one.fixture).await;
        one.tools = client.tools().await;
        clients.push(client);
    }
    for round in 0..WARM_UP + 2 * rounds {
        eprintln!("calls: {round} of {}", WARM_UP + 2 * rounds);
        for (one, client) in all.iter_mut().zip(&mut clients) {
            let took = seconds(client.hello(&one.fixture, 1)).await;
            if round >= WARM_UP {
                one.later_call.push(took);
            }
        }
    }
    for round in 0..rounds.div_ceil(5) {
        eprintln!("{CROWD} calls at once: round {round}");
        for (one, client) in all.iter_mut().zip(&mut clients) {
            let took = seconds(client.hello(&one.fixture, CROWD)).await;
            one.crowd.push(took);
        }
    }
    for (one, client) in all.iter().zip(clients) {
        one.side.end(client, &one.fixture).await;
    }
    all.into_iter().map(Contestant::figures).collect()
}

/// The memory of so many sessions at work, and of the same when they are idle, in MiB.
type Sample = Measured<(f64, f64)>;

/// The memory of each server, with each number of sessions.
fn memories(sides: &[&Side], rounds: u16) -> Vec<[Measured<Memory>; 3]> {
    let mut all: Vec<[Vec<Sample>; 3]> = Vec::new();
    all.resize_with(sides.len(), Default::default);
    for round in 0..rounds {
        for (number, &sessions) in SESSIONS.iter().enumerate() {
            eprintln!("memory of {sessions}: round {round}");
            for (side, measured) in sides.iter().zip(&mut all) {
                let memory = caught(|| memory(side, sessions)).flatten();
                measured[number].push(memory);
            }
        }
    }
    all.into_iter().map(|one| one.map(summaries)).collect()
}

fn summaries(measured: Vec<Sample>) -> Measured<Memory> {
    let measured: Vec<(f64, f64)> = measured.into_iter().collect::<Measured<_>>()?;
    let (at_work, idle) = measured.into_iter().unzip();
    Ok(Memory {
        at_work: Summary::of(at_work),
        idle: Summary::of(idle),
    })
}

async fn memory(side: &Side, sessions: usize) -> Sample {
    let gate = Gate::new();
    let answer = Reply::say(ANSWER).behind(&gate);
    let fixture = Fixture::with_script(Script::new().otherwise([answer]));
    let mut client = side.start(&fixture).await;
    let measuring = async {
        let reached = timeout(ARRIVAL, gate.reached(sessions)).await;
        let arrived = gate.arrivals();
        let at_work = reached.map(|()| fixture.memory());
        gate.release();
        at_work.map_err(|_| format!("{arrived} at once"))
    };
    let (at_work, ()) = tokio::join!(measuring, client.hello(&fixture, sessions));
    sleep(SETTLE).await;
    let idle = fixture.memory();
    side.end(client, &fixture).await;
    Ok((at_work?, idle))
}
