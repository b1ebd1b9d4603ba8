//! The memory of `serve` and all processes below it after 500 calls, each on a thread of
//! its own, beside that of an app-server after as many turns; and the memory of `serve`
//! alone after 100 calls.

use testkit::process;

use crate::crowd::{app_servers_below, crowd_direct, crowd_ours};
use crate::fixture::Fixture;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const MIB: f64 = 1024.0 * 1024.0;

/// In bytes.
const SERVE: f64 = 25.0 * MIB;

const TREE: f64 = 1.05;

/// The calls that are made at once. After the first of them, `serve` is measured alone.
const CALLS: usize = 100;

/// How many times [`CALLS`] calls are made.
const CROWDS: usize = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut serve, mut guard, mut codex) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let fixture = Fixture::new();
        let mut client = fixture.ours().await;
        crowd_ours(&fixture, &mut client, CALLS).await;
        let app_server = app_servers_below(client.pid())[0];
        let guarding = process::Process::read(app_server).unwrap().parent;
        serve.push(memory(client.pid()));
        guard.push(memory(guarding));
        codex.push(memory(app_server));
        for _ in 1..CROWDS {
            crowd_ours(&fixture, &mut client, CALLS).await;
        }
        ours.push(tree_memory(client.pid()));
        client.finish().await;

        let server = fixture.direct().await;
        for _ in 0..CROWDS {
            crowd_direct(&fixture, &server, CALLS).await;
        }
        direct.push(tree_memory(server.pid()));
    }
    let guard = Summary::of(guard);
    vec![
        Row {
            figure: "memory (PSS) of `serve` after 100 threads",
            unit: Unit::Bytes,
            ours: Summary::of(serve),
            direct: Some(Summary::of(codex)),
            target: Target::AtMost(SERVE),
            notes: vec![format!(
                "and {} for the process that guards Codex; `direct` is its app-server",
                Unit::Bytes.show(guard.median)
            )],
        },
        Row {
            figure: "memory (PSS) after 500 calls, all processes",
            unit: Unit::Bytes,
            ours: Summary::of(ours),
            direct: Some(Summary::of(direct)),
            target: Target::RatioAtMost(TREE),
            notes: Vec::new(),
        },
    ]
}

/// The proportional set size in bytes.
fn memory(pid: u32) -> f64 {
    bytes(process::pss_kib(pid).unwrap())
}

/// The proportional set size of a process and all below it, in bytes.
pub(crate) fn tree_memory(pid: u32) -> f64 {
    bytes(process::tree_pss_kib(pid))
}

fn bytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap()) * 1024.0
}
