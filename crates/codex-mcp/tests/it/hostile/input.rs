//! Input on stdin.

use serde_json::{Value, json};
use testkit::fake::{HELLO, Plan};
use testkit::process::{peak_kib, pss_kib};

use super::serve::{Serve, code, completed, message};

/// The default limit of a line: 16 MiB.
const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

/// Sends a line and checks that it is refused like this, once, and that the next
/// one is served.
async fn refused(serve: &mut Serve, line: &[u8], id: &Value, code: i64) {
    let shown = line.get(..80).unwrap_or(line).escape_ascii().to_string();
    serve.client.send_raw([line, b"\n"].concat());
    let answer = serve.client.next_message().await;
    assert_eq!(answer.get("id").unwrap_or(&Value::Null), id, "{shown}");
    assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(!message.is_empty() && message.len() < 1000, "{message}");
    serve.settled().await;
}

#[tokio::test]
async fn invalid_line_is_refused_once_and_the_next_is_served() {
    let mut serve = Serve::plain(&Plan::new()).await;
    for (line, code) in [
        (&b"not JSON"[..], -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"met", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[]", -32600),
        (b"{}", -32600),
        (b"7", -32600),
    ] {
        refused(&mut serve, line, &Value::Null, code).await;
    }
    for (id, method) in [
        (json!(1.5), json!("ping")),
        (json!(99_999_999_999_999_999_999.0), json!("ping")),
        (json!(u64::MAX), json!("ping")),
        (json!([]), json!("ping")),
        (json!(true), json!("ping")),
        (json!("m"), json!(7)),
    ] {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method}).to_string();
        refused(&mut serve, line.as_bytes(), &Value::Null, -32600).await;
        // No response can name it.
        serve.client.abandon(&id);
    }
    serve.finish().await;
}

#[tokio::test]
async fn invalid_request_is_refused_once_by_its_id() {
    let mut serve = Serve::plain(&Plan::new()).await;
    for (method, params, code) in [
        ("no/such", "{}", -32601),
        ("tools/call", "[]", -32602),
        ("tools/call", "{}", -32602),
        ("tools/call", "{\"name\":1}", -32602),
        (
            "tools/call",
            "{\"name\":\"codex\",\"arguments\":[]}",
            -32602,
        ),
        ("tools/call", "\"codex\"", -32602),
        ("tools/call", &deeply_nested(), -32600),
        ("initialize", "{}", -32602),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{params}}}"#);
        refused(&mut serve, line.as_bytes(), &json!("x"), code).await;
    }
    serve.finish().await;
}

fn deeply_nested() -> String {
    const DEPTH: usize = 200_000;
    ["[".repeat(DEPTH), "]".repeat(DEPTH)].concat()
}

#[tokio::test]
async fn blank_lines_and_carriage_returns_are_ignored() {
    let mut serve = Serve::plain(&Plan::new()).await;
    serve
        .client
        .send_raw("\n \r\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\r\n\n".to_owned());
    assert_eq!(serve.client.result(&json!("x")).await, json!({}));
    serve.finish().await;
}

#[tokio::test]
async fn partial_line_at_the_end_is_answered() {
    let mut serve = Serve::plain(&Plan::new()).await;
    serve
        .client
        .send_raw("{\"jsonrpc\":\"2.0\",\"id\":5,\"meth");
    serve.client.close_stdin();
    let answer = serve.client.next_message().await;
    assert_eq!(answer["error"]["code"], -32700);
    serve.finish().await;
}

#[tokio::test]
async fn last_request_without_a_newline_is_answered() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let ping = json!({"jsonrpc": "2.0", "id": "last", "method": "ping"});
    serve.client.send_raw(ping.to_string());
    serve.client.close_stdin();
    assert_eq!(serve.client.result(&json!("last")).await, json!({}));
    serve.finish().await;
}

#[tokio::test]
async fn line_of_100_mb_is_refused_and_the_next_is_served() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let mut line = vec![b'x'; 100_000_000];
    line.push(b'\n');
    serve.client.send_raw(line);
    let tools = serve.client.request("tools/list", json!({}));

    let refusal = serve.client.next_message().await;
    assert_eq!(refusal["error"]["code"], -32600);
    let message = refusal["error"]["message"].as_str().unwrap();
    assert!(message.contains("100000000 bytes"), "{message}");
    assert!(message.contains("--max-line"), "{message}");
    serve.client.result(&tools).await;
    let memory = pss_kib(serve.client.pid()).unwrap();
    assert!(memory < 64 * 1024, "{memory} KiB held after a giant line");
    serve.finish().await;
}

#[tokio::test]
async fn unterminated_giant_line_is_answered() {
    let mut serve = Serve::plain(&Plan::new()).await;
    serve.client.send_raw(vec![b'x'; DEFAULT_LIMIT + 100_000]);
    serve.client.close_stdin();
    let refusal = serve.client.next_message().await;
    assert_eq!(refusal["error"]["code"], -32600, "{refusal}");
    serve.finish().await;
}

#[tokio::test]
async fn memory_stays_bounded_for_lines_of_many_values() {
    memory_is_bounded(Serve::plain(&Plan::new()).await).await;
}

