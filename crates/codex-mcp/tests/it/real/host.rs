//! Clients that share the host process, with the real Codex.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::process::wait_until_gone;
use testkit::{AppServer, Launch, McpClient, write_program};
use tokio::time::sleep;

use super::sessions::Poller;
use super::{
    CodexFixture, VERSION, assert_completed, assert_error, quiet_client, said, structured, text,
    thread_of,
};
use crate::jobs::wait_for;
use crate::on_oldest_and_newest;

on_oldest_and_newest!(
    clients_share_a_codex_and_its_sessions,
    session_outlives_its_client,
    call_of_a_client_that_has_gone_is_interrupted,
    thread_of_a_client_that_has_gone_is_free,
    thread_is_free_after_its_summary,
);

/// The limit for what happens after a client has gone.
const TIME_LIMIT: Duration = Duration::from_secs(60);

fn script() -> Script {
    Script::new()
        .on("first", [Reply::say("one")])
        .otherwise([Reply::with(|request| {
            let before = request.assistant_messages().join(",");
            Reply::say(format!("two, after {before}"))
        })])
}

async fn host_command(stage: &CodexFixture, args: &[&str]) -> String {
    said(stage.program(&[&["host"], args].concat())).await
}

/// The work that `codex-mcp ps` lists.
async fn work(stage: &CodexFixture) -> Vec<Value> {
    let listed = said(stage.program(&["ps", "--json"])).await;
    let mut listed: Value = serde_json::from_str(&listed).unwrap();
    serde_json::from_value(listed["work"].take()).unwrap()
}

/// Checks these members of an object.
fn assert_members(object: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(object[name], *value, "{name}: {object:#}");
    }
}

/// The hosts that run.
async fn hosts(stage: &CodexFixture) -> Vec<Value> {
    let json = host_command(stage, &["status", "--json"]).await;
    serde_json::from_str(&json).unwrap()
}

