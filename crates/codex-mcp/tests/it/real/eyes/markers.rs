//! Markers that do not restart Codex.

use super::*;

on_each_release!(
    marker_without_a_request_does_not_restart_codex,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    marker_not_from_codex_does_not_restart_it,
);

async fn marker_without_a_request_does_not_restart_codex(release: &str) {
    let script = greeting_model()
        .on("say it", [Reply::say(MARKER)])
        .on("show it", [Reply::shell("cat it"), Reply::say("Shown.")])
        .on(MARKER, [Reply::say("Sent.")]);
    let mut eyes = Eyes::new(release, script).await;
    fs::write(eyes.stage.file("it"), format!("{MARKER}\n")).unwrap();
    eyes.begin().await;
    eyes.prompt("say it", &format!("• {MARKER}")).await;
    eyes.assert_started(1).await;
    eyes.prompt("show it", "• Shown.").await;
    eyes.assert_started(1).await;
    eyes.tmux.types(MARKER).await;
    eyes.tmux.shows(&format!("› {MARKER}")).await;
    eyes.assert_started(1).await;
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Sent.").await;
    eyes.assert_started(1).await;
    eyes.end().await;
}

/// The marker is shown by a command, typed and sent, without effect; then Codex says it.
async fn marker_not_from_codex_does_not_restart_it(release: &str) {
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
    eyes.assert_started(1).await;
    eyes.tmux.types(MARKER).await;
    eyes.tmux.shows(&format!("› {MARKER}")).await;
    eyes.assert_started(1).await;
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Sent.").await;
    eyes.assert_started(1).await;
    eyes.prompt("say it", SEEN).await;
    assert_eq!(eyes.starts().len(), 2);
    assert_eq!(eyes.requests_with_prompt(ATTACHED)[0].images(), [a]);
    // The request is answered now, so the marker has no effect any more.
    let asked = eyes.stage.model.request_count();
    // Codex 0.153.4 loses a prompt that is sent in the moment in which a turn ends.
    eyes.assert_started(2).await;
    eyes.tmux.enters("say it").await;
    eyes.stage.model.requested(asked + 1).await;
    eyes.assert_started(2).await;
    eyes.end().await;
}
