//! Tests of the notes for the recorder, and of the requests for summaries.

use super::*;

const ASK: &str = "Summarise.";

fn initialized() -> Harness {
    Harness::initialized("0.153.4", &no_capabilities())
}

impl Harness {
    /// A harness with a thread in which a turn was completed.
    fn with_thread(&mut self, call: i64, thread: &str) {
        self.call(call);
        self.child(&answered(call, thread));
    }

    fn end(&mut self) -> Vec<Value> {
        let mut effects = self.router.shut_down();
        effects.extend(self.router.request_summaries(ASK, self.now));
        asked(&effects)
    }

    fn summaries(&mut self) -> Vec<(String, Option<String>)> {
        let notes = self.router.take_notes().into_iter();
        notes
            .filter_map(|note| match note {
                Note::SummaryReceived { thread, text } => Some((thread, text)),
                _ => None,
            })
            .collect()
    }
}

/// The prompts among the effects.
fn asked(effects: &[Effect]) -> Vec<Value> {
    let messages = effects.iter().filter_map(|effect| match effect {
        Effect::ToChild(bytes) => Some(parsed(bytes)),
        _ => None,
    });
    messages
        .filter(|message| message["method"] == "tools/call")
        .collect()
}

fn summary(id: &Value, thread: &str, content: &str) -> Value {
    let structured = json!({ "threadId": thread, "content": content });
    let result = json!({ "content": [], "structuredContent": structured });
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[test]
fn call_is_noted_from_its_forwarding_to_its_answer() {
    let mut harness = initialized();
    harness.call(1);
    let call = RequestId::Number(1);
    let thread = || "t".to_owned();
    let forwarded = Note::CallForwarded {
        call: call.clone(),
        tool: "codex".to_owned(),
        thread: None,
        prompt: "x".to_owned(),
    };
    assert_eq!(harness.router.take_notes(), [forwarded]);
    let configured = json!({ "type": "session_configured", "session_id": "t" });
    harness.child(&event(1, "t", &configured));
    harness.child(&event(1, "t", &json!({ "type": "task_started" })));
    harness.child(&answered(1, "t"));
    let began = Note::ThreadStarted {
        call: call.clone(),
        thread: thread(),
    };
    let over = Note::CallEnded {
        call,
        thread: Some(thread()),
        outcome: CallOutcome::Answered,
    };
    assert_eq!(harness.router.take_notes(), [began, over]);

    harness.reply(2, "t");
    harness.client(&cancelled(2));
    let notes = harness.router.take_notes();
    let Note::CallForwarded { thread, .. } = &notes[0] else {
        panic!("{notes:?}");
    };
    assert_eq!(thread.as_deref(), Some("t"));
    assert!(matches!(
        &notes[1],
        Note::CallEnded { outcome: CallOutcome::Abandoned, thread: Some(thread), .. } if thread == "t"
    ));
}

#[test]
fn each_thread_is_asked_for_one_summary() {
    let mut harness = initialized();
    harness.with_thread(1, "t");
    harness.with_thread(2, "u");
    harness.reply(3, "u");
    harness.child(&answered(3, "u"));
    let prompts = harness.end();
    assert_eq!(prompts.len(), 2);
    for prompt in &prompts {
        assert_eq!(prompt["params"]["name"], "codex-reply");
        assert_eq!(prompt["params"]["arguments"]["prompt"], ASK);
    }
    assert_eq!(harness.router.pending_summaries(), 2);
    let effects = harness.child(&summary(&prompts[0]["id"], "t", " All done. "));
    assert_eq!(effects, []);
    assert_eq!(
        harness.summaries(),
        [("t".to_owned(), Some("All done.".to_owned()))]
    );
    // The client is no longer asked questions, and the answer may still come.
    let id = prompts[1]["id"].clone();
    let effects = harness.child(&question(7, 99, "u"));
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
    let effects = harness.router.child_gone("exited with code 0");
    assert_eq!(effects, [], "{id}");
    assert_eq!(harness.summaries(), [("u".to_owned(), None)]);
    assert_eq!(harness.router.pending_summaries(), 0);
}

#[test]
fn summary_is_requested_after_the_running_turn() {
    let mut harness = initialized();
    harness.with_thread(1, "t");
    harness.reply(2, "t");
    harness.child(&event(2, "t", &json!({ "type": "task_started" })));
    assert_eq!(harness.end(), Vec::<Value>::new());
    assert_eq!(harness.router.pending_summaries(), 1);
    let aborted = event(2, "t", &json!({ "type": "turn_aborted" }));
    let prompts = asked(&harness.child(&aborted));
    assert_eq!(prompts.len(), 1);
    // The summary may come under the ID of the ended call.
    harness.child(&event(2, "t", &json!({ "type": "task_started" })));
    harness.child(&event(2, "t", &json!({ "type": "task_complete" })));
    let effects = harness.child(&summary(&json!(2), "t", "Half done."));
    assert_eq!(effects, []);
    assert_eq!(
        harness.summaries(),
        [("t".to_owned(), Some("Half done.".to_owned()))]
    );
}

#[test]
fn child_that_is_gone_is_not_asked_for_summaries() {
    let mut harness = initialized();
    harness.with_thread(1, "t");
    harness.router.child_gone("exited with code 3");
    assert_eq!(harness.end(), Vec::<Value>::new());
    assert_eq!(harness.router.pending_summaries(), 0);
}

#[test]
fn summary_that_times_out_is_noted_as_missing() {
    let mut harness = initialized();
    harness.with_thread(1, "t");
    let prompts = harness.end();
    assert_eq!(prompts.len(), 1);
    let effects = harness.later(LIMITS.call);
    assert_eq!(
        only_message_to_child(&effects)["method"],
        "notifications/cancelled"
    );
    assert_eq!(harness.summaries(), [("t".to_owned(), None)]);
}
