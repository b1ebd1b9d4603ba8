//! The death of the child, which is not started again.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, Entry, Event, HELLO, Plan, Session, Stdio};
use testkit::process::{Process, signal};
use testkit::wait::wait_for;

use super::super::serve::Serve;
use super::{call, code, content, left_of, message, plain, status, stuck, thread, write};

/// Checks that the child is gone, that each request reports its death, and that requests without
/// the child still work.
async fn reported(serve: &mut Serve, words: &str) {
    let result = serve.codex().await;
    assert_eq!(code(&result), "CODEX_DIED");
    assert!(message(&result).contains(words), "{words}: {result:#}");
    assert_eq!(result["structuredContent"]["error"]["retryable"], false);

    let other = serve.client.request("prompts/list", json!({}));
    let error = serve.client.error(&other).await;
    assert_eq!(error["data"]["error"]["code"], "CODEX_DIED", "{error}");
    assert!(error["message"].as_str().unwrap().contains(words));

    assert_eq!(serve.client.call("ping", json!({})).await, json!({}));
    let list = serve.client.call("tools/list", json!({})).await;
    assert_eq!(list["tools"].as_array().unwrap().len(), 10);
    let codex = &status(serve).await["codex"];
    assert_eq!(codex["state"], "gone");
    assert!(codex["reason"].as_str().unwrap().contains(words));
    assert_eq!(serve.fake.started().len(), 1, "started again");
}

fn by(signal: Signal) -> Action {
    Action::Kill {
        signal: signal as i32,
    }
}

#[tokio::test]
async fn child_death_in_a_call_is_reported_to_it_and_later_calls() {
    for (death, words) in [
        (Action::Exit { code: 0 }, "exited with code 0"),
        (Action::Exit { code: 7 }, "exited with code 7"),
        (by(Signal::SIGKILL), "signal 9 (SIGKILL)"),
        (by(Signal::SIGTERM), "signal 15 (SIGTERM)"),
        (by(Signal::SIGSEGV), "signal 11 (SIGSEGV)"),
        (by(Signal::SIGABRT), "signal 6 (SIGABRT)"),
    ] {
        let plan = Plan::new().on(
            "tools/call",
            [Action::StartTurn, Action::say("So far."), death],
        );
        let mut serve = plain(&plan, &[]).await;
        let result = serve.codex().await;
        assert_eq!(code(&result), "CODEX_DIED");
        assert!(message(&result).contains(words), "{words}: {result:#}");
        assert_eq!(result["structuredContent"]["content"], "So far.");
        thread(&result);
        reported(&mut serve, words).await;
        serve.finish().await;
    }
}

#[tokio::test]
async fn last_stderr_output_of_the_child_is_reported() {
    let stderr = |text: &str| Action::WriteStderr {
        text: text.to_owned(),
    };
    let said = [stderr(&"noise ".repeat(10_000)), stderr("out of memory")];
    let exit = Action::Exit { code: 101 };
    let plan = Plan::new().on("tools/call", [&said[..], &[exit]].concat());
    let mut serve = plain(&plan, &[]).await;
    let result = serve.codex().await;
    for words in ["exited with code 101", "out of memory"] {
        assert!(message(&result).contains(words), "{words}: {result:#}");
    }
    assert!(message(&result).len() < 4096);
    reported(&mut serve, "out of memory").await;
    serve.finish().await;
}

#[tokio::test]
async fn child_stderr_goes_to_our_log_only() {
    let complaint = Action::WriteStderr {
        text: "the disk is nearly full\n".to_owned(),
    };
    let plan = Plan::new().on("tools/call", call([complaint]));
    let mut serve = plain(&plan, &[]).await;
    let result = serve.codex().await;
    assert!(!result.to_string().contains("nearly full"), "{result:#}");
    serve.client.logged("the disk is nearly full").await;
    serve.finish().await;
}

#[tokio::test]
async fn idle_child_death_is_reported_by_the_next_request() {
    let mut serve = plain(&Plan::new(), &[]).await;
    let first = serve.codex().await;
    assert_eq!(content(&first), HELLO);
    serve.kill_codex(Signal::SIGKILL);
    wait_for("Codex is gone", async || {
        (status(&mut serve).await["codex"]["state"] == "gone").then_some(())
    })
    .await;
    let result = serve.reply(&thread(&first)).await;
    assert_eq!(code(&result), "CODEX_DIED");
    assert_eq!(thread(&result), thread(&first));
    reported(&mut serve, "signal 9 (SIGKILL)").await;
    serve.finish().await;
}