/// The only host that runs.
async fn host(stage: &CodexFixture) -> Value {
    let mut all = hosts(stage).await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Ends the clients and then the host, and checks that no process is left.
async fn finish(stage: &CodexFixture, clients: impl IntoIterator<Item = McpClient>) {
    for client in clients {
        assert!(client.finish().await.success());
    }
    host_command(stage, &["stop"]).await;
    assert_eq!(hosts(stage).await, [] as [Value; 0]);
    assert_eq!(stage.home.processes(), []);
}

/// Processes of Codex itself.
fn codex_processes(stage: &CodexFixture) -> Vec<u32> {
    let all = stage.home.processes().into_iter();
    let of_codex = |line: &str| line.contains("app-server") && !line.contains("guard");
    let of_codex = all.filter(|process| of_codex(&process.command));
    of_codex.map(|process| process.pid).collect()
}

async fn clients_share_a_codex_and_its_sessions(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let mut one = stage.client(&["--host"]).await;
    let begun = one.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");
    let thread = thread_of(&begun);

    let mut other = stage.client(&["--host"]).await;
    assert_eq!(host(&stage).await["clients"], 2);
    let arguments = json!({"prompt": "second", "threadId": thread});
    let gone_on = other.call_tool("codex-reply", arguments.clone()).await;
    assert!(
        text(&gone_on, 0).starts_with("two, after one"),
        "{gone_on:#}"
    );
    let begun = other.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");
    let all = one
        .call_tool("codex_session", json!({"action": "list"}))
        .await;
    let all = structured(&all)["sessions"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_eq!(codex_processes(&stage).len(), 1);

    // It goes on with both threads when the client that began them has gone.
    assert!(one.finish().await.success());
    let gone_on = other.call_tool("codex-reply", arguments).await;
    assert!(
        text(&gone_on, 0).starts_with("two, after one,two"),
        "{gone_on:#}"
    );
    finish(&stage, [other]).await;
}

/// Another process can resume it, and so can the session that the host keeps.
async fn thread_of_a_client_that_has_gone_is_free(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let launch = stage.launch(&["--host"]);
    check_thread_is_free(release, &stage, &launch).await;
}

/// The summary of a client that goes loads the thread once more.
async fn thread_is_free_after_its_summary(release: &str) {
    let stage = CodexFixture::new(release, script()).await;
    let launch = stage.launch(&["--host", "--identity", "arch"]);
    let launch = launch.env("CODEX_MCP_SUMMARIES", "true");
    check_thread_is_free(release, &stage, &launch).await;
    let asked = stage.model.requests();
    let asked = asked.iter().filter(|request| {
        let prompt = request.prompt();
        prompt.starts_with("The session ends now.")
    });
    assert_eq!(asked.count(), 1);
}

/// The session that it leaves is over, and the thread has another one.
#[tokio::test]
async fn leaving_client_spares_a_thread_that_another_one_has() {
    let gate = Gate::new();
    let script = Script::new()
        .on("first", [Reply::say("one")])
        .otherwise([Reply::say("two").behind(&gate)]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut one = Poller::new(&stage, &["--host"]).await;
    let session = one.start("first", json!({})).await;
    one.until_idle(&session).await;
    let thread = one.get(&session).await["threadId"].clone();
    let cancel = json!({ "action": "cancel", "sessionId": session });
    one.call("codex_session", cancel).await;
    let mut other = Poller::new(&stage, &["--host"]).await;
    let resume = json!({ "action": "resume", "threadId": thread, "prompt": "second" });
    let resumed = other.call("codex_session", resume).await;
    gate.reached(1).await;
    assert!(one.client.finish().await.success());
    wait_for("the end of the client's service", async || {
        (host(&stage).await["clients"] == 1).then_some(())
    })
    .await;
    gate.release();
    let session = resumed["sessionId"].as_str().unwrap();
    let (look, _) = other.until_idle(session).await;
    assert_eq!(look["result"]["status"], "completed", "{look:#}");
    assert_eq!(look["result"]["output"], "two", "{look:#}");
    finish(&stage, [other.client]).await;
}

async fn check_thread_is_free(release: &str, stage: &CodexFixture, launch: &Launch) {
    let mut one = quiet_client(launch).await;
    let begun = one.call_tool("codex", json!({"prompt": "first"})).await;
    let thread = thread_of(&begun);
    let mut other = quiet_client(launch).await;
    assert!(one.finish().await.success());
    wait_for("the end of the client's service", async || {
        (host(stage).await["clients"] == 1).then_some(())
    })
    .await;
    let elsewhere = AppServer::real(release, &stage.home).await;
    let resume = json!({ "threadId": thread });
    elsewhere.call("thread/resume", resume).await;
    let pid = elsewhere.pid();
    drop(elsewhere);
    assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    let arguments = json!({"prompt": "second", "threadId": thread});
    // A killed Codex may keep its threads for a moment.
    let reply = wait_for("the thread", async || {
        let reply = other.call_tool("codex-reply", arguments.clone()).await;
        let is_used = structured(&reply)["error"]["code"] == "THREAD_IN_USE";
        (!is_used).then_some(reply)
    })
    .await;
    assert!(text(&reply, 0).starts_with("two, after one"), "{reply:#}");
    assert_eq!(
        structured(&reply)["sessionId"],
        structured(&begun)["sessionId"]
    );
    finish(stage, [other]).await;
}

/// 200 sessions of 20 clients, all at work at the same time, in one Codex.
#[tokio::test]
async fn many_clients_have_many_sessions() {
    const CLIENTS: usize = 20;
    const SESSIONS: usize = 10;
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::with({
        let gate = gate.clone();
        move |request| Reply::say(format!("did {}", request.prompt())).behind(&gate)
    })]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let mut poller = Poller::new(&stage, &["--host"]).await;
        poller.client.set_time_limit(TIME_LIMIT);
        let mut sessions = Vec::new();
        for session in 0..SESSIONS {
            let prompt = format!("{client}/{session}");
            sessions.push((poller.start(&prompt, json!({})).await, prompt));
        }
        clients.push((poller, sessions));
    }
    let all = CLIENTS * SESSIONS;
    gate.reached(all).await;
    assert_eq!(work(&stage).await.len(), all);
    assert_eq!(codex_processes(&stage).len(), 1);
    gate.release();
    for (poller, sessions) in &mut clients {
        for (session, prompt) in sessions {
            let (ended, _) = poller.until_idle(session).await;
            assert_eq!(ended["result"]["output"], format!("did {prompt}"));
        }
    }
    assert_eq!(stage.model.request_count(), all);
    finish(&stage, clients.into_iter().map(|(poller, _)| poller.client)).await;
}

/// A client that comes after an update gets the new Codex; the earlier one keeps its own.
#[tokio::test]
async fn updated_codex_is_another_one() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let link = stage.home.root().join("current");
    let mut clients = Vec::new();
    for release in ["0.153.4", testkit::codex::newest()] {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(testkit::codex::native_binary(release), &link).unwrap();
        let launch = stage.launch(&["--host"]).env("CODEX_MCP_CODEX_BIN", &link);
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
        assert_completed(&begun, "one");
        clients.push(client);
    }
    assert_eq!(host(&stage).await["clients"], 2);
    for (client, release) in clients
        .iter_mut()
        .zip(["0.153.4", testkit::codex::newest()])
    {
        let status = client.call_tool("codex_status", json!({})).await;
        let status = structured(&status).to_string();
        assert!(status.contains(release), "{status}");
    }
    finish(&stage, clients).await;
}

