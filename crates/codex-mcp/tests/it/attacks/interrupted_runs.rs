//! Runs that are killed while Codex commits, or while its commits are taken over, and the
//! private git directories that runs leave behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use scripted_model::{Gate, Reply, Script};
use serde_json::Value;
use testkit::process::wait_until_gone;
use tokio::process::Child;

use super::recommended_commands::{at_a_shell, recommended};
use super::repository::{Stage, commit};

/// How long Codex may live on after its owner was killed.
const GONE: Duration = Duration::from_secs(10);

/// Below the 60 s for which a named pipe would hold one question to git.
const SOON: Duration = Duration::from_secs(50);

/// A run whose Codex has committed and works on.
struct Working {
    stage: Stage,
    run: Child,
    gate: Gate,
}

impl Working {
    /// The prompt of the run has the word "first"; others do as `others` says.
    async fn new(first: &[Reply], others: &[Reply]) -> Self {
        Self::with(first, others, &[], |_| Vec::new()).await
    }

    /// The same with more arguments and variables.
    async fn with(
        first: &[Reply],
        others: &[Reply],
        more: &[&str],
        env: impl FnOnce(&Stage) -> Vec<(&'static str, String)>,
    ) -> Self {
        let gate = Gate::new();
        let end = Reply::say("Done.").behind(&gate);
        let first = first.iter().cloned().chain([end]);
        let script = Script::new()
            .on("first", first)
            .otherwise(others.iter().cloned());
        let stage = Stage::new(testkit::codex::newest(), script).await;
        let mut command = stage.command(&[&["run", "--json", "first"], &WANTED[..], more].concat());
        command.envs(env(&stage));
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = piped.kill_on_drop(true).spawn().unwrap();
        gate.reached(1).await;
        Self { stage, run, gate }
    }

    /// Kills the run, and waits for the end of its Codex.
    async fn killed(mut self) -> Stage {
        if self.run.try_wait().unwrap().is_none() {
            self.run.kill().await.unwrap();
        }
        let processes = self.stage.home.processes();
        let left: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        assert_eq!(wait_until_gone(&left, GONE).await, []);
        self.stage
    }
}

const WANTED: [&str; 6] = [
    "--sandbox",
    "workspace-write",
    "--until",
    "commits=1",
    "--max-turns",
    "1",
];

/// Another run, in which nothing is wanted of the first one.
async fn second(stage: &Stage, more: &[&str]) -> (Option<i32>, Value, String) {
    stage.run(&[&["second"], &WANTED[..], more].concat()).await
}

/// The directories of runs.
fn directories(stage: &Stage) -> Vec<PathBuf> {
    let all = stage.home.state_home().join("codex-mcp/git-private");
    let entries = fs::read_dir(all).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn only_directory(stage: &Stage) -> PathBuf {
    let directories = directories(stage);
    assert_eq!(directories.len(), 1, "{directories:?}");
    directories.into_iter().next().unwrap()
}

async fn doctor(stage: &Stage) -> Vec<Value> {
    let output = stage.codex_mcp(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.filter(|check| check["name"] == "private-git");
    checks.cloned().collect()
}

/// Where a takeover is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    BeforeRefs,
    AfterRefs,
    AfterHead,
    AfterIndex,
}

/// A git that kills a run before or after one of its questions, by the process ID that
/// `run-pid` has. Otherwise it is the real one.
fn killing_git(stage: &Stage, killed: Killed) -> PathBuf {
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    let (question, before) = match killed {
        Killed::BeforeRefs => ("update-ref", "kill -9 $pid; exit 1"),
        Killed::AfterRefs => ("update-ref", ""),
        Killed::AfterHead | Killed::AfterIndex => ("symbolic-ref", ""),
    };
    let directory = stage.home.root().join("killing");
    fs::create_dir(&directory).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" {question} -\"*\"codex-mcp: \"*) ;; *) exec {git} \"$@\" ;; esac\n\
         pid=$(cat {pid})\n{before}\n{git} \"$@\"\nkill -9 $pid\n",
        git = git.display(),
        pid = stage.home.root().join("run-pid").display(),
    );
    let path = directory.join("git");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// A stage on which a takeover was killed.
async fn takeover_killed(killed: Killed) -> Stage {
    let first = [
        Reply::shell("git checkout --quiet -b side && echo c > c.txt"),
        commit("a.txt"),
        Reply::shell("git add c.txt"),
    ];
    let path = |stage: &Stage| {
        let git = killing_git(stage, killed);
        let path = std::env::var("PATH").unwrap();
        vec![("PATH", format!("{}:{path}", git.display()))]
    };
    let others = [Reply::say("Done.")];
    let mut working = Working::with(&first, &others, &[], path).await;
    let pid = working.run.id().unwrap();
    fs::write(working.stage.home.root().join("run-pid"), pid.to_string()).unwrap();
    working.gate.release();
    working.run.wait().await.unwrap();
    let stage = working.killed().await;
    // What a git leaves that is killed while it writes.
    let directory = only_directory(&stage);
    let lock = directory.join("private/refs/heads/other.lock");
    fs::write(lock, "").unwrap();
    fs::write(directory.join("index.new.lock"), "").unwrap();
    stage
}

/// The order of a takeover: the lock of the index, refs, `HEAD`, the index.
fn assert_killed(stage: &Stage, killed: Killed) {
    let has_branch = !stage.home.git(&["branch", "--list", "side"]).is_empty();
    assert_eq!(has_branch, killed != Killed::BeforeRefs, "{killed:?}");
    let head = match killed {
        Killed::BeforeRefs | Killed::AfterRefs => "refs/heads/main",
        Killed::AfterHead | Killed::AfterIndex => "refs/heads/side",
    };
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["symbolic-ref", "HEAD"]), head, "{killed:?}");
    assert!(stage.git_dir().join("index.lock").exists(), "{killed:?}");
    assert_eq!(git(&["ls-files"]), "README.md", "{killed:?}");
}

