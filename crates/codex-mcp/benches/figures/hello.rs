//! One call of `codex` that says hello, beside the same turn on an app-server
//! that is as warm.

use crate::stage::{Stage, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const TARGET: f64 = 1.02;

/// Rounds before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let stage = Stage::new();
    let mut client = stage.ours().await;
    let server = stage.direct().await;
    for _ in 0..WARM_UP {
        stage.hello_ours(&mut client).await;
        stage.hello_direct(&server).await;
    }
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first as often as the other.
        if round % 2 == 0 {
            ours.push(seconds(stage.hello_ours(&mut client)).await);
            direct.push(seconds(stage.hello_direct(&server)).await);
        } else {
            direct.push(seconds(stage.hello_direct(&server)).await);
            ours.push(seconds(stage.hello_ours(&mut client)).await);
        }
    }
    client.finish().await;
    vec![Row {
        figure: "a `codex` call that says hello",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: Vec::new(),
    }]
}
