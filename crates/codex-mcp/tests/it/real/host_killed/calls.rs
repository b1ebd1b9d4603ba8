//! Calls that wait for a turn, or were cancelled, when their host is killed.

use super::*;

on_both_releases!(
    waiting_call_gets_its_answer,
    waiting_review_gets_its_answer,
    call_that_was_just_cancelled_is_interrupted,
);

/// The call is not begun a second time; one that has not begun its turn gets an error.
async fn waiting_call_gets_its_answer(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::classic(release, script).await;
    let waiting = work
        .client
        .client
        .request_tool("codex", json!({"prompt": "work"}));
    gate.reached(1).await;
    work.assert_next_host_answers(&waiting, &gate, "done").await;
    for (wait, refused) in [(1, "HOST_LOST"), (u64::MAX, "INVALID_ARGUMENT")] {
        let mark = json!({ "codex-mcp/repeated": true });
        let arguments = json!({ "prompt": "x", "wait-ms": wait });
        let call = json!({ "name": "codex", "arguments": arguments, "_meta": mark });
        let forged = work.client.client.request("tools/call", call);
        let forged = work.client.client.result(&forged).await;
        assert_error(&forged, refused);
    }
    assert_eq!(work.stage.model.request_count(), 1);
    work.finish().await;
}

/// The client keeps the Codex that it had before the update.
#[tokio::test]
async fn waiting_call_gets_its_answer_after_an_update_of_codex() {
    let (gate, script) = gated("done");
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let link = stage.home.root().join("current");
    let install = |release: &str| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(testkit::codex::native_binary(release), &link).unwrap();
    };
    install("0.153.4");
    let launch = stage.launch(&["--host"]);
    let client = Poller {
        client: started(&launch.env("CODEX_MCP_CODEX_BIN", &link)).await,
    };
    let mut work = HostFixture { stage, client };
    let call = json!({"prompt": "work"});
    let waiting = work.client.client.request_tool("codex", call);
    gate.reached(1).await;
    let codex = work.codex();
    install(testkit::codex::newest());
    work.assert_next_host_answers(&waiting, &gate, "done").await;
    assert_eq!(work.codex(), codex);
    work.finish().await;
}

async fn waiting_review_gets_its_answer(release: &str) {
    let (gate, script) = gated("No fault.");
    let mut work = HostFixture::classic(release, script).await;
    std::fs::write(work.stage.file("new.txt"), "x").unwrap();
    let waiting = work.client.client.request_tool("codex_review", json!({}));
    gate.reached(1).await;
    work.assert_next_host_answers(&waiting, &gate, "No fault.")
        .await;
    work.finish().await;
}

/// Its caller has no ID of it, and must not begin it a second time.
#[tokio::test]
async fn run_survives_a_killed_host_and_is_not_retryable() {
    let (gate, script) = gated("done");
    let stage = job_tools::stage(testkit::codex::newest(), script).await;
    let client = client(&stage, &[]).await;
    let client = Poller { client };
    let mut work = HostFixture { stage, client };
    let call = json!({ "task": "work", "wait_ms": 600_000 });
    let waiting = work.client.client.request_tool("codex_run", call);
    gate.reached(1).await;
    work.kill_host().await;
    let lost = work.client.client.result(&waiting).await;
    assert_error(&lost, "HOST_LOST");
    let error = &structured(&lost)["error"];
    assert_eq!(error["retryable"], false, "{error:#}");
    assert!(
        error["hint"].as_str().unwrap().contains("call_jobs"),
        "{error:#}"
    );
    let HostFixture { stage, client } = work;
    let mut client = client.client;
    let listed = call_ok(&mut client, "call_jobs", json!({})).await;
    assert_eq!(listed["total"], 1, "{listed:#}");
    assert_eq!(listed["jobs"][0]["status"], "running", "{listed:#}");
    let job = json!({ "job_id": listed["jobs"][0]["job_id"] });
    call_ok(&mut client, "call_cancel", job).await;
    gate.release();
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
    stage.until_processes_end().await;
}

/// The host is stopped, and has not read the cancellation when it is killed.
async fn call_that_was_just_cancelled_is_interrupted(release: &str) {
    let (gate, script) = gated("done");
    let mut work = HostFixture::classic(release, script).await;
    let call = json!({"prompt": "work"});
    let cancelled = work.client.client.request_tool("codex", call);
    gate.reached(1).await;
    let [host] = work.hosts().await[..] else {
        panic!("one host");
    };
    signal(host, Signal::SIGSTOP);
    work.client.client.cancel(&cancelled, "changed my mind");
    // Nothing tells that the cancellation was written.
    sleep(Duration::from_millis(300)).await;
    signal(host, Signal::SIGKILL);
    assert_eq!(wait_until_gone(&[host], TIME_LIMIT).await, []);
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let list = json!({ "action": "list" });
        let all = work.client.client.call_tool("codex_session", list).await;
        // A call that the killed host still gets is answered with HOST_LOST.
        if all["isError"] != true {
            let shown = &structured(&all)["sessions"];
            assert_eq!(shown.as_array().unwrap().len(), 1, "{shown:#}");
            if shown[0]["status"] == "idle" {
                break;
            }
        }
        assert!(Instant::now() < deadline, "{all:#}");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(work.stage.model.request_count(), 1);
    work.finish().await;
}
