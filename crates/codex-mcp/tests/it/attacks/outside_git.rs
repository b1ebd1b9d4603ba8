//! Programs that a model makes git run outside of the sandbox, where the user's rules let a git
//! command leave it, with the real Codex.

use std::fs;

use scripted_model::{Reply, Script};
use serde_json::json;
use testkit::AppServer;

use super::fixture::{RUN_PLANT, RepositoryFixture};

const RULE: &str = "prefix_rule(pattern=[\"git\", \"status\"], decision=\"allow\")\n";

/// Plants a setting in each file from which git reads settings.
const PLANT: &str = r#"
monitor="touch CAUGHT; true"
git config core.fsmonitor "$monitor"
for file in config config.worktree; do
    git config --file "$GIT_DIR/$file" core.fsmonitor "$monitor"
    git config --file "$GIT_DIR/$file" extensions.worktreeConfig true
done
echo made > b.txt
git -c core.fsmonitor= add b.txt
git -c core.fsmonitor= commit --quiet --message b
if [ -n "$GIT_COMMON_DIR" ]; then
    mkdir "$GIT_DIR/planted"
    cp -rL "$GIT_COMMON_DIR/." "$GIT_DIR/planted"
    cp "$GIT_DIR/config" "$GIT_DIR/planted"
    echo planted > "$GIT_DIR/commondir"
    cp "$GIT_DIR/config" "$GIT_COMMON_DIR/config"
    mv "$GIT_COMMON_DIR" "$GIT_COMMON_DIR-moved"
fi
true
"#;

async fn stage(release: &str) -> RepositoryFixture {
    let script = Script::new().otherwise([
        Reply::shell(RUN_PLANT),
        Reply::shell("git status"),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(release, script).await;
    stage.write_plant(PLANT);
    let rules = stage.home.codex_home().join("rules");
    fs::create_dir_all(&rules).unwrap();
    fs::write(rules.join("default.rules"), RULE).unwrap();
    stage
}

/// The control is Codex itself, with a git directory whose settings it can write.
async fn settings_of_the_private_git_directory_cannot_be_written(release: &str) {
    let attacked = stage(release).await;
    let args = ["x", "--sandbox", "workspace-write", "--approve", "never"];
    let until = ["--until", "commits=1", "--max-turns", "1"];
    let (code, result, stderr) = attacked.run(&[&args[..], &until].concat()).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert!(!attacked.was_attacked(), "{result:#}\n{stderr}");
    assert!(attacked.saw("nothing to commit", 1), "git status has run");
    let warning = "default.rules, line 1) lets git leave Codex's sandbox";
    assert!(stderr.contains(warning), "{stderr}");
    let doctor = async || {
        let output = attacked.codex_mcp(&["doctor", "--json"]).await;
        String::from_utf8(output.stdout).unwrap()
    };
    let report = doctor().await;
    assert!(report.contains(warning), "{report}");
    fs::remove_file(attacked.home.codex_home().join("rules/default.rules")).unwrap();
    let report = doctor().await;
    assert!(!report.contains("lets git leave"), "{report}");

    let control = stage(release).await;
    let git_dir = control.home.root().join("private");
    fs::rename(control.git_dir(), &git_dir).unwrap();
    let server = AppServer::real(release, &control.home).await;
    let thread = server
        .start_thread(json!({
            "cwd": control.home.work(),
            "sandbox": "workspace-write",
            "approvalPolicy": "never",
            "config": {
                "shell_environment_policy": {
                    "set": { "GIT_DIR": git_dir, "GIT_WORK_TREE": control.home.work() },
                },
                "sandbox_workspace_write": { "writable_roots": [git_dir] },
            },
        }))
        .await;
    let mut news = server.notifications(&thread);
    server.turn(&thread, &mut news, "control").await;
    assert!(
        control.was_attacked(),
        "the control shows the attack working"
    );
}

mod on_0_153_4 {
    #[tokio::test]
    async fn settings_of_the_private_git_directory_cannot_be_written() {
        super::settings_of_the_private_git_directory_cannot_be_written("0.153.4").await;
    }
}

mod on_the_newest {
    #[tokio::test]
    async fn settings_of_the_private_git_directory_cannot_be_written() {
        let newest = testkit::codex::newest();
        super::settings_of_the_private_git_directory_cannot_be_written(newest).await;
    }
}
