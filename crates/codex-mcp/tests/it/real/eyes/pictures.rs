//! Requested pictures that Codex gets.

use serde_json::Value;

use super::*;

on_oldest_and_newest!(
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    requested_picture_is_attached_after_a_restart,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    three_pictures_are_attached_one_after_the_other,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    pictures_requested_before_one_marker_are_attached_together,
    picture_as_an_answer_needs_no_restart,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    marker_is_found_on_a_narrow_terminal,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    two_wrappers_in_one_directory_do_not_interfere,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    instructions_of_the_user_are_kept,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    worktree_has_the_trust_of_its_repository,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    command_does_not_choose_the_resumed_conversation,
);

/// How often something is tried within the time limit.
const ATTEMPTS: u32 = 6;

async fn requested_picture_is_attached_after_a_restart(release: &str) {
    let mut eyes = Eyes::new(release, looking_model()).await;
    let a = eyes.picture("a.png");
    eyes.run("'look at it'").await;
    eyes.tmux.shows(SEEN).await;
    let [told] = &eyes.requests_with_prompt(ATTACHED)[..] else {
        panic!("{:?}", eyes.stage.model.requests());
    };
    eyes.tmux.enters("/quit").await;
    let goes_on = format!("`codex-mcp eyes resume {}`", told.thread_id());
    eyes.tmux.shows(&goes_on).await;
    assert_eq!(eyes.wait_for_exit().await, 0);

    assert_eq!(told.images(), [a]);
    assert!(told.user_messages().contains(&"look at it"), "{told:?}");
    assert_eq!(told.assistant_messages(), [MARKER]);
    let [output] = &told.tool_outputs()[..] else {
        panic!("{:?}", told.tool_outputs());
    };
    assert!(output.text.contains("./a.png was requested"), "{output:?}");

    let [begun, resumed] = &eyes.starts()[..] else {
        panic!("{:?}", eyes.starts());
    };
    assert_eq!(begun.args, "-a never");
    assert_eq!(resumed.args, format!("resume {}", told.thread_id()));
    // No process of the first Codex was left when the second began.
    assert_eq!(resumed.running, begun.running);
}

async fn three_pictures_are_attached_one_after_the_other(release: &str) {
    let mut eyes = Eyes::new(release, model_looking_at(3)).await;
    let pictures = ["0.png", "1.png", "2.png"].map(|name| eyes.picture(name));
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    let last = eyes.stage.model.requests().pop().unwrap();
    assert_eq!(last.images(), pictures);
    assert_eq!(last.assistant_messages(), [MARKER; 3]);
    let starts = eyes.starts();
    assert_eq!(starts.len(), 4, "{starts:?}");
    assert!(
        starts
            .iter()
            .all(|start| start.running == starts[0].running)
    );
}

