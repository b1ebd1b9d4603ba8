//! Keys and drawing pass through the wrapper unchanged.

use super::*;

on_oldest_and_newest!(
    keys_and_pastes_reach_codex,
    colours_are_passed_on_unchanged,
    codex_can_be_stopped_and_continued,
);

/// The lines of a paste are one prompt.
async fn keys_and_pastes_reach_codex(release: &str) {
    let script = greeting_model().otherwise([Reply::say("Heard.")]);
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
    assert_eq!(eyes.requests_with_prompt("abXc one\ntwo\nthree").len(), 1);
    eyes.end().await;
}

async fn colours_are_passed_on_unchanged(release: &str) {
    let script = Script::new().otherwise([Reply::say("It is **bold** and `code`.")]);
    let mut eyes = Eyes::new(release, script).await;
    let mut drawn = Vec::new();
    for command in ["../codex.sh 'say it'", "../eyes.sh 'say it'"] {
        eyes.tmux.enters(command).await;
        eyes.tmux.shows("It is bold and code.").await;
        eyes.tmux.types("typed").await;
        eyes.tmux.shows("› typed").await;
        let screen = eyes.tmux.coloured().await;
        // The status line has the thread's title too, from 0.171.0 on in a random colour.
        let of_codex = |line: &&str| !line.contains("$ ") && !line.contains(" · ");
        let said = |line: &&str| {
            ["say it", "It is ", "typed"]
                .iter()
                .any(|it| line.contains(it))
        };
        let lines = screen.lines().filter(of_codex).filter(said);
        drawn.push(lines.map(without_repeated_default).collect::<Vec<_>>());
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

/// A line without the sequences for the default colour where the colour is the default already:
/// whether Codex writes them depends on what it has drawn before.
fn without_repeated_default(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    let mut has_colour = false;
    for part in parts {
        let (codes, text) = part.split_once('m').unwrap();
        let is_default = matches!(codes, "0" | "39");
        if codes != "39" || has_colour {
            plain += &format!("\u{1b}[{codes}m");
        }
        has_colour = !is_default && (has_colour || codes.starts_with('3'));
        plain += text;
    }
    plain
}

async fn codex_can_be_stopped_and_continued(release: &str) {
    let script = greeting_model().on("one\ntwo", [Reply::say("Heard.")]);
    let mut eyes = Eyes::new(release, script).await;
    eyes.begin().await;
    eyes.tmux.presses(&["C-z"]).await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.shows("Stopped").await;
    eyes.assert_plain().await;
    eyes.tmux.enters("fg").await;
    let composer = |screen: &str| screen.lines().any(|line| line.starts_with("› "));
    eyes.tmux.shows_such("the composer", composer).await;
    eyes.tmux.pastes("one\ntwo").await;
    eyes.tmux.shows("› one\n  two").await;
    eyes.tmux.presses(&["Enter"]).await;
    eyes.tmux.shows("• Heard.").await;
    eyes.end().await;
}

/// A program that does not handle a stop gets the terminal back as it was, with mouse and screen.
#[tokio::test]
async fn terminal_modes_are_restored_when_codex_continues() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    let on = "printf '\\033[?1049h\\033[?25l\\033[?1000h\\033[?1006h\\033[?2004hthere'";
    let reads = "stty raw -echo; head -c 15 >\"$0.typed\"; exit 7";
    eyes.set_codex(&format!("{on}; kill -STOP $$; {reads}"));
    eyes.run("").await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.assert_plain().await;
    eyes.tmux.enters("fg").await;
    eyes.tmux.shows("there").await;
    let flags = "#{alternate_on} #{cursor_flag} #{mouse_standard_flag} #{mouse_sgr_flag}";
    assert_eq!(eyes.tmux.tells(flags).await, "1 0 1 1");
    eyes.tmux.types("\u{1b}[<0;5;5M").await;
    eyes.tmux.pastes("x").await;
    assert_eq!(eyes.wait_for_exit().await, 7);
    let typed = fs::read(eyes.beside("codex.sh.typed")).unwrap();
    assert_eq!(typed, b"\x1b[<0;5;5M\x1b[200~");
}

/// A wrapper in the background may not use the terminal, and need not to end.
#[tokio::test]
async fn stopped_wrapper_can_be_ended() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    eyes.begin().await;
    eyes.tmux.presses(&["C-z"]).await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.enters("kill %1").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.wait_until_processes_end().await;
    // The shell reports its jobs before the next prompt.
    eyes.tmux.enters("true").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.assert_plain().await;
}

/// The shell has the terminal, so the last drawing of the played Codex is dropped.
#[tokio::test]
async fn stopped_wrapper_draws_nothing_when_it_ends() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    let ends = "trap 'printf \\\\033[HDRAWN; exit' TERM; printf '\\033[30;1Hbegun\\033[20;1H'";
    let waits = "kill -STOP $$; while :; do sleep 0.1; done";
    eyes.set_codex(&format!("{ends}; {waits}"));
    eyes.run("").await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.enters(CLEAR).await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.tmux.enters("kill %1").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.wait_until_processes_end().await;
    eyes.tmux.enters("true").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    let screen = eyes.tmux.screen().await;
    assert!(!screen.contains("DRAWN"), "{screen}");
    let rows = screen.trim_end().lines().count();
    assert!(rows < 10, "the shell's prompt has moved down: {screen}");
}

/// Keys typed meanwhile go to the shell.
#[tokio::test]
async fn stopped_wrapper_reads_no_keys_when_it_ends() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    let waits = "trap '' TERM; kill -STOP $$; touch \"$0.ends\"; while :; do sleep 0.1; done";
    eyes.set_codex(waits);
    // Without a script around the wrapper, which is then a job of the shell itself.
    let wrapper = env!("CARGO_BIN_EXE_codex-mcp");
    let line = format!("{wrapper} eyes --codex-bin ../codex.sh");
    eyes.tmux.enters(&line).await;
    assert_eq!(eyes.tmux.prompt().await, 148);
    eyes.tmux.enters("kill %1").await;
    assert_eq!(eyes.tmux.prompt().await, 0);
    eyes.wait_for_file("codex.sh.ends").await;
    // The second line waits in the terminal until the first one is done.
    eyes.tmux.enters("sleep 2; (exit 3)").await;
    eyes.tmux.enters("(exit 4)").await;
    eyes.tmux.shows("[5:4]$").await;
    eyes.wait_until_processes_end().await;
}