#[tokio::test]
async fn codex_that_does_not_listen_yet_ends_with_its_host() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let (slow, started) = (stage.home.root().join("slow-codex"), stage.file("started"));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = app-server ] || exec '{}' \"$@\"\ntrap '' TERM\ntouch '{}'\n\
         exec sleep 600\n",
        testkit::codex::native_binary(testkit::codex::newest()).display(),
        started.display(),
    );
    write_program(&slow, &script);
    let launch = stage.launch(&["--host"]).env("CODEX_MCP_CODEX_BIN", &slow);
    let client = quiet_client(&launch).await;
    wait_for("the start of Codex", async || {
        started.exists().then_some(())
    })
    .await;
    finish(&stage, [client]).await;
}

/// New work goes to a host of the new version. The old one ends its turns, and serves its clients.
#[tokio::test]
async fn updated_program_has_another_host() {
    let gate = Gate::new();
    let script = Script::new()
        .on("old", [Reply::say("from the old one").behind(&gate)])
        .otherwise([Reply::say("from the new one")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let program = stage.home.root().join("codex-mcp");
    let mut clients = Vec::new();
    let mut open = None;
    for prompt in ["old", "new"] {
        let update = stage.home.root().join("update");
        std::fs::copy(env!("CARGO_BIN_EXE_codex-mcp"), &update).unwrap();
        std::fs::rename(&update, &program).unwrap();
        let launch = stage.launch_program(&program, &["--host"]);
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let call = client.request_tool("codex", json!({ "prompt": prompt }));
        if open.is_none() {
            gate.reached(1).await;
            open = Some(call);
        } else {
            assert_completed(&client.result(&call).await, "from the new one");
        }
        clients.push(client);
    }
    assert_eq!(hosts(&stage).await.len(), 2);
    let states: Vec<_> = work(&stage).await;
    let states = states
        .iter()
        .map(|listed| listed["state"].as_str().unwrap());
    let mut states: Vec<_> = states.collect();
    states.sort_unstable();
    assert_eq!(states, ["idle", "running"]);
    gate.release();
    let old = clients[0].result(&open.unwrap()).await;
    assert_completed(&old, "from the old one");
    let reply = json!({ "prompt": "old", "threadId": thread_of(&old) });
    let again = clients[0].call_tool("codex-reply", reply).await;
    assert_completed(&again, "from the old one");
    finish(&stage, clients).await;
}

/// Each client is told by its next answer.
#[tokio::test]
async fn death_of_a_shared_codex_is_told_to_each_client() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let mut clients = [
        stage.client(&["--host"]).await,
        stage.client(&["--host"]).await,
    ];
    let call = json!({"prompt": "first"});
    for client in &mut clients {
        let begun = client.call_tool("codex", call.clone()).await;
        assert_completed(&begun, "one");
    }
    let [codex] = codex_processes(&stage)[..] else {
        panic!("one Codex");
    };
    kill(Pid::from_raw(codex.cast_signed()), Signal::SIGKILL).unwrap();
    wait_until_gone(&[codex], TIME_LIMIT).await;
    for client in &mut clients {
        for is_told in [true, false] {
            let answer = client.call_tool("codex", call.clone()).await;
            let words = answer["content"].to_string();
            assert_eq!(words.contains("signal 9 (SIGKILL)"), is_told, "{answer:#}");
        }
    }
    finish(&stage, clients).await;
}

/// Codex 0.104.0 listens on no socket, and ends with its host.
#[tokio::test]
async fn killed_host_costs_only_the_open_calls() {
    let gate = Gate::new();
    let hang = [Reply::say("late").behind(&gate)];
    let script = Script::new()
        .on("hang", hang)
        .otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new("0.104.0", script).await;
    let mut client = stage.client(&["--host"]).await;
    let begun = client.call_tool("codex", json!({"prompt": "begin"})).await;
    assert_completed(&begun, "hello");
    let before = host(&stage).await["pid"].as_i64().unwrap();
    let hanging = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(1).await;
    let of_host = kill_host(&stage, &client).await;
    let lost = client.result(&hanging).await;
    assert_error(&lost, "HOST_LOST");

    // Codex of the killed host ends with it, and another host takes the next call.
    assert_eq!(wait_until_gone(&of_host, TIME_LIMIT).await, []);
    gate.release();
    let thread = thread_of(&begun);
    let arguments = json!({"prompt": "again", "threadId": thread});
    let again = client.call_tool("codex-reply", arguments).await;
    assert_completed(&again, "hello");
    assert_ne!(host(&stage).await["pid"].as_i64().unwrap(), before);
    finish(&stage, [client]).await;
}

/// Its client does not learn of the kill before it names the session again.
#[tokio::test]
async fn session_of_a_killed_host_is_lost_and_its_thread_can_be_resumed() {
    let stage = CodexFixture::new("0.104.0", script()).await;
    let mut poller = Poller::new(&stage, &["--host"]).await;
    let wrong = json!({ "action": "poll", "sessionId": "sess_000000000000" });
    let code = poller.refused("codex_check", wrong).await;
    assert_eq!(code, "SESSION_NOT_FOUND");
    let session = poller.start("first", json!({})).await;
    poller.until_idle(&session).await;
    let thread = poller.get(&session).await["threadId"].clone();
    let of_host = kill_host(&stage, &poller.client).await;
    assert_eq!(wait_until_gone(&of_host, TIME_LIMIT).await, []);

    let poll = json!({ "action": "poll", "sessionId": session });
    assert_eq!(poller.refused("codex_check", poll).await, "HOST_LOST");
    let reply = json!({ "sessionId": session, "prompt": "second" });
    let lost = poller.client.call_tool("codex_reply", reply).await;
    assert_error(&lost, "HOST_LOST");
    assert!(text(&lost, 0).contains("process has ended"), "{lost:#}");
    let resume = json!({ "action": "resume", "threadId": thread, "prompt": "second" });
    let resumed = poller.call("codex_session", resume).await;
    let session = resumed["sessionId"].as_str().unwrap();
    let (look, _) = poller.until_idle(session).await;
    assert_eq!(look["result"]["output"], "two, after one", "{look:#}");
    finish(&stage, [poller.client]).await;
}

/// Kills the host; returns its process and those below it.
async fn kill_host(stage: &CodexFixture, client: &McpClient) -> Vec<u32> {
    let all = stage.home.processes().into_iter().map(|one| one.pid);
    let of_host: Vec<u32> = all.filter(|pid| *pid != client.pid()).collect();
    let pid = host(stage).await["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    of_host
}

async fn session_outlives_its_client(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut one = Poller::new(&stage, &["--host"]).await;
    let session = one.start("work", json!({})).await;
    gate.reached(1).await;
    assert!(one.client.finish().await.success());

    let listed = work(&stage).await;
    assert_eq!(listed.len(), 1, "{listed:#?}");
    let expected = json!({ "id": session, "kind": "session", "state": "running" });
    assert_members(&listed[0], &expected);
    assert!(!listed[0]["doing"].as_str().unwrap().is_empty());

    let mut other = Poller::new(&stage, &["--host"]).await;
    gate.release();
    let (look, _) = other.until_idle(&session).await;
    assert_eq!(look["result"]["output"], "done", "{look:#}");
    assert_eq!(stage.model.request_count(), 1);
    let listed = work(&stage).await;
    assert_members(
        &listed[0],
        &json!({ "id": session, "state": "idle", "doing": null }),
    );
    assert!(listed[0]["tokens"].as_u64().unwrap() > 0, "{listed:#?}");
    finish(&stage, [other.client]).await;
    assert_eq!(work(&stage).await, [] as [Value; 0]);
}

async fn call_of_a_client_that_has_gone_is_interrupted(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut one = stage.client(&["--host"]).await;
    let _hanging = one.request_tool("codex", json!({"prompt": "work"}));
    gate.reached(1).await;
    one.signal(testkit::Signal::SIGKILL);
    one.exited().await;

    let mut other = stage.client(&["--host"]).await;
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let all = other
            .call_tool("codex_session", json!({"action": "list"}))
            .await;
        let all = structured(&all)["sessions"].as_array().unwrap().clone();
        assert_eq!(all.len(), 1, "{all:#?}");
        if all[0]["status"] == "idle" {
            break;
        }
        assert!(Instant::now() < deadline, "{all:#?}");
        sleep(Duration::from_millis(50)).await;
    }
    finish(&stage, [other]).await;
}

#[tokio::test]
async fn different_environment_starts_another_host() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let launch = |name: &str, value: &str| stage.launch(&["--host"]).env(name, value);
    let mut clients = Vec::new();
    for (name, value) in [
        ("SHLVL", "1"),
        ("NVIM", "/run/nvim.1.0"),
        ("VIRTUAL_ENV", "/venv"),
    ] {
        let launch = launch(name, value);
        clients.push(McpClient::connect(&launch, VERSION, json!({})).await);
    }
    let mut counts: Vec<Value> = hosts(&stage).await;
    counts.sort_by_key(|host| host["clients"].as_u64());
    let counts: Vec<&Value> = counts.iter().map(|host| &host["clients"]).collect();
    assert_eq!(counts, [1, 2]);
    finish(&stage, clients).await;
}

