//! Polls wait exactly until there is something to see.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::sessions::{Sessions, events_of, poll, thread};

const MINUTE: u64 = 60_000;

/// A session whose turn runs and whose events are all read.
async fn session_without_news() -> (Sessions, String) {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    let look = sessions.poll_events(&session).await;
    assert_eq!(events_of(&look, "turn/started").len(), 1);
    (sessions, session)
}

/// Ends the turn and the test.
async fn finish(mut sessions: Sessions) {
    sessions.end(1, "completed").await;
    sessions.finish().await;
}

/// An event that ends a wait.
#[derive(Clone, Copy, Debug)]
enum SessionEvent {
    Text,
    Question,
    End,
    Retry,
}

#[tokio::test(start_paused = true)]
async fn wait_ends_with_the_first_event() {
    for (news, kind) in [
        (SessionEvent::Text, "output"),
        (SessionEvent::Question, "approval_request"),
        (SessionEvent::End, "result"),
        (SessionEvent::Retry, "progress"),
    ] {
        let (mut sessions, session) = session_without_news().await;
        let call = sessions
            .request("codex_check", poll(&session, MINUTE))
            .await;
        sessions.assert_nothing_unread().await;
        sleep(Duration::from_secs(20)).await;
        let came = Instant::now();
        match news {
            SessionEvent::Text => sessions.write(1, "so far").await,
            SessionEvent::Question => sessions.ask(1, 0).await,
            SessionEvent::End => sessions.end(1, "completed").await,
            SessionEvent::Retry => {
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
            SessionEvent::Question => {
                assert_eq!(look["status"], "waiting_approval");
                assert_eq!(
                    sessions.world.codex.next().await["result"]["decision"],
                    "decline"
                );
            }
            SessionEvent::End => assert_eq!(look["result"]["status"], "completed"),
            SessionEvent::Text => assert_eq!(events[0]["data"]["delta"], "so far"),
            SessionEvent::Retry => {
                let data = &events[0]["data"];
                assert_eq!(data["method"], "codex-mcp/reconnect");
                assert_eq!(
                    (&data["retryCount"], &data["maxRetries"]),
                    (&json!(2), &json!(5))
                );
            }
        }
        finish(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn poll_returns_at_once_when_there_is_something_to_see() {
    let mut sessions = Sessions::new().await;
    let session = sessions.start(1, json!({})).await;
    let began = Instant::now();
    // Unread events, and an old cursor.
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    let mut again = poll(&session, MINUTE);
    again["cursor"] = 0.into();
    let look = sessions.call("codex_check", again).await;
    assert_eq!(look["events"][0]["id"], 0);
    // An idle session.
    sessions.end(1, "completed").await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    let idle = sessions.call("codex_check", poll(&session, MINUTE)).await;
    assert_eq!(
        (&idle["status"], &idle["events"]),
        (&json!("idle"), &json!([]))
    );
    assert_eq!(idle["result"]["status"], "completed");
    // An ended session.
    sessions.cancel(&session).await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    sessions.call("codex_check", poll(&session, MINUTE)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn wait_without_events_takes_its_whole_time() {
    let (mut sessions, session) = session_without_news().await;
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
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn poll_with_an_open_question_returns_at_once() {
    let (mut sessions, session) = session_without_news().await;
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
    // A poll without questions waits for the outcome of the question.
    let mut arguments = poll(&session, 10 * MINUTE);
    arguments["pollOptions"] = json!({"includeActions": false});
    let look = sessions.call("codex_check", arguments).await;
    assert_eq!(asked.elapsed(), Duration::from_secs(60));
    assert_eq!(look["events"][0]["type"], "approval_result");
    sessions.world.codex.next().await;
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn poll_without_events_waits_for_questions_and_ends() {
    let (mut sessions, session) = session_without_news().await;
    let mut arguments = poll(&session, MINUTE);
    arguments["pollOptions"] = json!({"includeEvents": false});
    let call = sessions.request("codex_check", arguments.clone()).await;
    sessions.write(1, "text").await;
    sessions.assert_nothing_unread().await;
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
    let look = sessions.poll_events(&session).await;
    assert_eq!(look["events"][0]["data"]["delta"], "text");
    sessions.finish().await;
}

#[tokio::test(start_paused = true)]
async fn events_of_one_session_do_not_end_the_wait_of_another() {
    let (mut sessions, one) = session_without_news().await;
    let other = sessions.start(2, json!({})).await;
    let call = sessions.request("codex_check", poll(&one, MINUTE)).await;
    sessions.write(2, "text").await;
    sessions.end(2, "completed").await;
    sessions.assert_nothing_unread().await;
    sessions.write(1, "text").await;
    let look = sessions.answer(call).await;
    assert_eq!(look["sessionId"], one);
    assert_eq!(sessions.poll_events(&other).await["status"], "idle");
    finish(sessions).await;
}

fn wait_any(sessions: &[&str], wait: u64) -> Value {
    json!({"action": "wait_any", "sessionIds": sessions, "waitMs": wait})
}

#[tokio::test(start_paused = true)]
async fn wait_any_returns_the_first_session_that_needs_attention() {
    for (news, status) in [
        (SessionEvent::Question, "waiting_approval"),
        (SessionEvent::End, "idle"),
    ] {
        let mut sessions = Sessions::new().await;
        let one = sessions.start(1, json!({})).await;
        let two = sessions.start(2, json!({})).await;
        let three = sessions.start(3, json!({})).await;
        let all = [one.as_str(), &two, &three];
        let call = sessions
            .request("codex_session", wait_any(&all, MINUTE))
            .await;
        sessions.write(1, "text").await;
        sessions.assert_nothing_unread().await;
        let came = Instant::now();
        match news {
            SessionEvent::Question => sessions.ask(2, 0).await,
            _ => sessions.end(2, "completed").await,
        }
        let first = sessions.answer(call).await;
        assert_eq!(first, json!({"sessionId": two, "status": status}));
        // The session is returned again, and at once, until somebody has dealt with it.
        let again = sessions.call("codex_session", wait_any(&all, MINUTE)).await;
        assert_eq!(again, first);
        sessions.end(3, "completed").await;
        sessions.end(2, "completed").await;
        // Of several ready sessions, the first in the list is returned.
        sessions.poll_events(&three).await;
        let named = [three.as_str(), &two, &one];
        let first = sessions
            .call("codex_session", wait_any(&named, MINUTE))
            .await;
        assert_eq!(first, json!({"sessionId": three, "status": "idle"}));
        assert_eq!(came.elapsed(), Duration::ZERO);
        finish(sessions).await;
    }
}

#[tokio::test(start_paused = true)]
async fn wait_any_ends_with_its_time() {
    let (mut sessions, session) = session_without_news().await;
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
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn wait_reports_progress_where_requested() {
    let (mut sessions, session) = session_without_news().await;
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
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_wait_gets_no_answer() {
    let (mut sessions, session) = session_without_news().await;
    for (tool, arguments) in [
        ("codex_check", poll(&session, MINUTE)),
        ("codex_session", wait_any(&[&session], MINUTE)),
    ] {
        let call = sessions.request(tool, arguments).await;
        sessions.assert_nothing_unread().await;
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": call}});
        sessions.world.client.send(cancelled).await;
        sessions.assert_nothing_unread().await;
    }
    sessions.write(1, "text").await;
    sessions.assert_nothing_unread().await;
    // The event that arrived after the cancellation is not lost.
    let look = sessions.poll_events(&session).await;
    assert_eq!(look["status"], "running");
    assert_eq!(look["events"][0]["data"]["delta"], "text");
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn fork_leaves_its_origin_as_it_is() {
    let (mut sessions, session) = session_without_news().await;
    let arguments = json!({"action": "fork", "sessionId": session});
    let call = sessions.request("codex_session", arguments).await;
    let fork = sessions.world.codex.next_is("thread/fork").await;
    assert_eq!(fork["params"]["threadId"], thread(1));
    sessions.answer_thread(2, &fork).await;
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
    finish(sessions).await;
}

#[tokio::test(start_paused = true)]
async fn future_cursor_is_refused_without_a_wait() {
    let (mut sessions, session) = session_without_news().await;
    let began = Instant::now();
    let mut arguments = poll(&session, MINUTE);
    arguments["cursor"] = 1000.into();
    let refusal = sessions.refused("codex_check", arguments).await;
    assert!(
        refusal.starts_with("Error [INVALID_ARGUMENT]: cursor 1000"),
        "{refusal}"
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
    finish(sessions).await;
}
