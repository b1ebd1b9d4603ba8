//! In the threads of a server.

use std::fs;

use serde_json::{Value, json};
use testkit::McpClient;

use super::super::sessions::Poller;
use super::super::{Stage, assert_completed, on_each_release, text, thread_of};
use super::{SEEN, client, look_at, looks};

on_each_release!(
    a_thread_is_shown_what_it_asks_for,
    a_thread_that_is_taken_up_is_shown_pictures_too,
    a_session_and_its_fork_are_shown_pictures,
    a_thread_in_a_subdirectory_may_look_at_all_of_the_repository,
    without_a_repository_it_is_the_directory_alone,
);

impl Stage {
    /// The proxy gives Codex a server only if the user wants it.
    fn ask_for_pictures(&self) {
        let directory = self.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let config = "[plugins.codex-mcp]\nrequest_image = true\n";
        fs::write(directory.join("config.toml"), config).unwrap();
    }
}

const PROXY: [&str; 2] = ["--backend", "mcp-server"];

async fn looked(client: &mut McpClient, path: &str, more: Value) -> Value {
    let mut arguments = json!({ "prompt": look_at(path) });
    let more = more.as_object().unwrap().clone();
    arguments.as_object_mut().unwrap().extend(more);
    let tool = match arguments.get("threadId") {
        Some(_) => "codex-reply",
        None => "codex",
    };
    client.call_tool(tool, arguments).await
}

/// Nobody is asked, whatever the policy: the client could answer nothing.
async fn a_thread_is_shown_what_it_asks_for(release: &str) {
    let stage = Stage::new(release, looks()).await;
    let mut client = client(&stage, &[]).await;
    for policy in ["on-request", "never", "untrusted"] {
        let bytes = stage.picture(&format!("screens/{policy}.png"));
        let path = format!("./screens/{policy}.png");
        let result = looked(&mut client, &path, json!({ "approval-policy": policy })).await;
        assert_completed(&result, SEEN);
        stage.assert_shown(&bytes);
    }
    stage.finish(client).await;
}

#[tokio::test]
async fn thread_behind_the_proxy_is_shown_pictures_if_that_is_wanted() {
    for release in ["0.104.0", "0.153.4"] {
        let stage = Stage::new(release, looks()).await;
        stage.ask_for_pictures();
        let (top, below) = (stage.picture("top.png"), stage.picture("sub/below.png"));
        let mut client = client(&stage, &PROXY).await;
        let result = looked(&mut client, "top.png", json!({})).await;
        assert_eq!(text(&result, 0), SEEN, "{result:#}");
        stage.assert_shown(&top);
        let thread = thread_of(&result);
        looked(&mut client, "sub/below.png", json!({ "threadId": thread })).await;
        stage.assert_shown(&below);
        // A relative directory is relative to the server's.
        looked(&mut client, "below.png", json!({ "cwd": "sub" })).await;
        stage.assert_shown(&below);
        stage.finish(client).await;
    }
}

/// By a server that remembers where the thread works, and by one that doesn't.
async fn a_thread_that_is_taken_up_is_shown_pictures_too(release: &str) {
    let stage = Stage::new(release, looks()).await;
    let bytes = ["a.png", "sub/b.png", "c.png"].map(|name| stage.picture(name));
    let mut first = client(&stage, &[]).await;
    let begun = looked(&mut first, "a.png", json!({ "cwd": "sub" })).await;
    let thread = json!({ "threadId": thread_of(&begun) });
    stage.assert_shown(&bytes[0]);
    stage.finish(first).await;

    let mut second = client(&stage, &[]).await;
    let result = looked(&mut second, "b.png", thread.clone()).await;
    assert_completed(&result, SEEN);
    stage.assert_shown(&bytes[1]);
    stage.finish(second).await;

    fs::remove_dir_all(stage.home.atm_home().join(".config")).unwrap();
    let mut third = client(&stage, &[]).await;
    let result = looked(&mut third, "c.png", thread).await;
    assert_completed(&result, SEEN);
    stage.assert_shown(&bytes[2]);
    stage.finish(third).await;
}

async fn a_session_and_its_fork_are_shown_pictures(release: &str) {
    let stage = Stage::new(release, looks()).await;
    let (one, two) = (stage.picture("one.png"), stage.picture("sub/two.png"));
    let mut poller = Poller::new(&stage, &[]).await;
    let session = poller
        .start(&look_at("one.png"), json!({ "cwd": "sub" }))
        .await;
    let (done, _) = poller.until_idle(&session).await;
    assert_eq!(done["result"]["output"], SEEN, "{done:#}");
    stage.assert_shown(&one);
    let forked = poller.session("fork", &session).await;
    let forked = forked["sessionId"].as_str().unwrap();
    poller.reply(forked, &look_at("two.png"), json!({})).await;
    poller.until_idle(forked).await;
    stage.assert_shown(&two);
    stage.finish(poller.client).await;
}

async fn a_thread_in_a_subdirectory_may_look_at_all_of_the_repository(release: &str) {
    let stage = Stage::new(release, looks()).await;
    let (near, far) = (
        stage.picture("sub/near.png"),
        stage.picture("other/far.png"),
    );
    let mut client = client(&stage, &[]).await;
    for (path, bytes) in [
        ("near.png", &near),
        ("sub/near.png", &near),
        ("other/far.png", &far),
    ] {
        let result = looked(&mut client, path, json!({ "cwd": stage.file("sub") })).await;
        assert_completed(&result, SEEN);
        stage.assert_shown(bytes);
    }
    stage.finish(client).await;
}

/// The repository that all the homes of tests are in is above what git is told to look
/// at.
async fn without_a_repository_it_is_the_directory_alone(release: &str) {
    let stage = Stage::new(release, looks()).await;
    let directory = stage.home.tmp();
    let bytes = stage.picture("a.png");
    fs::write(directory.join("within.png"), &bytes).unwrap();
    std::os::unix::fs::symlink(stage.file("a.png"), directory.join("without.png")).unwrap();
    let mut client = client(&stage, &[]).await;
    looked(&mut client, "within.png", json!({ "cwd": directory })).await;
    stage.assert_shown(&bytes);
    let result = looked(&mut client, "without.png", json!({ "cwd": directory })).await;
    assert_completed(&result, SEEN);
    let last = stage.model.requests().pop().unwrap();
    assert_eq!(last.images(), [""; 0]);
    let told = last.tool_outputs().pop().unwrap().text;
    assert!(told.contains("leads out of the repository"), "{told}");
    stage.finish(client).await;
}

/// Where it isn't wanted, and behind the proxy where nobody has asked for it.
#[tokio::test]
async fn tool_is_not_there_where_it_is_not_wanted() {
    for (release, args, is_there) in [
        (testkit::codex::newest(), [].as_slice(), true),
        (testkit::codex::newest(), &["--no-request-image"], false),
        ("0.153.4", &PROXY, false),
    ] {
        let stage = Stage::new(release, looks()).await;
        let mut client = client(&stage, args).await;
        client.call_tool("codex", json!({ "prompt": "x" })).await;
        let offered = stage.offered();
        assert_eq!(offered.contains("request_image"), is_there, "{offered}");
        stage.finish(client).await;
    }
}
