//! 50 and 100 calls of `codex` at once, on fresh threads, beside as many such turns
//! on one app-server.

use futures::future::join_all;
use testkit::{AppServer, process};

use crate::fixture::{Fixture, ServeClient, codex_binary, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// How many calls at once.
const CROWDS: [(usize, &str); 2] = [
    (50, "50 `codex` calls at once"),
    (100, "100 `codex` calls at once"),
];

const TARGET: f64 = 1.03;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let mut rows = Vec::new();
    for (calls, figure) in CROWDS {
        rows.push(of(calls, figure, rounds).await);
    }
    rows
}

async fn of(calls: usize, figure: &'static str, rounds: u16) -> Row {
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each round has a new fixture: Codex gets slower with every hundred threads that it
        // holds, and in a home with earlier threads the direct one worked for seconds after its
        // crowd, during the measurement of ours.
        let fixture = Fixture::new();
        let mut client = fixture.ours().await;
        let server = fixture.direct().await;
        if round % 2 == 0 {
            ours.push(seconds(crowd_ours(&fixture, &mut client, calls)).await);
            direct.push(seconds(crowd_direct(&fixture, &server, calls)).await);
        } else {
            direct.push(seconds(crowd_direct(&fixture, &server, calls)).await);
            ours.push(seconds(crowd_ours(&fixture, &mut client, calls)).await);
        }
        let app_servers = app_servers_below(client.pid()).len();
        assert_eq!(app_servers, 1, "all threads are to share one app-server");
        client.finish().await;
    }
    Row {
        figure,
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["all answered, by one app-server".to_owned()],
    }
}

/// Returns when the last one is answered.
pub(crate) async fn crowd_ours(fixture: &Fixture, client: &mut ServeClient, calls: usize) {
    let calls: Vec<_> = (0..calls).map(|_| fixture.request_hello(client)).collect();
    for call in &calls {
        client.take_hello(call).await;
    }
}

pub(crate) async fn crowd_direct(fixture: &Fixture, server: &AppServer, calls: usize) {
    join_all((0..calls).map(|_| fixture.hello_direct(server))).await;
}

/// The process numbers of the app-servers that a server of ours has running.
pub(crate) fn app_servers_below(pid: u32) -> Vec<u32> {
    let binary = codex_binary();
    let app_server = format!("{} app-server", binary.display());
    process::descendants(pid)
        .into_iter()
        .filter(|&pid| {
            process::Process::read(pid).is_some_and(|process| process.command == app_server)
        })
        .collect()
}
