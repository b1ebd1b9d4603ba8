//! From the start of a process to its answer to `initialize`.

use std::time::Instant;

use testkit::AppServer;

use crate::fixture::{Fixture, ServeClient};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In seconds.
const TARGET: f64 = 0.015;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let fixture = Fixture::new();
    // The first start reads the programs from the disk.
    start_ours(&fixture).await;
    start_direct(&fixture).await;
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(start_ours(&fixture).await);
        direct.push(start_direct(&fixture).await);
    }
    vec![Row {
        figure: "process start to `initialize` answered",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::AtMost(TARGET),
        notes: Vec::new(),
    }]
}

async fn start_ours(fixture: &Fixture) -> f64 {
    let launch = fixture.serve_launch();
    let begin = Instant::now();
    let mut ours = ServeClient::start(&launch);
    ours.initialize().await;
    let took = begin.elapsed().as_secs_f64();
    ours.finish().await;
    took
}

async fn start_direct(fixture: &Fixture) -> f64 {
    let launch = fixture.direct_launch();
    let begin = Instant::now();
    let direct = AppServer::start(&launch, |_| None);
    direct.initialize().await;
    begin.elapsed().as_secs_f64()
}
