use std::collections::BTreeSet;
use std::time::Duration;

use codex_engine::command::LONGEST_WAIT;
use codex_engine::logic::events::{EVENT_LIMIT, FLOOR, GROWTH_LIMIT, HARD, SOFT};
use codex_engine::logic::session::{IDLE_LIMIT, IDLE_POLL_INTERVAL, TERMINAL_LIMIT, TURN_LIMIT};
use codex_engine::picture;
use codex_protocol::codex::Release;
use image_request::logic::picture::{SizeLimit, answer_limit};
use serde_json::Value;

use super::*;
use crate::tool_sets::Api;
use crate::tools;

const CONFIG: &str = include_str!("config.md");
const GOTCHAS: &str = include_str!("gotchas.md");
const QUICKSTART: &str = include_str!("quickstart.md");

/// A number as the texts write it: `1,000`.
fn number(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().ok().unwrap().to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap())
        .collect();
    groups.join(",")
}

/// The calls in a part of the quickstart.
fn calls(part: &str) -> Vec<Value> {
    let blocks = part.split("```json\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    blocks
        .map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{block}: {error}")))
        .collect()
}

#[test]
fn numbers_in_resources_match_the_code() {
    let minutes = |time: Duration| format!("{} minutes", time.as_secs() / 60);
    let pictures = SizeLimit::default();
    let answered = |codex| number(answer_limit(Some(codex)));
    let mebibytes = |bytes: usize| format!("{} MiB", bytes >> 20);
    for said in [
        format!(
            "{} events or {}",
            number(SOFT.events),
            mebibytes(SOFT.bytes)
        ),
        format!(
            "{} events or {}",
            number(HARD.events),
            mebibytes(HARD.bytes)
        ),
        format!("up to {} characters", number(GROWTH_LIMIT)),
        format!("at most {} KiB", EVENT_LIMIT >> 10),
        format!("has a minimum of {FLOOR},"),
        format!("{} ms under", number(IDLE_POLL_INTERVAL.as_millis())),
        format!("to {} ms)", number(IDLE_POLL_INTERVAL.as_millis())),
        format!("(at most {})", number(LONGEST_WAIT.as_millis())),
        format!("idle and not looked at for {}", minutes(IDLE_LIMIT)),
        format!("heard of for {} hours", TURN_LIMIT.as_secs() / 3600),
        format!("for {} is forgotten", minutes(TERMINAL_LIMIT)),
        format!("at most {} bytes", number(picture::SIZE_LIMIT)),
        format!(
            "at most {} bytes (`--max-image-bytes`)",
            number(pictures.bytes())
        ),
        format!(
            "before Codex 0.105 to {} bytes",
            answered(Release::new(0, 104, 0))
        ),
    ] {
        let text = GOTCHAS.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&said), "gotchas.md does not say {said:?}");
    }
}

/// The names of all parameters of a schema, also those within objects.
fn names_within(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .flat_map(|(name, schema)| [vec![name.clone()], names_within(schema)].concat())
        .collect()
}

#[test]
fn guides_list_every_parameter_and_their_calls_are_valid() {
    let (sessions, classic) = QUICKSTART.split_once("## `--api classic`").unwrap();
    for (api, part) in [(Api::Sessions, sessions), (Api::Classic, classic)] {
        let tools = tools::list(api);
        let guided = |name: &String| CONFIG.contains(&format!("`{name}`"));
        for tool in &tools {
            let input = Value::Object(tool.input_schema.as_ref().clone());
            let names = names_within(&input);
            let missing: Vec<_> = names.iter().filter(|name| !guided(name)).collect();
            assert!(missing.is_empty(), "{}: {missing:?}", tool.name);
        }
        for call in calls(part) {
            let tool = tools
                .iter()
                .find(|tool| *tool.name == call["name"])
                .unwrap();
            let given: BTreeSet<&String> = call["arguments"].as_object().unwrap().keys().collect();
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert!(
                given.iter().all(|name| properties.contains_key(*name)),
                "{call}"
            );
            for required in tool.input_schema["required"].as_array().unwrap() {
                assert!(given.iter().any(|name| *name == required), "{call}");
            }
        }
    }
}

#[test]
fn config_guide_lists_the_advanced_parameters() {
    let tools = tools::list(Api::Sessions);
    let codex = tools.iter().find(|tool| tool.name == "codex").unwrap();
    let advanced = &codex.input_schema["properties"]["advanced"]["properties"];
    for name in advanced.as_object().unwrap().keys() {
        assert!(CONFIG.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn every_resource_is_listed_with_its_description() {
    let names: Vec<String> = ALWAYS.into_iter().map(|name| name.describe().uri).collect();
    let expected = [
        "server-info",
        "compat-report",
        "config",
        "gotchas",
        "quickstart",
        "errors",
    ];
    assert_eq!(names, expected.map(|name| format!("codex-mcp:///{name}")));
    for resource in ALWAYS.map(ResourceName::describe) {
        assert!(resource.title.is_some() && resource.description.is_some());
    }
}
