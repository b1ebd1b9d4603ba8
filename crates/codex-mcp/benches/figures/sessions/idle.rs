//! What 12 sessions hold in memory that have said hello and do nothing, with all
//! processes below the server, beside an app-server with such threads.

use testkit::process;

use crate::stage::Stage;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const SESSIONS: usize = 12;

const TARGET: f64 = 1.1;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let stage = Stage::new();
        let mut poller = stage.poller().await;
        for _ in 0..SESSIONS {
            let session = poller.start().await;
            poller.wait(&session).await;
        }
        ours.push(memory(poller.client.pid()));
        poller.finish().await;

        let server = stage.fresh_direct().await;
        for _ in 0..SESSIONS {
            stage.hello_direct(&server).await;
        }
        direct.push(memory(server.pid()));
    }
    vec![Row {
        figure: "memory (PSS) of 12 idle sessions, all processes",
        unit: Unit::Bytes,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: Vec::new(),
    }]
}

/// The proportional set size of a process and all below it, in bytes.
fn memory(pid: u32) -> f64 {
    f64::from(u32::try_from(process::tree_pss_kib(pid)).unwrap()) * 1024.0
}
