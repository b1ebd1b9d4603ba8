//! From the start of a session to its result, polled every 5 ms, beside the same turn on an
//! equally warm app-server; and the same with `waitMs`.

use std::time::Duration;

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::Poller;
use crate::fixture::{Fixture, seconds};
use crate::model::ANSWER;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const TARGET: f64 = 1.05;

const EVERY: Duration = Duration::from_millis(5);

/// Rounds before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let fixture = Fixture::new();
    let mut poller = fixture.poller().await;
    let server = fixture.direct().await;
    for _ in 0..WARM_UP {
        hello(&mut poller).await;
        fixture.session_direct(&server).await;
    }
    let (mut ours, mut direct, mut waited) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first as often as the others.
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => ours.push(seconds(hello(&mut poller)).await),
                1 => direct.push(seconds(fixture.session_direct(&server)).await),
                _ => waited.push(seconds(hello_waited_for(&mut poller)).await),
            }
        }
    }
    poller.finish().await;
    let (direct, waited) = (Summary::of(direct), Summary::of(waited));
    let ratio = waited.median / direct.median;
    vec![Row {
        figure: "a session that says hello, polled every 5 ms",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(direct),
        target: Target::RatioAtMost(TARGET),
        notes: vec![format!(
            "a turn ends between two polls, so 2.5 ms of ours are waiting; \
             waited for with waitMs: {} ({ratio:.3} ×)",
            Unit::Seconds.show(waited.median)
        )],
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

async fn hello_waited_for(poller: &mut Poller) {
    let session = poller.start().await;
    loop {
        let look = poller.poll(&session, json!({"waitMs": 10_000})).await;
        if look["status"] == "idle" {
            assert_eq!(look["result"]["output"], ANSWER, "{look:#}");
            return;
        }
    }
}