#[tokio::test]
async fn takeover_that_was_killed_is_finished_by_the_next_run() {
    for killed in [
        Killed::BeforeRefs,
        Killed::AfterRefs,
        Killed::AfterHead,
        Killed::AfterIndex,
    ] {
        let stage = takeover_killed(killed).await;
        assert_killed(&stage, killed);
        let (lock, index) = ["index.lock", "index"]
            .map(|name| stage.git_dir().join(name))
            .into();
        let changed = match killed {
            Killed::BeforeRefs => "A  c.txt",
            // A takeover that has begun is finished whatever has become of the files.
            Killed::AfterRefs | Killed::AfterHead => {
                fs::remove_file(stage.home.work().join("c.txt")).unwrap();
                "AD c.txt"
            }
            Killed::AfterIndex => {
                fs::rename(lock, index).unwrap();
                "A  c.txt"
            }
        };
        let found = doctor(&stage).await;
        assert_eq!(found[0]["value"]["state"], "interrupted", "{found:?}");

        let (code, result, told) = second(&stage, &[]).await;
        // The commit of the first run is none of the second one.
        assert_eq!(code, Some(2), "{killed:?}: {result:#}\n{told}");
        let git = |args: &[&str]| stage.home.git(args);
        assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/side");
        assert_eq!(git(&["show", "side:a.txt"]), "made");
        assert_eq!(git(&["rev-list", "--count", "side"]), "2");
        assert_eq!(git(&["status", "--porcelain"]), changed, "{killed:?}");
        assert_eq!(git(&["fsck", "--strict"]), "");
        assert_eq!(directories(&stage), [] as [PathBuf; 0], "{killed:?}");
        let left = fs::read_dir(stage.git_dir()).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<_> = left.filter(|name| name.starts_with("codex-mcp")).collect();
        assert_eq!(left, [] as [String; 0], "{killed:?}");
        let warnings = result["warnings"].to_string();
        let what = match killed {
            Killed::BeforeRefs => "imported refs/heads/side; HEAD is refs/heads/side now",
            Killed::AfterRefs => "imported its index; HEAD is refs/heads/side now",
            Killed::AfterHead | Killed::AfterIndex => "imported its index",
        };
        assert!(warnings.contains(what), "{killed:?}: {warnings}");
        assert!(warnings.contains(" ago): "), "{killed:?}: {warnings}");
        assert!(told.contains(what), "{killed:?}: {told}");
        let found = doctor(&stage).await;
        assert_eq!(found[0]["status"], "ok", "{found:?}");
    }
}

