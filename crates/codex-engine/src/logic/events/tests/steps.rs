//! Random operations on a log.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

pub(super) const ITEMS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
const REQUESTS: [&str; 3] = ["req_0", "req_1", "req_2"];

/// An operation on a log.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Text(&'static str, String),
    FixedData(EventType, usize),
    Many(EventType, usize, usize),
    ManyTexts(usize),
    Settle(&'static str),
    Reply,
    PollStep(PollStep),
    ReadToTheEnd(PollStep),
    MarkRead(u64),
}

/// A poll; the cursor is a fraction of the log, in thousandths.
#[derive(Debug, Clone)]
pub(super) struct PollStep {
    pub(super) cursor: Option<u64>,
    pub(super) poll: Poll,
    pub(super) actions: Vec<Value>,
    pub(super) result: Option<Value>,
}

pub(super) fn a_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zß\"\n]{0,30}",
        1 => (1..3 * GROWTH_LIMIT).prop_map(|length| "xß😀\u{1}".chars().cycle().take(length).collect()),
    ]
}

fn a_kind() -> impl Strategy<Value = EventType> {
    select(vec![
        EventType::Progress,
        EventType::ApprovalRequest,
        EventType::ApprovalResult,
        EventType::Result,
        EventType::Error,
    ])
}

pub(super) fn an_event(kind: EventType, length: usize, request: usize) -> EventData {
    let request = REQUESTS.get(request % REQUESTS.len());
    let message = "\u{1b}[1mß \"".chars().cycle().take(length);
    let mut data = json!({"method": "m", "message": String::from_iter(message), "other": [length]});
    if kind == EventType::ApprovalRequest {
        data["requestId"] = json!(request);
    }
    fixed(kind, data)
}

fn an_action() -> impl Strategy<Value = Value> {
    (0..2000_usize).prop_map(|length| {
        json!({"type": "user_input", "requestId": "req_12345678", "kind": "user_input",
            "params": {"command": "x".repeat(length)}, "reason": "\u{1}".repeat(length / 2)})
    })
}

fn a_result() -> impl Strategy<Value = Value> {
    (0..3000_usize, any::<bool>(), 0..20_usize).prop_map(|(length, failed, files)| {
        let text = "ß\n".repeat(length);
        let file = json!({"path": "/a/b/".repeat(files), "kind": "update"});
        let count = json!({"totalTokens": length, "inputTokens": length, "outputTokens": length,
            "cachedInputTokens": length, "reasoningOutputTokens": length});
        let mut result = json!({
            "turnId": "0199a3a4-5b6c-7d8e-9fa0-b1c2d3e4f506", "status": "completed",
            "output": text, "structuredOutput": {"text": text, "numbers": [1, 2, 3]},
            "completedAt": "2025-01-01T00:00:00.000Z", "turn": {"id": "t", "items": [&text]},
            "usage": {"last": count, "total": count, "modelContextWindow": 272_000},
            "plan": {"plan": vec![json!({"step": "s", "status": "pending"}); files]},
            "diff": text, "diffTruncated": true, "changedFiles": vec![file; files],
            "changedFilesOmitted": 12,
        });
        if failed {
            let info = json!({"httpConnectionFailed": {"httpStatusCode": 401}});
            result["turnError"] = json!({"message": text, "codexErrorInfo": info});
            result["error"] = text.into();
        }
        result
    })
}

fn a_look() -> impl Strategy<Value = PollStep> {
    let cursor = prop_oneof![
        2 => Just(None),
        1 => select(vec![0, 1000]).prop_map(Some),
        2 => (0..=1000_u64).prop_map(Some),
    ];
    let mode = select(vec![
        ResponseMode::Minimal,
        ResponseMode::DeltaCompact,
        ResponseMode::Full,
        ResponseMode::Full,
    ]);
    let max_events = prop_oneof![1 => Just(0), 3 => 1..8_usize, 1 => 8..400_usize];
    let max_bytes = prop_oneof![
        Just(None),
        (0..100_u64).prop_map(Some),
        (100..20_000_u64).prop_map(Some)
    ];
    let parts = (proptest::bool::weighted(0.9), any::<bool>(), any::<bool>());
    let asked = prop_oneof![
        proptest::collection::vec(an_action(), 0..4),
        proptest::collection::vec(an_action(), 4..20),
    ];
    let end = proptest::option::of(a_result());
    (cursor, mode, max_events, max_bytes, parts, asked, end).prop_map(
        |(cursor, mode, max_events, max_bytes, parts, actions, result)| {
            let options = PollOptions {
                include_events: parts.0,
                include_actions: parts.1,
                include_result: parts.2,
                max_bytes,
            };
            PollStep {
                cursor,
                poll: Poll {
                    cursor: None,
                    max_events,
                    mode,
                    options,
                },
                // A session has open questions or a result, never both.
                actions: if result.is_some() {
                    Vec::new()
                } else {
                    actions
                },
                result,
            }
        },
    )
}

pub(super) fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (select(ITEMS.to_vec()), a_text()).prop_map(|(item, text)| Step::Text(item, text)),
        6 => (a_kind(), 0..3000_usize).prop_map(|(kind, length)| Step::FixedData(kind, length)),
        2 => (a_kind(), 0..200_usize, 0..1100_usize)
            .prop_map(|(kind, length, count)| Step::Many(kind, length, count)),
        1 => (a_kind(), 10_000..20_000_usize, 0..450_usize)
            .prop_map(|(kind, length, count)| Step::Many(kind, length, count)),
        1 => (1..50_usize).prop_map(Step::ManyTexts),
        2 => select(REQUESTS.to_vec()).prop_map(Step::Settle),
        1 => Just(Step::Reply),
        10 => a_look().prop_map(Step::PollStep),
        1 => a_look().prop_map(Step::ReadToTheEnd),
        1 => (0..1100_u64).prop_map(Step::MarkRead),
    ]
}
