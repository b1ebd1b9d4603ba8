//! Programs of the repository that would run as the user (C1, C2), with the real Codex.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::{AppServer, Home, Launch, McpClient};
use tokio::process::Command;

use crate::{on_each_release, trust};

const VERSION: &str = "2025-06-18";

/// How long an attack may take to work where nothing protects.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) home: Home,
    model: ScriptedModel,
    release: String,
}

impl Stage {
    pub(super) async fn new(release: &str, script: Script) -> Self {
        let model = ScriptedModel::start(script).await.unwrap();
        let config = "features.plugins = false";
        Self {
            home: Home::new(&format!("{}\n{config}\n", model.codex_config())),
            model,
            release: release.to_owned(),
        }
    }

    /// What a program of the repository leaves when it runs outside of the sandbox:
    /// neither below the work directory nor in a temporary one.
    pub(super) fn caught(&self) -> PathBuf {
        self.home.home().join("caught")
    }

    /// Whether the model has been told this, but for the first requests.
    pub(super) fn saw(&self, words: &str, since: usize) -> bool {
        let mut requests = self.model.requests().into_iter().skip(since);
        requests.any(|request| request.body().to_string().contains(words))
    }

    pub(super) fn requests(&self) -> usize {
        self.model.requests().len()
    }

    pub(super) fn was_attacked(&self) -> bool {
        self.caught().exists()
    }

