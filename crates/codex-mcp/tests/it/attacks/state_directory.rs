//! A state directory that Codex can write, and from which our git reads its settings, with the real
//! Codex.

use scripted_model::{Reply, Script};

use super::fixture::{RepositoryFixture, commit};

/// The control: Codex itself writes there.
#[tokio::test]
async fn run_with_its_state_in_a_writable_directory_is_refused() {
    let release = testkit::codex::newest();
    let script = Script::new()
        .on(
            "control",
            [Reply::shell("touch state/planted"), Reply::say("done")],
        )
        .otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = RepositoryFixture::new(release, script).await;
    let state = stage.home.work().join("state");
    std::fs::create_dir(&state).unwrap();
    let temporary = stage.home.tmp().join("state");
    for (until, state) in [
        ("commits=1", &state),
        ("files=a.txt", &state),
        ("commits=1", &temporary),
    ] {
        let args = ["run", "x", "--sandbox", "workspace-write", "--until", until];
        let mut run = stage.command(&args);
        let output = run.env("XDG_STATE_HOME", state).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(
            stderr.contains("which contains the state directory"),
            "{stderr}"
        );
        assert!(
            stderr.contains("set XDG_STATE_HOME to a directory elsewhere"),
            "{stderr}"
        );
        assert_eq!(stage.requests(), 0, "{stderr}");
    }

    stage.control_turn().await;
    assert!(
        state.join("planted").exists(),
        "the control shows Codex writing there"
    );
}
