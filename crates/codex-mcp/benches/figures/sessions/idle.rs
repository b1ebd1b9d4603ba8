//! The memory of 12 idle sessions of a team member that have said hello, with all processes below
//! the server, beside an app-server with such threads. Codex is given our tools for pictures and
//! for the team.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::memory::tree_memory;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const SESSIONS: usize = 12;

const TARGET: f64 = 1.05;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let fixture = Fixture::new();
        make_team(&fixture);
        let mut poller = fixture
            .poller_with(&["--identity", "arch", "--team", "builders"])
            .await;
        for _ in 0..SESSIONS {
            let session = poller.start().await;
            poller.wait(&session).await;
        }
        ours.push(tree_memory(poller.client.pid()));
        poller.finish().await;

        let server = fixture.fresh_direct().await;
        for _ in 0..SESSIONS {
            fixture.hello_direct(&server).await;
        }
        direct.push(tree_memory(server.pid()));
    }
    vec![Row {
        figure: "memory (PSS) of 12 idle sessions, all processes",
        unit: Unit::Bytes,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["ours with pictures and the tools of a team".to_owned()],
    }]
}

/// The team `builders`, of which `arch` is to be a member.
fn make_team(fixture: &Fixture) {
    let directory = fixture.home().atm_home().join(".claude/teams/builders");
    fs::create_dir_all(directory.join("inboxes")).unwrap();
    let lead = json!({"agentId": "lead@builders", "name": "lead", "agentType": "general-purpose",
        "model": "m", "joinedAt": 1, "cwd": "/"});
    let config = json!({"name": "builders", "createdAt": 1, "leadAgentId": "lead@builders",
        "leadSessionId": "x", "members": [lead]});
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
}
