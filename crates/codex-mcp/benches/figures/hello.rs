//! One call of `codex` that says hello, beside the same turn on an equally warm app-server.

use crate::fixture::{Fixture, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const TARGET: f64 = 1.02;

/// Rounds before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let fixture = Fixture::new();
    let mut client = fixture.ours().await;
    let server = fixture.direct().await;
    for _ in 0..WARM_UP {
        fixture.hello_ours(&mut client).await;
        fixture.hello_direct(&server).await;
    }
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first as often as the other.
        if round % 2 == 0 {
            ours.push(seconds(fixture.hello_ours(&mut client)).await);
            direct.push(seconds(fixture.hello_direct(&server)).await);
        } else {
            direct.push(seconds(fixture.hello_direct(&server)).await);
            ours.push(seconds(fixture.hello_ours(&mut client)).await);
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
