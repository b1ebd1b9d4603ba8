//! Processes and their guards, with real programs.
//!
//! What only Linux can do, the tests expect there alone: `cargo xtask test --only portable` runs
//! them with the means of other systems.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed test panics, and starts the owner that it kills"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use supervise::exit::Exit;
use supervise::spawn::{Process, Program, Streams, set_guard_executable, spawn};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// The limit of each wait: far longer than anything takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The executable with the verb `guard`. The tests themselves may lie in another directory: that for
/// what cargo builds on the way (`build.build-dir`).
fn guarded() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap().file_name().unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    let target = workspace.unwrap().join(target);
    target.join(profile).join("examples/guarded")
}

fn shell(script: &str) -> Program {
    set_guard_executable(&guarded());
    Program::new(Path::new("/bin/sh"), ["-c", script])
}

fn start(script: &str) -> (Process, Streams) {
    spawn(&shell(script)).unwrap()
}

/// The process ID in the first line of a stream.
async fn pid_in(stream: &mut (impl AsyncBufRead + Unpin)) -> Pid {
    let mut line = String::new();
    let read = tokio::time::timeout(LIMIT, stream.read_line(&mut line));
    read.await.unwrap().unwrap();
    match line.trim().parse() {
        Ok(pid) => Pid::from_raw(pid),
        Err(error) => panic!("{line:?}: {error}"),
    }
}

async fn exit_of(process: &mut Process) -> Exit {
    let waited = tokio::time::timeout(LIMIT, process.wait());
    waited.await.unwrap().unwrap()
}

/// Whether a process runs. One that has ended counts until it is reaped, which the system does for
/// those without a parent.
fn is_there(pid: Pid) -> bool {
    kill(pid, None) != Err(Errno::ESRCH)
}

