//! A named pipe that a model leaves where git reads a file, with the real Codex.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use scripted_model::{Reply, Script};
use testkit::Signal;
use testkit::process::{signal, wait_for_pipe_open};
use testkit::wait::wait_for;
use tokio::process::Command;

use super::fixture::RepositoryFixture;

/// How long a run may take to end after SIGTERM: far below the 60 s that git would wait.
const TIME_LIMIT: Duration = Duration::from_secs(40);

/// The control: the user's own git, which waits.
#[tokio::test]
async fn pipe_for_git_does_not_block_the_first_signal() {
    let plant = "mkdir deep && mkfifo deep/.gitignore && sleep 1000";
    let script = Script::new().otherwise([Reply::shell(plant), Reply::say("never")]);
    let stage = RepositoryFixture::new(testkit::codex::newest(), script).await;
    let run = Command::from(stage.home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .args(["run", "--json", "x", "--sandbox", "workspace-write"])
        .args(["--until", "clean"])
        .env("CODEX_MCP_CODEX_BIN", stage.codex())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The shell has the words `sleep 1000` before it makes the pipe.
    let pipe = stage.home.work().join("deep/.gitignore");
    let is_planted = || fs::metadata(&pipe).is_ok_and(|about| about.file_type().is_fifo());
    wait_for("the named pipe", async || is_planted().then_some(())).await;
    let began = Instant::now();
    signal(run.id().unwrap(), Signal::SIGTERM);
    let output = run.wait_with_output().await.unwrap();
    let took = began.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(took < TIME_LIMIT, "{took:?}\n{stderr}");
    // 128 and the number of SIGTERM.
    assert_eq!(output.status.code(), Some(143), "{stderr}");
    let result = String::from_utf8_lossy(&output.stdout);
    assert!(result.contains("\"cancelled\""), "{result}\n{stderr}");
    assert_eq!(stage.home.processes(), []);

    let git = Command::from(stage.home.command("git"))
        .args(["status", "--untracked-files=all"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // If a plain git returned, this would time out.
    wait_for_pipe_open(git.id().unwrap()).await;
}
