//! A repository with a release of the real Codex, and a file that an attack writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::{AppServer, Home, McpClient};
use tokio::process::Command;

use crate::VERSION;

/// How long an attack may take to work where nothing protects.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// The command that executes the script of [`RepositoryFixture::write_plant`].
pub(super) const RUN_PLANT: &str = "sh \"$HOME/plant\"";

/// The arguments of a run that has to make one commit.
pub(super) const COMMITTING_RUN: [&str; 7] = [
    "x",
    "--sandbox",
    "workspace-write",
    "--until",
    "commits=1",
    "--max-turns",
    "1",
];

pub(super) struct RepositoryFixture {
    pub(super) home: Home,
    pub(super) model: ScriptedModel,
    release: String,
}

impl RepositoryFixture {
    pub(super) async fn new(release: &str, script: Script) -> Self {
        let model = ScriptedModel::start(script).await.unwrap();
        let config = format!("{}\nfeatures.plugins = false\n", model.codex_config());
        Self {
            home: Home::of_codex(release, &config),
            model,
            release: release.to_owned(),
        }
    }

    /// A repository in which the newest Codex executes this script, as in
    /// [`write_plant`](Self::write_plant).
    pub(super) async fn planting(plant: &str) -> Self {
        let script = Script::new().otherwise([Reply::shell(RUN_PLANT), Reply::say("Done.")]);
        let stage = Self::new(testkit::codex::newest(), script).await;
        stage.write_plant(plant);
        stage
    }

    /// Writes the script that [`RUN_PLANT`] executes. `CAUGHT` in it becomes the path of
    /// [`caught`](Self::caught).
    pub(super) fn write_plant(&self, plant: &str) {
        let plant = plant.replace("CAUGHT", self.caught().to_str().unwrap());
        fs::write(self.home.home().join("plant"), plant).unwrap();
    }

    /// Executes the script as the user: the repository is then as if all that Codex has made had been
    /// taken over.
    pub(super) fn plant_as_user(&self) {
        let plant = self.home.home().join("plant");
        let alias = format!("alias.plant=!sh {}", plant.display());
        self.home.git(&["-c", &alias, "plant"]);
    }

    /// The file that a planted program writes when it runs outside of the sandbox, which can write
    /// neither here nor elsewhere outside the work and temporary directories.
    pub(super) fn caught(&self) -> PathBuf {
        self.home.home().join("caught")
    }

    /// Whether a request to the model after the first `since` contains these words.
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

    pub(super) async fn wait_until_attacked(&self) {
        let attacked = async {
            while !self.was_attacked() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let worked = tokio::time::timeout(DEADLINE, attacked).await;
        assert!(worked.is_ok(), "the control shows the attack working");
        fs::remove_file(self.caught()).unwrap();
    }

    /// A turn of Codex's own app-server, without our program.
    pub(super) async fn control_turn(&self) {
        let server = AppServer::real(&self.release, &self.home).await;
        let thread = server
            .start_thread(json!({
                "cwd": self.home.work(),
                "sandbox": "workspace-write",
                "approvalPolicy": "never",
            }))
            .await;
        let mut news = server.notifications(&thread);
        server.turn(&thread, &mut news, "control").await;
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        self.home.work().join(".git")
    }

    pub(super) async fn client(&self, args: &[&str]) -> McpClient {
        self.client_in(args, []).await
    }

    /// A client with these variables in its environment.
    pub(super) async fn client_in<const N: usize>(
        &self,
        args: &[&str],
        variables: [(&str, &str); N],
    ) -> McpClient {
        let launch = self
            .home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .envs(variables)
            .env("CODEX_MCP_CODEX_BIN", self.codex());
        McpClient::connect(&launch, VERSION, json!({})).await
    }

    pub(super) fn codex(&self) -> PathBuf {
        testkit::codex::native_binary(&self.release)
    }

    pub(super) async fn codex_mcp(&self, args: &[&str]) -> Output {
        self.command(args).output().await.unwrap()
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::from(self.home.command(env!("CARGO_BIN_EXE_codex-mcp")));
        command
            .args(args)
            .env("CODEX_MCP_CODEX_BIN", self.codex())
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

    /// Adds an MCP server to the repository, which writes `caught` when it is started.
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
    pub(super) fn plant(&self) -> String {
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

/// The files in a git directory that can make git run programs.
pub(super) fn protected(git_dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
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