    pub(super) async fn until_attacked(&self) {
        let attacked = async {
            while !self.was_attacked() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let worked = tokio::time::timeout(DEADLINE, attacked).await;
        assert!(worked.is_ok(), "the control shows the attack working");
        fs::remove_file(self.caught()).unwrap();
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.home.work().join(".git")
    }

    pub(super) async fn client(&self, args: &[&str]) -> McpClient {
        let launch = Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .envs(self.home.env())
            .env("CODEX_MCP_CODEX_BIN", self.codex())
            .current_dir(self.home.work());
        let mut client = McpClient::start(&launch);
        client.initialize(VERSION, json!({})).await;
        client
    }

    pub(super) fn codex(&self) -> PathBuf {
        testkit::codex::native_binary(&self.release)
    }

    pub(super) async fn codex_mcp(&self, args: &[&str]) -> Output {
        self.command(args).output().await.unwrap()
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
        command
            .args(args)
            .env_clear()
            .envs(self.home.env())
            .env("CODEX_MCP_CODEX_BIN", self.codex())
            .current_dir(self.home.work())
            .stdin(Stdio::null());
        command
    }

    pub(super) async fn run(&self, args: &[&str]) -> (Option<i32>, Value, String) {
        let output = self.codex_mcp(&[&["run", "--json"], args].concat()).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let result = serde_json::from_slice(&output.stdout);
        let result = result.unwrap_or_else(|_| panic!("{stderr}"));
        (output.status.code(), result, stderr)
    }

    /// A repository that brings an MCP server, which catches whoever starts it.
    pub(super) fn bring_server(&self) {
        let config = self.home.work().join(".codex/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        let caught = self.caught();
        fs::write(
            config,
            format!(
                "[mcp_servers.x]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo x >> {}\"]\n",
                caught.display()
            ),
        )
        .unwrap();
    }

    /// A shell script that plants programs in the git directory that the shell finds.
    fn plant(&self) -> String {
        let caught = self.caught();
        let caught = caught.display();
        let real = self.git_dir();
        let real = real.display();
        format!(
            "for dir in \"$(git rev-parse --git-dir)\" {real}; do \
             mkdir -p $dir/info $dir/hooks; \
             echo '* filter=x' > $dir/info/attributes; \
             git config --file $dir/config filter.x.clean 'echo filter >> {caught}; cat'; \
             git config --file $dir/config core.fsmonitor 'echo monitor >> {caught}'; \
             git config --file $dir/config core.hooksPath $dir/hooks; \
             git config --file $dir/config alias.status '!echo alias >> {caught}'; \
             for hook in post-commit pre-push reference-transaction post-checkout; do \
             printf '#!/bin/sh\\necho hook >> {caught}\\n' > $dir/hooks/$hook; \
             chmod +x $dir/hooks/$hook; done; done; \
             touch README.md; true"
        )
    }
}

pub(super) fn commit(file: &str) -> Reply {
    Reply::shell(format!(
        "echo made > {file} && git -c core.hooksPath=/dev/null add {file} && \
         git -c core.hooksPath=/dev/null -c core.fsmonitor=false commit --quiet --message {file}"
    ))
}

fn files_below(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files.extend(files_below(&path)),
            path => files.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    files.sort();
    files
}

/// What git reads before it runs programs.
fn protected(git_dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for name in [
        "config",
        "config.worktree",
        "commondir",
        "objects/info/alternates",
    ] {
        let path = git_dir.join(name);
        if let Ok(bytes) = fs::read(&path) {
            files.push((path, bytes));
        }
    }
    for name in ["hooks", "info", "modules"] {
        files.extend(files_below(&git_dir.join(name)));
    }
    files
}

on_each_release!(
    commits_leave_no_program_behind,
    servers_of_an_untrusted_repository_are_not_started,
    jobs_start_no_server_of_an_untrusted_repository,
);

/// C1. The control: Codex itself, with `.git` writable.
async fn commits_leave_no_program_behind(release: &str) {
    let plant = Reply::shell("sh \"$HOME/plant\"");
    let script = Script::new()
        .on("control 1", [plant.clone(), Reply::say("done")])
        .on("control 2", [Reply::say("done")])
        .on("words only", [commit("b.txt"), Reply::say("Done.")])
        .on("not complete", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([plant, commit("a.txt"), Reply::say("Later.")]);
    let stage = Stage::new(release, script).await;
    fs::write(stage.home.home().join("plant"), stage.plant()).unwrap();
    let before = protected(&stage.git_dir());
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=2"];
    let (code, result, told) = stage.run(&args).await;
    if release == "0.104.0" {
        // Its sandbox leaves .git writable in any case.
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("update Codex"), "{told}");
    } else {
        assert_eq!(code, Some(0), "{result:#}\n{told}");
        assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "3");
        assert_eq!(
            stage.home.git(&["rev-parse", "--abbrev-ref", "HEAD"]),
            "main"
        );
        assert_eq!(stage.home.git(&["show", "main:b.txt"]), "made");
    }
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
    stage
        .home
        .git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
    assert!(
        !stage.was_attacked(),
        "{:?}",
        fs::read_to_string(stage.caught())
    );
    assert_eq!(protected(&stage.git_dir()), before);
    assert_eq!(stage.home.git(&["fsck", "--strict"]), "");

    let server = AppServer::real(release, &stage.home).await;
    let thread = server
        .start_thread(json!({
            "cwd": stage.home.work(),
            "sandbox": "workspace-write",
            "approvalPolicy": "never",
            "config": { "sandbox_workspace_write.writable_roots": [stage.git_dir()] },
        }))
        .await;
    let mut news = server.notifications(&thread);
    server.turn(&thread, &mut news, "control 1").await;
    server.turn(&thread, &mut news, "control 2").await;
    stage.until_attacked().await;
}

/// C2. The control: a user who trusts the repository, and Codex itself.
async fn servers_of_an_untrusted_repository_are_not_started(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = Stage::new(release, script).await;
    stage.bring_server();
    let config = stage.home.codex_home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let calls = [
        json!({ "prompt": "x" }),
        json!({ "prompt": "x", "sandbox": "workspace-write" }),
        json!({ "prompt": "x", "sandbox": "danger-full-access" }),
        json!({ "prompt": "x", "config": { "sandbox_mode": "workspace-write" } }),
        json!({ "prompt": "x", "sandbox": "workspace-write", "config": { "projects": {
            stage.home.work().to_str().unwrap(): { "trust_level": "trusted" } } } }),
    ];
    let mut client = stage.client(&[]).await;
    for (number, call) in calls.iter().enumerate() {
        let result = client.call_tool("codex", call.clone()).await;
        assert_ne!(result["isError"], true, "{result:#}");
        let warnings = result["structuredContent"]["warnings"].to_string();
        let is_told = warnings.contains("codex-mcp trust");
        assert_eq!(is_told, number == 0, "{warnings}");
    }
    let status = client.call_tool("codex_status", json!({})).await;
    assert!(status.to_string().contains("codex-mcp trust"), "{status}");
    client.finish().await;

    let mut client = stage.client(&["--api", "sessions"]).await;
    for sandbox in ["workspace-write", "danger-full-access"] {
        let call = json!({ "prompt": "x", "approvalPolicy": "never", "sandbox": sandbox });
        let result = client.call_tool("codex", call).await;
        let session = &result["structuredContent"]["sessionId"];
        let wait = json!({ "action": "wait_any", "sessionIds": [session] });
        let waited = client.call_tool("codex_session", wait).await;
        assert_eq!(waited["structuredContent"]["status"], "idle", "{result:#}");
    }
    client.finish().await;
    let (_, result, told) = stage.run(&["x", "--sandbox", "workspace-write"]).await;
    assert!(
        result["warnings"].to_string().contains("codex-mcp trust"),
        "{result:#}\n{told}"
    );
    assert!(!stage.was_attacked());
    assert_eq!(
        fs::read_to_string(&config).unwrap(),
        before,
        "nothing is recorded"
    );

    trust(&stage.home, &stage.home.work());
    let mut client = stage.client(&[]).await;
    let call = client.call_tool("codex", calls[1].clone()).await;
    assert_eq!(
        call["structuredContent"]["warnings"],
        Value::Null,
        "{call:#}"
    );
    stage.until_attacked().await;
    client.finish().await;
    if release != "0.104.0" {
        fs::write(&config, &before).unwrap();
        let server = AppServer::real(release, &stage.home).await;
        let start = json!({ "cwd": stage.home.work(), "sandbox": "workspace-write" });
        server.start_thread(start).await;
        stage.until_attacked().await;
    }
}

async fn jobs_start_no_server_of_an_untrusted_repository(release: &str) {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = Stage::new(release, script).await;
    stage.bring_server();
    let config = stage.home.codex_home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let submit = [
        "jobs",
        "submit",
        "--wait",
        "--sandbox",
        "workspace-write",
        "x",
    ];
    let output = stage.codex_mcp(&submit).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!stage.was_attacked(), "{output:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), before);

    trust(&stage.home, &stage.home.work());
    let output = stage.codex_mcp(&submit).await;
    assert!(output.status.success(), "{output:?}");
    stage.until_attacked().await;
}

/// The user's hooks and settings are in force, inside the sandbox, and a push works.
#[tokio::test]
async fn commits_are_made_with_the_users_hooks_and_settings() {
    let release = testkit::codex::newest();
    let push = "git push --quiet origin HEAD:refs/heads/side";
    let script = Script::new().otherwise([
        Reply::shell("git checkout --quiet -b side && echo x > x.txt && git add x.txt"),
        Reply::shell("git commit --quiet --message x; echo y > y.txt; git add y.txt"),
        Reply::shell(push),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(release, script).await;
    let hook = stage.git_dir().join("hooks/commit-msg");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho hooked >> \"$1\"\n").unwrap();
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    let remote = stage.home.tmp().join("remote.git");
    let remote = remote.to_str().unwrap();
    stage.home.git(&["init", "--quiet", "--bare", remote]);
    stage.home.git(&["remote", "add", "origin", remote]);
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "branch=side",
        "--until",
        "pushed",
    ];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["rev-parse", "--abbrev-ref", "HEAD"]), "side");
    assert_eq!(git(&["log", "-1", "--format=%B"]), "x\nhooked");
    assert_eq!(git(&["log", "-1", "--format=%an"]), "Test");
    assert_eq!(git(&["status", "--porcelain"]), "A  y.txt");
    assert_eq!(
        git(&["rev-parse", "origin/side"]),
        git(&["rev-parse", "side"])
    );
    assert_eq!(git(&["fsck", "--strict"]), "");
    let left = stage.home.state_home().join("codex-mcp/git-private");
    assert_eq!(fs::read_dir(left).unwrap().count(), 0, "{told}");
}