#[tokio::test]
async fn checkout_stays_where_the_working_tree_has_changed_since() {
    let working = Working::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = working.killed().await;
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    let git = |args: &[&str]| stage.home.git(args);
    let index = fs::read(stage.git_dir().join("index")).unwrap();
    let (_, result, told) = second(&stage, &[]).await;
    assert_eq!(git(&["rev-list", "--count", "main"]), "1", "{told}");
    assert_eq!(fs::read(stage.git_dir().join("index")).unwrap(), index);
    let name = only_directory(&stage).file_name().unwrap().to_owned();
    let kept = format!("refs/codex-mcp/{}/heads/main", name.to_str().unwrap());
    let warnings = result["warnings"].to_string();
    let what_to_do = format!("run `git merge {kept}`");
    assert!(warnings.contains(&what_to_do), "{warnings}");
    git(&["merge", "--quiet", &kept]);
    assert_eq!(git(&["show", "main:a.txt"]), "made");
}

/// The run names what is in the way, changes nothing, and the next run imports the commit.
async fn refused_and_imported_later(first: &[Reply], path: &str, why: &str) {
    let others = [Reply::say("Done.")];
    let working = Working::new(first, &others).await;
    let obstacle = working.stage.home.work().join(path);
    if !obstacle.exists() {
        fs::write(&obstacle, "").unwrap();
    }
    let began = Instant::now();
    working.gate.release();
    let output = working.run.wait_with_output().await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(why), "{told}");
    let stage = working.stage;
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["rev-list", "--count", "main"]), "1", "{told}");
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");

    fs::remove_file(&obstacle).unwrap();
    let (_, result, told) = second(&stage, &[]).await;
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("imported refs/heads/main"), "{told}");
    assert_eq!(git(&["show", "main:a.txt"]), "made");
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(directories(&stage), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn lock_of_the_index_that_is_busy_keeps_refs_from_moving() {
    refused_and_imported_later(&[commit("a.txt")], ".git/index.lock", "index.lock").await;
}

#[tokio::test]
async fn pipe_for_attributes_keeps_refs_from_moving() {
    let first = [commit("a.txt"), Reply::shell("mkfifo .gitattributes")];
    let why = ".gitattributes is not a regular file";
    refused_and_imported_later(&first, ".gitattributes", why).await;
}

#[tokio::test]
async fn repository_that_was_replaced_gets_nothing() {
    let working = Working::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = working.killed().await;
    let aside = stage.home.root().join("aside");
    fs::rename(stage.git_dir(), &aside).unwrap();
    let (from, to) = (aside.to_str().unwrap(), stage.git_dir());
    stage
        .home
        .git(&["clone", "--quiet", "--bare", from, to.to_str().unwrap()]);
    stage.home.git(&["config", "core.bare", "false"]);
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "orphaned", "{found:?}");
    let (_, _, told) = second(&stage, &[]).await;
    assert!(!told.contains("interrupted run"), "{told}");
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    only_directory(&stage);
}

/// The worktree of a run, and its branch.
fn worktree(stage: &Stage) -> (String, String) {
    let listed = stage.home.git(&["worktree", "list", "--porcelain"]);
    let block = listed.split("\n\n").nth(1).unwrap();
    let value = |key: &str| {
        let mut lines = block.lines();
        lines
            .find_map(|line| line.strip_prefix(key))
            .unwrap()
            .to_owned()
    };
    (value("worktree "), value("branch "))
}

#[tokio::test]
async fn commits_in_a_worktree_are_imported_by_a_run_elsewhere() {
    let others = [Reply::say("Done.")];
    let first = [commit("a.txt")];
    let working = Working::with(&first, &others, &["--worktree"], |_| Vec::new()).await;
    let stage = working.killed().await;
    let (path, branch) = worktree(&stage);
    let (_, _, told) = second(&stage, &[]).await;
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["show", &format!("{branch}:a.txt")]), "made", "{told}");
    assert_eq!(git(&["-C", &path, "status", "--porcelain"]), "");
    assert_eq!(git(&["rev-list", "--count", "main"]), "1");
    assert_eq!(directories(&stage), [] as [PathBuf; 0], "{told}");
}

