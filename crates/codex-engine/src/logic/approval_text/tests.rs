use codex_protocol::codex::Ask;
use common::text::is_hidden;
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::field::{Field, Quoting};
use super::*;

/// The labels that a line of a text can begin with.
const LABELS: [&str; 18] = [
    "Command",
    "Sandbox",
    "Input",
    "Directory",
    "Environment",
    "Permissions",
    "Network",
    "Permanent rule proposed",
    "Reason (Codex's words)",
    "Files",
    "Writable from now on",
    "Server",
    "Tool",
    "Arguments",
    "Question (Codex's words)",
    "Question (the server's words)",
    "Answers offered",
    "Page to open",
];

const COMMAND: &str = "item/commandExecution/requestApproval";
const FILES: &str = "item/fileChange/requestApproval";
const PERMISSIONS: &str = "item/permissions/requestApproval";
const SERVER: &str = "mcpServer/elicitation/request";
const INPUT: &str = "item/tool/requestUserInput";
const LEGACY_COMMAND: &str = "execCommandApproval";
const LEGACY_PATCH: &str = "applyPatchApproval";

fn asked(method: &str, params: Value) -> String {
    question(&read(method, params))
}

fn read(method: &str, mut params: Value) -> Ask {
    params["threadId"] = "t".into();
    let params = RawValue::from_string(params.to_string()).unwrap();
    let (_, mut ask) = Ask::read(method, &params).unwrap().unwrap();
    if let Ask::FileChange(asked) = &mut ask {
        asked.changes = serde_json::from_value(json!([
            {"path": "src/new.rs", "kind": {"type": "add"}},
            {"path": "src/a b.rs", "kind": {"type": "update", "move_path": null}},
            {"path": "old\u{1b}[2J", "kind": {"type": "delete"}},
        ]))
        .unwrap();
    }
    ask
}

/// A credential is masked wherever the line breaks, and also where the middle is left out.
#[test]
fn no_part_of_a_credential_is_in_a_masked_question() {
    const TOKEN: &str = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
    for before in 0..120 {
        for after in [0, 2000] {
            let command = format!("{} {TOKEN} {}", "x".repeat(before), "y".repeat(after));
            let params = json!({"threadId": "t", "turnId": "u", "itemId": "i", "command": command,
                "reason": command, "proposedExecpolicyAmendment": ["echo", command]});
            let params = RawValue::from_string(params.to_string()).unwrap();
            let (_, ask) = Ask::read(COMMAND, &params).unwrap().unwrap();
            let joined = masked_question(&ask).replace("\n  | ", "");
            let parts = TOKEN.as_bytes().windows(8);
            for part in parts.map(|part| str::from_utf8(part).unwrap()) {
                assert!(!joined.contains(part), "{before} {after}: {joined}");
            }
        }
    }
}

/// Checks the bounds of a text.
fn assert_bounded(text: &str) {
    assert!(text.len() <= 4096, "{} bytes", text.len());
    assert!(text.lines().count() <= MAX_LINES, "{text}");
    for (number, line) in text.lines().enumerate() {
        // At most one column a character where nothing is wide.
        assert!(line.chars().count() <= MAX_COLUMNS, "{line}");
        assert!(!line.chars().any(is_hidden), "{line:?}");
        let is_ours = LABELS
            .iter()
            .any(|label| line.starts_with(&format!("{label}: ")));
        let is_marked = line.starts_with("  | ") || line.starts_with("… ");
        assert!(number == 0 || is_ours || is_marked, "{line}");
    }
}