/// Commands inherit the umask of their host. The verbs reach the hosts of all umasks.
#[tokio::test]
async fn different_umask_starts_another_host() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let mut clients = Vec::new();
    for umask in ["022", "077"] {
        let serve = format!("umask {umask} && exec \"$0\" serve --host");
        let launch = Launch::new("sh").args(["-c", &serve, env!("CARGO_BIN_EXE_codex-mcp")]);
        let launch = stage.in_environment(launch);
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
        assert_completed(&begun, "one");
        clients.push(client);
    }
    let counts: Vec<Value> = hosts(&stage).await;
    let counts: Vec<&Value> = counts.iter().map(|host| &host["clients"]).collect();
    assert_eq!(counts, [1, 1]);
    assert_eq!(work(&stage).await.len(), 2);
    finish(&stage, clients).await;
}

/// The bounds of a client hold for the sessions that it can continue.
#[tokio::test]
async fn clients_with_other_bounds_share_no_sessions() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let mut free = stage.client(&["--host"]).await;
    let begun = free.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");
    let mut bounded = stage
        .client(&["--host", "--max-sandbox", "read-only"])
        .await;
    let all = bounded.call_tool("codex_session", json!({"action": "list"}));
    assert_eq!(structured(&all.await)["sessions"], json!([]));
    assert_eq!(host(&stage).await["clients"], 2);
    finish(&stage, [free, bounded]).await;
}