#[tokio::test]
async fn commits_of_a_worktree_that_is_gone_are_kept_aside() {
    let others = [Reply::say("Done.")];
    let first = [commit("a.txt")];
    let working = Working::with(&first, &others, &["--worktree"], |_| Vec::new()).await;
    let stage = working.killed().await;
    let (path, branch) = worktree(&stage);
    let git = |args: &[&str]| stage.home.git(args);
    git(&["worktree", "remove", "--force", &path]);
    let (_, result, told) = second(&stage, &[]).await;
    let name = only_directory(&stage).file_name().unwrap().to_owned();
    let branch = branch.strip_prefix("refs/").unwrap();
    let kept = format!("refs/codex-mcp/{}/{branch}", name.to_str().unwrap());
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made", "{told}");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains(&format!("git merge {kept}")),
        "{warnings}"
    );
    let (_, _, told) = second(&stage, &[]).await;
    assert!(
        !told.contains("interrupted run"),
        "it was said once: {told}"
    );
}

#[tokio::test]
async fn directory_of_a_live_run_is_left_alone() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let mut working = Working::new(&[commit("a.txt")], &others).await;
    let stage = &working.stage;
    let directory = only_directory(stage);
    let found = doctor(stage).await;
    assert_eq!(found[0]["value"]["state"], "in-use", "{found:?}");
    assert_eq!(
        found[0]["value"]["repository"],
        stage.home.work().to_str().unwrap()
    );

    let (code, result, told) = second(stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["ls-tree", "--name-only", "main"]), "README.md\nb.txt");
    assert!(!told.contains("interrupted run"), "{told}");
    assert_eq!(only_directory(stage), directory);

    working.gate.release();
    let ended = working.run.wait().await.unwrap();
    assert_eq!(ended.code(), Some(2), "main was moved on by the second run");
    let kept = git(&["for-each-ref", "--format=%(refname)", "refs/codex-mcp"]);
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made");
}

