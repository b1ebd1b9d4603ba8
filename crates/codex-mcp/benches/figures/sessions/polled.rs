//! From the start of a session to its result, looked for every 5 ms, beside the
//! same turn on an app-server that is as warm.

use std::time::Duration;

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::Poller;
use crate::stage::{ANSWER, Stage, seconds};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const TARGET: f64 = 1.05;

const EVERY: Duration = Duration::from_millis(5);

/// Rounds before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let stage = Stage::new();
    let mut poller = stage.poller().await;
    let server = stage.direct().await;
    for _ in 0..WARM_UP {
        hello(&mut poller).await;
        stage.session_direct(&server).await;
    }
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first as often as the other.
        if round % 2 == 0 {
            ours.push(seconds(hello(&mut poller)).await);
            direct.push(seconds(stage.session_direct(&server)).await);
        } else {
            direct.push(seconds(stage.session_direct(&server)).await);
            ours.push(seconds(hello(&mut poller)).await);
        }
    }
    poller.finish().await;
    vec![Row {
        figure: "a session that says hello, polled every 5 ms",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["a turn ends between two polls: 2.5 ms of ours are waiting".to_owned()],
    }]
}

async fn hello(poller: &mut Poller) {
    let session = poller.start().await;
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let look = poller.poll(&session, json!({})).await;
        if look["status"] == "idle" {
            assert_eq!(look["result"]["output"], ANSWER, "{look:#}");
            return;
        }
    }
}
