//! Clients that share the host process, beside clients with a server of their own.

use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use testkit::process;

use crate::fixture::{Fixture, ServeClient, program, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// A call that says hello, beside the same turn on an app-server spoken to directly.
const HELLO_TARGET: f64 = 1.03;

/// What the relay and the socket add to a message in each direction, in seconds.
const FRAME_TARGET: f64 = 0.1e-3;

/// The first call of a second client, beside that of a client with a server of its own.
const SECOND_CLIENT_TARGET: f64 = 0.5;

/// The memory of several clients with a session each, beside one client with all sessions.
const MEMORY_TARGET: f64 = 1.1;

/// The clients, or sessions, whose memory is compared.
const CLIENTS: usize = 5;

/// Pings in a round of each side.
const PINGS: usize = 500;

/// Rounds before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let mut rows = vec![hello(rounds).await, second_client(rounds.div_ceil(6)).await];
    rows.push(ping(rounds.div_ceil(6)).await);
    rows.push(memory(rounds.div_ceil(20)).await);
    rows
}

async fn hello(rounds: u16) -> Row {
    let fixture = HostFixture::new();
    let mut client = fixture.client().await;
    let server = fixture.inner.direct().await;
    for _ in 0..WARM_UP {
        fixture.inner.hello_ours(&mut client).await;
        fixture.inner.hello_direct(&server).await;
    }
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first as often as the other.
        if round % 2 == 0 {
            ours.push(seconds(fixture.inner.hello_ours(&mut client)).await);
            direct.push(seconds(fixture.inner.hello_direct(&server)).await);
        } else {
            direct.push(seconds(fixture.inner.hello_direct(&server)).await);
            ours.push(seconds(fixture.inner.hello_ours(&mut client)).await);
        }
    }
    client.finish().await;
    Row {
        figure: "a `codex` call through the host that says hello",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(HELLO_TARGET),
        notes: Vec::new(),
    }
}

/// From the start of a client to the answer to its first call.
async fn second_client(rounds: u16) -> Row {
    let fixture = HostFixture::new();
    let first = fixture.client().await;
    let (mut with_host, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (hosted, times) in [(true, &mut with_host), (false, &mut without)] {
            let launch = match hosted {
                true => fixture.inner.serve_launch().args(["--host"]),
                false => fixture.inner.serve_launch(),
            };
            let start = Instant::now();
            let mut client = ServeClient::start(&launch);
            client.initialize().await;
            fixture.inner.hello_ours(&mut client).await;
            times.push(start.elapsed().as_secs_f64());
            client.finish().await;
        }
    }
    first.finish().await;
    Row {
        figure: "the first hello of a second client of the host",
        unit: Unit::Seconds,
        ours: Summary::of(with_host),
        direct: Some(Summary::of(without)),
        target: Target::RatioAtMost(SECOND_CLIENT_TARGET),
        notes: vec!["`direct` is a client whose server starts a Codex".to_owned()],
    }
}

async fn ping(rounds: u16) -> Row {
    let fixture = HostFixture::new();
    let mut relayed = fixture.client().await;
    let mut alone = fixture.inner.ours().await;
    let (mut with_host, mut without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        with_host.append(&mut pings(&mut relayed).await);
        without.append(&mut pings(&mut alone).await);
    }
    relayed.finish().await;
    alone.finish().await;
    Row {
        figure: "a ping through the host",
        unit: Unit::Seconds,
        ours: Summary::of(with_host),
        direct: Some(Summary::of(without)),
        // A ping goes there and comes back.
        target: Target::AddedAtMost(2.0 * FRAME_TARGET),
        notes: vec!["there and back; `direct` is a server without a host".to_owned()],
    }
}

async fn pings(client: &mut ServeClient) -> Vec<f64> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        client.request("ping", Value::Null).await;
        times.push(start.elapsed().as_secs_f64());
    }
    times
}

async fn memory(rounds: u16) -> Row {
    let (mut several, mut one) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        several.push(memory_of(CLIENTS, 1).await);
        one.push(memory_of(1, CLIENTS).await);
    }
    Row {
        figure: "memory (PSS) of 5 clients of the host, a session each",
        unit: Unit::Bytes,
        ours: Summary::of(several),
        direct: Some(Summary::of(one)),
        target: Target::RatioAtMost(MEMORY_TARGET),
        notes: vec!["`direct` is one client of the host with 5 sessions".to_owned()],
    }
}

/// The memory of all processes of these clients, each with these sessions, in bytes.
async fn memory_of(clients: usize, sessions: usize) -> f64 {
    let fixture = HostFixture::new();
    let mut all = Vec::new();
    for _ in 0..clients {
        let mut client = ServeClient::start(&fixture.inner.serve_launch().args(["--host"]));
        client.initialize().await;
        for _ in 0..sessions {
            fixture.inner.hello_ours(&mut client).await;
        }
        all.push(client);
    }
    let processes = fixture.inner.home().processes();
    let kib = processes.iter().filter_map(|it| process::pss_kib(it.pid));
    let kib: u64 = kib.sum();
    for client in all {
        client.finish().await;
    }
    f64::from(u32::try_from(kib).unwrap()) * 1024.0
}

/// A fixture whose host ends with it.
struct HostFixture {
    inner: Fixture,
}

impl HostFixture {
    fn new() -> Self {
        Self {
            inner: Fixture::new(),
        }
    }

    /// A client of a warm host.
    async fn client(&self) -> ServeClient {
        let mut client = ServeClient::start(&self.inner.serve_launch().args(["--host"]));
        client.initialize().await;
        self.inner.hello_ours(&mut client).await;
        client
    }
}

impl Drop for HostFixture {
    fn drop(&mut self) {
        let mut stop = Command::new(program());
        stop.args(["host", "stop"]).env_clear();
        let stopped = stop.envs(self.inner.home().env()).output().unwrap();
        assert!(stopped.status.success(), "{stopped:?}");
    }
}
