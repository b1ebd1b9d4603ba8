//! Configuration files of clients, edited in place.
//!
//! Input: a byte for the format, and the file.

use client_setup::logic::document::Format;
use client_setup::logic::plan;
use serde_json::{Value, json};

const FORMATS: [Format; 3] = [Format::Json, Format::Toml, Format::Yaml];
const KEY: &str = "mcpServers";
const NAME: &str = "codex-mcp";

/// Tests one input.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let format = FORMATS[usize::from(*first) % FORMATS.len()];
    let Ok(servers) = format.servers(text, KEY) else {
        let _ = format.read(text);
        return;
    };
    let members = [
        ("command".to_owned(), json!("/opt/codex mcp")),
        ("args".to_owned(), json!(["serve", "--role=\"a\""])),
        ("env".to_owned(), json!({"A_B": "c'd"})),
    ];
    if let Ok(longer) = format.set(text, KEY, NAME, &members) {
        let after = format.servers(&longer, KEY).unwrap();
        members
            .iter()
            .for_each(|(member, _)| assert!(after[NAME].get(member).is_some()));
        assert_eq!(
            format.set(&longer, KEY, NAME, &members).as_ref(),
            Ok(&longer)
        );
        assert_eq!(others(&after), others(&servers));
        if let Ok(shorter) = format.remove(&longer, KEY, NAME) {
            let after = format.servers(&shorter, KEY).unwrap();
            assert!(!after.contains_key(NAME));
            assert_eq!(others(&after), others(&servers));
        }
    }
    let _ = plan::has_plugin(text);
}

/// The servers but ours.
fn others(servers: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    servers.iter().filter(|(name, _)| *name != NAME).collect()
}
