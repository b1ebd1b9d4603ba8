//! The size of the sessions' tools in a client's context.

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// The tools of that group.
const GROUP: [&str; 4] = ["codex", "codex_reply", "codex_session", "codex_check"];

/// In bytes. The npm package's take 14.7 KB.
const TARGET: f64 = 6144.0;

pub(crate) async fn measure() -> Vec<Row> {
    let fixture = Fixture::new();
    let mut poller = fixture.poller().await;
    let tools = poller.client.call("tools/list", json!({})).await;
    let all = tools["tools"].as_array().unwrap();
    let group: Vec<&Value> = all
        .iter()
        .filter(|tool| GROUP.iter().any(|name| tool["name"] == *name))
        .collect();
    assert_eq!(group.len(), GROUP.len());
    let length = serde_json::to_string(&group).unwrap().len();
    poller.finish().await;
    vec![Row {
        figure: "the sessions' tools in `tools/list`",
        unit: Unit::FewBytes,
        ours: Summary::of(vec![f64::from(u32::try_from(length).unwrap())]),
        direct: None,
        target: Target::AtMost(TARGET),
        notes: Vec::new(),
    }]
}
