//! What a server of ours holds in memory after 100 threads, beside what its Codex
//! holds.

use testkit::process;

use crate::crowd::{app_servers_below, crowd_ours};
use crate::stage::Stage;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const MIB: f64 = 1024.0 * 1024.0;

/// In bytes.
const TARGET: f64 = 25.0 * MIB;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut serve, mut guard, mut codex) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let stage = Stage::new();
        let mut client = stage.ours().await;
        crowd_ours(&stage, &mut client).await;
        let app_server = app_servers_below(client.pid())[0];
        let guarding = process::Process::look(app_server).unwrap().parent;
        serve.push(memory(client.pid()));
        guard.push(memory(guarding));
        codex.push(memory(app_server));
        client.finish().await;
    }
    let guard = Summary::of(guard);
    vec![Row {
        figure: "memory (PSS) of `serve` after 100 threads",
        unit: Unit::Bytes,
        ours: Summary::of(serve),
        direct: Some(Summary::of(codex)),
        target: Target::AtMost(TARGET),
        notes: vec![format!(
            "and {} for the process that guards Codex; `direct` is its app-server",
            Unit::Bytes.show(guard.median)
        )],
    }]
}

/// The proportional set size in bytes.
fn memory(pid: u32) -> f64 {
    let kib = process::pss_kib(pid).unwrap();
    f64::from(u32::try_from(kib).unwrap()) * 1024.0
}
