//! What Codex isn't shown, and what it is told then.

use std::fs;
use std::os::unix::fs::symlink;

use scripted_model::{Reply, Script};
use serde_json::json;

use super::super::{Stage, assert_completed, on_each_release};
use super::{SEEN, asks, client, look_at, looks};

on_each_release!(a_refusal_is_told_and_the_turn_goes_on);

const REFUSED: [(&str, &str); 8] = [
    ("nothing.png", "file does not exist"),
    ("passwd.png", "./passwd.png leads out of the repository"),
    (
        "words.png",
        "./words.png is not a PNG picture: it holds something else",
    ),
    ("theirs.png", "./theirs.png leads out of the repository"),
    (
        "large.png",
        "./large.png is too large: it has 2000 bytes and may have 1000",
    ),
    ("/etc/passwd", "path must be relative to repository root"),
    ("sub/../a.png", "path traversal is not allowed"),
    (
        "README.md",
        "unsupported extension, allowed .png, .jpg, .jpeg, .webp",
    ),
];

async fn a_refusal_is_told_and_the_turn_goes_on(release: &str) {
    let mut replies: Vec<Reply> = REFUSED.iter().map(|(path, _)| asks(path)).collect();
    replies.extend([asks("a.png"), Reply::say("Went on.")]);
    let stage = Stage::new(release, Script::new().otherwise(replies)).await;
    let bytes = stage.picture("a.png");
    symlink("/etc/passwd", stage.file("passwd.png")).unwrap();
    fs::write(stage.file("words.png"), "these are words").unwrap();
    let outside = stage.home.tmp().join("theirs.png");
    fs::write(&outside, &bytes).unwrap();
    symlink(outside, stage.file("theirs.png")).unwrap();
    let large = [bytes.as_slice(), &[0; 2000]].concat();
    fs::write(stage.file("large.png"), &large[..2000]).unwrap();

    let mut client = client(&stage, &["--max-image-bytes", "1000"]).await;
    let result = client.call_tool("codex", json!({ "prompt": "x" })).await;
    assert_completed(&result, "Went on.");
    let requests = stage.model.requests();
    for (request, (path, why)) in requests.iter().skip(1).zip(REFUSED) {
        let told = request.tool_outputs().pop().unwrap().text;
        assert!(told.contains(why), "{path}: {told}");
        assert_eq!(request.images(), [""; 0], "{path}");
    }
    let last = requests.last().unwrap();
    assert_eq!(last.images().len(), 1);
    let told = format!("{:?}", last.tool_outputs());
    assert!(!told.contains("root:x:"), "{told}");
    stage.finish(client).await;
}

/// Newer Codexes throw away what a server says in more than 16 MiB and wait for the
/// answer until the tool's time is up. They make a picture with very many pixels smaller,
/// and pass on as it is what they can't read, as this one.
#[tokio::test]
async fn a_picture_is_as_large_as_an_answer_can_be() {
    for release in ["0.153.4", testkit::codex::newest()] {
        is_the_largest(release, 12_500_000).await;
    }
}

/// Before 0.105, Codex takes a larger one for words that fill the context: it sums the
/// conversation up, without the picture, and the model asks for it again, for ever.
#[tokio::test]
async fn an_old_codex_is_shown_only_what_does_not_fill_its_context() {
    is_the_largest("0.104.0", 500_000).await;
}

/// A picture of that size is shown, and one that is larger isn't.
async fn is_the_largest(release: &str, size: usize) {
    let stage = Stage::new(release, looks()).await;
    let mut bytes = stage.picture("large.png");
    bytes.resize(size, 0);
    fs::write(stage.file("large.png"), &bytes).unwrap();
    bytes.push(0);
    fs::write(stage.file("larger.png"), &bytes).unwrap();
    bytes.pop();
    let mut client = client(&stage, &[]).await;
    let result = client
        .call_tool("codex", json!({ "prompt": look_at("larger.png") }))
        .await;
    assert_completed(&result, SEEN);
    let told = stage
        .model
        .requests()
        .pop()
        .unwrap()
        .tool_outputs()
        .pop()
        .unwrap()
        .text;
    assert!(told.contains(&format!("and may have {size}")), "{told}");
    let result = client
        .call_tool("codex", json!({ "prompt": look_at("large.png") }))
        .await;
    assert_completed(&result, SEEN);
    stage.assert_shown(&bytes);
    assert!(
        !client.stderr().contains("over the limit"),
        "{}",
        client.stderr()
    );
    stage.finish(client).await;
}
