use serde_json::json;

use super::*;

fn members() -> Vec<Member> {
    vec![
        ("command".to_owned(), json!("codex-mcp")),
        ("args".to_owned(), json!(["serve", "--tools", "runs"])),
    ]
}

/// A text with comments, an odd order and unknown members, and how it reads with our server.
struct Case {
    format: Format,
    key: &'static str,
    before: &'static str,
    after: &'static str,
}

const CASES: [Case; 9] = [
    Case {
        format: Format::Json,
        key: "mcpServers",
        before: "",
        after: r#"{
  "mcpServers": {
    "codex": {
      "command": "codex-mcp",
      "args": ["serve", "--tools", "runs"]
    }
  }
}
"#,
    },
    Case {
        format: Format::Json,
        key: "servers",
        before: r#"{
    // Mine, do not touch.
    "inputs": [ {"id": "token"} ], /* odd */
    "servers": {
        "other": { "command": "x" }, // the first

        "last": {"url": "https://example.com"} // no comma
    },
    "zzz": 1e3
}"#,
        after: r#"{
    // Mine, do not touch.
    "inputs": [ {"id": "token"} ], /* odd */
    "servers": {
        "other": { "command": "x" }, // the first

        "last": {"url": "https://example.com"}, // no comma
        "codex": {
            "command": "codex-mcp",
            "args": ["serve", "--tools", "runs"]
        }
    },
    "zzz": 1e3
}"#,
    },
    Case {
        format: Format::Json,
        key: "context_servers",
        before: "// Zed\n{\n\t\"theme\": \"One\",\n}\n",
        after: "// Zed\n{\n\t\"theme\": \"One\",\n\t\"context_servers\": {\n\t\t\"codex\": {\n\t\t\t\"command\": \
                \"codex-mcp\",\n\t\t\t\"args\": [\"serve\", \"--tools\", \"runs\"]\n\t\t}\n\t},\n}\n",
    },
    Case {
        format: Format::Toml,
        key: "mcp_servers",
        before: "",
        after: "[mcp_servers.codex]\ncommand = \"codex-mcp\"\nargs = [\"serve\", \"--tools\", \"runs\"]\n",
    },
    Case {
        format: Format::Toml,
        key: "mcp_servers",
        before: "# Mine.\nmodel   = \"gpt\" # odd\n\n[mcp_servers.other]\ncommand = \"x\"\n\n[tui]\ntheme = 'dark'\n",
        after: "# Mine.\nmodel   = \"gpt\" # odd\n\n[mcp_servers.other]\ncommand = \"x\"\n\n[mcp_servers.codex]\ncommand = \
                \"codex-mcp\"\nargs = [\"serve\", \"--tools\", \"runs\"]\n\n[tui]\ntheme = 'dark'\n",
    },
    Case {
        format: Format::Yaml,
        key: "extensions",
        before: "",
        after: "extensions:\n  codex:\n    command: \"codex-mcp\"\n    args: [\"serve\",\"--tools\",\"runs\"]\n",
    },
    Case {
        format: Format::Yaml,
        key: "extensions",
        before: "# Nothing yet.\n",
        after: "# Nothing yet.\nextensions:\n  codex:\n    command: \"codex-mcp\"\n    args: [\"serve\",\"--tools\",\"runs\"]\n",
    },
    Case {
        format: Format::Yaml,
        key: "extensions",
        before: "GOOSE_PROVIDER: openai # mine\n",
        after: "GOOSE_PROVIDER: openai # mine\nextensions:\n  codex:\n    command: \"codex-mcp\"\n    args: [\"serve\",\"--tools\",\"runs\"]\n",
    },
    Case {
        format: Format::Yaml,
        key: "extensions",
        before: "# Mine.\nextensions:\n  developer: # built in\n    enabled: true\n    type: builtin\n\nGOOSE_MODE: smart\n",
        after: "# Mine.\nextensions:\n  developer: # built in\n    enabled: true\n    type: builtin\n  codex:\n    command: \
                \"codex-mcp\"\n    args: [\"serve\",\"--tools\",\"runs\"]\n\nGOOSE_MODE: smart\n",
    },
];

#[test]
fn server_is_added_and_everything_else_stays() {
    for Case {
        format,
        key,
        before,
        after,
    } in CASES
    {
        let added = format.set(before, key, "codex", &members()).unwrap();
        assert_eq!(added, after, "{format}");
        let again = format.set(&added, key, "codex", &members()).unwrap();
        assert_eq!(again, added, "{format}");
        let servers = format.servers(&added, key).unwrap();
        assert_eq!(servers["codex"]["command"], "codex-mcp");
        assert_eq!(
            servers["codex"]["args"],
            json!(["serve", "--tools", "runs"])
        );
    }
}