/// What git would not put there itself, and a process that goes on changing it.
const HOSTILE_PLANT: &str = r#"
cd "$GIT_DIR"
mkfifo refs/heads/pipe logs/pipe objects/pack/pack-0123456789012345678901234567890123456789.pack
ln -s "$HOME/secret" refs/heads/link
ln -s "$HOME" refs/tags/home
printf 'ref: ../../outside\n' > refs/heads/symref
printf '0123456789012345678901234567890123456789 ../../../outside\n' >> packed-refs
id=$(git rev-parse HEAD)
mkdir -p refs/codex-mcp && echo "$id" > refs/codex-mcp/x
echo /nowhere > objects/info/alternates.new
(while :; do
    printf '[core]\n\tfsmonitor = \"touch %s; true\"\n' "$HOME/caught" >> config
    touch "$GIT_WORK_TREE/README.md"
    sleep 0.01
done) > /dev/null 2>&1 &
"#;

#[tokio::test]
async fn hostile_private_directory_is_taken_over_without_harm() {
    let release = testkit::codex::newest();
    let script = Script::new()
        .on("words only", [commit("b.txt"), Reply::say("Done.")])
        .on("not complete", [commit("b.txt"), Reply::say("Done.")])
        .otherwise([
            commit("a.txt"),
            Reply::shell("sh \"$HOME/plant\""),
            Reply::say("Later."),
        ]);
    let stage = Stage::new(release, script).await;
    fs::write(stage.home.home().join("plant"), HOSTILE_PLANT).unwrap();
    fs::write(stage.home.home().join("secret"), "x").unwrap();
    let before = protected(&stage.git_dir());
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=2"];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let refs = stage.home.git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/main");
    assert_eq!(protected(&stage.git_dir()), before);
    assert_eq!(stage.home.git(&["fsck", "--strict"]), "");
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
    assert!(!stage.was_attacked());
}