#[tokio::test]
async fn requests_in_flight_are_answered_when_the_child_dies() {
    let hang = stuck("half").on("tools/list", [Action::Hang]);
    let mut serve = plain(&hang.on("ping", [Action::Hang]), &[]).await;
    wait_for("Codex is ready", async || {
        (status(&mut serve).await["codex"]["state"] == "ready").then_some(())
    })
    .await;
    let calls: Vec<Value> = (0..5).map(|_| serve.prompt()).collect();
    let list = serve.client.request("tools/list", json!({}));
    let prompts = serve.client.request("prompts/list", json!({}));
    let ping = serve.client.request("ping", json!({}));
    serve.fake.wait_for_nth_method(2, "ping").await;
    serve.kill_codex(Signal::SIGKILL);
    for call in &calls {
        assert_eq!(code(&serve.client.result(call).await), "CODEX_DIED");
    }
    serve.client.result(&list).await;
    for id in [prompts, ping] {
        let error = serve.client.error(&id).await;
        assert_eq!(error["data"]["error"]["code"], "CODEX_DIED", "{error}");
    }
    serve.finish().await;
}

#[tokio::test]
async fn partial_answer_is_dropped_and_unterminated_answer_counts() {
    let half = [Action::HalfAnswer, Action::Exit { code: 3 }];
    let mut serve = plain(&Plan::new().on("tools/call", half), &[]).await;
    assert_eq!(code(&serve.codex().await), "CODEX_DIED");
    reported(&mut serve, "exited with code 3").await;
    serve.finish().await;

    let answer = write(br#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    let whole = [answer, Action::Exit { code: 3 }];
    let mut serve = plain(&Plan::new().on("tools/call", whole), &[]).await;
    assert_eq!(serve.codex().await, json!({"content": []}));
    reported(&mut serve, "exited with code 3").await;
    serve.finish().await;
}

#[tokio::test]
async fn last_message_of_the_child_precedes_its_death() {
    let flood = Action::Flood {
        notifications: 5000,
    };
    let last = [Action::StartTurn, flood, Action::say("last")];
    let exit = [Action::Answer, Action::Exit { code: 1 }];
    let plan = Plan::new().on("tools/call", [&last[..], &exit[..]].concat());
    let mut serve = plain(&plan, &[]).await;
    assert_eq!(content(&serve.codex().await), "last");
    reported(&mut serve, "exited with code 1").await;
    serve.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_end_with_the_child_that_ran_them() {
    let sleep = |session, stdio| Action::SpawnSleep {
        seconds: 600,
        session,
        stdio,
    };
    let plan = Plan::new().on(
        "tools/call",
        [
            sleep(Session::Own, Stdio::Inherited),
            sleep(Session::Own, Stdio::Null),
            Action::Exit { code: 4 },
        ],
    );
    let mut serve = plain(&plan, &[]).await;
    let result = serve.codex().await;
    assert!(
        message(&result).contains("exited with code 4"),
        "{result:#}"
    );
    let log = serve.fake.log().into_iter();
    let spawned = log.filter_map(|Entry { event, .. }| match event {
        Event::Spawned(pid) => Some(pid),
        _ => None,
    });
    let spawned: Vec<u32> = spawned.collect();
    assert_eq!(spawned.len(), 2);
    assert_eq!(left_of(&spawned).await, []);
    serve.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a parent-death signal, Codex goes on when its guard was killed"
)]
async fn killed_guard_ends_the_child_and_the_call_is_answered() {
    let mut serve = plain(&stuck("half"), &[]).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("tools/call").await;
    let codex = serve.fake.started()[0];
    let guard = Process::read(codex).unwrap().parent;
    assert_ne!(guard, serve.client.pid());
    signal(guard, Signal::SIGKILL);
    assert_eq!(code(&serve.client.result(&call).await), "CODEX_DIED");
    assert_eq!(left_of(&[codex]).await, []);
    serve.finish().await;
}
