//! Our tools in runs and jobs.

use std::fs;

use image_request::logic::contract::TOOL;
use scripted_model::{Gate, Reply, Request, Script};
use serde_json::{Value, json};
use testkit::process::{Process, descendants};
use testkit::{McpClient, Signal};

use super::super::sessions::Poller;
use super::super::{CodexFixture, on_oldest_and_newest, structured};
use super::{calling_model, client, mail, picture, team, write_to_lead};

on_oldest_and_newest!(
    runs_and_jobs_write_in_the_name_of_their_member,
    tools_of_runs_and_jobs_outlive_resume_fork_and_crash,
    run_or_job_in_a_thread_begun_without_tools_warns,
);

/// The user's configuration: the member, and a worker that leaves soon.
const USER: &str = "identity = \"arch\"\nteam = \"builders\"\nworker_idle_secs = 1\n";

/// Runs a job or a run with this prompt; returns its record.
async fn finished_record(
    client: &mut McpClient,
    stage: &CodexFixture,
    tool: &str,
    prompt: &str,
) -> Value {
    let begun = client
        .call_tool(tool, arguments(stage, tool, prompt, None))
        .await;
    ended(client, &begun).await
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
    stage.configure(USER);
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
        for line in ["\n- identity: arch\n", "\n- team: builders\n"] {
            assert!(told.contains(line), "{tool}: {told}");
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
    stage.configure("worker_idle_secs = 1\n");
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

/// The name of the picture in a prompt.
fn picture_in(request: &Request) -> Option<&str> {
    let (_, rest) = request.prompt().rsplit_once("look at ")?;
    rest.split_ascii_whitespace().next()
}

/// A model that looks at the named picture, writes its name to the lead, and answers with the
/// picture. Told to wait, it waits at the gate.
fn looking_and_writing_model(gate: &Gate) -> Script {
    let gate = gate.clone();
    Script::new().otherwise([
        Reply::with(move |request| match picture_in(request) {
            Some(name) => Reply::call(TOOL, json!({ "path": name })),
            None if request.prompt().contains("wait") => Reply::say("ok").behind(&gate),
            None => Reply::say("ok"),
        }),
        Reply::with(|request| {
            let arguments = json!({ "to": "lead", "message": picture_in(request) });
            Reply::call("atm_send", arguments)
        }),
        Reply::with(|request| match request.images().last() {
            Some(image) => Reply::say(*image),
            None => Reply::say("no picture"),
        }),
    ])
}

/// A job or a run, of a new thread or a known one.
fn arguments(stage: &CodexFixture, tool: &str, prompt: &str, thread: Option<&str>) -> Value {
    match tool {
        "call_codex" => {
            json!({ "prompt": prompt, "cwd": stage.home.work(), "resume_session_id": thread })
        }
        _ => json!({ "task": prompt, "wait_ms": 0, "thread_id": thread }),
    }
}

/// Waits for the end of a job or a run; returns its record.
async fn ended(client: &mut McpClient, begun: &Value) -> Value {
    let status = json!({ "job_id": structured(begun)["job_id"], "wait_ms": 60_000 });
    structured(&client.call_tool("call_status", status).await).clone()
}

/// The processes below the worker.
fn worker_processes(stage: &CodexFixture) -> Vec<Process> {
    let mut all = stage.home.processes();
    all.retain(|process| process.command.contains(" worker"));
    let below = all.iter().flat_map(|worker| descendants(worker.pid));
    below.filter_map(Process::read).collect()
}

/// Checks that a job or a run gets a picture and sends mail; returns its thread.
async fn assert_tools_work(
    stage: &CodexFixture,
    client: &mut McpClient,
    tool: &str,
    (thread, name): (Option<&str>, &str),
) -> String {
    let name = format!("{tool}-{name}.png");
    let shown = picture(stage, &name);
    let prompt = format!("look at {name} and write");
    let begun = client.call_tool(tool, arguments(stage, tool, &prompt, thread));
    let begun = begun.await;
    let record = ended(client, &begun).await;
    assert_eq!(record["status"], "completed", "{name}: {record:#}");
    assert_eq!(record["response"], shown, "{name}: {record:#}");
    let inbox = stage
        .home
        .atm_home()
        .join(".claude/teams/builders/inboxes/lead.json");
    assert_eq!(mail(&inbox).last(), Some(&name));
    record["session_id"].as_str().unwrap().to_owned()
}

/// A fork of a thread. Codex keeps threads to itself for a while, so its server is ended.
async fn forked(stage: &CodexFixture, thread: &str) -> String {
    let mut poller = Poller::new(stage, &[]).await;
    let resume = json!({ "action": "resume", "threadId": thread, "prompt": "hello" });
    let resumed = poller.call("codex_session", resume).await;
    let session = resumed["sessionId"].as_str().unwrap().to_owned();
    poller.until_idle(&session).await;
    let fork = poller.session("fork", &session).await;
    assert!(poller.client.finish().await.success());
    fork["threadId"].as_str().unwrap().to_owned()
}

/// Checks that no server of ours runs below the worker, and kills its Codex.
fn kill_codex(stage: &CodexFixture) {
    let codex = testkit::codex::native_binary(&stage.release);
    let codex = codex.to_str().unwrap();
    let mut all = worker_processes(stage);
    for ours in ["eyes-mcp", "team-tools"] {
        assert!(!all.iter().any(|it| it.command.contains(ours)), "{all:?}");
    }
    all.retain(|process| process.command.starts_with(codex));
    assert!(!all.is_empty());
    for process in all {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap());
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    }
}

async fn tools_of_runs_and_jobs_outlive_resume_fork_and_crash(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, looking_and_writing_model(&gate)).await;
    team(&stage, true);
    stage.configure(USER);
    let mut client = client(&stage, &[]).await;
    client.set_time_limit(std::time::Duration::from_secs(120));
    for (number, tool) in ["call_codex", "codex_run"].into_iter().enumerate() {
        let thread = assert_tools_work(&stage, &mut client, tool, (None, "begun")).await;
        assert_tools_work(&stage, &mut client, tool, (Some(&thread), "resumed")).await;

        let fork = forked(&stage, &thread).await;
        assert_tools_work(&stage, &mut client, tool, (Some(&fork), "forked")).await;

        let waiting = arguments(&stage, tool, "wait", Some(&thread));
        let begun = client.call_tool(tool, waiting).await;
        gate.reached(number + 1).await;
        kill_codex(&stage);
        let job = json!({ "job_id": structured(&begun)["job_id"] });
        client.call_tool("call_cancel", job).await;
        let killed = ended(&mut client, &begun).await;
        assert_ne!(killed["status"], "completed", "{killed:#}");
        assert_tools_work(&stage, &mut client, tool, (Some(&thread), "killed")).await;
    }
    stage.finish_with_worker(client).await;
}

async fn run_or_job_in_a_thread_begun_without_tools_warns(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    stage.configure("worker_idle_secs = 1\n");
    let mut without = client(&stage, &["--no-request-image"]).await;
    let begun = without.call_tool("codex", json!({ "prompt": "x" })).await;
    let thread = super::thread_of(&begun);
    stage.finish(without).await;

    let expected = format!("the thread {thread} continues without request_image");
    let ran = stage.run(&["--thread", &thread, "x"]).await;
    let warnings = ran.result["warnings"].to_string();
    assert!(warnings.contains(&expected), "{:#}", ran.result);
    let mut client = client(&stage, &[]).await;
    for tool in ["call_codex", "codex_run"] {
        let arguments = arguments(&stage, tool, "x", Some(&thread));
        let begun = client.call_tool(tool, arguments).await;
        let record = ended(&mut client, &begun).await.to_string();
        assert!(record.contains(&expected), "{tool}: {record}");
    }
    stage.finish_with_worker(client).await;
}