/// Work of the user's in the same repository, while Codex works.
#[tokio::test]
async fn commits_of_the_user_during_a_run_stay() {
    let release = testkit::codex::newest();
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("until [ -e mine.txt ]; do sleep 0.01; done"),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(release, script).await;
    let users = async {
        let git = stage.home.state_home().join("codex-mcp/git-private");
        let is_ready = |run: fs::DirEntry| run.path().join("synced.json").exists();
        let runs = || fs::read_dir(&git).into_iter().flatten().flatten();
        while !runs().any(is_ready) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stage
            .home
            .git(&["commit", "--quiet", "--allow-empty", "--message", "mine"]);
        fs::write(stage.home.work().join("mine.txt"), "").unwrap();
    };
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=2",
        "--max-turns",
        "1",
    ];
    let ((code, result, told), ()) = tokio::join!(stage.run(&args), users);
    assert_eq!(code, Some(2), "{result:#}\n{told}");
    assert_eq!(
        stage.home.git(&["log", "-1", "--format=%s", "main"]),
        "mine"
    );
    let kept = stage
        .home
        .git(&["for-each-ref", "--format=%(refname)", "refs/codex-mcp"]);
    assert!(kept.ends_with("/heads/main"), "{kept}");
    assert_eq!(stage.home.git(&["show", &format!("{kept}:a.txt")]), "made");
    assert!(
        result["warnings"].to_string().contains("refs/codex-mcp"),
        "{result:#}"
    );
    assert!(told.contains("refs/codex-mcp"), "{told}");
}

/// Git follows links when it writes reflogs and refs. The control is git itself.
#[tokio::test]
async fn links_in_the_git_directory_lead_no_writing_elsewhere() {
    let script = || Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    for (link, more) in [
        ("logs/HEAD", None),
        ("logs/refs/heads/codex-mcp", Some("--worktree")),
    ] {
        let stage = Stage::new(testkit::codex::newest(), script()).await;
        let target = stage.home.home().join("profile");
        let link = stage.git_dir().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        let is_directory = more.is_some();
        if is_directory {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "").unwrap();
        }
        std::os::unix::fs::symlink(&target, &link).unwrap();
        stage
            .home
            .git(&["config", "user.name", "$(touch ~/caught)"]);
        let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
        let args: Vec<&str> = args.into_iter().chain(more).collect();
        let (code, _, told) = stage.run(&args).await;
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains("is a symbolic link"), "{told}");
        let written = || match is_directory {
            true => fs::read_dir(&target).unwrap().count() > 0,
            false => !fs::read(&target).unwrap().is_empty(),
        };
        assert!(!written(), "{told}");
        let branch = ["branch", "codex-mcp/run-x"];
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "x"];
        stage.home.git(if is_directory {
            &branch[..]
        } else {
            &commit[..]
        });
        assert!(written(), "the control shows git writing there");
        let left = stage.home.state_home().join("codex-mcp/git-private");
        assert_eq!(
            fs::read_dir(left).into_iter().flatten().count(),
            0,
            "{told}"
        );
    }
}

