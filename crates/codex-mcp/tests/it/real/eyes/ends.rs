//! The end of the wrapper, which leaves nothing behind.

use testkit::process::wait_until_gone;

use super::*;

on_oldest_and_newest!(
    quit_command_ends_the_wrapper,
    ctrl_c_ends_the_wrapper,
    signal_ends_the_wrapper_and_codex,
    killed_codex_ends_the_wrapper,
    #[cfg_attr(portable, ignore = "only /proc tells the conversation")]
    killed_wrapper_leaves_no_processes,
);

async fn quit_command_ends_the_wrapper(release: &str) {
    let mut eyes = Eyes::new(release, greeting_model()).await;
    eyes.begin().await;
    eyes.tmux.enters("/quit").await;
    assert_eq!(eyes.wait_for_exit().await, 0);
}

async fn ctrl_c_ends_the_wrapper(release: &str) {
    let mut eyes = Eyes::new(release, greeting_model()).await;
    eyes.begin().await;
    let wrapper = eyes.wrapper().await.as_raw().try_into().unwrap();
    // The first Ctrl-C may interrupt Codex's start instead.
    let again = TIME_LIMIT / 3;
    eyes.tmux.presses(&["C-c"]).await;
    while !wait_until_gone(&[wrapper], again).await.is_empty() {
        eyes.tmux.presses(&["C-c"]).await;
    }
    assert_eq!(eyes.wait_for_exit().await, 0);
}

async fn signal_ends_the_wrapper_and_codex(release: &str) {
    let mut eyes = Eyes::new(release, greeting_model()).await;
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        eyes.begin().await;
        eyes.signal(signal).await;
        assert_eq!(eyes.wait_for_exit().await, code, "{signal}");
    }
}

async fn killed_codex_ends_the_wrapper(release: &str) {
    let mut eyes = Eyes::new(release, greeting_model()).await;
    eyes.begin().await;
    kill(eyes.codex().await, Signal::SIGKILL).unwrap();
    assert_eq!(eyes.wait_for_exit().await, 137);
}

async fn killed_wrapper_leaves_no_processes(release: &str) {
    let eyes = Eyes::new(release, looking_model()).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.codex().await;
    eyes.process("eyes-mcp --max-image-bytes").await;
    eyes.signal(Signal::SIGKILL).await;
    eyes.wait_until_processes_end().await;
}

#[tokio::test]
async fn command_that_continues_is_named_after_a_signal() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.signal(Signal::SIGTERM).await;
    let thread = eyes.requests_with_prompt(ATTACHED)[0]
        .thread_id()
        .to_owned();
    let command = format!("`codex-mcp eyes resume {thread}`");
    eyes.tmux.shows(&command).await;
    assert_eq!(eyes.wait_for_exit().await, 143);
}

#[tokio::test]
async fn directory_of_a_killed_wrapper_is_removed_by_the_next_start() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    let other = Tmux::start(&eyes.stage.home, COLUMNS, ROWS).await;
    eyes.picture("a.png");
    other.enters("../eyes.sh look").await;
    other.shows(SEEN).await;
    eyes.signal(Signal::SIGKILL).await;
    drop(other);
    eyes.wait_until_processes_end().await;
    assert_eq!(eyes.copies().len(), 1, "{:?}", eyes.copies());
    eyes.set_codex("exit 7");
    eyes.run("").await;
    assert_eq!(eyes.wait_for_exit().await, 7);
    assert_eq!(eyes.copies(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn closed_terminal_ends_all_processes() {
    let eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.tmux.shows(SEEN).await;
    eyes.codex().await;
    let Eyes { stage, tmux } = eyes;
    let all: Vec<u32> = stage.home.processes().iter().map(|one| one.pid).collect();
    drop(tmux);
    assert_eq!(wait_until_gone(&all, TIME_LIMIT).await, []);
}

#[tokio::test]
async fn exit_code_of_codex_is_passed_on() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    eyes.set_codex("exit 7");
    eyes.run("").await;
    assert_eq!(eyes.wait_for_exit().await, 7);
}

/// A played Codex switches on all terminal modes and dies.
#[tokio::test]
async fn terminal_modes_are_reset_after_a_killed_codex() {
    let mut eyes = Eyes::new(testkit::codex::newest(), greeting_model()).await;
    for screen in ["", "[?1049h"] {
        let on = [
            screen, "[?25l", "[?1000h", "[?1006h", "[?2004h", "[?1h", "=", "[?7l", "[2;9r", "[4h",
            "[31;7m",
        ];
        let on = on.join("\\033").replace("\\033\\033", "\\033");
        eyes.set_codex(&format!("printf '\\033{on}red'; kill -KILL $$"));
        eyes.run("").await;
        assert_eq!(eyes.wait_for_exit().await, 137, "{screen}");
    }
}

/// During a restart, only the wrapper is there to get Ctrl-C.
#[tokio::test]
async fn ctrl_c_cancels_a_restart() {
    let mut eyes = Eyes::new(testkit::codex::newest(), looking_model()).await;
    eyes.set_codex("trap 'echo >\"$0.told\"' TERM; $NATIVE \"$@\"; while :; do sleep 1; done");
    eyes.picture("a.png");
    eyes.run("look").await;
    eyes.wait_for_file("codex.sh.told").await;
    eyes.tmux.presses(&["C-c"]).await;
    assert_eq!(eyes.wait_for_exit().await, 130);
    assert_eq!(eyes.starts().len(), 1);
}

impl Eyes {
    /// The copy directories that wrappers have created.
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
        self.wait_for_process("Codex", is_codex).await
    }

    /// Waits until all processes are gone.
    pub(super) async fn wait_until_processes_end(&self) {
        let until = Instant::now() + TIME_LIMIT;
        loop {
            let others = self.tmux.others(&self.stage.home);
            if others.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "{others:?}");
            sleep(POLL_INTERVAL).await;
        }
    }
}