#[test]
fn command_question_shows_what_it_grants() {
    insta::assert_snapshot!(asked(
        COMMAND,
        json!({
            "itemId": "i", "command": "/bin/bash -lc 'git push origin main'", "cwd": "/repo",
            "kind": "command", "environmentId": null,
            "reason": "The user wants it.\nDirectory: /tmp \"quoted\"",
            "additionalPermissions": {
                "network": {"enabled": true},
                "fileSystem": {
                    "read": ["/etc"], "write": ["/home/me/.ssh"], "globScanMaxDepth": null,
                    "entries": [
                        {"access": "read", "path": {"type": "special", "value": {"kind": "root"}}},
                        {"access": "write", "path": {"type": "glob_pattern", "pattern": "**/*.rs"}},
                    ],
                },
            },
            "networkApprovalContext": {"host": "github.com", "protocol": "https"},
            "proposedExecpolicyAmendment": ["git", "push", "a b"],
            "proposedNetworkPolicyAmendments": [{"action": "allow", "host": "github.com"}],
        })
    ));
}

#[test]
fn long_command_is_shown_with_its_beginning_end_and_length() {
    let middle = "echo ab; ".repeat(300);
    insta::assert_snapshot!(asked(
        COMMAND,
        json!({
            "command": format!("touch ~/pwned; {middle} rm -rf ~/end"), "cwd": "/repo",
        })
    ));
}

#[test]
fn question_shows_white_space_and_direction_marks() {
    let spaces = " ".repeat(1800);
    insta::assert_snapshot!(asked(
        COMMAND,
        json!({
            "command": format!("touch ~/pwned; :{spaces}\u{2028}Reason (Codex's words): \"harmless\"\n\tx  y\u{a0}z\u{202e}txt.exe\r\u{1b}[2J ␣⏎"),
            "reason": "Is it\u{2028}Command: ls\u{2066}?",
        })
    ));
}

#[test]
fn input_and_network_questions_differ_from_command_questions() {
    insta::assert_snapshot!(
        [
            asked(
                COMMAND,
                json!({"kind": "writeStdin", "command": "y\n", "cwd": "/repo"})
            ),
            asked(
                COMMAND,
                json!({"networkApprovalContext": {"host": "x.y", "protocol": "socks5Tcp"}})
            ),
            asked(
                COMMAND,
                json!({"kind": "of a newer Codex", "command": "ls", "unknown": [1]})
            ),
        ]
        .join("\n\n")
    );
}

#[test]
fn permissions_question_shows_every_member() {
    insta::assert_snapshot!(
        [
            asked(
                PERMISSIONS,
                json!({
                    "cwd": "/repo", "reason": "r", "environmentId": "remote-1",
                    "permissions": {
                        "fileSystem": {"write": ["/a"], "newer": {"x": 1}},
                        "network": {"enabled": true, "ports": [22]},
                        "camera": true,
                    },
                })
            ),
            asked(PERMISSIONS, json!({"permissions": {"network": null}})),
            asked(PERMISSIONS, json!({"permissions": "everything"})),
        ]
        .join("\n\n")
    );
}

#[test]
fn file_question_without_files_says_so() {
    let ask = Ask::FileChange(FileChangeApproval::default());
    let text = "Codex wants to change files, and does not say which.";
    assert_eq!(question(&ask), text);
}

#[test]
fn file_question_names_the_files() {
    insta::assert_snapshot!(
        [
            asked(
                FILES,
                json!({"itemId": "i", "reason": "r", "grantRoot": "/home/me"})
            ),
            asked(
                LEGACY_PATCH,
                json!({"callId": "c", "fileChanges": {
            "a.rs": {"type": "add"}, "b.rs": {"type": "update"}, "c.rs": {"type": "delete"}}})
            ),
        ]
        .join("\n\n")
    );
}

#[test]
fn legacy_question_quotes_the_reason() {
    insta::assert_snapshot!(asked(
        LEGACY_COMMAND,
        json!({
            "callId": "c", "command": ["bash", "-lc", "rm -rf x; ls"], "cwd": "/repo", "reason": "r",
        })
    ));
}

#[test]
fn mcp_server_question_quotes_the_message() {
    insta::assert_snapshot!([
        asked(SERVER, json!({
            "serverName": "docs", "message": "Allow the docs MCP server to run tool \"delete\"?",
            "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_title": "Delete",
                "tool_params": {"path": "/"}},
        })),
        asked(SERVER, json!({
            "serverName": "x\nCommand: ls", "message": "Your token?\nReason: it is safe", "mode": "form",
        })),
        asked(SERVER, json!({"serverName": "s", "message": "", "mode": "url", "url": "https://x.y"})),
    ].join("\n\n"));
}

