//! Calls that wait for something to see: exactly as long as it takes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, poll, thread, told};

const MINUTE: u64 = 60_000;

/// A session whose turn runs and whose events are all read.
async fn all_read() -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    let look = sessions.look(&session).await;
    assert_eq!(told(&look, "turn/started").len(), 1);
    (sessions, session)
}

/// Ends the turn and the test.
async fn done(mut sessions: Sessions) {
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

/// What ends a wait.
#[derive(Clone, Copy, Debug)]
enum News {
    Text,
    Question,
    End,
    Retry,
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_first_news() {
    for (news, kind) in [
        (News::Text, "output"),
        (News::Question, "approval_request"),
        (News::End, "result"),
        (News::Retry, "progress"),
    ] {
        let (mut sessions, session) = all_read().await;
        let call = sessions
            .request("codex_check", poll(&session, MINUTE))
            .await;
        sessions.nothing_comes().await;
        sleep(Duration::from_secs(20)).await;
        let came = Instant::now();
        match news {
            News::Text => sessions.write(1, "so far").await,
            News::Question => sessions.ask(1, 0).await,
            News::End => sessions.end(1, "completed").await,
            News::Retry => {
                let error = json!({"turnId": "turn", "willRetry": true,
                    "error": {"message": "Reconnecting... 2/5"}});
                sessions.tell(1, "error", error).await;
            }
        }
        let look = sessions.answer(call).await;
        assert_eq!(came.elapsed(), Duration::ZERO, "{news:?}");
        let events = look["events"].as_array().unwrap();
        assert_eq!(events.len(), 1, "{news:?}: {look:#}");
        assert_eq!(events[0]["type"], kind);
        match news {
            News::Question => {
                assert_eq!(look["status"], "waiting_approval");
                assert_eq!(
                    sessions.world.codex.next().await["result"]["decision"],
                    "decline"
                );
            }
            News::End => assert_eq!(look["result"]["status"], "completed"),
            News::Text => assert_eq!(events[0]["data"]["delta"], "so far"),
            News::Retry => {
                let data = &events[0]["data"];
                assert_eq!(data["method"], "codex-mcp/reconnect");
                assert_eq!(
                    (&data["retryCount"], &data["maxRetries"]),
                    (&json!(2), &json!(5))
                );
            }
        }
        done(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_wait_for_what_is_there() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    let began = Instant::now();
    // Unread events, and an old cursor.
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    let mut again = poll(&session, MINUTE);
    again["cursor"] = 0.into();
    let look = sessions.call("codex_check", again).await;
    assert_eq!(look["events"][0]["id"], 0);
    // A session that is at nothing.
    sessions.end(1, "completed").await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    let idle = sessions.call("codex_check", poll(&session, MINUTE)).await;
    assert_eq!(
        (&idle["status"], &idle["events"]),
        (&json!("idle"), &json!([]))
    );
    assert_eq!(idle["result"]["status"], "completed");
    // One that is over.
    sessions.session("cancel", &session).await;
    sessions
        .world
        .codex
        .next_is("thread/backgroundTerminals/clean")
        .await;
    sessions.world.codex.next_is("thread/unsubscribe").await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_nothing_takes_its_time() {
    let (mut sessions, session) = all_read().await;
    for (wait, mode) in [(1, "full"), (MINUTE, "minimal"), (0, "full")] {
        let began = Instant::now();
        let mut arguments = poll(&session, wait);
        arguments["responseMode"] = mode.into();
        let look = sessions.call("codex_check", arguments).await;
        assert_eq!(began.elapsed(), Duration::from_millis(wait));
        assert_eq!(
            (&look["status"], &look["events"]),
            (&json!("running"), &json!([]))
        );
        assert_eq!(look["pollInterval"], 60_000);
    }
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn an_open_question_is_not_waited_away() {
    let (mut sessions, session) = all_read().await;
    let asked = Instant::now();
    sessions.ask(1, 0).await;
    for unread in [true, false] {
        let look = sessions.call("codex_check", poll(&session, MINUTE)).await;
        assert_eq!(look["status"], "waiting_approval");
        assert_eq!(look["pollInterval"], 1000);
        assert_eq!(look["actions"][0]["command"], "touch x");
        assert_eq!(look["events"] != json!([]), unread);
    }
    assert_eq!(asked.elapsed(), Duration::ZERO);
    // Who wants no questions waits for their end.
    let mut arguments = poll(&session, 10 * MINUTE);
    arguments["pollOptions"] = json!({"includeActions": false});
    let look = sessions.call("codex_check", arguments).await;
    assert_eq!(asked.elapsed(), Duration::from_secs(60));
    assert_eq!(look["events"][0]["type"], "approval_result");
    sessions.world.codex.next().await;
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn who_wants_no_events_waits_for_questions_and_ends() {
    let (mut sessions, session) = all_read().await;
    let mut arguments = poll(&session, MINUTE);
    arguments["pollOptions"] = json!({"includeEvents": false});
    let call = sessions.request("codex_check", arguments.clone()).await;
    sessions.write(1, "text").await;
    sessions.nothing_comes().await;
    let began = Instant::now();
    sessions.ask(1, 0).await;
    let look = sessions.answer(call).await;
    assert_eq!(look["actions"][0]["command"], "touch x");

    let call = sessions.request("codex_check", arguments.clone()).await;
    sessions.ask(1, 1).await;
    let look = sessions.answer(call).await;
    assert_eq!(look["actions"].as_array().unwrap().len(), 2);

    let call = sessions.request("codex_check", arguments).await;
    sessions.end(1, "completed").await;
    let look = sessions.answer(call).await;
    assert_eq!(
        (&look["status"], &look["events"]),
        (&json!("idle"), &json!([]))
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
    // Nothing was marked as read.
    let look = sessions.look(&session).await;
    assert_eq!(look["events"][0]["data"]["delta"], "text");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn news_of_one_session_are_none_of_another() {
    let (mut sessions, one) = all_read().await;
    let other = sessions.start(2, json!({})).await;
    let call = sessions.request("codex_check", poll(&one, MINUTE)).await;
    sessions.write(2, "text").await;
    sessions.end(2, "completed").await;
    sessions.nothing_comes().await;
    sessions.write(1, "text").await;
    let look = sessions.answer(call).await;
    assert_eq!(look["sessionId"], one);
    assert_eq!(sessions.look(&other).await["status"], "idle");
    done(sessions).await;
}

fn wait_any(sessions: &[&str], wait: u64) -> Value {
    json!({"action": "wait_any", "sessionIds": sessions, "waitMs": wait})
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_is_told() {
    for (news, status) in [(News::Question, "waiting_approval"), (News::End, "idle")] {
        let mut sessions = Sessions::new().await;
        let one = sessions.start(1, json!({})).await;
        let two = sessions.start(2, json!({})).await;
        let three = sessions.start(3, json!({})).await;
        let all = [one.as_str(), &two, &three];
        let call = sessions
            .request("codex_session", wait_any(&all, MINUTE))
            .await;
        sessions.write(1, "text").await;
        sessions.nothing_comes().await;
        let came = Instant::now();
        match news {
            News::Question => sessions.ask(2, 0).await,
            _ => sessions.end(2, "completed").await,
        }
        let first = sessions.answer(call).await;
        assert_eq!(first, json!({"sessionId": two, "status": status}));
        // It is told again as long as nobody has seen to it, and at once.
        let again = sessions.call("codex_session", wait_any(&all, MINUTE)).await;
        assert_eq!(again, first);
        sessions.end(3, "completed").await;
        sessions.end(2, "completed").await;
        // Where several are ready, in the order of the names.
        sessions.look(&three).await;
        let named = [three.as_str(), &two, &one];
        let first = sessions
            .call("codex_session", wait_any(&named, MINUTE))
            .await;
        assert_eq!(first, json!({"sessionId": three, "status": "idle"}));
        assert_eq!(came.elapsed(), Duration::ZERO);
        done(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_any_ends_with_its_time() {
    let (mut sessions, session) = all_read().await;
    for (arguments, seconds) in [
        (wait_any(&[&session], 7000), 7),
        (wait_any(&[&session, &session], 7000), 7),
        (wait_any(&[&session], 0), 0),
        (json!({"action": "wait_any", "sessionIds": [session]}), 50),
    ] {
        let began = Instant::now();
        let late = sessions.call("codex_session", arguments).await;
        assert_eq!(late, json!({"timedOut": true}));
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    let began = Instant::now();
    let unknown = wait_any(&[&session, "sess_000000000000"], MINUTE);
    let refusal = sessions.refused("codex_session", unknown).await;
    assert!(
        refusal.starts_with("Error [SESSION_NOT_FOUND]: "),
        "{refusal}"
    );
    assert!(refusal.contains("sess_000000000000"), "{refusal}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_gives_a_sign_of_life_where_it_is_wanted() {
    let (mut sessions, session) = all_read().await;
    for (tool, arguments) in [
        ("codex_check", poll(&session, 35_000)),
        ("codex_session", wait_any(&[&session], 35_000)),
    ] {
        let began = Instant::now();
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
        let call = sessions.world.request("tools/call", params).await;
        for nth in 1..=3_u32 {
            let progress = sessions
                .world
                .client
                .next_is("notifications/progress")
                .await;
            assert_eq!(progress["params"]["progressToken"], "p");
            assert_eq!(progress["params"]["progress"], f64::from(nth));
            let message = progress["params"]["message"].as_str().unwrap();
            assert!(message.starts_with("thinking, "), "{message}");
            assert_eq!(began.elapsed().as_secs(), u64::from(nth) * 10);
        }
        sessions.answer(call).await;
        assert_eq!(began.elapsed().as_secs(), 35);
    }
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_called_off_gets_no_answer() {
    let (mut sessions, session) = all_read().await;
    for (tool, arguments) in [
        ("codex_check", poll(&session, MINUTE)),
        ("codex_session", wait_any(&[&session], MINUTE)),
    ] {
        let call = sessions.request(tool, arguments).await;
        sessions.nothing_comes().await;
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": call}});
        sessions.world.client.send(cancelled).await;
        sessions.nothing_comes().await;
    }
    sessions.write(1, "text").await;
    sessions.nothing_comes().await;
    // What came meanwhile is not lost.
    let look = sessions.look(&session).await;
    assert_eq!(look["status"], "running");
    assert_eq!(look["events"][0]["data"]["delta"], "text");
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_leaves_its_origin_as_it_is() {
    let (mut sessions, session) = all_read().await;
    let arguments = json!({"action": "fork", "sessionId": session});
    let call = sessions.request("codex_session", arguments).await;
    let fork = sessions.world.codex.next_is("thread/fork").await;
    assert_eq!(fork["params"]["threadId"], thread(1));
    sessions.opened(2, &fork).await;
    let forked = sessions.answer(call).await;
    assert_eq!(forked["threadId"], thread(2));
    assert_eq!(
        (&forked["status"], &forked["pollInterval"]),
        (&json!("idle"), &json!(120_000))
    );
    let origin = sessions.get(&session).await;
    assert_eq!(
        (&origin["threadId"], &origin["status"]),
        (&json!(thread(1)), &json!("running"))
    );
    done(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn a_cursor_from_the_future_is_refused_without_a_wait() {
    let (mut sessions, session) = all_read().await;
    let began = Instant::now();
    let mut arguments = poll(&session, MINUTE);
    arguments["cursor"] = 1000.into();
    let refusal = sessions.refused("codex_check", arguments).await;
    assert!(
        refusal.starts_with("Error [INVALID_ARGUMENT]: cursor 1000"),
        "{refusal}"
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
    done(sessions).await;
}