#[test]
fn removed_server_leaves_what_was_there() {
    for Case {
        format,
        key,
        before,
        ..
    } in CASES
    {
        let added = format.set(before, key, "codex", &members()).unwrap();
        let removed = format.remove(&added, key, "codex").unwrap();
        let rest = |text: &str| format.servers(text, key).unwrap();
        assert_eq!(rest(&removed), rest(before), "{removed}");
        for comment in ["Mine", "odd", "no comma", "built in", "Zed", "Nothing yet"] {
            assert_eq!(
                removed.contains(comment),
                before.contains(comment),
                "{removed}"
            );
        }
        // A server that is not there is not removed.
        assert_eq!(format.remove(before, key, "codex").unwrap(), before);
    }
}

#[test]
fn line_ends_and_byte_order_mark_stay() {
    for Case {
        format,
        key,
        before,
        after,
    } in CASES
    {
        let windows = |text: &str| format!("\u{feff}{}", text.replace('\n', "\r\n"));
        // Without a line end, `before` does not show that the file has CRLF.
        if before.contains('\n') {
            let added = format
                .set(&windows(before), key, "codex", &members())
                .unwrap();
            assert_eq!(added, windows(after), "{format}");
            let removed = format.remove(&added, key, "codex").unwrap();
            assert_eq!(
                removed.matches('\n').count(),
                removed.matches("\r\n").count()
            );
        }
    }
}

#[test]
fn null_counts_as_nothing() {
    for (format, before) in [
        (Format::Json, "{\"mcpServers\": null /* mine */}"),
        (Format::Yaml, "mcpServers:\nother: 1\n"),
        (Format::Yaml, "mcpServers: null # mine\n"),
    ] {
        let added = format
            .set(before, "mcpServers", "codex", &members())
            .unwrap();
        let servers = format.servers(&added, "mcpServers").unwrap();
        assert_eq!(servers["codex"]["command"], "codex-mcp", "{added}");
    }
}

#[test]
fn comments_about_servers_stay_when_the_last_one_goes() {
    let before = "{\n  // Put them here.\n  \"mcpServers\": { /* none */ }\n}\n";
    let added = Format::Json
        .set(before, "mcpServers", "codex", &members())
        .unwrap();
    let removed = Format::Json.remove(&added, "mcpServers", "codex").unwrap();
    assert!(
        removed.contains("Put them here.") && removed.contains("none"),
        "{removed}"
    );
    let before = "# Mine.\n\n# Last words.\n";
    let added = Format::Toml
        .set(before, "mcp_servers", "codex", &members())
        .unwrap();
    assert!(added.starts_with(before), "{added}");
    assert_eq!(
        Format::Toml.remove(&added, "mcp_servers", "codex").unwrap(),
        before
    );
}

#[test]
fn other_members_of_a_server_stay() {
    let before = r#"{"mcpServers": {"codex": {"command": "codex", "args": ["mcp-server"], "env": {"A": "b"} /* c */}}}"#;
    let after = Format::Json.set(before, "mcpServers", "codex", &members());
    let after = after.unwrap();
    assert!(after.contains(r#""env": {"A": "b"} /* c */"#), "{after}");
    assert!(!after.contains("mcp-server"), "{after}");

    let before = "[mcp_servers.codex]\ncommand = \"codex\" # old\nargs = [\"mcp-server\"]\ntool_timeout_sec = 9\n\n\
                  [mcp_servers.codex.env]\nA = \"b\"\n";
    let after = Format::Toml.set(before, "mcp_servers", "codex", &members());
    let after = after.unwrap();
    assert!(after.contains("command = \"codex-mcp\" # old\n"), "{after}");
    assert!(
        after.contains("tool_timeout_sec = 9\n\n[mcp_servers.codex.env]\nA = \"b\"\n"),
        "{after}"
    );

    let before =
        "extensions:\n  codex:\n    command: codex\n    args: [mcp-server]\n    timeout: 9 # s\n";
    let after = Format::Yaml.set(before, "extensions", "codex", &members());
    let after = after.unwrap();
    assert!(after.contains("timeout: 9 # s\n"), "{after}");
    assert!(!after.contains("mcp-server"), "{after}");
}

#[test]
fn broken_and_strange_files_are_refused() {
    let deep = "[".repeat(100_000);
    let cases = [
        (Format::Json, "{\"mcpServers\": {"),
        (Format::Json, "[]"),
        (Format::Json, "{\"mcpServers\": []}"),
        (Format::Json, "{\"mcpServers\": {\"codex\": 1}}"),
        (Format::Json, "{\"mcpServers\": {}, \"mcpServers\": {}}"),
        (Format::Json, "{mcpServers: {}}"),
        (Format::Json, &deep),
        (Format::Toml, "mcpServers = 1"),
        (Format::Toml, "mcpServers = {"),
        (Format::Toml, "a = 1\na = 2"),
        (Format::Toml, "[[mcpServers]]\na = 1"),
        (Format::Yaml, "mcpServers: [1]"),
        (Format::Yaml, "a: [b"),
        (Format::Yaml, "- 1"),
        (Format::Yaml, "mcpServers: {}\nmcpServers: {}"),
        (Format::Yaml, &deep),
    ];
    for (format, text) in cases {
        let refused = format.set(text, "mcpServers", "codex", &members());
        let start: String = text.chars().take(60).collect();
        assert!(refused.is_err(), "{format} {start}: {refused:?}");
    }
}
