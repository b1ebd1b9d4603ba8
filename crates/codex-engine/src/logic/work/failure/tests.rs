//! The classes of Codex's messages and endings.

use serde_json::json;

use super::*;

fn failed(message: &str) -> WorkEnding {
    WorkEnding::Failed(TurnError {
        message: message.to_owned(),
        codex_error_info: None,
        additional_details: None,
    })
}

fn judged(ending: &WorkEnding) -> Failure {
    judge(ending, &Digest::default()).unwrap()
}

/// The messages are those of 0.104.0, 0.153.4 and 0.169.0.
#[test]
fn failure_class_is_derived_from_the_message() {
    use FailureClass::*;
    for (words, class) in [
        (
            "unexpected status 401 Unauthorized: Incorrect API key, url: http://h/v1/responses",
            Auth,
        ),
        (
            "Your access token could not be refreshed because you have since logged out. Please sign in again.",
            Auth,
        ),
        ("exceeded retry limit, last status: 401 Unauthorized", Auth),
        (
            "exceeded retry limit, last status: 429 Too Many Requests",
            RateLimit,
        ),
        (
            "You've hit your usage limit. Upgrade to Pro or try again at May 18th, 2033 3:33 AM.",
            RateLimit,
        ),
        (
            "stream disconnected before completion: Rate limit reached for x. Please try again in 1.5s.",
            RateLimit,
        ),
        (
            "Quota exceeded. Check your plan and billing details.",
            RateLimit,
        ),
        (
            "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
            ContextWindow,
        ),
        (
            "The model `nope` does not exist or you do not have access to it.",
            ModelNotFound,
        ),
        (
            r#"{"error": {"message": "x", "code": "model_not_found"}}"#,
            ModelNotFound,
        ),
        (
            "unexpected status 404 Not Found: The model `nope` does not exist, url: http://h/",
            ModelNotFound,
        ),
        (
            "The 'x' model is not supported when using Codex with a ChatGPT account.",
            ModelNotFound,
        ),
        ("sandbox error: landlock is not available", Sandbox),
        (
            "We\u{2019}re currently experiencing high demand, which may cause temporary errors.",
            Overloaded,
        ),
        ("unexpected status 503 Service Unavailable: x", Overloaded),
        (
            "stream disconnected before completion: error sending request",
            Connection,
        ),
        ("something else, url: http://127.0.0.1:4290/401/x", Exit),
    ] {
        let failure = judged(&failed(words));
        assert_eq!(failure.class, class, "{words}");
        assert!(failure.message.contains(words), "{words}");
    }
}

#[test]
fn failure_class_is_derived_from_the_error_kind() {
    use FailureClass::*;
    for (words, info, class) in [
        ("it broke", json!("usageLimitExceeded"), RateLimit),
        (
            "it broke",
            json!({ "httpConnectionFailed": { "httpStatusCode": 401 } }),
            Auth,
        ),
        ("stream disconnected", json!("serverOverloaded"), Overloaded),
        ("stream disconnected", json!("other"), Connection),
        ("exceeded the quota", json!("other"), RateLimit),
        ("it broke", json!("new"), Exit),
    ] {
        let error = json!({ "message": words, "codexErrorInfo": info });
        let error: TurnError = serde_json::from_value(error).unwrap();
        assert_eq!(
            judged(&WorkEnding::Failed(error)).class,
            class,
            "{words}, {info}"
        );
    }
}

