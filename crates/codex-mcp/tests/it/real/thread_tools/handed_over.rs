//! In what is handed over: runs and jobs.

use std::fs;

use serde_json::{Value, json};
use testkit::McpClient;

use super::super::{Stage, on_each_release, structured};
use super::{calls, client, mail, team, write_to_lead};

on_each_release!(runs_and_jobs_write_in_the_name_of_their_member);

/// What the user's configuration says: who they are, and that the worker leaves soon.
const USER: &str = "identity = \"arch\"\nteam = \"builders\"\nworker_idle_secs = 1\n";

fn configure(stage: &Stage, settings: &str) {
    let directory = stage.home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let config = format!("[plugins.codex-mcp]\n{settings}");
    fs::write(directory.join("config.toml"), config).unwrap();
}

/// What has become of a job of this tool with this prompt.
async fn done(client: &mut McpClient, stage: &Stage, tool: &str, prompt: &str) -> Value {
    let arguments = match tool {
        "call_codex" => json!({ "prompt": prompt, "cwd": stage.home.work() }),
        _ => json!({ "task": prompt, "wait_ms": 0 }),
    };
    let begun = client.call_tool(tool, arguments).await;
    let status = json!({ "job_id": structured(&begun)["job_id"], "wait_ms": 60_000 });
    let ended = client.call_tool("call_status", status).await;
    structured(&ended).clone()
}

/// What the model was told as the developer, and the tools that it was offered.
fn last_request(stage: &Stage) -> (String, String) {
    let requests = stage.model.requests();
    let last = requests.last().unwrap();
    let told = last.developer_messages().join("\n");
    (told, last.tool_names().join(" "))
}

async fn runs_and_jobs_write_in_the_name_of_their_member(release: &str) {
    let stage = Stage::with_config(
        release,
        calls(),
        "developer_instructions = \"CONFIGURED-WORDS\"",
    )
    .await;
    let inbox = team(&stage, true);
    configure(&stage, USER);
    stage.run(&[&write_to_lead("a run")]).await;
    assert_eq!(mail(&inbox), ["a run"]);
    assert!(last_request(&stage).0.contains("CONFIGURED-WORDS"));

    let mut client = client(&stage, &[]).await;
    for (tool, count) in [("call_codex", 2), ("codex_run", 3)] {
        let ended = done(&mut client, &stage, tool, &write_to_lead(tool)).await;
        assert_eq!(ended["status"], "completed", "{ended:#}");
        assert_eq!(mail(&inbox).len(), count, "{ended:#}");
        assert_eq!(mail(&inbox).last().unwrap(), tool);
        let (told, _) = last_request(&stage);
        assert!(told.contains("CONFIGURED-WORDS"), "{tool}: {told}");
        if tool == "call_codex" {
            for line in ["\n- identity: arch\n", "\n- team: builders\n"] {
                assert!(told.contains(line), "{told}");
            }
        }
    }
    let text = fs::read_to_string(&inbox).unwrap();
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(all.iter().all(|message| message["from"] == "arch"));
    stage.finish_with_worker(client).await;
}

/// Nobody is there to approve each call, as a member needs whom a repository has chosen.
/// The control is the same member, chosen by the user.
#[tokio::test]
async fn jobs_of_a_repositorys_member_have_no_mail() {
    let stage = Stage::new(testkit::codex::newest(), calls()).await;
    let inbox = team(&stage, false);
    configure(&stage, "worker_idle_secs = 1\n");
    let settings = "[core]\nidentity = \"arch\"\ndefault_team = \"builders\"\n";
    fs::write(stage.file(".atm.toml"), settings).unwrap();
    crate::trust(&stage.home, &stage.home.work());
    let chosen_by_user = ["--identity", "arch", "--team", "builders"];
    for (args, given) in [(&[][..], false), (&chosen_by_user[..], true)] {
        let mut client = client(&stage, args).await;
        for tool in ["call_codex", "codex_run"] {
            done(&mut client, &stage, tool, &write_to_lead(tool)).await;
            let (_, offered) = last_request(&stage);
            assert_eq!(offered.contains("atm_send"), given, "{tool}: {offered}");
        }
        assert_eq!(mail(&inbox).is_empty(), !given);
        stage.finish_with_worker(client).await;
    }
}
