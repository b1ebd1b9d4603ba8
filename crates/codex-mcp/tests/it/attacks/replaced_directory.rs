//! Directories that are replaced by symbolic links, with the real Codex.
//!
//! A model replaces a directory in its workspace by a link to the user's home: the next turn or job
//! in that directory would work in the home.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};
use testkit::{AppServer, McpClient};

use super::fixture::RepositoryFixture;
use crate::on_each_release;

on_each_release!(
    session_is_not_prompted_in_a_replaced_directory,
    resumed_thread_is_not_prompted_in_a_replaced_directory,
    queued_job_is_not_run_in_a_replaced_directory,
    run_ends_when_its_repository_is_replaced,
);

/// The message of a control that fails: without our checks, Codex follows the link.
const CODEX_FOLLOWS: &str = "the control shows the attack working";

/// The model replaces `src` if the prompt says so, and writes into its workspace otherwise.
fn script() -> Script {
    Script::new()
        .on("replace", [Reply::shell(REPLACE), Reply::say("replaced")])
        .otherwise([Reply::shell("touch ./written"), Reply::say("done")])
}

/// The test's work directory is `work`, beside the user's `home`.
const REPLACE: &str = "mv src aside && ln -s \"$(realpath ../home)\" src && ls -l";

struct Directories {
    src: PathBuf,
    aside: PathBuf,
    home: PathBuf,
}

impl Directories {
    fn of(stage: &RepositoryFixture) -> Self {
        let work = stage.home.work();
        let all = Self {
            src: work.join("src"),
            aside: work.join("aside"),
            home: stage.home.home(),
        };
        fs::create_dir(&all.src).unwrap();
        all
    }

    /// Replaces the directory as the model does.
    fn replace(&self) {
        fs::rename(&self.src, &self.aside).unwrap();
        symlink(&self.home, &self.src).unwrap();
    }

    fn put_back(&self) {
        fs::remove_file(&self.src).unwrap();
        fs::rename(&self.aside, &self.src).unwrap();
    }

    /// Creates the directory anew, as `git checkout` does on the way to another branch and back.
    fn recreate(&self) {
        fs::remove_dir_all(&self.src).unwrap();
        fs::create_dir(&self.src).unwrap();
    }

    #[track_caller]
    fn assert_replaced(&self) {
        assert!(self.src.is_symlink(), "the model has replaced it");
    }

    fn has_escaped(&self) -> bool {
        self.home.join("written").exists()
    }

    /// Whether the model has written into the directory. Removes the file.
    fn was_written(&self) -> bool {
        !self.src.is_symlink() && fs::remove_file(self.src.join("written")).is_ok()
    }
}

fn call(prompt: &str, cwd: &Path) -> Value {
    json!({ "prompt": prompt, "cwd": cwd, "sandbox": "workspace-write" })
}

#[track_caller]
fn assert_refused(result: &Value, directories: &Directories) {
    let error = &result["structuredContent"]["error"];
    assert_eq!(error["code"], "DIRECTORY_REPLACED", "{result:#}");
    let message = error["message"].as_str().unwrap();
    for path in [&directories.src, &directories.home] {
        let path = path.to_str().unwrap();
        assert!(message.contains(path), "{path}: {message}");
    }
    assert!(!directories.has_escaped(), "{result:#}");
}

async fn reply(client: &mut McpClient, thread: &Value) -> Value {
    let reply = json!({ "prompt": "again", "threadId": thread });
    client.call_tool("codex-reply", reply).await
}

/// The control: Codex's own app-server works through the link.
async fn codex_itself_follows_the_link(release: &str) {
    let stage = RepositoryFixture::new(release, script()).await;
    let directories = Directories::of(&stage);
    let codex = AppServer::real(release, &stage.home).await;
    let begin = json!({
        "cwd": directories.src, "sandbox": "workspace-write", "approvalPolicy": "never",
    });
    let thread = codex.start_thread(begin).await;
    directories.replace();
    let mut heard = codex.notifications(&thread);
    codex.turn(&thread, &mut heard, "write").await;
    assert!(directories.has_escaped(), "{CODEX_FOLLOWS}");
}

async fn session_is_not_prompted_in_a_replaced_directory(release: &str) {
    codex_itself_follows_the_link(release).await;
    for args in [&["--allow-dir", "."][..], &[]] {
        let stage = RepositoryFixture::new(release, script()).await;
        let directories = Directories::of(&stage);
        let mut client = stage.client(args).await;
        let begun = client
            .call_tool("codex", call("write", &directories.src))
            .await;
        assert!(directories.was_written(), "{begun:#}");
        let thread = begun["structuredContent"]["threadId"].clone();
        let work = stage.home.work();
        let replaced = client.call_tool("codex", call("replace", &work)).await;
        assert_ne!(replaced["isError"], true, "{replaced:#}");
        directories.assert_replaced();

        for _ in 0..2 {
            let refused = reply(&mut client, &thread).await;
            assert_refused(&refused, &directories);
            assert_eq!(refused["structuredContent"]["threadId"], thread);
        }
        // The session works again when the directory is back.
        directories.put_back();
        let prompted = reply(&mut client, &thread).await;
        assert!(directories.was_written(), "{prompted:#}");
        directories.recreate();
        let prompted = reply(&mut client, &thread).await;
        assert!(directories.was_written(), "{prompted:#}");
        assert!(client.finish().await.success());
    }
}

