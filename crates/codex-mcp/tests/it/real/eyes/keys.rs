//! What is typed and what is drawn goes through as it is.

use super::*;

on_each_release!(
    keys_and_pastes_reach_codex,
    colours_are_as_without_us,
    codex_can_be_stopped_and_continued,
);

/// The lines of a paste are one prompt.
async fn keys_and_pastes_reach_codex(release: &str) {
    let script = polite().otherwise([Reply::say("Heard.")]);
    let mut eyes = Eyes::new(release, script).await;
    eyes.begin().await;
    eyes.tmux.types("abc ").await;
    eyes.tmux.shows("› abc").await;
    eyes.tmux.presses(&["Left", "Left", "X", "End"]).await;
    eyes.tmux.shows("› abXc").await;
    eyes.tmux.pastes("one\ntwo\nthree").await;
    eyes.tmux.shows("› abXc one\n  two\n  three").await;
    assert_eq!(eyes.stage.model.request_count(), 1);
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Heard.").await;
    assert_eq!(eyes.asked("abXc one\ntwo\nthree").len(), 1);
    eyes.end().await;
}

async fn colours_are_as_without_us(release: &str) {
    let script = Script::new().otherwise([Reply::say("It is **bold** and `code`.")]);
    let mut eyes = Eyes::new(release, script).await;
    let mut drawn = Vec::new();
    for command in ["../codex.sh 'say it'", "../eyes.sh 'say it'"] {
        eyes.tmux.enters(command).await;
        eyes.tmux.shows("It is bold and code.").await;
        eyes.tmux.types("typed").await;
        eyes.tmux.shows("› typed").await;
        let screen = eyes.tmux.coloured().await;
        let of_codex = |line: &&str| !line.contains("$ ");
        let said = |line: &&str| {
            ["say it", "It is ", "typed"]
                .iter()
                .any(|it| line.contains(it))
        };
        let lines = screen.lines().filter(of_codex).filter(said);
        drawn.push(lines.map(str::to_owned).collect::<Vec<_>>());
        for _ in "typed".chars() {
            eyes.tmux.presses(&["BSpace"]).await;
        }
        eyes.tmux.enters("/quit").await;
        assert_eq!(eyes.tmux.prompt().await, 0);
        eyes.tmux.enters(CLEAR).await;
        eyes.tmux.prompt().await;
    }
    assert_eq!(drawn[0].len(), 3, "{drawn:?}");
    assert_eq!(drawn[0], drawn[1]);
    assert!(
        drawn[0].iter().any(|line| line.contains("\u{1b}[1m")),
        "{drawn:?}"
    );
}

async fn codex_can_be_stopped_and_continued(release: &str) {
    let script = polite().on("two", [Reply::say("Heard.")]);
    let mut eyes = Eyes::new(release, script).await;
    eyes.begin().await;
    eyes.tmux.presses(&["C-z"]).await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.shows("Stopped").await;
    eyes.assert_plain().await;
    eyes.tmux.enters("fg").await;
    let composer = |screen: &str| screen.lines().any(|line| line.starts_with("› "));
    eyes.tmux.shows_such("the composer", composer).await;
    eyes.prompt("two", "• Heard.").await;
    eyes.end().await;
}

/// In the background it may not have the terminal, and needs none for that.
#[tokio::test]
async fn one_that_is_stopped_can_be_ended() {
    let mut eyes = Eyes::new(testkit::codex::newest(), polite()).await;
    eyes.begin().await;
    eyes.tmux.presses(&["C-z"]).await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.enters("kill %1").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.all_go().await;
    // The shell tells of its jobs before the next prompt.
    eyes.tmux.enters("true").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.assert_plain().await;
}
