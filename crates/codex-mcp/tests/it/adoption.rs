//! The guard of a program that the next owner can take over, with the real Codex.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supervise::adoptable::adopt;
use testkit::Home;
use testkit::process::wait_until_gone;

/// The limit for what a guard does.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// An app-server under its guard, whose owner is this test.
struct GuardFixture {
    home: Home,
    /// The adoption socket.
    adoption: PathBuf,
    guard: Child,
    /// The control stream.
    owner: BufReader<UnixStream>,
}

impl GuardFixture {
    /// Starts a guard that waits this long for the next owner.
    fn new(wait: &str) -> Self {
        Self::of(testkit::codex::newest(), wait)
    }

    fn of(release: &str, wait: &str) -> Self {
        let home = Home::new("features.plugins = false");
        let adoption = home.runtime_dir().join("guard");
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .args(["guard", "--wait", wait, "--adoption-socket"])
            .arg(&adoption)
            .args(["0", "--"])
            .arg(testkit::codex::native_binary(release))
            .args(["app-server", "--listen", "ws://127.0.0.1:0"])
            .env_clear()
            .envs(home.env())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let guard = command.spawn().unwrap();
        let owner = BufReader::new(ours);
        Self {
            home,
            adoption,
            guard,
            owner,
        }
    }

    /// The next message of the guard.
    fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.owner.read_line(&mut line).unwrap() {
                0 => return None,
                // It carries the file descriptor, which is not received here.
                1 => {}
                _ => return Some(serde_json::from_str(&line).unwrap()),
            }
        }
    }

    fn wait_for_the_handover(&mut self) {
        assert_eq!(self.message(), Some(json!("handed_over")));
    }

    fn say(&mut self, message: &str) {
        let owner = self.owner.get_mut();
        owner.write_all(message.as_bytes()).unwrap();
    }

    /// The owner dies.
    fn orphan(&mut self) {
        self.owner = BufReader::new(UnixStream::pair().unwrap().0);
    }

    async fn finish(mut self) {
        let pid = self.guard.id();
        // Reaped here: the guard is a child of the test.
        let deadline = Instant::now() + TIME_LIMIT;
        while self.guard.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the guard does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
        assert_eq!(self.home.processes(), []);
        assert!(!self.adoption.exists());
        assert_eq!(proofs(&self.home), [] as [PathBuf; 0]);
    }
}

/// The files of proofs that are left.
fn proofs(home: &Home) -> Vec<PathBuf> {
    let all = std::fs::read_dir(home.runtime_dir()).unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "proof"))
        .collect()
}

#[tokio::test]
async fn next_owner_gets_a_connection_and_what_was_kept() {
    let mut guard = GuardFixture::new("60s");
    guard.wait_for_the_handover();
    guard.say(
        "{\"keep\":{\"key\":\"a\",\"value\":\"1\"}}\n{\"keep\":{\"key\":\"b\",\"value\":\"2\"}}\n",
    );
    guard.say("{\"forget\":\"b\"}\nno message\n{\"keep\":{\"key\":\"c\",\"value\":\"cut o");
    guard.orphan();
    let mut adopted = adopt(&guard.adoption).await.unwrap().unwrap();
    let kept: Vec<_> = adopted.kept.into_iter().collect();
    assert_eq!(kept, [("a".to_owned(), "1".to_owned())]);
    assert!(adopted.connection.writable().await.is_ok());
    adopted.process.keeper().keep("d", "4".to_owned());
    adopted.process.terminate();
    adopted.process.wait().await.unwrap();
    guard.finish().await;
}

#[tokio::test]
async fn older_codex_is_handed_over() {
    let mut guard = GuardFixture::of("0.153.4", "1s");
    guard.wait_for_the_handover();
    guard.orphan();
    guard.finish().await;
}

#[tokio::test]
async fn owner_without_a_proof_is_refused() {
    let mut guard = GuardFixture::new("60s");
    guard.wait_for_the_handover();
    guard.orphan();
    let stream = UnixStream::connect(&guard.adoption).unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let mut attacker = BufReader::new(stream);
    let mut line = String::new();
    attacker.read_line(&mut line).unwrap();
    assert!(line.contains("challenge"), "{line}");
    attacker.get_mut().write_all(b"\n").unwrap();
    line.clear();
    attacker.read_line(&mut line).unwrap();
    assert!(line.contains("failed"), "{line}");
    // The control makes the file.
    let adopted = adopt(&guard.adoption).await.unwrap();
    drop(adopted.unwrap());
    guard.finish().await;
}

#[tokio::test]
async fn program_without_an_owner_is_ended() {
    let mut guard = GuardFixture::new("1s");
    guard.wait_for_the_handover();
    guard.orphan();
    let adoption = guard.adoption.clone();
    guard.finish().await;
    assert!(adopt(&adoption).await.unwrap().is_none());
}

#[tokio::test]
async fn owner_that_dies_before_the_handover_leaves_nothing() {
    let mut guard = GuardFixture::new("1s");
    guard.orphan();
    guard.finish().await;
}

#[tokio::test]
async fn end_of_codex_is_reported() {
    let mut guard = GuardFixture::new("60s");
    guard.wait_for_the_handover();
    let all = guard.home.processes();
    let codex = all.iter().find(|process| {
        process.command.contains("app-server") && !process.command.contains(" guard ")
    });
    let codex = i32::try_from(codex.unwrap().pid).unwrap();
    let codex = nix::unistd::Pid::from_raw(codex);
    nix::sys::signal::kill(codex, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(guard.message(), Some(json!({ "exit": { "signal": 9 } })));
    assert_eq!(guard.message(), None);
    guard.finish().await;
}
