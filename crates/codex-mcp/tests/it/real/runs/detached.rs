//! Detached runs, which a worker runs that is started on demand.

use std::fs;

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};

use super::super::job_tools::stage;
use super::super::said;

/// The model answers only after the process at the shell has ended.
#[tokio::test]
async fn detached_run_outlives_its_shell() {
    let gate = Gate::new();
    let write = Reply::shell("printenv SHELLS_OWN > made.txt").behind(&gate);
    let script = Script::new().otherwise([write, Reply::say("Done.")]);
    let stage = stage(testkit::codex::newest(), script).await;
    fs::create_dir(stage.file("below")).unwrap();
    let mut command = stage.run_command(&[
        "--detach",
        "--cwd",
        "below",
        "--until",
        "files=made.txt",
        "--until",
        "command=grep -qx mine made.txt",
        "make it",
    ]);
    command.env("SHELLS_OWN", "mine");
    let id = said(command).await;
    let id = id.trim_end();
    gate.reached(1).await;

    let listed = said(stage.program(&["ps", "--json"])).await;
    let listed: Value = listed.parse().unwrap();
    let work = &listed["work"][0];
    assert_eq!((&work["id"], &work["kind"]), (&json!(id), &json!("run")));
    gate.release();
    assert_eq!(stage.jobs(&["wait", id]).await, "Done.\n");
    assert_eq!(
        fs::read_to_string(stage.file("made.txt")).unwrap(),
        "mine\n"
    );
    let page = stage.jobs(&["show", id]).await;
    for words in [
        "State     completed",
        "From      codex-mcp run, with the identity codex\n",
        "Wanted\n  files=made.txt",
        "Result\n  done after 1 turn",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    stage.until_processes_end().await;
}

#[tokio::test]
async fn detached_run_gets_its_context_and_the_instructions_of_its_role() {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("Done.")]);
    let stage = stage(testkit::codex::newest(), script).await;
    stage.configure(
        "worker_idle_secs = 1\nsandbox = \"danger-full-access\"\n[plugins.codex-mcp.roles.r]\n\
        base_prompt_file = \"base.md\"\nextra_instructions_file = \"extra.md\"",
    );
    let configuration = stage.home.atm_home().join(".config/atm");
    fs::write(configuration.join("base.md"), "BASE-WORDS").unwrap();
    fs::write(configuration.join("extra.md"), "EXTRA-WORDS").unwrap();
    let member = ["--detach", "--role", "r", "--identity", "arch"];
    let args = [&member[..], &["--until", "files=made.txt", "make it"]].concat();
    let id = said(stage.run_command(&args)).await;
    stage.jobs(&["wait", id.trim_end()]).await;
    let requests = stage.model.requests();
    let request = requests.last().unwrap();
    let body = request.body().to_string();
    assert!(body.contains("BASE-WORDS"), "{body}");
    let told = request.developer_messages().join("\n");
    let cwd = format!("\n- cwd: {}", stage.home.work().display());
    for words in ["EXTRA-WORDS\n\n", "\n- identity: arch\n", &cwd] {
        assert!(told.contains(words), "{words:?} is missing: {told}");
    }
    stage.until_processes_end().await;
}

#[tokio::test]
async fn result_of_a_detached_run_names_the_options_of_the_shell() {
    let stage = stage(testkit::codex::newest(), Script::new()).await;
    let args = ["--detach", "--notify", "command:nonesuch", "x"];
    let id = said(stage.run_command(&args)).await;
    let waited = stage
        .program(&["jobs", "wait", id.trim_end()])
        .output()
        .await;
    let stderr = String::from_utf8(waited.unwrap().stderr).unwrap();
    let words = "--notify command:nonesuch cannot work";
    assert!(stderr.contains(words), "{stderr}");
    stage.until_processes_end().await;
}
