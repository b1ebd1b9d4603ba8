//! Codex asks for pictures and gets them.

use super::*;

on_each_release!(
    codex_gets_the_picture_that_it_asks_for,
    three_pictures_in_a_row,
    pictures_asked_for_before_one_marker_come_together,
    picture_as_an_answer_comes_without_a_restart,
    a_narrow_terminal,
    two_wrappers_in_one_directory,
    the_users_instructions_stay,
    a_worktree_is_trusted_as_its_repository_is,
);

async fn codex_gets_the_picture_that_it_asks_for(release: &str) {
    let mut eyes = Eyes::new(release, looks()).await;
    let a = eyes.picture("a.png");
    eyes.run("'look at it'").await;
    eyes.tmux.shows(SEEN).await;
    let [told] = &eyes.asked(ATTACHED)[..] else {
        panic!("{:?}", eyes.stage.model.requests());
    };
    eyes.tmux.enters("/quit").await;
    let goes_on = format!("`codex-mcp eyes resume {}`", told.thread_id());
    eyes.tmux.shows(&goes_on).await;
    assert_eq!(eyes.left().await, 0);

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
    // Nothing of the old one was there any more.
    assert_eq!(resumed.running, begun.running);
}

async fn three_pictures_in_a_row(release: &str) {
    let mut eyes = Eyes::new(release, looks_at(3)).await;
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

async fn pictures_asked_for_before_one_marker_come_together(release: &str) {
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

async fn picture_as_an_answer_comes_without_a_restart(release: &str) {
    let script = Script::new().on("look", [request("./a.png"), Reply::say(SEEN)]);
    let mut eyes = Eyes::new(release, script).await;
    let a = eyes.picture("a.png");
    eyes.run("--answer picture look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.stays_started(1).await;
    eyes.end().await;
    let told = eyes.stage.model.requests().pop().unwrap();
    assert_eq!(told.images(), [a]);
    assert_eq!(told.tool_outputs().len(), 1);
    assert!(!told.developer_messages().join("\n").contains(MARKER));
    assert!(!eyes.stage.file(".codex-eyes").exists());
}

/// Here the marker has no room in one row.
async fn a_narrow_terminal(release: &str) {
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
    let screen = eyes.shows_once_drawn_again(SEEN, 20).await;
    assert!(!screen.contains(MARKER), "{screen}");
    assert_eq!(eyes.asked(ATTACHED)[0].images(), [a]);
    eyes.tmux.resizes(COLUMNS, ROWS).await;
    let wide = "as wide as the terminal was before it was made so narrow";
    eyes.tmux.types(wide).await;
    let typed = format!("› {wide}");
    eyes.shows_once_drawn_again(&typed, COLUMNS).await;
    eyes.end().await;
}

impl Eyes {
    /// Waits until the screen shows this. Codex draws over itself when its terminal changes
    /// in the moment in which it prints, rarely so that parts stay away: then the terminal
    /// is changed once more, as somebody would who looks at that.
    async fn shows_once_drawn_again(&self, words: &str, columns: u16) -> String {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let again = Instant::now() + PATIENCE / 6;
            while Instant::now() < again {
                let screen = self.tmux.screen().await;
                if screen.contains(words) {
                    return screen;
                }
                sleep(LOOK_AGAIN).await;
            }
            self.tmux.resizes(columns + 1, ROWS).await;
            self.tmux.resizes(columns, ROWS).await;
        }
        self.tmux.shows(words).await
    }
}

/// Both have asked before either waits. They begin one after the other: of two Codexes
/// 0.153.4 that make their databases at the same time, one gives up.
async fn two_wrappers_in_one_directory(release: &str) {
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
    let told = eyes.asked(ATTACHED);
    assert_eq!(told.len(), 2, "{told:?}");
    for (prompt, picture) in ["look at a", "look at b"].iter().zip(pictures) {
        let asked = |request: &&Request| request.user_messages().contains(prompt);
        let told = told.iter().find(asked).unwrap();
        assert_eq!(told.images(), [picture]);
    }
    assert_eq!(eyes.starts().len(), 4);
}

async fn the_users_instructions_stay(release: &str) {
    let own = "developer_instructions = \"Answer in Latin.\"";
    let mut eyes = Eyes::with_config(release, looks(), own).await;
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

/// Codex asks nobody whether it is, and reads its configuration; without a word about the
/// policy there, it would be `-a never`.
async fn a_worktree_is_trusted_as_its_repository_is(release: &str) {
    let mut eyes = Eyes::new(release, looks()).await;
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

/// KILL ends it, and not before it is gone the next one begins.
#[tokio::test]
async fn a_codex_that_does_not_listen() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looks()).await;
    eyes.codex_is("trap '' TERM; $NATIVE \"$@\"; while :; do sleep 1; done");
    let a = eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.end().await;
    assert_eq!(eyes.asked(ATTACHED)[0].images(), [a]);
    let [begun, resumed] = &eyes.starts()[..] else {
        panic!("{:?}", eyes.starts());
    };
    assert_eq!(resumed.running, begun.running);
}

/// It is the user's own program, and has all that it would have without us.
#[tokio::test]
async fn codex_has_the_users_environment_but_for_the_store() {
    let mut eyes = Eyes::new(testkit::codex::newest(), polite()).await;
    eyes.codex_is("env >\"$0.env\"; exit 7");
    let store = eyes.beside("jobs.db").display().to_string();
    let line = format!("CODEX_MCP_STORE={store} OF_MINE=1 ../eyes.sh {HELLO}");
    eyes.tmux.enters(&line).await;
    assert_eq!(eyes.left().await, 7);
    let env = fs::read_to_string(eyes.beside("codex.sh.env")).unwrap();
    assert!(env.lines().any(|line| line == "OF_MINE=1"), "{env}");
    // It may hold a password, and commands of the model's would see it.
    assert!(!env.contains("CODEX_MCP_STORE"), "{env}");
}
