//! The marker where it is no order: Codex is not restarted.

use super::*;

on_each_release!(
    without_a_request_the_marker_is_no_order,
    while_a_request_is_open_only_codexs_own_words_are,
);

async fn without_a_request_the_marker_is_no_order(release: &str) {
    let script = polite()
        .on("say it", [Reply::say(MARKER)])
        .on("show it", [Reply::shell("cat it"), Reply::say("Shown.")])
        .on(MARKER, [Reply::say("Sent.")]);
    let mut eyes = Eyes::new(release, script).await;
    fs::write(eyes.stage.file("it"), format!("{MARKER}\n")).unwrap();
    eyes.begin().await;
    eyes.prompt("say it", &format!("• {MARKER}")).await;
    eyes.stays_started(1).await;
    eyes.prompt("show it", "• Shown.").await;
    eyes.stays_started(1).await;
    eyes.tmux.types(MARKER).await;
    eyes.tmux.shows(&format!("› {MARKER}")).await;
    eyes.stays_started(1).await;
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Sent.").await;
    eyes.stays_started(1).await;
    eyes.end().await;
}

/// It is shown, it is typed, it is sent; and then Codex says it.
async fn while_a_request_is_open_only_codexs_own_words_are(release: &str) {
    let script = Script::new()
        .on(
            "look",
            [
                request("a.png"),
                Reply::shell("cat it"),
                Reply::say("I go on."),
            ],
        )
        .on(MARKER, [Reply::say("Sent.")])
        .on("say it", [Reply::say(MARKER)])
        .on(ATTACHED, [Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    let a = eyes.picture("a.png");
    fs::write(eyes.stage.file("it"), format!("• {MARKER}\n\n{MARKER}\n")).unwrap();
    eyes.run("look").await;
    eyes.tmux.shows("• I go on.").await;
    eyes.stays_started(1).await;
    eyes.tmux.types(MARKER).await;
    eyes.tmux.shows(&format!("› {MARKER}")).await;
    eyes.stays_started(1).await;
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Sent.").await;
    eyes.stays_started(1).await;
    eyes.prompt("say it", SEEN).await;
    assert_eq!(eyes.starts().len(), 2);
    assert_eq!(eyes.asked(ATTACHED)[0].images(), [a]);
    // That request has been answered.
    let asked = eyes.stage.model.request_count();
    // Codex 0.153.4 loses a prompt that is sent in the moment in which a turn ends.
    eyes.stays_started(2).await;
    eyes.tmux.enters("say it").await;
    eyes.stage.model.requested(asked + 1).await;
    eyes.stays_started(2).await;
    eyes.end().await;
}