#[tokio::test]
async fn files_that_the_user_stages_during_a_run_stay_staged() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("until [ -e staged.txt ]; do sleep 0.01; done"),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let users = async {
        while !stage.home.work().join("a.txt").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
        stage.home.git(&["add", "mine.txt"]);
        fs::write(stage.home.work().join("staged.txt"), "").unwrap();
    };
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let ((code, result, told), ()) = tokio::join!(stage.run(&args), users);
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    let status = stage.home.git(&["status", "--porcelain"]);
    assert_eq!(status, "A  mine.txt\n?? staged.txt");
    assert_eq!(stage.home.git(&["show", "main:a.txt"]), "made");
}

#[tokio::test]
async fn commits_are_made_in_a_repository_with_long_ids() {
    let script = Script::new().otherwise([commit("a.txt"), Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let other = stage.home.root().join("other");
    let path = other.to_str().unwrap();
    stage
        .home
        .git(&["init", "--quiet", "--object-format=sha256", path]);
    let git = |args: &[&str]| stage.home.git(&[&["-C", path], args].concat());
    for (key, value) in [("user.name", "Test"), ("user.email", "test@example.com")] {
        git(&["config", key, value]);
    }
    let args = [
        "x",
        "--repo",
        path,
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=1",
        "--until",
        "clean",
    ];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    assert_eq!(git(&["rev-parse", "HEAD"]).len(), 64);
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["fsck", "--strict"]), "");
}

/// What git would do next depends on files that are not taken over.
#[tokio::test]
async fn merge_under_way_is_to_be_finished_first() {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    fs::write(
        stage.git_dir().join("MERGE_HEAD"),
        stage.home.git(&["rev-parse", "HEAD"]),
    )
    .unwrap();
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let (code, _, told) = stage.run(&args).await;
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("finish or abort it"), "{told}");
}

/// Git reads the settings of a directory that is a submodule. The user gets the commits all
/// the same, by the command that the warning names. The control is the same with the
/// repository put back in its place.
#[tokio::test]
async fn submodule_with_settings_of_codex_is_not_taken_over() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("sh \"$HOME/plant\""),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let caught = stage.caught();
    let plant = format!(
        "unset $(git rev-parse --local-env-vars)\ngit init --quiet sub\ncd sub\n\
         git -c user.name=x -c user.email=x commit --quiet --allow-empty --message x\n\
         git config core.fsmonitor 'touch {}; true'\ncd ..\n\
         export GIT_DIR=$(ls -d {}/*/private) GIT_WORK_TREE=$PWD\n\
         export GIT_COMMON_DIR=${{GIT_DIR%private}}common\n\
         git add sub && git commit --quiet --message sub\n\
         git push --quiet origin HEAD:refs/heads/side\n",
        caught.display(),
        stage
            .home
            .state_home()
            .join("codex-mcp/git-private")
            .display(),
    );
    fs::write(stage.home.home().join("plant"), plant).unwrap();
    let remote = stage.home.tmp().join("remote.git");
    let remote = remote.to_str().unwrap();
    stage.home.git(&["init", "--quiet", "--bare", remote]);
    stage.home.git(&["remote", "add", "origin", remote]);
    fs::write(stage.home.work().join("mine.txt"), "mine").unwrap();
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=1",
        "--max-turns",
        "1",
    ];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(2), "{result:#}\n{told}");
    assert!(told.contains("add the submodule \"sub\""), "{told}");
    let before_turns = "uncommitted changes of yours (1: mine.txt)";
    assert!(told.contains(before_turns), "{told}");
    let pushed = "is at the remote all the same: origin/side";
    assert!(told.contains(pushed), "{told}");
    assert_eq!(stage.home.git(&["ls-files", "sub"]), "");
    let advice = "Its commits make submodules of sub: before you merge or check them out";
    assert!(told.contains(advice), "{told}");
    let fetch = told.split("run `git fetch ").nth(1).unwrap();
    let copy = fetch.split(" REF").next().unwrap();
    stage.home.git(&["fetch", "--quiet", copy, "main"]);
    // Git does not write over a file that it does not have.
    fs::remove_file(stage.home.work().join("a.txt")).unwrap();
    stage.home.git(&["merge", "--quiet", "FETCH_HEAD"]);
    let entry = stage.home.git(&["ls-files", "--stage", "sub"]);
    assert!(entry.starts_with("160000"), "{entry}");
    stage.home.git(&["status"]);
    assert!(!stage.was_attacked(), "{told}");

    let sub = stage.home.work().join("sub");
    let rename_back = |directory: &Path, begin: &str, name: &str| {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let is_moved = |name: &str| name.starts_with(&format!("{begin}-moved-aside-"));
        let mut moved = entries.filter(|entry| is_moved(entry.file_name().to_str().unwrap()));
        fs::rename(moved.next().unwrap().path(), directory.join(name)).unwrap();
    };
    rename_back(&sub, "git", ".git");
    rename_back(&sub.join(".git"), "HEAD", "HEAD");
    stage.home.git(&["status"]);
    stage.until_attacked().await;
}

