//! Names with a meaning for a shell or for git, and a configuration that names programs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use goal_run::logic::snapshot::Preexisting;
use supervise::short_lived::run;
use supervise::spawn::Program;
use testkit::write_program;

use super::{Scene, beginnings, told};

/// Paths that a shell, git or a line reader could misread.
const NAMES: [&str; 8] = [
    "-rf",
    "--output=x",
    "$(touch pwned)",
    "`touch pwned`",
    "a'b\"c;touch pwned",
    "line\nbreak",
    ":(glob)x",
    "ü é",
];

#[tokio::test]
async fn hostile_names_are_taken_literally() {
    let scene = Scene::new();
    scene.with_remote();
    let branch = "a$(touch${IFS}pwned)'\";&x";
    let run = scene
        .run(&[
            "files=**",
            &format!("commits=1@{branch}"),
            &format!("branch={branch}"),
            "pushed",
            "clean",
            "command=test -e '$(touch pwned)'",
        ])
        .await;
    scene.git(&["checkout", "--quiet", "-b", branch]);
    for name in NAMES {
        scene.write(name, "x");
    }
    scene.git(&["add", "--all"]);
    scene.git(&[
        "commit",
        "--quiet",
        "--message",
        "$(touch pwned)\x1b[2J\n\n-rf",
    ]);
    scene.git(&["push", "--quiet", "origin", branch]);
    scene.git(&["update-ref", "refs/heads/-x", "HEAD"]);
    scene.git(&["update-ref", "refs/tags/--all", "HEAD"]);
    let judged = run.judged_with_commands(Duration::from_secs(60)).await;
    assert_eq!(beginnings(&judged), ["yes"; 6], "{judged:?}");
    let now = run.looker.now().await;
    let newest = &now.head.get().unwrap().history.newest;
    assert_eq!(newest[0].subject, "$(touch pwned) [2J");
    let changed = now
        .tree
        .get()
        .unwrap()
        .changed_since(run.start.tree.get().unwrap());
    for name in NAMES {
        assert!(changed.contains_key(name), "{name:?} {changed:?}");
    }
    assert!(!scene.work().join("pwned").exists());

    scene.git(&["symbolic-ref", "HEAD", "refs/heads/-x"]);
    let now = run.looker.now().await;
    assert_eq!(now.head.get().unwrap().branch.as_deref(), Some("-x"));
    assert_eq!(now.head.get().unwrap().history.new, 1);
}

/// Covers all settings of a repository that name programs, also those set during the run. The
/// control is git itself.
#[tokio::test]
async fn repository_programs_are_not_run() {
    let mut scene = Scene::new();
    let bare = scene.with_remote();
    let trap = scene.home.root().join("trap");
    let caught = scene.home.root().join("caught");
    write_program(
        &trap,
        &format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", caught.display()),
    );
    let trap = trap.to_str().unwrap();
    // Nothing listens at this address.
    let http = "http://user@127.0.0.1:9/x.git";
    scene.means.network_timeout = Duration::from_secs(20);
    let run = scene.run(&["pushed", "clean", "commits=1"]).await;
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.askPass",
        "core.gitProxy",
        "core.pager",
        "gpg.program",
        "diff.external",
        "filter.x.clean",
        "filter.x.process",
        "remote.origin.uploadpack",
        "uploadpack.packObjectsHook",
    ] {
        scene.git(&["config", key, trap]);
    }
    scene.git(&["config", "credential.helper", &format!("!{trap}")]);
    scene.git(&["config", "log.showSignature", "true"]);
    scene.git(&["config", "protocol.ext.allow", "always"]);
    fs::write(scene.work().join(".gitattributes"), "* filter=x\n").unwrap();
    scene.write("README.md", "of another length");
    assert_eq!(beginnings(&run.judged().await), ["no", "no", "no"]);
    // The address of the remote at the start counts.
    let addresses = [
        &format!("ext::{trap} %S"),
        "ssh://127.0.0.1:9/x",
        "git://127.0.0.1:9/x",
        http,
        "x::y",
    ];
    for address in addresses {
        scene.git(&["config", "remote.origin.url", address]);
        let judged = run.judged().await;
        assert_eq!(beginnings(&judged), ["no", "no", "no"], "{address}");
    }
    for address in addresses {
        scene.git(&["config", "remote.origin.url", address]);
        scene.refuses_to_begin(&["pushed"]).await;
    }
    scene.git(&["config", "remote.origin.url", bare.to_str().unwrap()]);
    scene.git(&["config", "remote.origin.vcs", "ext"]);
    let run = scene.run(&["pushed", "clean", "commits=1"]).await;
    assert_eq!(beginnings(&run.judged().await), ["no", "no", "no"]);
    let was_caught = || fs::read_to_string(&caught).unwrap_or_default();
    assert_eq!(was_caught(), "");
    scene.git(&["status"]);
    assert_ne!(was_caught(), "", "git itself runs them");
}

