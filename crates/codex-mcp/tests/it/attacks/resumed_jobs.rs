//! Jobs that resume threads which had other settings, with the real Codex.

use std::fs;
use std::path::Path;

use codex_protocol::codex::{SandboxMode, ThreadId};
use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::json;
use testkit::{AppServer, Home};

use crate::on_each_release;
use crate::runs::{assert_said, engine_of, outcome_of, request};

on_each_release!(
    resumed_job_gets_its_own_sandbox,
    planted_git_file_gives_no_job_the_trust_of_another_repository,
);

async fn stage(script: Script, config: &str) -> (Home, ScriptedModel) {
    let model = ScriptedModel::start(script).await.unwrap();
    let plugins = "features.plugins = false";
    let home = Home::new(&format!("{}\n{plugins}\n{config}\n", model.codex_config()));
    (home, model)
}

/// Prompts a thread that Codex itself resumes.
async fn resume_with_codex(release: &str, home: &Home, thread: &ThreadId, cwd: &Path) {
    let server = AppServer::real(release, home).await;
    let resume = json!({ "threadId": thread, "approvalPolicy": "never", "cwd": cwd });
    server.call("thread/resume", resume).await;
    let mut news = server.notifications(thread.as_str());
    server.turn(thread.as_str(), &mut news, "leave").await;
}

/// The control is Codex itself: the newest release resumes a thread with its earlier sandbox,
/// whatever the user has configured since.
async fn resumed_job_gets_its_own_sandbox(release: &str) {
    let is_newest = release == testkit::codex::newest();
    let mode = ("sandbox_mode = \"read-only\"", "read-only");
    let permissions = (
        "default_permissions = \":read-only\"",
        "permissions :read-only",
    );
    for (config, in_force) in [mode, permissions] {
        let leave = Reply::shell("echo x >> \"$HOME/caught\"");
        let script = Script::new()
            .on("begin", [Reply::say("Begun.")])
            .on("leave", [leave, Reply::say("Done.")]);
        let (home, _model) = stage(script, config).await;
        let caught = home.home().join("caught");
        let codex = testkit::codex::native_binary(release);
        let engine = engine_of(&home, codex);
        let mut threads = Vec::new();
        for _ in 0..2 {
            let mut first = request(&home, "begin");
            first.sandbox = Some(SandboxMode::DangerFullAccess);
            let begun = outcome_of(&home, &engine, &first).await;
            assert_said(&begun, "Begun.");
            threads.push(begun.digest.session.unwrap());
        }
        let mut next = request(&home, "leave");
        next.resume = Some(threads[0].clone());
        let outcome = outcome_of(&home, &engine, &next).await;
        engine.shut_down().await;
        assert_said(&outcome, "Done.");
        assert_eq!(outcome.sandbox.as_deref(), Some(in_force));
        assert!(!caught.exists(), "{config}: {outcome:#?}");

        resume_with_codex(release, &home, &threads[1], &home.work()).await;
        assert_eq!(caught.exists(), is_newest, "{config}");
    }
}

/// The control is Codex itself: 0.104.0 follows a `.git` file to which nothing links back; newer
/// releases do not.
async fn planted_git_file_gives_no_job_the_trust_of_another_repository(release: &str) {
    let script = Script::new().otherwise([Reply::say("Done.")]);
    let (home, _model) = stage(script, "").await;
    let trusted = home.work();
    let worktree = trusted.join(".git/worktrees/x");
    fs::create_dir(worktree.parent().unwrap()).unwrap();
    fs::create_dir(&worktree).unwrap();
    fs::write(worktree.join("commondir"), "../..\n").unwrap();
    fs::write(worktree.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let config = home.codex_home().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let entry = format!("[projects.{trusted:?}]\ntrust_level = \"trusted\"\n");
    fs::write(&config, format!("{text}\n{entry}")).unwrap();
    let (planted, caught) = (home.root().join("planted"), home.home().join("caught"));
    fs::create_dir_all(planted.join(".codex")).unwrap();
    let link = format!("gitdir: {}\n", worktree.display());
    fs::write(planted.join(".git"), link).unwrap();
    let server = format!(
        "[mcp_servers.x]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo x >> {}\"]\n",
        caught.display()
    );
    fs::write(planted.join(".codex/config.toml"), server).unwrap();

    let engine = engine_of(&home, testkit::codex::native_binary(release));
    let mut job = request(&home, "leave");
    job.cwd = planted.canonicalize().unwrap();
    let begun = outcome_of(&home, &engine, &job).await;
    assert_said(&begun, "Done.");
    let thread = begun.digest.session.unwrap();
    job.resume = Some(thread.clone());
    assert_said(&outcome_of(&home, &engine, &job).await, "Done.");
    engine.shut_down().await;
    assert!(!caught.exists());

    resume_with_codex(release, &home, &thread, &planted).await;
    assert_eq!(caught.exists(), release == "0.104.0");
}
