use super::*;

#[test]
fn initialize_is_answered_at_once_and_told_to_the_child() {
    for (wanted, spoken) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut table = Table::new();
        let params = json!({ "protocolVersion": wanted, "capabilities": {}, "x": [1.50] });
        let effects = table.client(&request(7, "initialize", &params));
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
        assert_eq!(result["protocolVersion"], spoken);
        assert_eq!(result["serverInfo"]["name"], "ours");
        let sent = parsed(sent);
        assert_eq!(sent["id"], "codex-mcp:initialize");
        assert_eq!(sent["params"], params);
    }
}

#[test]
fn what_is_not_ours_passes_byte_for_byte() {
    let mut table = Table::begun("0.153.4", &elicits());
    let from_client: [&[u8]; 4] = [
        br#"{"method":"made/up",  "b":1.50,"a":1e2,"id":"x","params":{"n":100000000000000000000},"jsonrpc":"2.0"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"codex","z":1,"arguments":{"prompt":"\u00fc","_x":-0.0},"_meta":{"progressToken":3}}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/made_up","params":[ ]}"#,
        br#"{"jsonrpc":"2.0","id":88,"result":{"roots":[]}}"#,
    ];
    for bytes in from_client {
        let effects = table.client_says(bytes);
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
        assert_eq!(table.child_says(bytes), [Effect::ToClient(bytes.to_vec())]);
    }
}

#[test]
fn a_list_of_tools_is_the_childs_and_ours() {
    let mut table = Table::new();
    let list = request(1, "tools/list", &json!({}));
    let effects = table.client(&list);
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

    // The child's own list may be another one.
    let introduced = json!({ "jsonrpc": "2.0", "id": "codex-mcp:initialize", "result": {} });
    let effects = table.child(&introduced);
    let [Effect::ToClient(changed)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(
        parsed(changed)["method"],
        "notifications/tools/list_changed"
    );

    let list = request(2, "tools/list", &json!({}));
    assert_eq!(table.client(&list), [to_child(&list)]);
    let effects = table.child_says(
        br#"{"jsonrpc":"2.0","id":2,"result":{"nextCursor":null, "tools":[{"name":"codex","n":1.0}] }}"#,
    );
    let longer = br#"{"jsonrpc":"2.0","id":2,"result":{"nextCursor":null, "tools":[{"name":"codex","n":1.0},{"name":"codex_status"}] }}"#;
    assert_eq!(effects, [Effect::ToClient(longer.to_vec())]);
}

#[test]
fn a_request_that_the_child_skips_is_answered_by_us() {
    let mut table = Table::begun("0.153.4", &elicits());
    let skipped = request(1, "resources/list", &json!({}));
    let effects = table.client(&skipped);
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
    assert_eq!(table.child(&pong), [Effect::Answer { id, answer }]);
    assert_eq!(table.child(&pong), []);
}

#[test]
fn a_request_without_an_answer_is_given_up() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.client(&request(1, "ping", &json!({})));
    assert_eq!(
        table.router.next_deadline(),
        Some(table.now + LIMITS.request)
    );
    assert_eq!(table.later(LIMITS.request - SECOND), []);
    let effects = table.later(SECOND);
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
    assert_eq!(table.router.next_deadline(), None);
    // Too late.
    assert_eq!(
        table.child(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
        []
    );
}

#[test]
fn ids_are_used_once() {
    let mut table = Table::begun("0.153.4", &elicits());
    table.call(5);
    let ours = json!({ "jsonrpc": "2.0", "id": "codex-mcp:ping:1", "method": "ping" });
    let refusal = |table: &mut Table, message: &Value| {
        let effects = table.client(message);
        match effects.as_slice() {
            [Effect::Answer { answer, .. }] => answer.clone(),
            other => panic!("{other:?}"),
        }
    };
    for message in [codex(5), ours] {
        assert_eq!(refusal(&mut table, &message), Answer::IdInUse);
    }
    // Nobody else waits for an answer under it, so the refusal may name it.
    table.client(&cancelled(5));
    assert_eq!(refusal(&mut table, &codex(5)), Answer::IdSpent);
}

#[test]
fn a_client_that_can_do_without_initialize_is_told_that_the_child_cannot() {
    let mut table = Table::new();
    let effects = table.client(&request(1, "server/discover", &json!({})));
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
    // A ping may come before it begins, and tells nothing of the client.
    let effects = table.client(&request(2, "ping", &json!({})));
    let id = RequestId::Number(2);
    let answer = Answer::Result(json!({}));
    assert_eq!(effects, [Effect::Answer { id, answer }]);
    // One that begins without a word gets no further without one of ours.
    let effects = table.client(&request(3, "made/up", &json!({})));
    let told: Vec<Value> = effects
        .iter()
        .map(|effect| match effect {
            Effect::ToChild(bytes) => parsed(bytes)["method"].clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        ["initialize", "notifications/initialized", "made/up", "ping"]
    );
}

#[test]
fn our_tools_are_on_the_last_page() {
    let mut table = Table::begun("0.153.4", &no_capabilities());
    table.client(&request(1, "tools/list", &json!({})));
    let page = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [], "nextCursor": "x" } });
    assert_eq!(table.child(&page), [to_client(&page)]);
}
