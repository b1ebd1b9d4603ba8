//! Writes the tables of tools and parameters in docs/.

use clap::ValueEnum;
use serde_json::{Map, Value};
use testkit::docs::{check, code_list, table};

use super::jobs::JobTool;
use super::team::{MailTool, TeamTool};
use super::{CLASSIC, Group, Groups, SESSIONS, ToolName};

/// The servers that have a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Availability {
    Always,
    WithApi(&'static str),
    InTeams,
}

fn every() -> Vec<(ToolName, Availability)> {
    let common = |name: &ToolName| CLASSIC.contains(name) && SESSIONS.contains(name);
    let of_api = |all: &'static [ToolName], api| {
        let own = all.iter().copied().filter(move |name| !common(name));
        own.map(move |name| (name, Availability::WithApi(api)))
    };
    let classic = of_api(CLASSIC, "classic");
    let sessions = of_api(SESSIONS, "sessions");
    let of_both = CLASSIC.iter().copied().filter(common);
    let threads = ToolName::Team(TeamTool::Threads);
    let always = of_both
        .chain(JobTool::ALL.map(ToolName::Job))
        .chain([threads]);
    let always = always.map(|name| (name, Availability::Always));
    let mail =
        MailTool::ALL.map(|mail| (ToolName::Team(TeamTool::Mail(mail)), Availability::InTeams));
    classic.chain(sessions).chain(always).chain(mail).collect()
}

#[test]
fn tools_in_docs_match_the_code() {
    check(
        "tools.md",
        [("tools", tools()), ("parameters", parameters())],
    );
}

/// The table of all tools and their purposes.
fn tools() -> String {
    let rows = every().into_iter().map(|(name, availability)| {
        let tool = name.describe();
        let hints = tool.annotations.unwrap();
        let reads = match hints.read_only_hint {
            Some(true) => "yes",
            _ => "no",
        };
        [
            code_list([name.as_str()]),
            tool.description.unwrap().into_owned(),
            groups(name),
            availability.text(),
            reads.to_owned(),
        ]
    });
    table(["tool", "purpose", "group", "served", "read-only"], rows)
}

/// The groups that a tool is in.
fn groups(name: ToolName) -> String {
    let all = Group::value_variants();
    let has = |group: &&Group| name.is_in(&Groups::of(vec![**group]));
    let found: Vec<&Group> = all.iter().filter(has).collect();
    if found.len() == all.len() {
        return "every".to_owned();
    }
    let names: Vec<String> = found
        .into_iter()
        .filter_map(|group| Some(group.to_possible_value()?.get_name().to_owned()))
        .collect();
    code_list(names.iter().map(String::as_str))
}

impl Availability {
    fn text(self) -> String {
        match self {
            Self::Always => "always".to_owned(),
            Self::WithApi(api) => format!("`--api {api}`"),
            Self::InTeams => "in a team".to_owned(),
        }
    }
}

/// The parameters of each tool.
fn parameters() -> String {
    let sections = every().into_iter().map(|(name, availability)| {
        let tool = name.describe();
        let title = match availability {
            Availability::WithApi(_) => format!("`{}` ({})", name.as_str(), availability.text()),
            _ => format!("`{}`", name.as_str()),
        };
        let table = table_of(&tool.input_schema);
        format!("### {title}\n\n{table}")
    });
    sections.collect::<Vec<_>>().join("\n\n")
}

fn table_of(schema: &Map<String, Value>) -> String {
    let mut rows = Vec::new();
    add(schema, "", &mut rows);
    match rows.is_empty() {
        true => "It takes no parameters.".to_owned(),
        false => table(["parameter", "type", "default", "notes"], rows),
    }
}

/// Adds a row for each property, those within others too.
fn add(schema: &Map<String, Value>, above: &str, rows: &mut Vec<[String; 4]>) {
    let required: Vec<&Value> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{above}{name}");
        let is_required = required.iter().any(|wanted| *wanted == name);
        let default = match &property["default"] {
            Value::Null => String::new(),
            Value::String(text) => code_list([text.as_str()]),
            other => code_list([other.to_string().as_str()]),
        };
        rows.push([
            code_list([path.as_str()]),
            kind(property),
            default,
            notes(property, is_required),
        ]);
        if let Some(within) = property.as_object() {
            add(within, &format!("{path}."), rows);
        }
    }
}

/// The type of a value, or the values that there are.
fn kind(property: &Value) -> String {
    if let Some(values) = property["enum"].as_array() {
        return code_list(values.iter().filter_map(Value::as_str));
    }
    match &property["type"] {
        Value::String(name) if name == "array" => {
            format!("list of {}s", property["items"]["type"].as_str().unwrap())
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        other => panic!("a type that is none: {other}"),
    }
}

fn notes(property: &Value, is_required: bool) -> String {
    let mut notes = Vec::new();
    if is_required {
        notes.push("Required.");
    }
    if property["deprecated"] == true {
        notes.push("Deprecated.");
    }
    notes.extend(property["description"].as_str());
    notes.join(" ")
}