#[tokio::test]
async fn branches_that_codex_deletes_stay() {
    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("git branch -D precious; git update-ref -d refs/tags/v1"),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    stage.home.git(&["branch", "precious"]);
    stage.home.git(&["tag", "v1"]);
    let args = ["x", "--sandbox", "workspace-write", "--until", "commits=1"];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    assert!(
        told.contains("refs/heads/precious, which Codex has deleted"),
        "{told}"
    );
    stage.home.git(&["rev-parse", "precious", "v1"]);

    let script = Script::new().otherwise([
        commit("a.txt"),
        Reply::shell("rm \"$GIT_DIR/packed-refs\""),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    stage.home.git(&["branch", "precious"]);
    let more = ["--max-turns", "1"];
    let (code, _, told) = stage.run(&[&args[..], &more].concat()).await;
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("cannot be taken over"), "{told}");
    stage.home.git(&["rev-parse", "precious"]);
    assert_eq!(stage.home.git(&["rev-list", "--count", "main"]), "1");
}

#[tokio::test]
async fn commits_of_rewritten_branches_and_moved_tags_are_kept() {
    let script = Script::new().otherwise([
        Reply::shell(
            "git checkout -q --orphan new; git commit -q -m rewritten; git branch -f main; \
             git checkout -q main; git tag -f v1; git update-ref refs/heads/-x HEAD; \
             git update-ref refs/heads/HEAD HEAD",
        ),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    stage.home.git(&["tag", "v1"]);
    let before = stage.home.git(&["rev-parse", "main"]);
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=1",
        "--max-turns",
        "1",
    ];
    let (_, result, told) = stage.run(&args).await;
    assert!(
        told.contains("Codex has rewritten refs/heads/main"),
        "{result:#}\n{told}"
    );
    assert!(
        told.contains("refs/tags/v1 was there before and is not moved"),
        "{told}"
    );
    let refs = stage
        .home
        .git(&["for-each-ref", "--format=%(objectname) %(refname)"]);
    let kept = refs
        .lines()
        .find(|line| line.ends_with("/before/heads/main"));
    assert_eq!(
        kept.and_then(|line| line.split(' ').next()),
        Some(before.as_str()),
        "{refs}"
    );
    assert_eq!(stage.home.git(&["rev-parse", "v1"]), before);
    assert_ne!(stage.home.git(&["rev-parse", "main"]), before);
    for name in ["refs/heads/-x", "refs/heads/HEAD"] {
        assert!(!refs.contains(name), "{refs}");
    }
    assert_eq!(stage.home.git(&["status", "--porcelain"]), "");
}

#[tokio::test]
async fn repository_that_codex_makes_below_the_top_is_named() {
    let script = Script::new().otherwise([
        Reply::shell("git init -q vendor; echo x > vendor/file; touch made"),
        Reply::say("Done."),
    ]);
    let stage = Stage::new(testkit::codex::newest(), script).await;
    let args = ["x", "--sandbox", "workspace-write", "--until", "files=made"];
    let (code, result, told) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{told}");
    assert!(
        told.contains("vendor/ is a git repository of its own"),
        "{told}"
    );
}
