//! Refused pictures, and the reasons that the model gets.

use std::fs;
use std::os::unix::fs::symlink;

use scripted_model::{Reply, Script};
use serde_json::json;

use super::super::{CodexFixture, assert_completed, on_oldest_and_newest};
use super::request_picture;
use crate::png::{declared, png};

on_oldest_and_newest!(
    refusal_is_returned_and_the_turn_continues,
    hostile_picture_is_refused_and_the_turn_continues,
);

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

async fn refusal_is_returned_and_the_turn_continues(release: &str) {
    let asks_for = |path: &'static str| Reply::with(move |request| request_picture(request, path));
    let mut replies: Vec<Reply> = REFUSED.iter().map(|(path, _)| asks_for(path)).collect();
    replies.extend([asks_for("a.png"), Reply::say("Went on.")]);
    let stage = CodexFixture::new(release, Script::new().otherwise(replies)).await;
    let bytes = stage.picture("a.png");
    symlink("/etc/passwd", stage.file("passwd.png")).unwrap();
    fs::write(stage.file("words.png"), "these are words").unwrap();
    let outside = stage.home.tmp().join("theirs.png");
    fs::write(&outside, &bytes).unwrap();
    symlink(outside, stage.file("theirs.png")).unwrap();
    let large = [bytes.as_slice(), &[0; 2000]].concat();
    fs::write(stage.file("large.png"), &large[..2000]).unwrap();

    let mut client = stage.quiet_client(&["--max-image-bytes", "1000"]).await;
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

/// With a picture that it cannot use in it, a model provider refuses each request of the
/// conversation; a picture that declares a huge size exhausts the memory of its decoder.
async fn hostile_picture_is_refused_and_the_turn_continues(release: &str) {
    let whole = png("whole");
    let gif = [
        b"GIF89a\x01\0\x01\0\0\0\0".as_slice(),
        &b",\0\0\0\0\x01\0\x01\0\0\x02\0".repeat(1000),
    ];
    let hostile = [
        ("wide.png", declared(100_000, 100_000), "too many pixels"),
        ("bomb.png", declared(30_000, 30_000), "too many pixels"),
        (
            "half.png",
            whole[..whole.len() / 2].to_vec(),
            "cannot be decoded",
        ),
        (
            "svg.png",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(),
            "it holds something else",
        ),
        ("frames.png", gif.concat(), "it holds something else"),
        ("none.png", Vec::new(), "the file is empty"),
    ];
    let asks_for = |path: &'static str| Reply::with(move |request| request_picture(request, path));
    let mut replies: Vec<Reply> = hostile.iter().map(|(path, ..)| asks_for(path)).collect();
    replies.extend([asks_for("whole.png"), Reply::say("Went on.")]);
    let stage = CodexFixture::new(release, Script::new().otherwise(replies)).await;
    for (path, bytes, _) in &hostile {
        fs::write(stage.file(path), bytes).unwrap();
    }
    fs::write(stage.file("whole.png"), &whole).unwrap();
    let mut client = stage.quiet_client(&[]).await;
    let result = client.call_tool("codex", json!({ "prompt": "x" })).await;
    assert_completed(&result, "Went on.");
    let requests = stage.model.requests();
    for (request, (path, _, why)) in requests.iter().skip(1).zip(&hostile) {
        let told = request.tool_outputs().pop().unwrap().text;
        assert!(told.contains(why), "{path}: {told}");
        assert_eq!(request.images(), [""; 0], "{path}");
    }
    assert_eq!(requests.last().unwrap().images().len(), 1);
    stage.finish(client).await;
}