/// Only Codex knows the directory of a thread that began before our server started.
async fn resumed_thread_is_not_prompted_in_a_replaced_directory(release: &str) {
    let stage = RepositoryFixture::new(release, script()).await;
    let directories = Directories::of(&stage);
    let mut client = stage.client(&[]).await;
    let begun = client
        .call_tool("codex", call("write", &directories.src))
        .await;
    assert!(directories.was_written(), "{begun:#}");
    let thread = begun["structuredContent"]["threadId"].clone();
    assert!(client.finish().await.success());

    directories.replace();
    let mut client = stage.client(&[]).await;
    for _ in 0..2 {
        let refused = reply(&mut client, &thread).await;
        assert_refused(&refused, &directories);
    }
    directories.put_back();
    let prompted = reply(&mut client, &thread).await;
    assert!(directories.was_written(), "{prompted:#}");
    directories.replace();
    let refused = reply(&mut client, &thread).await;
    assert_refused(&refused, &directories);
    // The caller may name another directory.
    let elsewhere = json!({
        "action": "resume", "threadId": thread, "cwd": stage.home.work(), "prompt": "write",
    });
    let resumed = client.call_tool("codex_session", elsewhere).await;
    assert_ne!(resumed["isError"], true, "{resumed:#}");
    let session = &resumed["structuredContent"]["sessionId"];
    let wait = json!({ "action": "wait_any", "sessionIds": [session], "waitMs": 60_000 });
    client.call_tool("codex_session", wait).await;
    let written = stage.home.work().join("written");
    assert!(written.exists(), "{resumed:#}");
    assert!(!directories.has_escaped());
    assert!(client.finish().await.success());
}

/// The control: a job that is submitted for the home itself runs there.
async fn queued_job_is_not_run_in_a_replaced_directory(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on("wait", [Reply::say("waited").behind(&gate)])
        .on(
            "reach",
            [Reply::shell("touch ../src/written"), Reply::say("done")],
        )
        .otherwise([Reply::shell("touch ./written"), Reply::say("done")]);
    let stage = RepositoryFixture::new(release, script).await;
    let directories = Directories::of(&stage);
    let lib = stage.home.work().join("lib");
    fs::create_dir(&lib).unwrap();
    let (src, lib) = (directories.src.to_str().unwrap(), lib.to_str().unwrap());
    let mut worker = stage
        .command(&["worker", "--concurrency", "1", "--idle", "1m"])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let submit = async |more: &[&str]| {
        let submit = ["jobs", "submit", "--sandbox", "workspace-write"];
        let output = stage.codex_mcp(&[&submit[..], more].concat()).await;
        assert!(output.status.success(), "{output:?}");
        let id = String::from_utf8(output.stdout).unwrap();
        id.trim().to_owned()
    };
    let ended = async |id: &str| {
        let shown = ["jobs", "wait", "--json", id];
        let output = stage.codex_mcp(&shown).await;
        String::from_utf8(output.stdout).unwrap()
    };
    submit(&["wait"]).await;
    gate.reached(1).await;
    let inside = submit(&["--cwd", src, "write"]).await;
    let beside = submit(&["--cwd", lib, "--add-dir", src, "reach"]).await;
    directories.replace();
    gate.release();
    for id in [&inside, &beside] {
        let told = ended(id).await;
        assert!(!directories.has_escaped(), "{told}");
        for words in ["failed", "was replaced by a symbolic link", src] {
            assert!(told.contains(words), "{words}: {told}");
        }
    }

    let home = directories.home.to_str().unwrap();
    let control = submit(&["--cwd", home, "write"]).await;
    let told = ended(&control).await;
    assert!(directories.has_escaped(), "{CODEX_FOLLOWS}: {told}");
    directories.put_back();
    let put_back = submit(&["--cwd", lib, "--add-dir", src, "reach"]).await;
    let told = ended(&put_back).await;
    assert!(directories.was_written(), "{told}");
    worker.kill().await.unwrap();
}

/// The control: without a replacement, the second turn writes.
async fn run_ends_when_its_repository_is_replaced(release: &str) {
    for is_replaced in [true, false] {
        let (gate, turns) = (Gate::new(), AtomicUsize::new(0));
        let first = Reply::say("I will.").behind(&gate);
        let script = Script::by(move |_| match turns.fetch_add(1, Ordering::Relaxed) {
            0 => first.clone(),
            1 => Reply::shell("touch ./written"),
            _ => Reply::say("done"),
        });
        let stage = RepositoryFixture::new(release, script).await;
        let directories = Directories::of(&stage);
        let src = directories.src.to_str().unwrap();
        let args = [
            "x",
            "--repo",
            src,
            "--sandbox",
            "workspace-write",
            "--until",
            "files=never",
            "--max-turns",
            "2",
        ];
        // `src` is a repository of its own, so that it is the workspace.
        stage.home.git(&["init", "--quiet", src]);
        let attack = async {
            gate.reached(1).await;
            if is_replaced {
                directories.replace();
            }
            gate.release();
        };
        let ((_, result, stderr), ()) = tokio::join!(stage.run(&args), attack);
        assert!(!directories.has_escaped(), "{result:#}\n{stderr}");
        let text = result.to_string();
        let is_told = text.contains("was replaced by a symbolic link");
        assert_eq!(is_told, is_replaced, "{result:#}\n{stderr}");
        assert_eq!(
            directories.was_written(),
            !is_replaced,
            "{result:#}\n{stderr}"
        );
    }
}