async fn has_ended(pid: Pid) {
    let end = Instant::now() + LIMIT;
    while is_there(pid) {
        assert!(Instant::now() < end, "process {pid} still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn guard_is_built_with_the_cfg_of_the_tests() {
    let output = std::process::Command::new(guarded()).arg("cfg").output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(output, format!("portable: {}\n", cfg!(portable)));
}

#[tokio::test]
async fn exit_code_of_the_program_is_that_of_its_guard() {
    let (mut process, _streams) = start("exit 3");
    assert_eq!(exit_of(&mut process).await, Exit::Code(3));
    let (mut process, _streams) = start("kill -9 $$");
    let killed = Exit::Signal(Signal::SIGKILL as i32);
    assert_eq!(exit_of(&mut process).await, killed);
}

#[tokio::test]
async fn background_process_ends_with_its_program() {
    let (mut process, mut streams) = start("sleep 1000 & echo $!");
    let left = pid_in(&mut BufReader::new(&mut streams.stdout)).await;
    assert_eq!(exit_of(&mut process).await, Exit::Code(0));
    has_ended(left).await;
}

#[tokio::test]
async fn background_process_that_ignores_sigterm_is_killed() {
    let script = "(trap '' TERM; exec sh -c 'echo $$; while :; do sleep 0.1; done') & read line";
    let (mut process, mut streams) = start(script);
    let left = pid_in(&mut BufReader::new(&mut streams.stdout)).await;
    streams.stdin.write_all(b"\n").await.unwrap();
    assert_eq!(exit_of(&mut process).await, Exit::Code(0));
    has_ended(left).await;
}

#[tokio::test]
async fn terminated_program_ends_with_its_group() {
    let script = "trap '' TERM; sleep 1000 & echo $!; wait; while :; do sleep 0.1; done";
    let (mut process, mut streams) = start(script);
    let child = pid_in(&mut BufReader::new(&mut streams.stdout)).await;
    process.terminate();
    let killed = Exit::Signal(Signal::SIGKILL as i32);
    assert_eq!(exit_of(&mut process).await, killed);
    has_ended(child).await;
}

#[tokio::test]
async fn program_ends_when_its_owner_was_killed() {
    let mut owner = tokio::process::Command::new(guarded())
        .args(["own", "/bin/sh", "-c", "echo $$; exec sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let program = pid_in(&mut BufReader::new(owner.stdout.as_mut().unwrap())).await;
    assert!(is_there(program));
    owner.start_kill().unwrap();
    owner.wait().await.unwrap();
    has_ended(program).await;
}

/// Where the system does not kill a program with its guard, the program ends with its input.
#[tokio::test]
async fn program_whose_guard_was_killed_ends_with_its_input() {
    let (mut process, mut streams) = start("echo $$; exec cat");
    let program = pid_in(&mut BufReader::new(&mut streams.stdout)).await;
    kill(process.pid().unwrap(), Signal::SIGKILL).unwrap();
    let killed = Exit::Signal(Signal::SIGKILL as i32);
    assert_eq!(exit_of(&mut process).await, killed);
    #[cfg(all(target_os = "linux", not(portable)))]
    has_ended(program).await;
    #[cfg(not(all(target_os = "linux", not(portable))))]
    assert!(is_there(program));
    drop(streams);
    has_ended(program).await;
}

/// What each command of Codex has.
#[cfg(target_os = "linux")]
const SESSION: &str = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & wait";

#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_in_a_session_of_its_own_ends_with_the_tree() {
    let (process, mut streams) = start(SESSION);
    let away = pid_in(&mut BufReader::new(&mut streams.stdout)).await;
    drop(process);
    has_ended(away).await;
}

/// Without a subreaper, nothing leads to such a process once its parent has ended by itself.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_in_its_own_session_ends_without_its_parent_only_on_linux() {
    let (mut process, mut streams) = start(&format!("echo $$; {SESSION}"));
    let mut stdout = BufReader::new(&mut streams.stdout);
    let program = pid_in(&mut stdout).await;
    let away = pid_in(&mut stdout).await;
    kill(program, Signal::SIGKILL).unwrap();
    let killed = Exit::Signal(Signal::SIGKILL as i32);
    assert_eq!(exit_of(&mut process).await, killed);
    #[cfg(not(portable))]
    has_ended(away).await;
    #[cfg(portable)]
    {
        assert!(is_there(away));
        kill(away, Signal::SIGKILL).unwrap();
    }
}

/// How many chains of forks there are at once.
#[cfg(all(target_os = "linux", not(portable)))]
const CHAINS: usize = 8;

/// The time limit for all chains to end: less than the minute after which they end by themselves. The
/// first SIGKILL, after a second, ends them; with scans alone it took up to 13 seconds on two cores.
#[cfg(all(target_os = "linux", not(portable)))]
const CHAIN_LIMIT: Duration = Duration::from_secs(30);

/// Each process of a chain starts the next one and ends, sooner than a scan can find and kill it.
#[cfg(all(target_os = "linux", not(portable)))]
#[tokio::test]
async fn chains_of_forks_end_with_their_program() {
    let chain = "$| = 1; $SIG{TERM} = q(IGNORE); print qq($$\\n); \
                 $end = time + 60; while (time < $end) { exit if fork }";
    let script =
        format!("for chain in $(seq {CHAINS}); do setsid perl -e '{chain}' & done; read line");
    let (mut process, mut streams) = start(&script);
    let mut stdout = BufReader::new(&mut streams.stdout);
    for _ in 0..CHAINS {
        pid_in(&mut stdout).await;
    }
    streams.stdin.write_all(b"\n").await.unwrap();
    let ended = tokio::time::timeout(CHAIN_LIMIT, process.wait());
    assert_eq!(ended.await.unwrap().unwrap(), Exit::Code(0));
}

#[tokio::test]
async fn output_reaches_the_owner_unchanged() {
    let (mut process, mut streams) = start("cat; printf err >&2");
    streams.stdin.write_all(b"a\0\xff").await.unwrap();
    drop(streams.stdin);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    streams.stdout.read_to_end(&mut out).await.unwrap();
    streams.stderr.read_to_end(&mut err).await.unwrap();
    assert_eq!((&out[..], &err[..]), (&b"a\0\xff"[..], &b"err"[..]));
    assert_eq!(exit_of(&mut process).await, Exit::Code(0));
}