/// Git fetches missing objects from a promisor, whose address may name a program. The control is
/// git itself.
#[tokio::test]
async fn missing_objects_are_not_fetched() {
    let scene = Scene::new();
    let trap = scene.home.root().join("trap");
    let caught = scene.home.root().join("caught");
    let script = format!("#!/bin/sh\necho \"$*\" >> {}\n", caught.display());
    write_program(&trap, &script);
    let run = scene.run(&["clean", "commits=1"]).await;
    scene.commit("a");
    let tree = scene.git(&["rev-parse", "HEAD^{tree}"]);
    let (directory, file) = tree.split_at(2);
    let objects = scene.work().join(".git/objects");
    fs::remove_file(objects.join(directory).join(file)).unwrap();
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("remote.x.url", &format!("ext::{} %S", trap.display())),
        ("remote.x.promisor", "true"),
        ("extensions.partialClone", "x"),
        ("protocol.ext.allow", "always"),
    ] {
        scene.git(&["config", key, value]);
    }
    assert_ne!(beginnings(&run.judged().await), ["yes", "yes"]);
    assert!(!caught.exists());
    let status = Command::new("git")
        .arg("status")
        .current_dir(scene.work())
        .env_clear()
        .envs(scene.home.env())
        .output();
    assert!(!status.unwrap().status.success());
    assert!(caught.exists(), "git itself runs it");
}

/// A setting in the user's own configuration does count.
#[tokio::test]
async fn users_own_ssh_is_used() {
    let scene = Scene::new();
    let bare = scene.with_remote();
    let ssh = scene.home.home().join("ssh");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {}/asked\nexec git upload-pack {}\n",
        scene.home.home().display(),
        bare.display()
    );
    write_program(&ssh, &script);
    scene.git(&[
        "config",
        "--global",
        "core.sshCommand",
        ssh.to_str().unwrap(),
    ]);
    scene.git(&["config", "core.sshCommand", "false"]);
    scene.git(&["config", "remote.origin.url", "git@example.com:x.git"]);
    let run = scene.run(&["pushed"]).await;
    let now = run.looker.now().await;
    assert_eq!(
        told(&run.verdict(&now, Preexisting::Counts))[0]
            .split(' ')
            .next(),
        Some("yes:")
    );
    let asked = fs::read_to_string(scene.home.home().join("asked")).unwrap();
    assert!(asked.contains("BatchMode=yes"), "{asked}");
}

#[tokio::test]
async fn repository_stays_that_of_the_start() {
    let mut scene = Scene::new();
    let elsewhere = scene.home.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    scene.git_in(&elsewhere, &["init", "--quiet"]);
    scene.set("GIT_TRACE", "0");
    let run = scene.run(&["commits=1", "clean"]).await;
    scene.git(&["config", "core.worktree", elsewhere.to_str().unwrap()]);
    fs::write(scene.work().join("left"), "x").unwrap();
    assert_eq!(beginnings(&run.judged().await), ["no", "no"]);
}

/// The variables stay also where they switch off filters.
#[tokio::test]
async fn settings_from_the_environment_stay() {
    let mut scene = Scene::new();
    let ignored = scene.home.home().join("ignored");
    fs::write(&ignored, "*.tmp\n").unwrap();
    scene.set("GIT_CONFIG_COUNT", "1");
    scene.set("GIT_CONFIG_KEY_0", "core.excludesFile");
    scene.set("GIT_CONFIG_VALUE_0", &ignored);
    scene.git(&["config", "filter.x.clean", "false"]);
    let run = scene.run(&["clean"]).await;
    scene.write("a.tmp", "x");
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
    scene.write("a.txt", "x");
    assert_eq!(beginnings(&run.judged().await), ["no"]);
}

#[tokio::test]
async fn variables_can_be_withheld_from_a_program() {
    let scene = Scene::new();
    let mut program = Program::new(Path::new("sh"), ["-c", "echo ${HOME-none} ${PATH-none}"]);
    program.without = &["HOME", "PATH"];
    program.env = vec![("PATH".into(), "/bin:/usr/bin".into())];
    let said = run(&program, Duration::from_secs(60)).await.unwrap().stdout;
    assert_eq!(said, "none /bin:/usr/bin\n");
    drop(scene);
}
