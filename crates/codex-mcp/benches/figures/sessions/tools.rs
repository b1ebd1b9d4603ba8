//! What the tools of the sessions take of a client's context.

use serde_json::json;

use crate::stage::Stage;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In bytes. The npm package's take 14.7 KB.
const TARGET: f64 = 5000.0;

pub(crate) async fn measure() -> Vec<Row> {
    let stage = Stage::new();
    let mut poller = stage.poller().await;
    let tools = poller.client.call("tools/list", json!({})).await;
    let length = serde_json::to_string(&tools["tools"]).unwrap().len();
    poller.finish().await;
    vec![Row {
        figure: "`tools/list` of `--api sessions`",
        unit: Unit::FewBytes,
        ours: Summary::of(vec![f64::from(u32::try_from(length).unwrap())]),
        direct: None,
        target: Target::AtMost(TARGET),
        notes: Vec::new(),
    }]
}
