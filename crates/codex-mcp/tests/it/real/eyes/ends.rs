//! How the wrapper ends, and what it leaves behind.

use testkit::process::wait_until_gone;

use super::*;

on_each_release!(
    codex_is_left_by_its_own_command,
    codex_is_left_by_ctrl_c,
    a_signal_ends_both,
    a_codex_that_is_killed,
    a_wrapper_that_is_killed_leaves_nothing,
);

async fn codex_is_left_by_its_own_command(release: &str) {
    let mut eyes = Eyes::new(release, polite()).await;
    eyes.begin().await;
    eyes.tmux.enters("/quit").await;
    assert_eq!(eyes.left().await, 0);
}

async fn codex_is_left_by_ctrl_c(release: &str) {
    let mut eyes = Eyes::new(release, polite()).await;
    eyes.begin().await;
    let wrapper = eyes.wrapper().await.as_raw().try_into().unwrap();
    // The first one may end what Codex does while it starts.
    let again = PATIENCE / 3;
    eyes.tmux.presses(&["C-c"]).await;
    while !wait_until_gone(&[wrapper], again).await.is_empty() {
        eyes.tmux.presses(&["C-c"]).await;
    }
    assert_eq!(eyes.left().await, 0);
}

async fn a_signal_ends_both(release: &str) {
    let mut eyes = Eyes::new(release, polite()).await;
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        eyes.begin().await;
        eyes.signal(signal).await;
        assert_eq!(eyes.left().await, code, "{signal}");
    }
}

async fn a_codex_that_is_killed(release: &str) {
    let mut eyes = Eyes::new(release, polite()).await;
    eyes.begin().await;
    kill(eyes.codex().await, Signal::SIGKILL).unwrap();
    assert_eq!(eyes.left().await, 137);
}

async fn a_wrapper_that_is_killed_leaves_nothing(release: &str) {
    let eyes = Eyes::new(release, looks()).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.codex().await;
    eyes.process("eyes-mcp --max-image-bytes").await;
    eyes.signal(Signal::SIGKILL).await;
    eyes.all_go().await;
}

#[tokio::test]
async fn directory_of_a_killed_wrapper_is_removed_by_the_next_start() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looks()).await;
    let other = Tmux::start(&eyes.stage.home, COLUMNS, ROWS).await;
    eyes.picture("a.png");
    other.enters("../eyes.sh look").await;
    other.shows(SEEN).await;
    eyes.signal(Signal::SIGKILL).await;
    drop(other);
    eyes.all_go().await;
    assert_eq!(eyes.copies().len(), 1, "{:?}", eyes.copies());
    eyes.codex_is("exit 7");
    eyes.run("").await;
    assert_eq!(eyes.left().await, 7);
    assert_eq!(eyes.copies(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_terminal_that_goes_takes_all_with_it() {
    let eyes = Eyes::new(testkit::codex::newest(), looks()).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.codex().await;
    let Eyes { stage, tmux } = eyes;
    let all: Vec<u32> = stage.home.processes().iter().map(|one| one.pid).collect();
    drop(tmux);
    assert_eq!(wait_until_gone(&all, PATIENCE).await, []);
}

#[tokio::test]
async fn codexs_exit_code_is_ours() {
    let mut eyes = Eyes::new(testkit::codex::newest(), polite()).await;
    eyes.codex_is("exit 7");
    eyes.run("").await;
    assert_eq!(eyes.left().await, 7);
}

/// All that programs switch on, by one that dies with it.
#[tokio::test]
async fn what_codex_has_switched_on_is_switched_off() {
    let mut eyes = Eyes::new(testkit::codex::newest(), polite()).await;
    for screen in ["", "[?1049h"] {
        let on = [
            screen, "[?25l", "[?1000h", "[?1006h", "[?2004h", "[?1h", "=", "[?7l", "[2;9r", "[4h",
            "[31;7m",
        ];
        let on = on.join("\\033").replace("\\033\\033", "\\033");
        eyes.codex_is(&format!("printf '\\033{on}red'; kill -KILL $$"));
        eyes.run("").await;
        assert_eq!(eyes.left().await, 137, "{screen}");
    }
}

/// Between two Codexes there is nobody else to hear it.
#[tokio::test]
async fn ctrl_c_calls_a_restart_off() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looks()).await;
    eyes.codex_is("trap 'echo >\"$0.told\"' TERM; $NATIVE \"$@\"; while :; do sleep 1; done");
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.made("codex.sh.told").await;
    eyes.tmux.presses(&["C-c"]).await;
    assert_eq!(eyes.left().await, 130);
    assert_eq!(eyes.starts().len(), 1);
}

impl Eyes {
    /// The directories of copies that wrappers have made.
    fn copies(&self) -> Vec<PathBuf> {
        let place = self.stage.home.state_home().join("codex-mcp/eyes");
        let entries = fs::read_dir(place).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let begins = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("codex-mcp-eyes-")
        };
        paths.retain(begins);
        paths
    }

    /// The process of Codex itself.
    async fn codex(&self) -> Pid {
        let native = testkit::codex::native_binary(&self.stage.release);
        let path = native.display().to_string();
        let is_codex = |process: &Process| process.command.starts_with(&path);
        self.process_such("Codex", is_codex).await
    }

    /// Waits until nothing runs any more.
    pub(super) async fn all_go(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let others = self.tmux.others(&self.stage.home);
            if others.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "{others:?}");
            sleep(LOOK_AGAIN).await;
        }
    }
}
