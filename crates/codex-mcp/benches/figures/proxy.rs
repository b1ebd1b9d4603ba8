//! The latency that the proxy adds to a message, beside `codex mcp-server` spoken to directly,
//! and the growth of its memory with the traffic.

use std::time::Instant;

use scripted_model::Reply;
use serde_json::{Value, json};
use testkit::{Launch, McpClient, process};

use crate::fixture::{Fixture, MCP_VERSION, TIME_LIMIT, codex_binary_of};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// The last release with a `codex mcp-server`.
const RELEASE: &str = "0.153.4";

/// Pings in a round of each side.
const PINGS: usize = 1000;

/// In seconds for each direction, at the median and for one ping in a hundred.
const MEDIAN_TARGET: f64 = 0.2e-3;
const P99_TARGET: f64 = 1e-3;

/// A ping goes there and comes back.
const DIRECTIONS: f64 = 2.0;

/// Frames that pass before the memory is looked at, and between the two looks. A
/// fifth of them are pings, the rest what Codex tells of a call.
const WARM_UP: usize = 25_000;
const FRAMES: usize = 100_000;

/// Pings that are under way at once while memory is measured.
const TOGETHER: usize = 100;

/// Pieces of Codex's message in a call, each of which is an event.
const PIECES: usize = 10_000;

/// In bytes.
const GROWTH_TARGET: f64 = 1024.0 * 1024.0;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let fixture = Fixture::with_answer(Reply::deltas(PIECES, " Hello"));
    let codex = codex_binary_of(RELEASE);
    let through = fixture
        .serve_launch()
        .args(["--backend", "mcp-server"])
        .env("CODEX_MCP_CODEX_BIN", &codex);
    let direct = fixture.direct_launch_of(&codex, "mcp-server");
    let (mut ours, mut theirs) = (client(&through).await, client(&direct).await);
    let mut all = PingTimes::default();
    for _ in 0..rounds {
        all.ours.append(&mut pings(&mut ours).await);
        all.direct.append(&mut pings(&mut theirs).await);
    }
    let slowest = PingTimes {
        ours: vec![p99(&all.ours)],
        direct: vec![p99(&all.direct)],
    };
    theirs.finish().await;
    let growth = growth(&mut ours).await;
    ours.finish().await;
    vec![
        row("a ping through the proxy", all, MEDIAN_TARGET),
        row("the slowest of a hundred such pings", slowest, P99_TARGET),
        Row {
            figure: "memory (PSS) that 100,000 frames add to it",
            unit: Unit::Bytes,
            ours: Summary::of(vec![growth]),
            direct: None,
            target: Target::AtMost(GROWTH_TARGET),
            notes: Vec::new(),
        },
    ]
}

/// The measurements of each side.
#[derive(Default)]
struct PingTimes {
    ours: Vec<f64>,
    direct: Vec<f64>,
}

fn row(figure: &'static str, times: PingTimes, target: f64) -> Row {
    let (ours, direct) = (Summary::of(times.ours), Summary::of(times.direct));
    let added = (ours.median - direct.median) / DIRECTIONS;
    Row {
        figure,
        unit: Unit::Seconds,
        target: Target::AddedAtMost(target * DIRECTIONS),
        notes: vec![format!(
            "there and back; {} added for each direction",
            Unit::Seconds.show(added)
        )],
        ours,
        direct: Some(direct),
    }
}

/// All but one in a hundred are at most this.
fn p99(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() * 99 / 100]
}

async fn client(launch: &Launch) -> McpClient {
    let mut client = McpClient::start(launch);
    client.set_time_limit(TIME_LIMIT);
    client.ignore("codex/event");
    client.initialize(MCP_VERSION, json!({})).await;
    // The ping waits until Codex is up.
    client.call("ping", Value::Null).await;
    client
}

/// How long each of some pings takes, in seconds.
async fn pings(client: &mut McpClient) -> Vec<f64> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        client.call("ping", Value::Null).await;
        times.push(start.elapsed().as_secs_f64());
    }
    times
}

/// How many bytes the server's memory grows by.
async fn growth(client: &mut McpClient) -> f64 {
    let memory = |client: &McpClient| {
        let kib = process::pss_kib(client.pid()).unwrap();
        f64::from(u32::try_from(kib).unwrap()) * 1024.0
    };
    pass(client, WARM_UP).await;
    let before = memory(client);
    pass(client, FRAMES).await;
    memory(client) - before
}

/// Lets so many frames pass.
async fn pass(client: &mut McpClient, frames: usize) {
    let pings = frames / 5;
    // There and back.
    for _ in 0..pings / 2 / TOGETHER {
        let sent: Vec<Value> = (0..TOGETHER)
            .map(|_| client.request("ping", Value::Null))
            .collect();
        for id in &sent {
            client.result(id).await;
        }
    }
    for _ in 0..(frames - pings) / PIECES {
        client.call_tool("codex", json!({"prompt": "x"})).await;
    }
}
