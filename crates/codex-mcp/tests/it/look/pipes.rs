//! Named pipes in place of files that git reads: git waits for a writer.

use std::fs;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::time::Instant;

use super::Scene;

/// Far below the 60 s limit of a git query, and far above the time of an inspection without
/// waits.
const SOON: Duration = Duration::from_secs(30);

/// A pipe that git reads when it searches for untracked files. Only git's waiting reveals it.
const UNNOTICED: &str = "deep/.gitignore";

impl Scene {
    fn pipe(&self, path: &str) {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
    }
}

#[tokio::test]
async fn pipe_in_place_of_a_git_file_is_named_at_once() {
    for path in [
        ".git/logs/HEAD",
        ".git/info/exclude",
        ".git/info/attributes",
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        ".mailmap",
    ] {
        let scene = Scene::new();
        let run = scene.run(&["clean", "commits=1"]).await;
        scene.pipe(path);
        let began = Instant::now();
        let judged = run.judged().await;
        let why = format!("{path} is not a regular file; remove it");
        for one in &judged {
            assert!(one.starts_with("unknown:"), "{judged:?}");
            assert!(one.contains(&why), "{judged:?}");
        }
        let refused = scene.try_at(&scene.work(), &["clean"]).await.unwrap_err();
        assert!(refused.to_string().contains(&why), "{refused}");
        assert!(began.elapsed() < SOON, "{path}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn timeout_shortens_the_next_query_until_one_succeeds() {
    let mut scene = Scene::new();
    scene.means.timeout = Duration::from_secs(8);
    let run = scene.run(&["clean"]).await;
    scene.pipe(UNNOTICED);
    let began = Instant::now();
    let judged = run.judged().await;
    assert!(began.elapsed() >= scene.means.timeout, "{judged:?}");
    let told = "git did not answer within 8 s (slow disk, or a named pipe";
    assert!(judged[0].contains(told), "{judged:?}");
    let began = Instant::now();
    let judged = run.judged().await;
    assert!(began.elapsed() < scene.means.timeout, "{judged:?}");
    assert!(judged[0].contains("git did not answer"), "{judged:?}");

    fs::remove_file(scene.work().join(UNNOTICED)).unwrap();
    let began = Instant::now();
    while run.judged().await[0].contains("git did not answer") {
        assert!(
            began.elapsed() < SOON,
            "the time of a question is too short"
        );
    }
    scene.pipe(UNNOTICED);
    let began = Instant::now();
    let judged = run.judged().await;
    assert!(began.elapsed() >= scene.means.timeout, "{judged:?}");
    fs::remove_file(scene.work().join(UNNOTICED)).unwrap();
}

#[tokio::test]
async fn inspection_of_a_stopped_run_is_given_up_soon() {
    let scene = Scene::new();
    let run = scene.run(&["clean"]).await;
    scene.pipe(UNNOTICED);
    scene.means.stop.cancel();
    let began = Instant::now();
    let judged = run.judged().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(judged, ["unknown: asking git was cancelled"]);

    // An included configuration file blocks git before the inspection begins.
    let scene = Scene::new();
    scene.pipe("settings");
    scene.git_in(
        scene.home.root(),
        &[
            "config",
            "--file",
            "work/.git/config",
            "include.path",
            "../settings",
        ],
    );
    scene.means.stop.cancel();
    let began = Instant::now();
    let refused = scene.try_at(&scene.work(), &["clean"]).await.unwrap_err();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(refused.to_string().contains("was cancelled"), "{refused}");
}