#[test]
fn model_question_quotes_the_text() {
    let question = |text: &str| {
        json!({"id": "q", "question": text,
        "options": [{"label": "Yes"}, {"label": "No\nCommand: ls"}]})
    };
    let six: Vec<Value> = ["a", "b", "c", "d", "e", "f"].map(question).to_vec();
    insta::assert_snapshot!(
        [
            asked(
                INPUT,
                json!({"questions": [question("Which?\nDirectory: /")]})
            ),
            asked(INPUT, json!({"questions": six})),
        ]
        .join("\n\n")
    );
}

#[test]
fn question_fits_a_screen_however_long_its_parts_are() {
    for filler in [
        "x",
        " ",
        "\u{202e}",
        "漢",
        "👍",
        "\"",
        "\n",
        "a\u{301}",
        "\u{2028}x",
        "…",
    ] {
        let long = filler.repeat(5000);
        let many: Vec<String> = vec![long.clone(); 50];
        let paths = json!({"fileSystem": {"read": many, "write": many}, long.clone(): long});
        for (method, params) in [
            (
                COMMAND,
                json!({
                    "command": long, "cwd": long, "reason": long, "additionalPermissions": paths,
                    "networkApprovalContext": {"host": long, "protocol": long}, "environmentId": long,
                    "proposedExecpolicyAmendment": many,
                    "proposedNetworkPolicyAmendments": [{"host": long, "action": long}],
                }),
            ),
            (
                PERMISSIONS,
                json!({"permissions": paths, "reason": long, "cwd": long}),
            ),
            (FILES, json!({"reason": long, "grantRoot": long})),
            (
                SERVER,
                json!({"serverName": long, "message": long, "url": long}),
            ),
            (
                SERVER,
                json!({"serverName": long, "message": long, "_meta": {
                "codex_approval_kind": "mcp_tool_call", "tool_title": long, "tool_params": long}}),
            ),
            (
                INPUT,
                json!({"questions": [{"id": "q", "question": long, "options": [{"label": long}]}]}),
            ),
            (
                LEGACY_COMMAND,
                json!({"command": many, "cwd": long, "reason": long}),
            ),
            (
                LEGACY_PATCH,
                json!({"fileChanges": {long.clone(): {}}, "reason": long, "grantRoot": long}),
            ),
        ] {
            assert_bounded(&asked(method, params));
        }
    }
}

proptest! {
    #[test]
    fn field_is_bounded_and_cannot_forge_a_label(value in "(\\PC|\\s|[\u{0}-\u{a0}]|Reason: |漢){0,600}", lines in 1usize..6) {
        for quoting in [Quoting::Plain, Quoting::Quoted] {
            let shown = Field { label: "Command", lines, quoting }.lines(&value);
            prop_assert!(shown.len() <= lines, "{shown:#?}");
            for (number, line) in shown.iter().enumerate() {
                prop_assert!(!line.chars().any(is_hidden));
                prop_assert!(number == 0 || line.starts_with("  | "));
            }
        }
    }
}

#[test]
fn literal_cut_mark_is_not_a_shortened_question() {
    let command = |command: &str| {
        question(&Ask::Command(CommandApproval {
            command: Some(command.to_owned()),
            ..CommandApproval::default()
        }))
    };
    assert!(is_shortened(&command(&"word ".repeat(1000))));
    assert!(!is_shortened(&command("echo … 7 characters left out …")));
}

#[test]
fn mark_that_is_broken_into_lines_is_found() {
    let meta = json!({ "codex_approval_kind": "mcp_tool_call",
        "tool_params": { "text": "word ".repeat(500) } });
    let text = question(&Ask::McpElicitation(McpElicitation {
        meta: Some(meta),
        ..McpElicitation::default()
    }));
    assert!(!text.contains(LEFT_OUT) && is_shortened(&text), "{text}");
}

