//! 100 calls of `codex` at once, on fresh threads, beside 100 such turns on one
//! app-server.

use futures::future::join_all;
use testkit::{AppServer, process};

use crate::stage::{Ours, Stage, codex_binary, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// How many calls at once.
pub(crate) const CALLS: usize = 100;

const TARGET: f64 = 1.1;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // All anew: Codex gets slower with every hundred threads that it holds, and
        // the direct one, in a home with threads of earlier rounds, was seen to go on
        // working for seconds after its crowd, in the time of ours.
        let stage = Stage::new();
        let mut client = stage.ours().await;
        let server = stage.direct().await;
        if round % 2 == 0 {
            ours.push(seconds(crowd_ours(&stage, &mut client)).await);
            direct.push(seconds(crowd_direct(&stage, &server)).await);
        } else {
            direct.push(seconds(crowd_direct(&stage, &server)).await);
            ours.push(seconds(crowd_ours(&stage, &mut client)).await);
        }
        let app_servers = app_servers_below(client.pid()).len();
        assert_eq!(app_servers, 1, "all threads are to share one app-server");
        client.finish().await;
    }
    vec![Row {
        figure: "100 `codex` calls at once",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["all answered, by one app-server".to_owned()],
    }]
}

/// Returns when the last one is answered.
pub(crate) async fn crowd_ours(stage: &Stage, client: &mut Ours) {
    let calls: Vec<_> = (0..CALLS).map(|_| stage.request_hello(client)).collect();
    for call in &calls {
        client.take_hello(call).await;
    }
}

async fn crowd_direct(stage: &Stage, server: &AppServer) {
    join_all((0..CALLS).map(|_| stage.hello_direct(server))).await;
}

/// The process numbers of the app-servers that a server of ours has running.
pub(crate) fn app_servers_below(pid: u32) -> Vec<u32> {
    let binary = codex_binary();
    let app_server = format!("{} app-server", binary.display());
    process::descendants(pid)
        .into_iter()
        .filter(|&pid| {
            process::Process::look(pid).is_some_and(|process| process.command == app_server)
        })
        .collect()
}
