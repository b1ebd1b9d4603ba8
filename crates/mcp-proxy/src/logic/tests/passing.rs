use super::*;

#[test]
fn initialize_is_answered_at_once_and_forwarded() {
    for (requested, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut harness = Harness::new();
        let params = json!({ "protocolVersion": requested, "capabilities": {}, "x": [1.50] });
        let effects = harness.client(&request(7, "initialize", &params));
        let [
            Effect::Answer {
                id,
                answer: Answer::Result(result),
            },
            Effect::ToChild(sent),
        ] = effects.as_slice()
        else {
            panic!("{effects:?}");
        };
        assert_eq!(*id, RequestId::Number(7));
        assert_eq!(result["protocolVersion"], answered);
        assert_eq!(result["serverInfo"]["name"], "ours");
        let sent = parsed(sent);
        assert_eq!(sent["id"], "codex-mcp:initialize");
        assert_eq!(sent["params"], params);
    }
}

#[test]
fn foreign_messages_pass_byte_for_byte() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    let from_client: [&[u8]; 4] = [
        br#"{"method":"made/up",  "b":1.50,"a":1e2,"id":"x","params":{"n":100000000000000000000},"jsonrpc":"2.0"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"codex","z":1,"arguments":{"prompt":"\u00fc","_x":-0.0},"_meta":{"progressToken":3}}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/made_up","params":[ ]}"#,
        br#"{"jsonrpc":"2.0","id":88,"result":{"roots":[]}}"#,
    ];
    for bytes in from_client {
        let effects = harness.client_says(bytes);
        assert_eq!(effects.first(), Some(&Effect::ToChild(bytes.to_vec())));
    }
    let from_child: [&[u8]; 5] = [
        br#"{"id":"x","jsonrpc":"2.0","result":{"y":1.0,"x":{}}}"#,
        br#"{"jsonrpc":"2.0","method":"codex/event","params":{"_meta":{"requestId":1,"threadId":"t"},"id":"","msg":{"type":"made_up","n":1.10}}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":0.50}}"#,
        br#"{"jsonrpc":"2.0","id":88,"method":"roots/list"}"#,
        br#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"threadId":"t","content":"c"},"content":[],"b":1.0,"a":2}}"#,
    ];
    for bytes in from_child {
        assert_eq!(
            harness.child_says(bytes),
            [Effect::ToClient(bytes.to_vec())]
        );
    }
}

#[test]
fn tool_list_has_the_childs_tools_and_ours() {
    let mut harness = Harness::new();
    let list = request(1, "tools/list", &json!({}));
    let effects = harness.client(&list);
    let known = effects.iter().find_map(|effect| match effect {
        Effect::Answer {
            answer: Answer::Result(result),
            ..
        } => Some(result.clone()),
        _ => None,
    });
    let names = |list: &Value| -> Vec<String> {
        let tools = list["tools"].as_array().unwrap();
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    };
    assert_eq!(
        names(&known.unwrap()),
        ["codex", "codex-reply", "codex_status"]
    );

    // The child's own list may differ.
    let handshake = json!({ "jsonrpc": "2.0", "id": "codex-mcp:initialize", "result": {} });
    let effects = harness.child(&handshake);
    let [Effect::ToClient(changed)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(
        parsed(changed)["method"],
        "notifications/tools/list_changed"
    );

    let list = request(2, "tools/list", &json!({}));
    assert_eq!(harness.client(&list), [to_child(&list)]);
    let effects = harness.child_says(
        br#"{"jsonrpc":"2.0","id":2,"result":{"nextCursor":null, "tools":[{"name":"codex","n":1.0}] }}"#,
    );
    let longer = br#"{"jsonrpc":"2.0","id":2,"result":{"nextCursor":null, "tools":[{"name":"codex","n":1.0},{"name":"codex_status"}] }}"#;
    assert_eq!(effects, [Effect::ToClient(longer.to_vec())]);
}

#[test]
fn request_that_the_child_skips_is_answered_by_the_router() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    let skipped = request(1, "resources/list", &json!({}));
    let effects = harness.client(&skipped);
    let [Effect::ToChild(sent), Effect::ToChild(ping)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(parsed(sent), skipped);
    let ping = parsed(ping);
    assert_eq!(ping["method"], "ping");
    let pong = json!({ "jsonrpc": "2.0", "id": ping["id"], "result": {} });
    let answer = Answer::UnknownMethod {
        method: "resources/list".to_owned(),
    };
    let id = RequestId::Number(1);
    assert_eq!(harness.child(&pong), [Effect::Answer { id, answer }]);
    assert_eq!(harness.child(&pong), []);
}

#[test]
fn request_without_an_answer_times_out() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.client(&request(1, "ping", &json!({})));
    assert_eq!(
        harness.router.next_deadline(),
        Some(harness.now + LIMITS.request)
    );
    assert_eq!(harness.later(LIMITS.request - SECOND), []);
    let effects = harness.later(SECOND);
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer {
                answer: Answer::Error {
                    why: Failure::TimedOut,
                    ..
                },
                ..
            }]
        ),
        "{effects:?}"
    );
    assert_eq!(harness.router.next_deadline(), None);
    // Too late.
    assert_eq!(
        harness.child(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
        []
    );
}

#[test]
fn ids_in_use_are_refused() {
    let mut harness = Harness::initialized("0.153.4", &elicits());
    harness.call(5);
    let ours = json!({ "jsonrpc": "2.0", "id": "codex-mcp:ping:1", "method": "ping" });
    let refusal = |harness: &mut Harness, message: &Value| {
        let effects = harness.client(message);
        match effects.as_slice() {
            [Effect::Answer { answer, .. }] => answer.clone(),
            other => panic!("{other:?}"),
        }
    };
    for message in [codex(5), ours] {
        assert_eq!(refusal(&mut harness, &message), Answer::IdInUse);
    }
    // No other request waits for an answer under this ID, so the refusal may name it.
    harness.client(&cancelled(5));
    assert_eq!(refusal(&mut harness, &codex(5)), Answer::IdSpent);
}

#[test]
fn server_discover_before_initialize_is_refused() {
    let mut harness = Harness::new();
    let effects = harness.client(&request(1, "server/discover", &json!({})));
    assert!(
        matches!(
            effects.as_slice(),
            [Effect::Answer {
                answer: Answer::UnknownMethod { .. },
                ..
            }]
        ),
        "{effects:?}"
    );
    // A ping may come before `initialize`, and does not initialize the child.
    let effects = harness.client(&request(2, "ping", &json!({})));
    let id = RequestId::Number(2);
    let answer = Answer::Result(json!({}));
    assert_eq!(effects, [Effect::Answer { id, answer }]);
    // For a client that sends no `initialize`, the router sends one to the child.
    let effects = harness.client(&request(3, "made/up", &json!({})));
    let sent: Vec<Value> = effects
        .iter()
        .map(|effect| match effect {
            Effect::ToChild(bytes) => parsed(bytes)["method"].clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        sent,
        ["initialize", "notifications/initialized", "made/up", "ping"]
    );
}

#[test]
fn our_tools_are_added_to_the_last_page() {
    let mut harness = Harness::initialized("0.153.4", &no_capabilities());
    harness.client(&request(1, "tools/list", &json!({})));
    let page = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [], "nextCursor": "x" } });
    assert_eq!(harness.child(&page), [to_client(&page)]);
}
