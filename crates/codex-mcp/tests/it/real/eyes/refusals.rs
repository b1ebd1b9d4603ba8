//! Pictures that Codex doesn't get.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::{Arc, OnceLock};

use super::*;

on_each_release!(
    what_is_no_picture_here_is_refused,
    a_picture_that_has_vanished,
);

/// The model is told why, and goes on.
async fn what_is_no_picture_here_is_refused(release: &str) {
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
    eyes.stays_started(1).await;
    eyes.end().await;
    let outputs = eyes.stage.model.requests().pop().unwrap().tool_outputs();
    assert_eq!(outputs.len(), refused.len(), "{outputs:?}");
    for (output, (path, why)) in outputs.iter().zip(refused) {
        assert!(output.text.contains(why), "{path}: {output:?}");
        assert!(!output.text.contains("root:"), "{output:?}");
    }
    assert_eq!(fs::read(eyes.stage.file(QUEUE)).unwrap(), b"");
}

/// It is looked at again before Codex is resumed.
async fn a_picture_that_has_vanished(release: &str) {
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

/// The person is still in the conversation then, and can go on with it.
#[tokio::test]
async fn restart_over_the_limit_is_refused_and_the_conversation_goes_on() {
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
    eyes.stays_started(4).await;
    eyes.prompt("and now", "• Now we talk.").await;
    eyes.tmux.enters("/quit").await;
    assert_eq!(eyes.left().await, 0);
    let refused = eyes.asked_with("Not attached");
    assert!(refused.prompt().contains("./2.png"), "{}", refused.prompt());
    assert_eq!(refused.images().len(), 2);
}

/// Only our own request counts, whatever is written after it.
#[tokio::test]
async fn lines_that_are_no_requests_of_ours_are_skipped() {
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
    assert_eq!(eyes.asked(ATTACHED)[0].images(), [a]);
}

#[tokio::test]
async fn a_queue_that_is_a_link_is_refused() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looks()).await;
    let queue = eyes.stage.file(QUEUE);
    fs::create_dir(queue.parent().unwrap()).unwrap();
    fs::write(eyes.beside("elsewhere"), "").unwrap();
    symlink(eyes.beside("elsewhere"), queue).unwrap();
    eyes.run("look").await;
    // The terminal breaks the line wherever the directory's length has it, also at a space.
    let words = "can't be used: the file";
    let unbroken = |text: &str| text.replace([' ', '\n'], "");
    let told = |screen: &str| unbroken(screen).contains(&unbroken(words));
    eyes.tmux.shows_such(words, told).await;
    assert_eq!(eyes.left().await, 1);
    assert_eq!(eyes.starts(), []);
}