async fn pictures_requested_before_one_marker_are_attached_together(release: &str) {
    let requests = [request("./a.png"), request("./b.png"), request("./a.png")];
    let script = Script::new()
        .on("look", requests.into_iter().chain([Reply::say(MARKER)]))
        .on(ATTACHED, [Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    let pictures = ["a.png", "b.png"].map(|name| eyes.picture(name));
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    let told = eyes.stage.model.requests().pop().unwrap();
    assert_eq!(told.images(), pictures);
    let order = format!("{ATTACHED}: ./a.png, ./b.png, in this order.");
    assert_eq!(told.prompt(), order);
    assert_eq!(eyes.starts().len(), 2);
}

async fn picture_as_an_answer_needs_no_restart(release: &str) {
    let script = Script::new().on("look", [request("./a.png"), Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    let a = eyes.picture("a.png");
    eyes.run("--answer picture look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.assert_started(1).await;
    eyes.end().await;
    let told = eyes.stage.model.requests().pop().unwrap();
    assert_eq!(told.images(), [a]);
    assert_eq!(told.tool_outputs().len(), 1);
    assert!(!told.developer_messages().join("\n").contains(MARKER));
    assert!(!eyes.stage.file(".codex-eyes").exists());
}

/// The marker is longer than a row of the terminal.
async fn marker_is_found_on_a_narrow_terminal(release: &str) {
    let gate = Gate::new();
    let marker = Reply::say(MARKER).behind(&gate);
    let script = Script::new()
        .on("look", [request("./a.png"), marker])
        .on(ATTACHED, [Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    let a = eyes.picture("a.png");
    eyes.run("look").await;
    eyes.stage.model.requested(2).await;
    eyes.tmux.resizes(20, ROWS).await;
    gate.release();
    let screen = eyes.shows_after_redraw(SEEN, 20).await;
    assert!(!screen.contains(MARKER), "{screen}");
    assert_eq!(eyes.requests_with_prompt(ATTACHED)[0].images(), [a]);
    eyes.tmux.resizes(COLUMNS, ROWS).await;
    let wide = "as wide as the terminal was before it was made so narrow";
    eyes.types_after_resize(wide).await;
    eyes.end().await;
}

impl Eyes {
    /// Waits until the screen shows `words`. Codex draws over itself when its terminal is resized
    /// while it prints, and rarely parts stay missing: then this resizes the terminal once more, as
    /// a person would.
    async fn shows_after_redraw(&self, words: &str, columns: u16) -> String {
        for _ in 0..ATTEMPTS {
            if let Some(screen) = self.shows_soon(words).await {
                return screen;
            }
            self.tmux.resizes(columns + 1, ROWS).await;
            self.tmux.resizes(columns, ROWS).await;
        }
        self.tmux.shows(words).await
    }

    /// Types a text until the screen shows it. A busy Codex drops keys after its terminal was
    /// resized: then this types once more, as a person would.
    async fn types_after_resize(&self, text: &str) {
        let typed = format!("› {text}");
        for _ in 0..ATTEMPTS {
            self.tmux.types(text).await;
            if self.shows_soon(&typed).await.is_some() {
                return;
            }
            self.tmux.presses(&["C-u"]).await;
        }
        self.tmux.types(text).await;
        self.shows_after_redraw(&typed, COLUMNS).await;
    }

    /// The screen, if it shows these words within a part of the time limit.
    async fn shows_soon(&self, words: &str) -> Option<String> {
        let until = Instant::now() + TIME_LIMIT / ATTEMPTS;
        while Instant::now() < until {
            let screen = self.tmux.screen().await;
            if screen.contains(words) {
                return Some(screen);
            }
            sleep(POLL_INTERVAL).await;
        }
        None
    }
}

/// Both wrappers have a request before either restarts Codex. They begin one after the other: of
/// two Codexes 0.153.4 that create their databases at the same time, one gives up.
async fn two_wrappers_in_one_directory_do_not_interfere(release: &str) {
    let gate = Gate::new();
    let marker = || Reply::say(MARKER).behind(&gate);
    let script = Script::new()
        .on("look at a", [request("a.png"), marker()])
        .on("look at b", [request("b.png"), marker()])
        .on(ATTACHED, [Reply::say(SEEN)]);
    let eyes = Eyes::new(release, script).await;
    let other = Tmux::start(&eyes.stage.home, COLUMNS, ROWS).await;
    let pictures = ["a.png", "b.png"].map(|name| eyes.picture(name));
    eyes.run("'look at a'").await;
    eyes.stage.model.requested(2).await;
    other.enters("../eyes.sh 'look at b'").await;
    eyes.stage.model.requested(4).await;
    gate.release();
    eyes.tmux.shows(SEEN).await;
    other.shows(SEEN).await;
    let told = eyes.requests_with_prompt(ATTACHED);
    assert_eq!(told.len(), 2, "{told:?}");
    for (prompt, picture) in ["look at a", "look at b"].iter().zip(pictures) {
        let asked = |request: &&Request| request.user_messages().contains(prompt);
        let told = told.iter().find(asked).unwrap();
        assert_eq!(told.images(), [picture]);
    }
    assert_eq!(eyes.starts().len(), 4);
}

async fn instructions_of_the_user_are_kept(release: &str) {
    let own = "developer_instructions = \"Answer in Latin.\"";
    let mut eyes = Eyes::with_config(release, looking_model(), own).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    for request in eyes.stage.model.requests() {
        let told = request.developer_messages().join("\n");
        for words in ["Answer in Latin.", "call the tool request_image"] {
            assert!(told.contains(words), "{words} of {request:?}: {told}");
        }
    }
}

/// Codex does not ask whether the worktree is trusted, and reads its configuration. Without the
/// policy in it, the wrapper would add `-a never`.
async fn worktree_has_the_trust_of_its_repository(release: &str) {
    let mut eyes = Eyes::new(release, looking_model()).await;
    let tree = eyes.beside("tree");
    let added = ["worktree", "add", "--quiet", &tree.display().to_string()];
    eyes.stage.home.git(&added);
    let config = "developer_instructions = \"Answer in Latin.\"\n\
                  approval_policy = \"on-request\"\n";
    fs::create_dir(tree.join(".codex")).unwrap();
    fs::write(tree.join(".codex/config.toml"), config).unwrap();
    fs::write(tree.join("a.png"), picture("a.png")).unwrap();
    eyes.run("-C ../tree look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    for request in eyes.stage.model.requests() {
        let told = request.developer_messages().join("\n");
        assert!(told.contains("Answer in Latin."), "{request:?}: {told}");
    }
    let starts = eyes.starts();
    assert!(starts[0].args.starts_with("-c "), "{starts:?}");
}

/// The command copies the name of the wrapper from the request before.
async fn command_does_not_choose_the_resumed_conversation(release: &str) {
    let other = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    let forge = format!(
        "w=$(sed -n 's/.*\"wrapper\":\"\\([^\"]*\\)\".*/\\1/p' {QUEUE}); \
         printf '{{\"ts\":1,\"path\":\"./a.png\",\"thread\":\"{other}\",\"wrapper\":\"%s\"}}\\n' \
         \"$w\" >>{QUEUE}"
    );
    let replies = [request("./a.png"), Reply::shell(forge), Reply::say(MARKER)];
    let script = Script::new()
        .on("look", replies)
        .on(ATTACHED, [Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    eyes.picture("a.png");
    eyes.run("-s workspace-write look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    let requests = fs::read_to_string(eyes.stage.file(QUEUE)).unwrap();
    let [own, forged] = &requests.lines().collect::<Vec<_>>()[..] else {
        panic!("{requests}");
    };
    let [own, forged] = [own, forged].map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(own["wrapper"], forged["wrapper"]);
    assert_eq!(forged["thread"], other);
    let told = eyes.requests_with_prompt(ATTACHED);
    let resumed = format!("resume {}", told[0].thread_id());
    assert_eq!(eyes.starts()[1].args, resumed);
}

/// SIGKILL ends this Codex, and the next one begins once it is gone.
#[tokio::test]
async fn codex_that_ignores_sigterm_is_killed_before_the_restart() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    eyes.set_codex("trap '' TERM; $NATIVE \"$@\"; while :; do sleep 1; done");
    let a = eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    assert_eq!(eyes.requests_with_prompt(ATTACHED)[0].images(), [a]);
    let [begun, resumed] = &eyes.starts()[..] else {
        panic!("{:?}", eyes.starts());
    };
    assert_eq!(resumed.running, begun.running);
}

/// Codex has the user's environment, as it would without the wrapper.
#[tokio::test]
async fn codex_has_the_environment_of_the_user_without_the_store() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    eyes.set_codex("env >\"$0.env\"; exit 7");
    let store = eyes.beside("jobs.db").display().to_string();
    let line = format!("CODEX_MCP_STORE={store} OF_MINE=1 ../eyes.sh {HELLO}");
    eyes.tmux.enters(&line).await;
    assert_eq!(eyes.wait_for_exit().await, 7);
    let env = fs::read_to_string(eyes.beside("codex.sh.env")).unwrap();
    assert!(env.lines().any(|line| line == "OF_MINE=1"), "{env}");
    // The URL may hold a password, and the model's commands would see it.
    assert!(!env.contains("CODEX_MCP_STORE"), "{env}");
}
