//! Commands that must succeed.

use std::time::Duration;

use goal_run::logic::snapshot::{CommandEnd, Probe};
use testkit::wait::wait_for_file;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Scene, beginnings};

/// Longer than any of these commands takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// The deadline of all commands.
fn later() -> Instant {
    Instant::now() + LONG
}

#[tokio::test]
async fn command_is_judged_by_its_exit() {
    let scene = Scene::new();
    for (command, beginning) in [
        ("true", "yes: it exited with code 0"),
        ("test -e README.md", "yes"),
        (
            "false",
            "no: the command false exited with code 1 and wrote nothing",
        ),
        (
            "sh -c 'echo said; echo wrong >&2; exit 7'",
            "no: the command sh -c 'echo said; echo wrong >&2; exit 7' exited with code 7 and wrote:",
        ),
        (
            "sh -c 'kill -9 $$'",
            "no: the command sh -c 'kill -9 $$' was ended by signal 9",
        ),
        (
            "./absent.sh",
            "no: the command ./absent.sh exited with code 127 and wrote: cannot start",
        ),
        // Stdin is empty, and no terminal.
        ("cat", "yes"),
    ] {
        let run = scene.run(&[&format!("command={command}")]).await;
        run.assert_first(
            &run.judged().await,
            "no: this command must exit with code 0",
        );
        run.assert_first(&run.judged_with_commands(LONG).await, beginning);
    }
    assert_eq!(scene.home.processes(), []);
}

/// Each command succeeds, and undoes what the other criterion held by.
#[tokio::test]
async fn criteria_are_judged_by_the_state_after_the_commands() {
    for (criterion, command, expected) in [
        ("files=src/a.txt", "rm src/a.txt", "no"),
        ("diff_within=src", "touch outside.txt", "no"),
        ("clean", "touch outside.txt", "no"),
        ("commits=1", "git reset --quiet --soft HEAD~", "no"),
        ("branch=work", "git branch --quiet -D work", "no"),
        ("clean", "mv .git gone", "unknown"),
    ] {
        let scene = Scene::new();
        let command = format!("command={command}");
        let run = scene.run(&[criterion, &command]).await;
        scene.write("src/a.txt", "made");
        scene.commit("src/b.txt");
        scene.git(&["branch", "work"]);
        let other = |judged: Vec<String>| {
            let of_command = ["no: this command", "yes: it exited with"];
            let is_command = |one: &String| of_command.iter().any(|words| one.starts_with(words));
            let other = judged.into_iter().find(|one| !is_command(one));
            other.unwrap()
        };
        let before = other(run.judged().await);
        assert_eq!(beginnings(&[before]), ["yes"], "{criterion}");
        let after = other(run.judged_with_commands(LONG).await);
        assert_eq!(beginnings(&[after]), [expected], "{criterion} {command}");
    }
}

#[tokio::test]
async fn end_of_a_flood_is_reported() {
    let scene = Scene::new();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; \
                  echo the reason >&2; exit 1";
    let run = scene.run(&[&format!("command=sh -c '{script}'")]).await;
    let ends = run
        .looker
        .commands(LONG, later(), &CancellationToken::new())
        .await;
    let Probe::Found(CommandEnd::Exited { code: 1, tail }) = ends.values().next().unwrap() else {
        panic!("{ends:?}");
    };
    assert!(
        tail.len() <= 4096 && tail.contains("the reason\n"),
        "{tail}"
    );
    let judged = run.judged_with_commands(LONG).await;
    assert!(judged[0].contains("and wrote: …"), "{judged:?}");
}

#[tokio::test]
async fn timed_out_command_leaves_no_processes() {
    let scene = Scene::new();
    let limit = Duration::from_secs(15);
    let run = scene
        .run(&[
            "command=sh -c 'setsid sh -c \"trap : TERM; touch begun; sleep 600; sleep 600\" & sleep 600'",
        ])
        .await;
    let ends = run
        .looker
        .commands(limit, later(), &CancellationToken::new())
        .await;
    let end = ends.values().next().unwrap();
    assert_eq!(*end, Probe::Found(CommandEnd::TimedOut(limit)));
    assert!(scene.work().join("begun").exists());
    assert_eq!(scene.home.processes(), []);
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn leftover_process_ends_with_its_command() {
    let scene = Scene::new();
    let run = scene
        .run(&["command=sh -c 'setsid sleep 600 & exit 0'"])
        .await;
    run.assert_first(&run.judged_with_commands(LONG).await, "yes");
    assert_eq!(scene.home.processes(), []);
}

#[tokio::test]
async fn exhausted_time_allows_two_seconds_of_the_first_command_only() {
    let scene = Scene::new();
    let run = scene.run(&["command=sleep 600", "command=touch b"]).await;
    let halt = CancellationToken::new();
    let ends = run.looker.commands(LONG, Instant::now(), &halt).await;
    let ends: Vec<_> = ends.values().collect();
    let allowed = Duration::from_secs(2);
    assert_eq!(*ends[0], Probe::Found(CommandEnd::TimedOut(allowed)));
    let too_late = Probe::Failed("there was no time left to run it".to_owned());
    assert_eq!(*ends[1], too_late);
    assert!(!scene.work().join("b").exists());
}

#[tokio::test]
async fn commands_are_given_up_on_request() {
    let scene = Scene::new();
    let run = scene
        .run(&["command=sh -c 'touch a; sleep 600'", "command=touch b"])
        .await;
    let halt = CancellationToken::new();
    let begun = async {
        wait_for_file(&scene.work().join("a")).await;
        halt.cancel();
    };
    let (ends, ()) = tokio::join!(run.looker.commands(LONG, later(), &halt), begun);
    let given_up = Probe::Failed("it was cancelled".to_owned());
    assert_eq!(ends.values().collect::<Vec<_>>(), [&given_up, &given_up]);
    assert!(!scene.work().join("b").exists());
    assert_eq!(scene.home.processes(), []);
}