#[test]
fn ending_has_a_class_and_a_message() {
    use FailureClass::*;
    let id = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
    let after = Duration::from_millis(1500);
    for (ending, class, words) in [
        (
            WorkEnding::NotStarted("no such file".into()),
            NotStarted,
            "no such file",
        ),
        (WorkEnding::UnknownSession(id), UnknownSession, "01a200a4"),
        (
            WorkEnding::SessionBusy("in use".into()),
            SessionBusy,
            "in use",
        ),
        (WorkEnding::NoLogin("log in".into()), Auth, "log in"),
        (
            WorkEnding::Refused("config profile `x` not found".into()),
            Exit,
            "config profile",
        ),
        (
            WorkEnding::Killed("was ended by signal 9".into()),
            Signal,
            "signal 9",
        ),
        (
            WorkEnding::Died("exited with code 3".into()),
            Exit,
            "code 3",
        ),
        (WorkEnding::Interrupted, Exit, "interrupted"),
        (WorkEnding::Completed, EmptyOutput, "without an answer"),
        (
            WorkEnding::TimedOut(after),
            Timeout,
            "agent timed out after 1500ms",
        ),
        (WorkEnding::Cancelled, Cancelled, "cancelled"),
    ] {
        let failure = judged(&ending);
        assert_eq!(failure.class, class, "{ending:?}");
        assert!(failure.message.contains(words), "{failure:?}");
        assert!(!failure.hint().is_empty());
    }
    let mut digest = Digest::default();
    digest.message = Some("Done.".to_owned());
    assert_eq!(judge(&WorkEnding::Completed, &digest), None);
    let failure = judge(&failed("it broke"), &digest).unwrap();
    assert_eq!(failure.class, Exit);
    digest.message = Some(" \n".to_owned());
    assert!(judge(&WorkEnding::Completed, &digest).is_some());
}

#[test]
fn busy_thread_has_a_hint_that_can_be_followed() {
    let hint = judged(&WorkEnding::SessionBusy("in use".into())).hint();
    for way in [
        "turn of the thread has ended",
        "`codex-mcp ps`",
        "`codex-mcp cancel ID`",
    ] {
        assert!(hint.contains(way), "{hint}");
    }
}

/// 0.169.0 repeats this message every few seconds until it is interrupted.
#[test]
fn timeout_names_the_last_error() {
    let mut digest = Digest::default();
    let waiting = "Reconnecting... waiting for network (Connection failed: error sending request)";
    let error = json!({ "type": "error", "message": waiting });
    digest.take(&serde_json::from_value(error).unwrap());
    let ending = WorkEnding::TimedOut(Duration::from_mins(1));
    let failure = judge(&ending, &digest).unwrap();
    assert_eq!(failure.class, FailureClass::Timeout);
    assert_eq!(
        failure.message,
        format!("agent timed out after 60000ms; last error: {waiting}")
    );
    assert_eq!(failure.hint(), FailureClass::Connection.hint());
    // Codex has recovered.
    let said = json!({ "type": "item.completed",
        "item": { "type": "agent_message", "id": "1", "text": "on it" } });
    digest.take(&serde_json::from_value(said).unwrap());
    let failure = judge(&ending, &digest).unwrap();
    assert_eq!(failure.message, "agent timed out after 60000ms");
    assert_eq!(failure.hint(), FailureClass::Timeout.hint());
}

#[test]
fn limit_reset_is_extracted_from_the_message() {
    for (words, reset) in [
        (
            "You've hit your usage limit. Visit x or try again at May 18th, 2033 3:33 AM.",
            Some("at May 18th, 2033 3:33 AM"),
        ),
        (
            "Rate limit reached for x. Please try again in 1.5s.",
            Some("in 1.5s"),
        ),
        (
            "rate limit; try again in 2 days 3 hours. Or upgrade.",
            Some("in 2 days 3 hours"),
        ),
        ("rate limit: try again later", None),
        ("rate limit", None),
    ] {
        let failure = judged(&failed(words));
        assert_eq!(failure.reset.as_deref(), reset, "{words}");
        assert!(failure.hint().contains(reset.unwrap_or("limit")));
    }
}

#[test]
fn long_failure_message_is_cut() {
    let long = "é".repeat(100_000);
    let failure = judged(&failed(&long));
    assert!(failure.message.len() < ERROR_LIMIT + 100);
    assert!(failure.message.ends_with("cut here]"));
}