/// Sends calls of about 16 MB that consist of short JSON values.
pub(super) async fn memory_is_bounded(mut serve: Serve) {
    for (value, taken) in [
        (r#""","#, false),
        ("0,", false),
        ("[],", false),
        (r#"{"":0},"#, false),
        (r#"{"":0},"#, true),
    ] {
        // The object and its member count, and the comma behind it.
        let count = if taken {
            16_000
        } else {
            (DEFAULT_LIMIT - 200) / value.len()
        };
        let id = json!(format!("{value} {count} times"));
        let list = value.repeat(count);
        let list = list.trim_end_matches(',');
        serve.client.send_raw(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":\
             {{\"name\":\"codex\",\"arguments\":{{\"prompt\":[{list}]}}}}}}\n"
        ));
        let answer = serve.client.next_message().await;
        assert_eq!(answer["id"], id);
        if taken {
            assert!(answer["result"].is_object(), "{answer}");
        } else {
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("JSON values"), "{message}");
        }
        serve.client.abandon(&id);
    }
    let peak = peak_kib(serve.client.pid()).unwrap();
    assert!(peak < 100 * 1024, "{peak} KiB in use at the peak");
    serve.finish().await;
}

#[tokio::test]
async fn line_limit_is_exact_and_configurable() {
    let mut serve = Serve::plain_with(&Plan::new(), &["--max-line", "2000"]).await;
    for (length, taken) in [(2000, true), (2001, false)] {
        let id = json!(format!("line of {length}"));
        let bare = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
        let line = format!("{bare}{}\n", " ".repeat(length - bare.len()));
        serve.client.send_raw(line);
        let answer = serve.client.next_message().await;
        if taken {
            assert_eq!(answer["id"], id);
        } else {
            assert_eq!(answer["error"]["code"], -32600);
            serve.client.abandon(&id);
        }
    }
    serve.finish().await;
}

#[tokio::test]
async fn wrong_arguments_are_named_and_do_not_reach_codex() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let id = "019fa4e0-0000-7000-8001-000000000001";
    for (tool, arguments, named) in [
        ("codex", json!({}), "prompt"),
        ("codex", json!({"prompt": ""}), "prompt"),
        ("codex", json!({"prompt": 7}), "prompt"),
        (
            "codex",
            json!({"prompt": "x", "sandbox": "none"}),
            "sandbox",
        ),
        ("codex", json!({"prompt": "x", "config": "a=1"}), "config"),
        (
            "codex",
            json!({"prompt": "x", "profile": "../p"}),
            "profile",
        ),
        (
            "codex",
            json!({"prompt": "x", "cwd": "/no/such/directory"}),
            "/no/such/directory",
        ),
        (
            "codex",
            json!({"prompt": "x", "cwd": "README.md"}),
            "README.md",
        ),
        ("codex", json!({"prompt": "x", "made-up": 1}), "made-up"),
        ("codex-reply", json!({"prompt": "x"}), "threadId"),
        (
            "codex-reply",
            json!({"prompt": "x", "threadId": 5}),
            "threadId",
        ),
        (
            "codex-reply",
            json!({"prompt": "x", "threadId": "../x"}),
            "threadId",
        ),
        ("codex-reply", json!({"threadId": id}), "prompt"),
    ] {
        let result = serve.client.call_tool(tool, arguments.clone()).await;
        assert_eq!(code(&result), "INVALID_ARGUMENT", "{arguments}");
        assert!(message(&result).contains(named), "{arguments}: {result:#}");
    }
    assert!(
        !serve
            .methods()
            .iter()
            .any(|method| method.starts_with("thread/"))
    );
    serve.finish().await;
}

#[tokio::test]
async fn unknown_tool_is_refused_with_the_known_names() {
    let mut serve = Serve::plain(&Plan::new()).await;
    let unknown = serve.client.request_tool("no-such-tool", json!({}));
    let error = serve.client.error(&unknown).await;
    assert_eq!(error["code"], -32602);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("codex, codex-reply"), "{message}");
    serve.finish().await;
}

#[tokio::test]
async fn unmatched_answer_or_cancellation_is_ignored() {
    let mut serve = Serve::plain(&Plan::new()).await;
    serve
        .client
        .respond(&json!(17), json!({"action": "accept"}));
    serve.client.respond_error(&json!("x"), -1, "no");
    for params in [
        json!({"requestId": 99}),
        json!({"requestId": {}}),
        json!({}),
        Value::Null,
    ] {
        serve.client.notify("notifications/cancelled", params);
    }
    serve.client.notify("notifications/made-up", json!([1]));
    assert_eq!(completed(&serve.codex().await), HELLO);
    serve.finish().await;
}

#[tokio::test]
async fn duplicate_open_id_is_refused_and_the_first_continues() {
    let mut serve = Serve::plain(&super::serve::turns([testkit::fake::Action::gate("go")])).await;
    let call = json!({
        "jsonrpc": "2.0", "id": "twice", "method": "tools/call",
        "params": {"name": "codex", "arguments": {"prompt": "hi"}},
    });
    serve.client.send(&call);
    serve.fake.wait_for_method("turn/start").await;
    serve.client.send(&call);
    let refusal = serve.client.next_message().await;
    assert_eq!(refusal.get("id").unwrap_or(&Value::Null), &Value::Null);
    assert_eq!(refusal["error"]["code"], -32600, "{refusal}");
    serve.fake.open_gate("go");
    let result = serve.client.result(&json!("twice")).await;
    assert_eq!(completed(&result), "done");
    serve.client.send(&call);
    let again = serve.client.result(&json!("twice")).await;
    assert_eq!(completed(&again), "done");
    serve.finish().await;
}