/// Codex finds no program in the directory of a client, in which its commands can write. The
/// control is a client that works elsewhere.
#[tokio::test]
async fn codex_of_a_client_searches_no_programs_in_its_directory() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let theirs = stage.home.root().join("theirs");
    let programs = theirs.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut clients = Vec::new();
    for directory in [stage.home.work(), theirs] {
        let launch = stage.launch(&["--host"]).env("PATH", &path);
        let launch = launch.current_dir(&directory);
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let arguments = json!({"prompt": "first", "cwd": stage.home.work()});
        assert_completed(&client.call_tool("codex", arguments).await, "one");
        clients.push(client);
    }
    assert_eq!(host(&stage).await["clients"], 2);
    let mut searched: Vec<bool> = codex_processes(&stage)
        .iter()
        .map(|pid| search_path(*pid).contains(programs.to_str().unwrap()))
        .collect();
    searched.sort_unstable();
    assert_eq!(searched, [false, true]);
    finish(&stage, clients).await;
}

/// The PATH of a process.
fn search_path(pid: u32) -> String {
    let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let mut all = all.split(|byte| *byte == 0);
    let path = all.find_map(|one| one.strip_prefix(b"PATH="));
    String::from_utf8_lossy(path.unwrap()).into_owned()
}

/// A client may end its server with all descendants, and may have left descriptors open by mistake.
/// The control is the server itself.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn host_is_apart_from_the_client_that_has_started_it() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let open = stage.home.root().join("open");
    let (program, file) = (env!("CARGO_BIN_EXE_codex-mcp"), open.to_str().unwrap());
    let serve = r#"exec "$0" serve --host 9>"$1""#;
    let launch = Launch::new("sh").args(["-c", serve, program, file]);
    let launch = stage.in_environment(launch);
    let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
    let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");

    let pid = host(&stage).await["pid"].as_u64().unwrap().to_string();
    let all = stage.home.processes();
    let relay = all.iter().find(|one| one.command.contains("serve --host"));
    let relay = relay.unwrap().pid.to_string();
    let has_open = |pid: &str| {
        let open_files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut targets = open_files.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
        targets.any(|target| target == open)
    };
    assert!(has_open(&relay));
    assert!(!has_open(&pid));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let (parent, session) = (fields[1], fields[3]);
    assert_ne!(parent, relay);
    assert!(
        !all.iter().any(|one| one.pid.to_string() == parent),
        "{all:?}"
    );
    let sessions = nix::unistd::getsid(Some(Pid::from_raw(relay.parse().unwrap())));
    assert_ne!(session, sessions.unwrap().to_string());
    finish(&stage, [client]).await;
}

/// Where no host can be started, `serve` works alone, with one warning.
#[tokio::test]
async fn client_is_served_where_no_host_can_be_started() {
    let stage = CodexFixture::new(testkit::codex::newest(), script()).await;
    let state = stage.home.state_home().join("codex-mcp");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("hosts"), "in the way").unwrap();
    let mut client = stage.client(&["--host"]).await;
    let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
    assert_completed(&begun, "one");
    assert!(
        client.stderr().contains("serves its client alone"),
        "{}",
        client.stderr()
    );
    stage.finish(client).await;
}
