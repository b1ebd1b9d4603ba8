//! Pictures in the threads of a server.

use std::fs;

use serde_json::{Value, json};
use testkit::McpClient;

use super::super::sessions::Poller;
use super::super::{CodexFixture, assert_completed, on_oldest_and_newest, text, thread_of};
use super::{SEEN, look_at, looking_model};

on_oldest_and_newest!(
    thread_gets_its_requested_picture,
    resumed_thread_gets_its_requested_picture,
    session_and_its_fork_get_their_requested_pictures,
    thread_in_a_subdirectory_sees_the_whole_repository,
    thread_outside_a_repository_sees_only_its_directory,
);

/// Without this, the proxy gives Codex no such tool.
const ASK_FOR_PICTURES: &str = "request_image = true";

const PROXY: [&str; 2] = ["--backend", "mcp-server"];

async fn look(client: &mut McpClient, path: &str, more: Value) -> Value {
    let mut arguments = json!({ "prompt": look_at(path) });
    let more = more.as_object().unwrap().clone();
    arguments.as_object_mut().unwrap().extend(more);
    let tool = match arguments.get("threadId") {
        Some(_) => "codex-reply",
        None => "codex",
    };
    client.call_tool(tool, arguments).await
}

/// No approval is asked for, whatever the policy: the client could not answer.
async fn thread_gets_its_requested_picture(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    let mut client = stage.quiet_client(&[]).await;
    for policy in ["on-request", "never", "untrusted"] {
        let bytes = stage.picture(&format!("screens/{policy}.png"));
        let path = format!("./screens/{policy}.png");
        let result = look(&mut client, &path, json!({ "approval-policy": policy })).await;
        assert_completed(&result, SEEN);
        stage.assert_shown(&bytes);
    }
    stage.finish(client).await;
}

#[tokio::test]
async fn proxied_thread_gets_pictures_if_the_user_wants() {
    for release in ["0.104.0", "0.153.4"] {
        let stage = CodexFixture::new(release, looking_model()).await;
        stage.configure(ASK_FOR_PICTURES);
        let (top, below) = (stage.picture("top.png"), stage.picture("sub/below.png"));
        let mut client = stage.quiet_client(&PROXY).await;
        let result = look(&mut client, "top.png", json!({})).await;
        assert_eq!(text(&result, 0), SEEN, "{result:#}");
        stage.assert_shown(&top);
        let thread = thread_of(&result);
        look(&mut client, "sub/below.png", json!({ "threadId": thread })).await;
        stage.assert_shown(&below);
        // A relative directory is relative to the server's.
        look(&mut client, "below.png", json!({ "cwd": "sub" })).await;
        stage.assert_shown(&below);
        stage.finish(client).await;
    }
}

/// A server with a registry resumes the thread in its directory, and so does one without.
async fn resumed_thread_gets_its_requested_picture(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    let bytes = ["a.png", "sub/b.png", "c.png"].map(|name| stage.picture(name));
    let mut first = stage.quiet_client(&[]).await;
    let begun = look(&mut first, "a.png", json!({ "cwd": "sub" })).await;
    let thread = json!({ "threadId": thread_of(&begun) });
    stage.assert_shown(&bytes[0]);
    stage.finish(first).await;

    let mut second = stage.quiet_client(&[]).await;
    let result = look(&mut second, "b.png", thread.clone()).await;
    assert_completed(&result, SEEN);
    stage.assert_shown(&bytes[1]);
    stage.finish(second).await;

    fs::remove_dir_all(stage.home.atm_home().join(".config")).unwrap();
    let mut third = stage.quiet_client(&[]).await;
    let result = look(&mut third, "c.png", thread).await;
    assert_completed(&result, SEEN);
    stage.assert_shown(&bytes[2]);
    stage.finish(third).await;
}

async fn session_and_its_fork_get_their_requested_pictures(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
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

async fn thread_in_a_subdirectory_sees_the_whole_repository(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    let (near, far) = (
        stage.picture("sub/near.png"),
        stage.picture("other/far.png"),
    );
    let mut client = stage.quiet_client(&[]).await;
    for (path, bytes) in [
        ("near.png", &near),
        ("sub/near.png", &near),
        ("other/far.png", &far),
    ] {
        let result = look(&mut client, path, json!({ "cwd": stage.file("sub") })).await;
        assert_completed(&result, SEEN);
        stage.assert_shown(bytes);
    }
    stage.finish(client).await;
}

/// Git's ceiling directories keep it from the repository that contains all test homes.
async fn thread_outside_a_repository_sees_only_its_directory(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    let directory = stage.home.tmp();
    let bytes = stage.picture("a.png");
    fs::write(directory.join("within.png"), &bytes).unwrap();
    std::os::unix::fs::symlink(stage.file("a.png"), directory.join("without.png")).unwrap();
    let mut client = stage.quiet_client(&[]).await;
    look(&mut client, "within.png", json!({ "cwd": directory })).await;
    stage.assert_shown(&bytes);
    let result = look(&mut client, "without.png", json!({ "cwd": directory })).await;
    assert_completed(&result, SEEN);
    let last = stage.model.requests().pop().unwrap();
    assert_eq!(last.images(), [""; 0]);
    let told = last.tool_outputs().pop().unwrap().text;
    assert!(told.contains("leads out of the repository"), "{told}");
    stage.finish(client).await;
}

/// The tool is missing where it is switched off, and on the proxy by default.
#[tokio::test]
async fn request_image_is_offered_where_wanted() {
    for (release, args, is_there) in [
        (testkit::codex::newest(), [].as_slice(), true),
        (testkit::codex::newest(), &["--no-request-image"], false),
        ("0.153.4", &PROXY, false),
    ] {
        let stage = CodexFixture::new(release, looking_model()).await;
        let mut client = stage.quiet_client(args).await;
        client.call_tool("codex", json!({ "prompt": "x" })).await;
        let offered = stage.offered_tools();
        assert_eq!(offered.contains("request_image"), is_there, "{offered}");
        stage.finish(client).await;
    }
}
