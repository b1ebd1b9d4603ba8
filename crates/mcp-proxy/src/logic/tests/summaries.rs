//! What is noted for the record, and the last question to each thread.

use super::*;

const ASK: &str = "Summarise.";

fn begun() -> Table {
    Table::begun("0.153.4", &no_capabilities())
}

impl Table {
    /// A thread in which a turn has been done.
    fn with_thread(&mut self, call: i64, thread: &str) {
        self.call(call);
        self.child(&answered(call, thread));
    }

    fn end(&mut self) -> Vec<Value> {
        let mut effects = self.router.shut_down();
        effects.extend(self.router.ask_for_summaries(ASK, self.now));
        asked(&effects)
    }

    fn summaries(&mut self) -> Vec<(String, Option<String>)> {
        let notes = self.router.take_notes().into_iter();
        notes
            .filter_map(|note| match note {
                Note::Summary { thread, text } => Some((thread, text)),
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
fn a_call_is_noted_from_its_forwarding_to_its_answer() {
    let mut table = begun();
    table.call(1);
    let call = RequestId::Number(1);
    let thread = || "t".to_owned();
    let forwarded = Note::Forwarded {
        call: call.clone(),
        tool: "codex".to_owned(),
        thread: None,
        prompt: "x".to_owned(),
    };
    assert_eq!(table.router.take_notes(), [forwarded]);
    let configured = json!({ "type": "session_configured", "session_id": "t" });
    table.child(&event(1, "t", &configured));
    table.child(&event(1, "t", &json!({ "type": "task_started" })));
    table.child(&answered(1, "t"));
    let began = Note::Began {
        call: call.clone(),
        thread: thread(),
    };
    let over = Note::Over {
        call,
        thread: Some(thread()),
        how: How::Answered,
    };
    assert_eq!(table.router.take_notes(), [began, over]);

    table.reply(2, "t");
    table.client(&cancelled(2));
    let notes = table.router.take_notes();
    let Note::Forwarded { thread, .. } = &notes[0] else {
        panic!("{notes:?}");
    };
    assert_eq!(thread.as_deref(), Some("t"));
    assert!(matches!(
        &notes[1],
        Note::Over { how: How::Left, thread: Some(thread), .. } if thread == "t"
    ));
}

#[test]
fn each_thread_is_asked_once_and_its_answer_noted() {
    let mut table = begun();
    table.with_thread(1, "t");
    table.with_thread(2, "u");
    table.reply(3, "u");
    table.child(&answered(3, "u"));
    let prompts = table.end();
    assert_eq!(prompts.len(), 2);
    for prompt in &prompts {
        assert_eq!(prompt["params"]["name"], "codex-reply");
        assert_eq!(prompt["params"]["arguments"]["prompt"], ASK);
    }
    assert_eq!(table.router.summaries_missing(), 2);
    let effects = table.child(&summary(&prompts[0]["id"], "t", " All done. "));
    assert_eq!(effects, []);
    assert_eq!(
        table.summaries(),
        [("t".to_owned(), Some("All done.".to_owned()))]
    );
    // A question then has nobody to go to, and the answer may still come.
    let id = prompts[1]["id"].clone();
    let effects = table.child(&question(7, 99, "u"));
    assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
    let effects = table.router.child_gone("exited with code 0");
    assert_eq!(effects, [], "{id}");
    assert_eq!(table.summaries(), [("u".to_owned(), None)]);
    assert_eq!(table.router.summaries_missing(), 0);
}

#[test]
fn a_thread_is_asked_when_its_turn_is_over() {
    let mut table = begun();
    table.with_thread(1, "t");
    table.reply(2, "t");
    table.child(&event(2, "t", &json!({ "type": "task_started" })));
    assert_eq!(table.end(), Vec::<Value>::new());
    assert_eq!(table.router.summaries_missing(), 1);
    let aborted = event(2, "t", &json!({ "type": "turn_aborted" }));
    let prompts = asked(&table.child(&aborted));
    assert_eq!(prompts.len(), 1);
    // What comes under the id of the call that was ended is the summary all the same.
    table.child(&event(2, "t", &json!({ "type": "task_started" })));
    table.child(&event(2, "t", &json!({ "type": "task_complete" })));
    let effects = table.child(&summary(&json!(2), "t", "Half done."));
    assert_eq!(effects, []);
    assert_eq!(
        table.summaries(),
        [("t".to_owned(), Some("Half done.".to_owned()))]
    );
}

#[test]
fn a_child_that_is_gone_is_not_asked() {
    let mut table = begun();
    table.with_thread(1, "t");
    table.router.child_gone("exited with code 3");
    assert_eq!(table.end(), Vec::<Value>::new());
    assert_eq!(table.router.summaries_missing(), 0);
}

#[test]
fn a_summary_that_takes_too_long_is_none() {
    let mut table = begun();
    table.with_thread(1, "t");
    let prompts = table.end();
    assert_eq!(prompts.len(), 1);
    let effects = table.later(LIMITS.call);
    assert_eq!(told_child(&effects)["method"], "notifications/cancelled");
    assert_eq!(table.summaries(), [("t".to_owned(), None)]);
}
