//! 50 sessions that write at once, 2,000 pieces each, all read as they arrive: whether a piece is
//! lost, and the CPU time of our processes, beside Codex's.

use std::time::Duration;

use scripted_model::Reply;
use serde_json::json;
use testkit::process;

use super::Poller;
use crate::crowd::app_servers_below;
use crate::fixture::Fixture;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const SESSIONS: usize = 50;

const PIECES: usize = 2000;

const PIECE: &str = "word ";

/// Ours as a part of Codex's.
const TARGET: f64 = 0.05;

/// Between two looks at all sessions.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut ours, mut codex) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let fixture = Fixture::with_answer(Reply::deltas(PIECES, PIECE));
        let mut poller = fixture.poller().await;
        let mut readers = Vec::new();
        for _ in 0..SESSIONS {
            readers.push(Reader {
                session: poller.start().await,
                text: String::new(),
                next: 0,
                done: false,
            });
        }
        while readers.iter().any(|reader| !reader.done) {
            tokio::time::sleep(PAUSE).await;
            for reader in readers.iter_mut().filter(|reader| !reader.done) {
                reader.read(&mut poller).await;
            }
        }
        let whole = PIECE.repeat(PIECES);
        for reader in &readers {
            assert_eq!(reader.text, whole, "all that was written is read, in order");
        }
        let app_server = app_servers_below(poller.client.pid())[0];
        let guard = process::Process::read(app_server).unwrap().parent;
        ours.push(cpu(poller.client.pid()) + cpu(guard));
        codex.push(cpu(app_server));
        poller.finish().await;
    }
    vec![Row {
        figure: "processor time of 50 sessions, 2,000 deltas each",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(codex)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["no event lost; `direct` is our Codex's own".to_owned()],
    }]
}

struct Reader {
    session: String,
    text: String,
    /// The number of the event that comes next.
    next: u64,
    done: bool,
}

impl Reader {
    async fn read(&mut self, poller: &mut Poller) {
        let more = json!({"maxEvents": 1000, "responseMode": "full"});
        let look = poller.poll(&self.session, more).await;
        assert_eq!(look.get("cursorResetTo"), None, "{look:#}");
        assert_eq!(look.get("dropped"), None, "{look:#}");
        for event in look["events"].as_array().unwrap() {
            assert_eq!(event["id"], self.next, "no event is lost");
            self.next += 1;
            if event["data"]["method"] == "item/agentMessage/delta" {
                self.text.push_str(event["data"]["delta"].as_str().unwrap());
            }
        }
        self.done = look["status"] == "idle";
    }
}

/// In seconds.
fn cpu(pid: u32) -> f64 {
    process::cpu_time(pid).unwrap().as_secs_f64()
}
