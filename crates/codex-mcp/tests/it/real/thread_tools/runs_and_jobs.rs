//! Our tools in runs and jobs.

use std::fs;

use serde_json::{Value, json};
use testkit::McpClient;

use super::super::{CodexFixture, on_each_release, structured};
use super::{calling_model, client, mail, team, write_to_lead};

on_each_release!(runs_and_jobs_write_in_the_name_of_their_member);

/// The user's configuration: the member, and a worker that leaves soon.
const USER: &str = "identity = \"arch\"\nteam = \"builders\"\nworker_idle_secs = 1\n";

fn configure(stage: &CodexFixture, settings: &str) {
    let directory = stage.home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let config = format!("[plugins.codex-mcp]\n{settings}");
    fs::write(directory.join("config.toml"), config).unwrap();
}

/// Runs a job or a run with this prompt; returns its record.
async fn finished_record(
    client: &mut McpClient,
    stage: &CodexFixture,
    tool: &str,
    prompt: &str,
) -> Value {
    let arguments = match tool {
        "call_codex" => json!({ "prompt": prompt, "cwd": stage.home.work() }),
        _ => json!({ "task": prompt, "wait_ms": 0 }),
    };
    let begun = client.call_tool(tool, arguments).await;
    let status = json!({ "job_id": structured(&begun)["job_id"], "wait_ms": 60_000 });
    let ended = client.call_tool("call_status", status).await;
    structured(&ended).clone()
}

/// The developer instructions and the tool names of the last model request.
fn last_request(stage: &CodexFixture) -> (String, String) {
    let requests = stage.model.requests();
    let last = requests.last().unwrap();
    let told = last.developer_messages().join("\n");
    (told, last.tool_names().join(" "))
}

async fn runs_and_jobs_write_in_the_name_of_their_member(release: &str) {
    let stage = CodexFixture::with_config(
        release,
        calling_model(),
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
        let ended = finished_record(&mut client, &stage, tool, &write_to_lead(tool)).await;
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

/// Each call of a member that a repository has chosen needs an approval, which nobody can give in a
/// job. The control is the same member, chosen by the user.
#[tokio::test]
async fn jobs_of_a_member_chosen_by_a_repository_have_no_mail() {
    let stage = CodexFixture::new(testkit::codex::newest(), calling_model()).await;
    let inbox = team(&stage, false);
    configure(&stage, "worker_idle_secs = 1\n");
    let settings = "[core]\nidentity = \"arch\"\ndefault_team = \"builders\"\n";
    fs::write(stage.file(".atm.toml"), settings).unwrap();
    crate::trust(&stage.home, &stage.home.work());
    let chosen_by_user = ["--identity", "arch", "--team", "builders"];
    for (args, given) in [(&[][..], false), (&chosen_by_user[..], true)] {
        let mut client = client(&stage, args).await;
        for tool in ["call_codex", "codex_run"] {
            finished_record(&mut client, &stage, tool, &write_to_lead(tool)).await;
            let (_, offered) = last_request(&stage);
            assert_eq!(offered.contains("atm_send"), given, "{tool}: {offered}");
        }
        assert_eq!(mail(&inbox).is_empty(), !given);
        stage.finish_with_worker(client).await;
    }
}