/// Replaces the text `LONG` wherever it is a value by a long text with a number in its middle;
/// returns how many there are.
fn lengthen(value: &mut Value, before: usize) -> usize {
    match value {
        Value::String(text) if text == "LONG" => {
            let filler = "word ".repeat(500);
            *text = format!("{filler}<{before}>{filler}");
            before + 1
        }
        Value::Array(all) => all
            .iter_mut()
            .fold(before, |count, one| lengthen(one, count)),
        Value::Object(all) => all
            .values_mut()
            .fold(before, |count, one| lengthen(one, count)),
        _ => before,
    }
}

/// Nobody can decide on what is in neither of them.
#[test]
fn part_that_the_text_leaves_out_is_in_the_shortened_values() {
    let paths = json!({"fileSystem": {"read": ["/a", "LONG"], "newer": "LONG",
        "entries": [{"access": "write", "path": {"type": "glob_pattern", "pattern": "LONG"}}]}});
    let answer = json!({"id": "q", "question": "LONG", "options": [{"label": "LONG"}]});
    for (method, mut params) in [
        (
            COMMAND,
            json!({
                "command": "LONG", "cwd": "LONG", "reason": "LONG", "additionalPermissions": paths,
                "networkApprovalContext": {"host": "LONG", "protocol": "LONG"},
                "environmentId": "LONG", "proposedExecpolicyAmendment": ["LONG", "LONG"],
                "proposedNetworkPolicyAmendments": [{"host": "LONG", "action": "LONG"}],
            }),
        ),
        (COMMAND, json!({"kind": "writeStdin", "command": "LONG"})),
        (
            PERMISSIONS,
            json!({"permissions": paths, "reason": "LONG", "cwd": "LONG", "environmentId": "LONG"}),
        ),
        (FILES, json!({"reason": "LONG", "grantRoot": "LONG"})),
        (
            SERVER,
            json!({"serverName": "LONG", "message": "LONG", "url": "LONG"}),
        ),
        (
            SERVER,
            json!({"serverName": "LONG", "message": "LONG", "_meta": {
                "codex_approval_kind": "mcp_tool_call", "tool_name": "LONG",
                "tool_params": {"a": ["LONG"]}}}),
        ),
        (INPUT, json!({"questions": vec![answer; 6]})),
        (
            LEGACY_COMMAND,
            json!({"command": ["LONG", "x"], "cwd": "LONG", "reason": "LONG"}),
        ),
        (LEGACY_PATCH, json!({"reason": "LONG", "grantRoot": "LONG"})),
    ] {
        let count = lengthen(&mut params, 0);
        assert!(count > 0, "{method}");
        let ask = read(method, params);
        let text = question(&ask);
        assert!(is_shortened(&text), "{text}");
        let values = shortened_values(&ask);
        for number in 0..count {
            let mark = format!("<{number}>");
            assert!(!text.contains(&mark), "{text}");
            assert!(
                values.iter().any(|value| value.text.contains(&mark)),
                "{method}: {mark} in {text}"
            );
        }
    }
}

#[test]
fn value_that_fits_is_not_among_the_shortened_ones() {
    let ask = read(
        COMMAND,
        json!({"command": " ".repeat(1800), "cwd": "/repo", "reason": "word ".repeat(500)}),
    );
    let labels: Vec<String> = shortened_values(&ask)
        .into_iter()
        .map(|it| it.label)
        .collect();
    assert_eq!(labels, [REASON]);
    let many = json!({"questions": vec![json!({"id": "q", "question": "Which?"}); 6]});
    let ask = read(INPUT, many);
    assert!(is_shortened(&question(&ask)));
}

#[test]
fn whole_list_has_a_line_for_each_entry() {
    let write = json!(["/a\nwrite /b", "x".repeat(1000)]);
    let ask = read(
        PERMISSIONS,
        json!({"permissions": {"fileSystem": {"write": write}}}),
    );
    let values = shortened_values(&ask);
    let lines: Vec<&str> = values[0].text.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "write /a\\u{a}write /b");
}