#[tokio::test]
async fn branch_that_was_moved_on_stays_and_the_commits_are_kept_beside_it() {
    let working = Working::new(&[commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = working.killed().await;
    let git = |args: &[&str]| stage.home.git(args);
    git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
    let (_, result, told) = second(&stage, &[]).await;
    assert_eq!(git(&["log", "-1", "--format=%s", "main"]), "mine");
    let directory = only_directory(&stage);
    let name = directory.file_name().unwrap().to_str().unwrap();
    let kept = format!("refs/codex-mcp/{name}/heads/main");
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made");
    let warnings = result["warnings"].as_array().unwrap();
    let of_run = |warning: &&Value| {
        let text = warning.as_str().unwrap();
        text.starts_with(&format!("interrupted run {name} (")) && !text.contains('\n')
    };
    assert_eq!(warnings.iter().filter(of_run).count(), 2, "{told}");

    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");
    let (_, result, _) = second(&stage, &[]).await;
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains(name), "it was said once: {warnings}");
    assert_eq!(only_directory(&stage), directory);
}

/// The control: the command as it was before it was quoted.
#[tokio::test]
async fn command_that_merges_a_branch_with_a_hostile_name_merges_only() {
    const BRANCH: &str = "main;echo>$HOME/caught;true";
    let branch = Reply::shell(format!("git checkout --quiet -b '{BRANCH}'"));
    let working = Working::new(&[branch, commit("a.txt")], &[Reply::say("Done.")]).await;
    let stage = working.killed().await;
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    let (_, result, told) = second(&stage, &[]).await;
    let warnings = result["warnings"].as_array().unwrap();
    let mut texts = warnings.iter().filter_map(Value::as_str);
    let merge = texts.find_map(|text| recommended(text, "git merge "));
    let merge = merge.unwrap_or_else(|| panic!("{told}"));

    let raw = merge.replace('\'', "");
    at_a_shell(&stage.home, &stage.home.work(), &raw);
    stage.until_attacked().await;
    let merged = at_a_shell(&stage.home, &stage.home.work(), &merge);
    assert!(merged.status.success(), "{merge}: {merged:?}");
    assert!(!stage.was_attacked(), "{merge}");
    assert_eq!(stage.home.git(&["show", "main:a.txt"]), "made");
}

#[tokio::test]
async fn damaged_directory_is_named_and_keeps_no_run_from_beginning() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let working = Working::new(&[commit("a.txt")], &others).await;
    let stage = working.killed().await;
    let directory = only_directory(&stage);
    fs::write(directory.join("synced.json"), "{").unwrap();
    let (code, result, told) = second(&stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let path = directory.to_str().unwrap();
    assert!(result["warnings"].to_string().contains(path), "{result:#}");
    assert!(told.contains(path), "{told}");
    assert!(directory.join("private/refs/heads/main").is_file());
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "unreadable", "{found:?}");
    assert_eq!(found[0]["value"]["path"], path);

    // Codex had not been given a directory in which this file is missing.
    fs::remove_file(directory.join("synced.json")).unwrap();
    let (_, result, _) = second(&stage, &[]).await;
    assert!(!result["warnings"].to_string().contains(path), "{result:#}");
    assert_eq!(directories(&stage), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn directory_of_another_repository_is_left_alone() {
    let others = [commit("b.txt"), Reply::say("Done.")];
    let working = Working::new(&[commit("a.txt")], &others).await;
    let stage = working.killed().await;
    let directory = only_directory(&stage);
    let other = stage.home.root().join("other");
    let other = other.to_str().unwrap();
    stage.home.git(&["clone", "--quiet", ".", other]);
    for (key, value) in [("user.name", "Test"), ("user.email", "test@example.com")] {
        stage.home.git(&["-C", other, "config", key, value]);
    }
    let (code, result, told) = second(&stage, &["--repo", other]).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    assert!(!told.contains("interrupted run"), "{told}");
    assert_eq!(only_directory(&stage), directory);
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    stage
        .home
        .git(&["-C", other, "cat-file", "-e", "main:b.txt"]);
}

/// A user's git that holds the lock of the index for a moment, and has changed it then.
#[tokio::test]
async fn index_that_the_user_changes_during_a_takeover_is_merged() {
    let working = Working::new(&[commit("a.txt")], &[]).await;
    let stage = &working.stage;
    fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
    let (index, lock) = ["index", "index.lock"]
        .map(|name| stage.git_dir().join(name))
        .into();
    // The takeover prepares its index from the old one, and waits for the lock.
    fs::copy(&index, &lock).unwrap();
    working.gate.release();
    let prepared = only_directory(stage).join("takeover.json");
    while !prepared.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let users = stage.home.root().join("users-index");
    fs::copy(&index, &users).unwrap();
    let mut git = tokio::process::Command::new("git");
    let git = git.args(["add", "mine.txt"]).current_dir(stage.home.work());
    let git = git.env_clear().envs(stage.home.env());
    let added = git.env("GIT_INDEX_FILE", &users).status().await.unwrap();
    assert!(added.success());
    fs::rename(&users, &index).unwrap();
    fs::remove_file(&lock).unwrap();

    let output = working.run.wait_with_output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let status = working.stage.home.git(&["status", "--porcelain"]);
    assert_eq!(status, "A  mine.txt");
}

/// The control is the directory itself, in which the planted programs run.
#[tokio::test]
async fn copy_of_a_kept_directory_runs_nothing_that_was_planted() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("sh \"$HOME/plant\""),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let caught = stage.caught();
    let caught = caught.display();
    let plant = format!(
        "echo x >> README.md && git stash --quiet\n\
         echo y >> README.md && git stash --quiet\n\
         cd \"$GIT_DIR\"\n\
         git config --file config core.fsmonitor 'touch {caught}; true'\n\
         git config --file config alias.go '!touch {caught}'\n\
         git config --file config core.pager 'touch {caught}; cat'\n\
         git config --file config uploadpack.packObjectsHook 'touch {caught}; true'\n\
         git config --file config core.hooksPath \"$GIT_DIR/hooks\"\n\
         git config --file config extensions.worktreeConfig true\n\
         git config --file config.worktree core.sshCommand 'touch {caught}; true'\n\
         mkdir -p hooks info && echo '* filter=x' > info/attributes\n\
         for hook in reference-transaction post-index-change; do\n\
         printf '#!/bin/sh\\ntouch {caught}\\n' > hooks/$hook; chmod +x hooks/$hook; done\n"
    );
    fs::write(stage.home.home().join("plant"), plant).unwrap();
    let (code, result, told) = second(&stage, &[]).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let directory = only_directory(&stage);
    let (copy, private) = (directory.join("kept"), directory.join("private"));
    let copy = copy.to_str().unwrap();
    assert!(told.contains(&format!("git fetch {copy} REF")), "{told}");

    let git = |args: &[&str]| stage.home.git(args);
    git(&["fetch", "--quiet", copy, "refs/stash:refs/heads/stashed"]);
    let line = git(&["diff", "stashed^", "stashed"]);
    assert!(line.ends_with("+y"), "{line}");
    let at = format!("--git-dir={copy}");
    assert_eq!(
        git(&[&at, "--work-tree=.", "stash", "list"])
            .lines()
            .count(),
        2
    );
    assert!(git(&["-C", copy, "log", "--format=%s", "main"]).starts_with("a.txt"));
    git(&["-C", copy, "update-ref", "refs/heads/new", "main"]);
    git(&[&at, "--work-tree=.", "status"]);
    git(&[&at, "fsck"]);
    assert!(!stage.was_attacked());
    let mode = fs::metadata(copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let at = format!("--git-dir={}", private.display());
    for args in [
        &[&at, "--work-tree=.", "status"][..],
        &[&at, "go"],
        &[&at, "update-ref", "refs/heads/new", "main"],
    ] {
        git(args);
        stage.until_attacked().await;
    }
}

/// Plants more nested directories than a path has room for. The control is such a path.
#[tokio::test]
async fn directory_with_many_levels_is_removed() {
    let nested = "chdir $ENV{GIT_DIR}; for (1..3000) { mkdir \"d\"; chdir \"d\" }";
    let plant = Reply::shell(format!("perl -e '{nested}'"));
    let others = [Reply::say("Done.")];
    let working = Working::new(&[commit("a.txt"), plant], &others).await;
    let directory = only_directory(&working.stage);
    let control = working.stage.home.root().join("control");
    fs::create_dir(&control).unwrap();
    let mut perl = tokio::process::Command::new("perl");
    let perl = perl.args(["-e", nested]).env("GIT_DIR", &control);
    assert!(perl.status().await.unwrap().success());
    let innermost = control.join(vec!["d"; 3_000].join("/"));
    assert!(fs::remove_dir(innermost).is_err());

    working.gate.release();
    let output = working.run.wait_with_output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(!directory.exists(), "{told}");

    // As a run leaves it that is killed while it removes the directory.
    fs::create_dir(&directory).unwrap();
    fs::rename(&control, directory.join("private")).unwrap();
    let found = doctor(&working.stage).await;
    assert_eq!(found[0]["value"]["state"], "unfinished", "{found:?}");
    second(&working.stage, &[]).await;
    assert_eq!(directories(&working.stage), [] as [PathBuf; 0]);
}

/// What Codex has in place of `HEAD` holds up neither the end of its run nor a later one.
/// The control is git, which waits for the pipe.
#[tokio::test]
async fn pipe_in_place_of_head_holds_up_no_run() {
    let pipe = "rm \"$GIT_DIR/HEAD\" && mkfifo \"$GIT_DIR/HEAD\"";
    let first = [commit("a.txt"), Reply::shell(pipe)];
    let others = [Reply::say("Done.")];
    let working = Working::new(&first, &others).await;
    let began = Instant::now();
    working.gate.release();
    let output = working.run.wait_with_output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("HEAD is not a regular file"), "{told}");
    let stage = working.stage;
    let private = only_directory(&stage).join("private");
    let (_, _, told) = second(&stage, &[]).await;
    assert!(began.elapsed() < SOON, "{:?}: {told}", began.elapsed());
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
    let found = doctor(&stage).await;
    assert_eq!(found[0]["value"]["state"], "kept", "{found:?}");
    let copy = private.with_file_name("kept");
    let copy = copy.to_str().unwrap();
    assert_eq!(stage.home.git(&["-C", copy, "show", "main:a.txt"]), "made");

    let mut git = tokio::process::Command::new("git");
    let git = git
        .arg("--git-dir")
        .arg(&private)
        .args(["rev-parse", "HEAD"]);
    let mut waiting = git.kill_on_drop(true).spawn().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), waiting.wait()).await;
    assert!(ended.is_err(), "the control shows git waiting");
}
