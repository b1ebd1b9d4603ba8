//! The death of Codex, and its effect on threads.

use serde_json::json;
use testkit::Signal;
use testkit::fake::{Action, HELLO, Plan};
use testkit::process::signal;
use testkit::wait::wait_for;

use super::serve::{Serve, code, completed, message, thread};

fn by(signal: Signal) -> Action {
    Action::Kill {
        signal: signal as i32,
    }
}

#[tokio::test]
async fn codex_death_in_a_turn_is_reported_and_thread_resumed() {
    for (death, words) in [
        (Action::Exit { code: 0 }, "exited with code 0"),
        (Action::Exit { code: 7 }, "exited with code 7"),
        (by(Signal::SIGKILL), "signal 9 (SIGKILL)"),
        (by(Signal::SIGTERM), "signal 15 (SIGTERM)"),
        (by(Signal::SIGSEGV), "signal 11 (SIGSEGV)"),
        (by(Signal::SIGABRT), "signal 6 (SIGABRT)"),
    ] {
        let plan = Plan::new()
            .on(
                "turn/start",
                [
                    Action::Answer,
                    Action::StartTurn,
                    Action::say("So far."),
                    death,
                ],
            )
            .in_launch(1);
        let mut serve = Serve::plain(&plan).await;
        let result = serve.codex().await;
        assert_eq!(code(&result), "CODEX_DIED");
        assert!(message(&result).contains(words), "{words}: {result:#}");
        let structured = &result["structuredContent"];
        assert_eq!(structured["content"], "So far.");
        assert_eq!(structured["error"]["retryable"], true);
        assert_eq!(serve.fake.started().len(), 1, "started again unasked");

        let thread = thread(&result);
        assert_eq!(completed(&serve.reply(&thread).await), HELLO);
        let resume = serve.fake.wait_for_method("thread/resume").await;
        assert_eq!(resume["params"]["threadId"], thread);
        assert_eq!(serve.fake.started().len(), 2);
        serve.finish().await;
    }
}

#[tokio::test]
async fn codex_death_is_reported_in_one_answer_only() {
    let plan = Plan::new()
        .on("turn/start", [Action::Answer, Action::Exit { code: 7 }])
        .in_launch(1);
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(code(&serve.codex().await), "CODEX_DIED");
    let status = serve.client.call_tool("codex_status", json!({})).await;
    let status = &status["structuredContent"];
    assert_eq!(status["lastExit"]["code"], 7, "{status:#}");
    assert_eq!(status.get("warnings"), None, "{status:#}");
    let next = serve.codex().await;
    assert_eq!(completed(&next), HELLO);
    assert_eq!(next["structuredContent"].get("warnings"), None, "{next:#}");
    serve.finish().await;
}

#[tokio::test]
async fn death_warning_mentions_a_restart_only_after_one() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let first = serve.codex().await;
    serve.kill_codex(Signal::SIGTERM);
    // The process may have ended before the server has noticed.
    serve.client.logged("signal 15 (SIGTERM)").await;
    let reply = serve.reply(&thread(&first)).await;
    assert_eq!(completed(&reply), HELLO);
    let warning = reply["structuredContent"]["warnings"][0].as_str();
    let warning = warning.unwrap_or_default();
    assert!(warning.contains("It was started again"), "{reply:#}");
    assert!(!warning.contains("next call"), "{reply:#}");
    serve.finish().await;
}

/// The first answer is that of the tool that lists all warnings.
#[tokio::test]
async fn status_reports_an_unreported_death() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let first = serve.codex().await;
    serve.kill_codex(Signal::SIGTERM);
    let gone = serve.fake.started();
    assert_eq!(super::serve::left_of(&gone).await, []);
    let told = wait_for("the last exit", async || {
        let status = serve.client.call_tool("codex_status", json!({})).await;
        let status = status["structuredContent"].clone();
        status.get("lastExit").is_some().then_some(status)
    })
    .await;
    let warning = told["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("signal 15 (SIGTERM)"), "{told:#}");
    let reply = serve.reply(&thread(&first)).await;
    assert_eq!(completed(&reply), HELLO);
    assert_eq!(reply["structuredContent"].get("warnings"), None);
    serve.finish().await;
}

#[tokio::test]
async fn codex_death_before_the_turn_fails_only_that_call() {
    for method in ["thread/start", "turn/start"] {
        for death in [
            vec![Action::Exit { code: 3 }],
            vec![Action::HalfAnswer, Action::Exit { code: 3 }],
        ] {
            let plan = Plan::new().on(method, death).in_launch(1);
            let mut serve = Serve::plain(&plan).await;
            let result = serve.codex().await;
            assert_eq!(code(&result), "CODEX_DIED", "{method}: {result:#}");
            assert!(
                message(&result).contains("exited with code 3"),
                "{result:#}"
            );
            assert_eq!(completed(&serve.codex().await), HELLO);
            serve.finish().await;
        }
    }
}

#[tokio::test]
async fn all_calls_of_a_dying_codex_are_answered() {
    let plan = Plan::new()
        .on("turn/start", [Action::Answer, Action::StartTurn])
        .in_launch(1)
        .on("thread/start", [Action::Hang])
        .nth(4)
        .in_launch(1);
    let mut serve = Serve::plain(&plan).await;
    let calls: Vec<_> = (0..4).map(|_| serve.prompt()).collect();
    serve.fake.wait_for_nth_method(3, "turn/start").await;
    serve.kill_codex(Signal::SIGKILL);
    for call in calls {
        let result = serve.client.result(&call).await;
        assert_eq!(code(&result), "CODEX_DIED");
    }
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert_eq!(serve.fake.started().len(), 2);
    serve.finish().await;
}

#[tokio::test]
async fn codex_that_dies_idle_is_restarted_by_the_next_call() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let first = serve.codex().await;
    serve.kill_codex(Signal::SIGKILL);
    let gone = serve.fake.started();
    assert_eq!(super::serve::left_of(&gone).await, []);
    // Codex can be gone for a moment before the server knows of it.
    serve.client.logged("signal 9 (SIGKILL)").await;
    assert_eq!(serve.fake.started().len(), 1);
    assert_eq!(completed(&serve.reply(&thread(&first)).await), HELLO);
    assert_eq!(serve.fake.started().len(), 2);
    assert!(serve.methods().contains(&"thread/resume".to_owned()));
    serve.finish().await;
}

#[tokio::test]
async fn thread_of_an_earlier_server_is_resumed() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let id = "019fa4e0-0000-7000-8001-00000000abcd";
    for arguments in [
        json!({"prompt": "go on", "threadId": id}),
        json!({"prompt": "go on", "conversationId": id}),
    ] {
        let result = serve.client.call_tool("codex-reply", arguments).await;
        assert_eq!(completed(&result), HELLO);
        assert_eq!(thread(&result), id);
    }
    let resumed = serve
        .methods()
        .iter()
        .filter(|method| *method == "thread/resume")
        .count();
    assert_eq!(resumed, 1);
    serve.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a parent-death signal, Codex goes on when its guard was killed"
)]
async fn killed_guard_ends_codex_and_the_call_is_answered() {
    let mut serve = Serve::plain(&super::serve::stuck("half")).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    let codex = serve.fake.started()[0];
    let guard = testkit::process::Process::read(codex).unwrap().parent;
    assert_ne!(guard, serve.client.pid());
    signal(guard, Signal::SIGKILL);
    let result = serve.client.result(&call).await;
    assert_eq!(code(&result), "CODEX_DIED");
    assert_eq!(super::serve::left_of(&[codex]).await, []);
    serve.finish().await;
}
