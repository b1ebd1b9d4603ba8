//! Requested pictures that Codex does not get.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::{Arc, OnceLock};

use super::*;

on_oldest_and_newest!(
    unsuitable_files_are_refused_as_pictures,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    removed_picture_is_reported_after_the_restart,
);

/// The model gets the reason and continues.
async fn unsuitable_files_are_refused_as_pictures(release: &str) {
    let refused = [
        ("absent.png", "file does not exist"),
        ("passwd.png", "leads out of the repository"),
        ("outside.png", "leads out of the repository"),
        ("text.png", "it holds something else"),
        ("../outside.png", "path traversal is not allowed"),
        ("README.md", "unsupported extension"),
    ];
    let requests = refused.map(|(path, _)| request(path));
    let end = [Reply::say("I go on without it.")];
    let script = Script::new().on("look", requests.into_iter().chain(end));
    let mut eyes = Eyes::new(release, script).await;
    fs::write(eyes.beside("outside.png"), picture("outside")).unwrap();
    fs::write(eyes.stage.file("text.png"), "no picture").unwrap();
    symlink("/etc/passwd", eyes.stage.file("passwd.png")).unwrap();
    symlink("../outside.png", eyes.stage.file("outside.png")).unwrap();
    eyes.run("look").await;
    eyes.tmux.shows("I go on without it.").await;
    eyes.assert_started(1).await;
    eyes.end().await;
    let outputs = eyes.stage.model.requests().pop().unwrap().tool_outputs();
    assert_eq!(outputs.len(), refused.len(), "{outputs:?}");
    for (output, (path, why)) in outputs.iter().zip(refused) {
        assert!(output.text.contains(why), "{path}: {output:?}");
        assert!(!output.text.contains("root:"), "{output:?}");
    }
    assert_eq!(fs::read(eyes.stage.file(QUEUE)).unwrap(), b"");
}

/// The picture is checked again before Codex is resumed.
async fn removed_picture_is_reported_after_the_restart(release: &str) {
    let place = Arc::new(OnceLock::<PathBuf>::new());
    let file = Arc::clone(&place);
    let waits = Reply::with(move |_| {
        fs::remove_file(file.get().unwrap()).unwrap();
        Reply::say(MARKER)
    });
    let script = Script::new()
        .on("look", [request("a.png"), waits])
        .on("could not be attached", [Reply::say("A pity.")]);
    let mut eyes = Eyes::new(release, script).await;
    eyes.picture("a.png");
    place.set(eyes.stage.file("a.png")).unwrap();
    eyes.run("look").await;
    eyes.tmux.shows("A pity.").await;
    eyes.end().await;
    let told = eyes.stage.model.requests().pop().unwrap();
    assert!(told.prompt().contains("./a.png"), "{}", told.prompt());
    assert!(
        told.prompt().contains("file does not exist"),
        "{}",
        told.prompt()
    );
    assert!(told.images().is_empty());
    assert_eq!(told.assistant_messages(), [MARKER]);
    assert_eq!(eyes.starts().len(), 2);
}

/// The person stays in the conversation and can continue.
#[tokio::test]
async fn restart_over_the_limit_is_refused_and_the_conversation_continues() {
    let script = Script::by(|request| match (request.prompt(), request.round()) {
        (prompt, _) if prompt.contains("Not attached") => Reply::say("Then without."),
        ("and now", _) => Reply::say("Now we talk."),
        (_, 0) => self::request(&format!("./{}.png", request.images().len())),
        _ => Reply::say(MARKER),
    });
    let mut eyes = Eyes::new(testkit::codex::newest(), script).await;
    for number in 0..3 {
        eyes.picture(&format!("{number}.png"));
    }
    eyes.run("--max-restarts 2 look").await;
    eyes.tmux.shows("• Then without.").await;
    eyes.assert_started(4).await;
    eyes.prompt("and now", "• Now we talk.").await;
    eyes.tmux.enters("/quit").await;
    assert_eq!(eyes.wait_for_exit().await, 0);
    let refused = eyes.last_request_with("Not attached");
    assert!(refused.prompt().contains("./2.png"), "{}", refused.prompt());
    assert_eq!(refused.images().len(), 2);
}

/// Only our own request counts, whatever lines follow it.
#[tokio::test]
async fn foreign_lines_in_the_request_log_are_skipped() {
    let place = Arc::new(OnceLock::<PathBuf>::new());
    let file = Arc::clone(&place);
    let waits = Reply::with(move |_| {
        let mut queue = OpenOptions::new().append(true).open(file.get().unwrap());
        let lines = b"no request\n\xff\n{\"ts\":1,\"path\":\"/etc/passwd\"}\n\
            {\"ts\":1,\"path\":\"./b.png\",\"wrapper\":\"another\"}\n{\"ts\":1,";
        queue.as_mut().unwrap().write_all(lines).unwrap();
        Reply::say(MARKER)
    });
    let script = Script::new()
        .on("look", [request("a.png"), waits])
        .on(ATTACHED, [Reply::say(SEEN)]);
    let mut eyes = Eyes::new(testkit::codex::newest(), script).await;
    let a = eyes.picture("a.png");
    eyes.picture("b.png");
    place.set(eyes.stage.file(QUEUE)).unwrap();
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    assert_eq!(eyes.requests_with_prompt(ATTACHED)[0].images(), [a]);
}

#[tokio::test]
async fn symbolic_link_as_request_log_is_refused() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    let queue = eyes.stage.file(QUEUE);
    fs::create_dir(queue.parent().unwrap()).unwrap();
    fs::write(eyes.beside("elsewhere"), "").unwrap();
    symlink(eyes.beside("elsewhere"), queue).unwrap();
    eyes.run("look").await;
    // The terminal breaks the line at a place that depends on the directory, perhaps at a space.
    let words = "cannot be used: the file";
    let unbroken = |text: &str| text.replace([' ', '\n'], "");
    let told = |screen: &str| unbroken(screen).contains(&unbroken(words));
    eyes.tmux.shows_such(words, told).await;
    assert_eq!(eyes.wait_for_exit().await, 1);
    assert_eq!(eyes.starts(), []);
}
