//! What Codex's words and ends become.

use super::*;

fn failed(message: &str) -> Digest {
    let mut digest = Digest::default();
    digest.turn = Turn::Failed(message.to_owned());
    digest.last_error = Some(message.to_owned());
    digest
}

fn completed() -> Digest {
    let mut digest = Digest::default();
    digest.turn = Turn::Completed;
    digest.message = Some("Done.".to_owned());
    digest
}

/// In events, as 0.104.0, 0.153.4 and 0.169.0 have them.
#[test]
fn words_in_events_tell_the_class() {
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
        let failure = judge(&Ending::Exited(1), &failed(words), "").unwrap();
        assert_eq!(failure.class, class, "{words}");
        assert!(failure.message.contains(words), "{words}");
    }
}

#[test]
fn words_on_stderr_tell_the_class_where_events_do_not() {
    use FailureClass::*;
    for (stderr, class) in [
        (
            "Reading prompt from stdin...\nError: 401 Unauthorized\n",
            Auth,
        ),
        (
            "Error: Missing environment variable: `OPENAI_API_KEY`.",
            Auth,
        ),
        ("ERROR: rate limit reached\n", RateLimit),
        (
            "Error: thread/resume: thread/resume failed: no rollout found for thread id x (code -32600)",
            UnknownSession,
        ),
        (
            "Error: thread/resume failed: thread x already has an active writer",
            SessionBusy,
        ),
        ("bwrap: No permissions to create new namespace", Sandbox),
        ("Error: config profile `nope` not found", Exit),
        ("WARNING: 401\nReading prompt from stdin...", Exit),
        ("", Exit),
    ] {
        let failure = judge(&Ending::Exited(1), &Digest::default(), stderr).unwrap();
        assert_eq!(failure.class, class, "{stderr}");
    }
    let failure = judge(&Ending::Exited(1), &failed("it broke"), "401 Unauthorized").unwrap();
    assert_eq!(failure.class, Auth);
    assert_eq!(failure.message, "it broke");
    let failure = judge(
        &Ending::Exited(1),
        &failed("rate limit"),
        "401 Unauthorized",
    )
    .unwrap();
    assert_eq!(failure.class, RateLimit);
}

#[test]
fn an_end_has_a_class_and_words() {
    use FailureClass::*;
    let id = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
    let after = Duration::from_millis(1500);
    for (ending, class, words) in [
        (
            Ending::NotStarted("no such file".into()),
            NotStarted,
            "no such file",
        ),
        (Ending::UnknownSession(id), UnknownSession, "01a200a4"),
        (Ending::Exited(0), EmptyOutput, "without a word"),
        (Ending::Exited(3), Exit, "code 3"),
        (Ending::Signalled(9), Signal, "signal 9"),
        (Ending::Unknown, Exit, "nobody can tell"),
        (
            Ending::TimedOut(after),
            Timeout,
            "agent timed out after 1500ms",
        ),
        (Ending::Cancelled, Cancelled, "cancelled"),
        (
            Ending::AskedToLogIn("Enter this".into()),
            Auth,
            "Enter this",
        ),
    ] {
        let failure = judge(&ending, &Digest::default(), "").unwrap();
        assert_eq!(failure.class, class, "{ending:?}");
        assert!(failure.message.contains(words), "{failure:?}");
        assert!(!failure.hint().is_empty());
    }
    assert_eq!(judge(&Ending::Exited(0), &completed(), "noise"), None);
    let failure = judge(&Ending::Exited(1), &completed(), "").unwrap();
    assert_eq!(failure.class, Exit);
    let mut silent = completed();
    silent.message = None;
    let failure = judge(&Ending::Exited(0), &silent, "").unwrap();
    assert_eq!(failure.class, EmptyOutput);
    assert!(failure.message.contains("without an answer"));
    let failure = judge(&Ending::Exited(0), &Digest::default(), "odd words").unwrap();
    assert_eq!(failure.class, EmptyOutput);
    assert!(failure.message.contains("odd words"));
}

#[test]
fn the_reset_is_told_where_codex_knows_it() {
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
        let failure = judge(&Ending::Exited(1), &failed(words), "").unwrap();
        assert_eq!(failure.reset.as_deref(), reset, "{words}");
        assert!(failure.hint().contains(reset.unwrap_or("limit")));
    }
}

#[test]
fn a_prompt_to_log_in_is_known() {
    for line in [
        "Follow these steps to sign in with ChatGPT using device code authorization:",
        "   https://auth.openai.com/codex/device",
        "2. Enter this one-time code (expires in 15 minutes)",
        "Device code: ABCD-1234",
        "If your browser did not open, navigate to this URL to authenticate:",
    ] {
        assert!(asks_to_log_in(line), "{line}");
    }
    for line in [
        "Reading prompt from stdin...",
        "2026-11-22T00:25:24.911034Z ERROR codex_core: enter this one-time code",
        "",
        "Error: 401 Unauthorized",
    ] {
        assert!(!asks_to_log_in(line), "{line}");
    }
}

#[test]
fn words_without_end_are_cut() {
    let long = "é".repeat(100_000);
    let failure = judge(&Ending::Exited(1), &Digest::default(), &long).unwrap();
    assert!(failure.message.len() < ERROR_LIMIT + 100);
    assert!(failure.message.ends_with("cut here]"));
}

/// With `RUST_BACKTRACE=1` in the environment, as 0.153.4 writes it.
#[test]
fn a_backtrace_hides_no_reason() {
    let frames: String = (0..11).map(|n| format!("   {n}: <unknown>\n")).collect();
    let stderr = format!(
        "Error: thread/resume failed: no rollout found for thread id X (code -32600)\n\n\
         Stack backtrace:\n{frames}\n"
    );
    let failure = judge(&Ending::Exited(1), &Digest::default(), &stderr).unwrap();
    assert_eq!(failure.class, FailureClass::UnknownSession);
    assert!(!failure.message.contains("<unknown>"), "{failure:?}");

    let stderr = "thread 'main' panicked at src/a.rs:1:2:\nno room\nstack backtrace:\n   \
                  0: main\n             at /x/a.rs:1:2\n   1: start\nnote: Some details are \
                  omitted, run with `RUST_BACKTRACE=full`.\nlast words\n";
    let failure = judge(&Ending::Exited(101), &Digest::default(), stderr).unwrap();
    assert!(failure.message.contains("no room"), "{failure:?}");
    assert!(failure.message.ends_with("last words"), "{failure:?}");
}
