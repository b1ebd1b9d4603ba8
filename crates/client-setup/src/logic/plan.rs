//! What setting up a client changes in its configuration.

use serde_json::{Map, Value};

use super::clients::Client;
use super::document::{EditError, Member, Servers};
use super::entry::{Entry, Kind, WantedEntry, command_line, own_args};

/// A change of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The entries of this program, at least one.
    pub entries: Vec<PlannedEntry>,
    /// The text of the file afterwards.
    pub after: String,
}

/// An entry of this program in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEntry {
    /// Its name.
    pub name: String,
    /// What it starts.
    pub entry: Entry,
    /// How it comes about.
    pub change: EntryChange,
}

/// What happens to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChange {
    /// It is new.
    Add,
    /// It was of this program already, and changes.
    Update,
    /// It was another server that hands work to Codex.
    Replace(Kind),
    /// It stays as it is.
    Keep,
}

/// Why a client is not set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The file cannot be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Another server has the name.
    #[error("the entry `{0}` is another server; choose a name for codex-mcp with --name")]
    Taken(String),
}

impl Plan {
    /// The entry that is new, if the plan is to add one and nothing else.
    #[must_use]
    pub fn only_added(&self) -> Option<&PlannedEntry> {
        match &self.entries[..] {
            [entry] if entry.change == EntryChange::Add => Some(entry),
            _ => None,
        }
    }
}

/// Plans to add an entry to a file with this text, or to correct those that are there: entries of
/// this program, of `codex mcp-server` and of the npm package @leo000001/codex-mcp, under their
/// names. With a name, only the entry of this name counts.
///
/// # Errors
///
/// [`PlanError`].
pub fn adding(
    client: Client,
    text: &str,
    name: Option<&str>,
    wanted: &WantedEntry,
) -> Result<Plan, PlanError> {
    let servers = client.format().servers(text, client.key())?;
    let mut after = text.to_owned();
    let mut entries = Vec::new();
    for name in names(&servers, name)? {
        let present = servers.get(&name);
        let kind = present.and_then(|server| Kind::of(&command_line(server)));
        let entry = wanted.entry(kind, present);
        let members = needed(client.members(&name, &entry), present);
        let edited = client.format().set(&after, client.key(), &name, &members)?;
        let change = match kind {
            _ if edited == after => EntryChange::Keep,
            None => EntryChange::Add,
            Some(Kind::Ours) => EntryChange::Update,
            Some(kind) => EntryChange::Replace(kind),
        };
        after = edited;
        entries.push(PlannedEntry {
            name,
            entry,
            change,
        });
    }
    Ok(Plan { entries, after })
}

/// The names of the entries that are to be there.
fn names(servers: &Servers, name: Option<&str>) -> Result<Vec<String>, PlanError> {
    let kind_of = |server: &Value| Kind::of(&command_line(server));
    if let Some(name) = name {
        return match servers.get(name).map(kind_of) {
            Some(None) => Err(PlanError::Taken(name.to_owned())),
            Some(Some(_)) | None => Ok(vec![name.to_owned()]),
        };
    }
    let known = servers
        .iter()
        .filter(|(_, server)| kind_of(server).is_some());
    let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
    match known.is_empty() {
        false => Ok(known),
        true if servers.contains_key(super::entry::NAME) => {
            Err(PlanError::Taken(super::entry::NAME.to_owned()))
        }
        true => Ok(vec![super::entry::NAME.to_owned()]),
    }
}

/// The members that are written to an entry. What starts the server always is; for the rest, the
/// user's own choice counts, but for a shorter time limit.
fn needed(mut members: Vec<Member>, present: Option<&Value>) -> Vec<Member> {
    let Some(present) = present else {
        return members;
    };
    members.retain_mut(|(name, value)| match (present.get(&**name), value) {
        (None, _) => true,
        (Some(_), _) if ["command", "args", "cmd"].contains(name) => true,
        (Some(Value::Object(there)), Value::Object(wanted)) => {
            wanted.retain(|name, _| !there.contains_key(name));
            !wanted.is_empty()
        }
        (Some(there), wanted) => match (there.as_f64(), wanted.as_f64()) {
            (Some(there), Some(wanted)) => there < wanted,
            _ => false,
        },
    });
    // Older files of Zed have the environment in the command, which becomes a word.
    if let Some(env @ Value::Object(_)) = present.pointer("/command/env") {
        members.push(("env", env.clone()));
    }
    members
}

/// The text of the file without this program's entries, and their names.
///
/// # Errors
///
/// [`EditError`], if the file cannot be edited.
pub fn removing(
    client: Client,
    text: &str,
    name: Option<&str>,
) -> Result<(String, Vec<String>), EditError> {
    let servers = client.format().servers(text, client.key())?;
    let is_meant = |found: &String| name.is_none_or(|name| name == found);
    let ours = servers.iter().filter(|(_, server)| is_ours(server));
    let names: Vec<String> = ours
        .map(|(name, _)| name.clone())
        .filter(is_meant)
        .collect();
    let mut text = text.to_owned();
    for name in &names {
        text = client.format().remove(&text, client.key(), name)?;
    }
    Ok((text, names))
}

/// Whether the file has an entry of this program.
///
/// # Errors
///
/// [`EditError`], if the file cannot be read.
pub fn has_ours(client: Client, text: &str) -> Result<bool, EditError> {
    let servers = client.format().servers(text, client.key())?;
    Ok(servers.values().any(is_ours))
}

fn is_ours(server: &Value) -> bool {
    Kind::of(&command_line(server)) == Some(Kind::Ours)
}

/// How a file differs after a program of somebody else was to add an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// By this entry alone.
    EntryAlone,
    /// By more, and nothing of what was there is gone.
    More,
    /// Something is gone, or the file cannot be read any more.
    Loss,
}

/// Compares the values of a file before and after the entry `name` was added.
#[must_use]
pub fn difference(client: Client, before: &str, after: &str, name: &str) -> Difference {
    let without = |text: &str| -> Option<(Map<String, Value>, Servers)> {
        let mut members = match client.format().read(text).ok()? {
            Value::Null => Map::new(),
            Value::Object(members) => members,
            _ => return None,
        };
        let mut servers = match members.remove(client.key()) {
            Some(Value::Object(servers)) => servers,
            _ => Servers::new(),
        };
        servers.remove(name);
        Some((members, servers))
    };
    let (Some(before), Some(after)) = (without(before), without(after)) else {
        return Difference::Loss;
    };
    let has_all = |before: &Map<String, Value>, after: &Map<String, Value>| {
        before.keys().all(|name| after.contains_key(name))
    };
    match (
        before == after,
        has_all(&before.0, &after.0) && has_all(&before.1, &after.1),
    ) {
        (true, _) => Difference::EntryAlone,
        (false, true) => Difference::More,
        (false, false) => Difference::Loss,
    }
}

/// The servers of Claude Code's projects in the user's file that hand work to Codex in an older
/// way, each with its project: they win over the user's own.
#[must_use]
pub fn of_projects(text: &str) -> Vec<(String, String)> {
    let document = Client::ClaudeCode.format().read(text).unwrap_or_default();
    let projects = document.get("projects").and_then(Value::as_object);
    let mut found = Vec::new();
    for (project, members) in projects.into_iter().flatten() {
        let servers = members.get("mcpServers").and_then(Value::as_object);
        for (name, server) in servers.into_iter().flatten() {
            match Kind::of(&command_line(server)) {
                None | Some(Kind::Ours) => {}
                Some(_) => found.push((project.clone(), name.clone())),
            }
        }
    }
    found
}

impl WantedEntry {
    /// The entry in the place of another, of this kind.
    fn entry(&self, kind: Option<Kind>, present: Option<&Value>) -> Entry {
        let args = self.args.clone().unwrap_or_else(|| match (kind, present) {
            (Some(Kind::Ours), Some(server)) => own_args(&command_line(server)),
            (Some(Kind::NpmPackage), _) => words(&["serve", "--api", "sessions"]),
            _ => words(&["serve"]),
        });
        let mut words = self.command.iter().cloned().chain(args);
        Entry {
            command: words.next().unwrap_or_default(),
            args: words.collect(),
            env: self.env.clone(),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::VariantArray;

    use super::*;

    fn wanted() -> WantedEntry {
        WantedEntry {
            command: words(&["/opt/bin/codex-mcp"]),
            args: None,
            env: vec![("CODEX_HOME".to_owned(), "/codex".to_owned())],
        }
    }

    fn with_args(args: &[&str]) -> WantedEntry {
        WantedEntry {
            args: Some(words(args)),
            ..wanted()
        }
    }

    fn changes(plan: &Plan) -> Vec<(&str, EntryChange)> {
        let entries = plan.entries.iter();
        entries
            .map(|entry| (entry.name.as_str(), entry.change))
            .collect()
    }

    #[test]
    fn every_client_is_set_up_once() {
        for client in Client::VARIANTS {
            let plan = adding(*client, "", None, &wanted()).unwrap();
            assert_eq!(changes(&plan), [("codex", EntryChange::Add)], "{client}");
            let servers = client.format().servers(&plan.after, client.key()).unwrap();
            let line = command_line(&servers["codex"]);
            assert_eq!(line, ["/opt/bin/codex-mcp", "serve"], "{client}");
            let again = adding(*client, &plan.after, None, &wanted()).unwrap();
            assert_eq!(again.after, plan.after, "{client}");
            assert_eq!(changes(&again), [("codex", EntryChange::Keep)], "{client}");
            let (rest, names) = removing(*client, &plan.after, None).unwrap();
            assert_eq!(names, ["codex"], "{client}");
            let rest = client.format().servers(&rest, client.key()).unwrap();
            assert!(rest.is_empty(), "{client}: {rest:?}");
        }
    }

    #[test]
    fn earlier_servers_are_replaced_under_their_names() {
        let old = r#"{"mcpServers": {
            "delegate": {"command": "codex", "args": ["-c", "model=x", "mcp-server"]},
            "x": {"command": "npx", "args": ["-y", "@leo000001/codex-mcp"]},
            "time": {"command": "uvx"}
        }}"#;
        let plan = adding(Client::Cursor, old, None, &wanted()).unwrap();
        let replaced = [
            ("delegate", EntryChange::Replace(Kind::McpServer)),
            ("x", EntryChange::Replace(Kind::NpmPackage)),
        ];
        assert_eq!(changes(&plan), replaced);
        assert!(!plan.after.contains("mcp-server"), "{}", plan.after);
        assert_eq!(plan.entries[0].entry.args, ["serve"]);
        assert_eq!(plan.entries[1].entry.args, ["serve", "--api", "sessions"]);
        // What the second call finds is ours, and keeps its arguments.
        let again = adding(Client::Cursor, &plan.after, None, &wanted()).unwrap();
        assert_eq!(again.after, plan.after);
        let (rest, names) = removing(Client::Cursor, &plan.after, None).unwrap();
        assert_eq!(names, ["delegate", "x"]);
        assert!(rest.contains("uvx"), "{rest}");
    }

    #[test]
    fn arguments_change_only_if_they_are_given() {
        let plan = adding(Client::Zed, "", None, &with_args(&["serve", "--team", "t"]));
        let text = plan.unwrap().after;
        let again = adding(Client::Zed, &text, None, &wanted()).unwrap();
        assert_eq!(again.after, text);
        let other = adding(Client::Zed, &text, None, &with_args(&["serve"])).unwrap();
        assert_eq!(changes(&other), [("codex", EntryChange::Update)]);
        assert!(!other.after.contains("--team"), "{}", other.after);
    }

    #[test]
    fn arguments_stay_when_another_copy_of_the_program_is_meant() {
        let npx = WantedEntry {
            command: words(&["npx", "-y", "codex-mcp"]),
            ..with_args(&["serve", "--team", "t"])
        };
        let line = |text: &str| {
            let servers = Client::Cursor.format().servers(text, "mcpServers").unwrap();
            command_line(&servers["codex"]).join(" ")
        };
        let by_npx = adding(Client::Cursor, "", None, &npx).unwrap().after;
        assert_eq!(line(&by_npx), "npx -y codex-mcp serve --team t");
        let installed = adding(Client::Cursor, &by_npx, None, &wanted()).unwrap();
        assert_eq!(line(&installed.after), "/opt/bin/codex-mcp serve --team t");
        let npx = WantedEntry { args: None, ..npx };
        let back = adding(Client::Cursor, &installed.after, None, &npx).unwrap();
        assert_eq!(back.after, by_npx);
    }

    #[test]
    fn choices_of_the_user_stay() {
        let old = "[mcp_servers.codex]\ncommand = \"codex\"\nargs = [\"mcp-server\"]\ntool_timeout_sec = 9000\n\
                   startup_timeout_sec = 1\ndefault_tools_approval_mode = \"prompt\"\n\n\
                   [mcp_servers.codex.env]\nMINE = \"1\" # a comment\n";
        let plan = adding(Client::Codex, old, None, &wanted()).unwrap();
        let servers = Client::Codex.format().servers(&plan.after, "mcp_servers");
        let server = servers.unwrap().remove("codex").unwrap();
        assert_eq!(server["tool_timeout_sec"], 9000);
        assert_eq!(server["startup_timeout_sec"], 30);
        assert_eq!(server["default_tools_approval_mode"], "prompt");
        assert_eq!(
            server["env"],
            json!({ "MINE": "1", "CODEX_HOME": "/codex" })
        );
        assert!(
            plan.after.contains("MINE = \"1\" # a comment"),
            "{}",
            plan.after
        );
        let mine = plan.after.replace("\"/codex\"", "\"/mine\"");
        let again = adding(Client::Codex, &mine, None, &wanted()).unwrap();
        assert_eq!(again.after, mine);

        let disabled = "extensions:\n  codex:\n    cmd: codex-mcp\n    args: [serve]\n    enabled: false\n    \
                        name: Mine\n";
        let plan = adding(Client::Goose, disabled, None, &wanted()).unwrap();
        assert!(
            plan.after.contains("enabled: false\n    name: Mine"),
            "{}",
            plan.after
        );

        let old = r#"{"context_servers": {"codex": {"command": {"path": "codex", "args": ["mcp-server"], "env": {"KEY": "k"}}}}}"#;
        let plan = adding(Client::Zed, old, None, &wanted()).unwrap();
        let servers = Client::Zed
            .format()
            .servers(&plan.after, "context_servers")
            .unwrap();
        assert_eq!(servers["codex"]["env"], json!({ "KEY": "k" }));
        assert_eq!(servers["codex"]["command"], "/opt/bin/codex-mcp");
    }

    #[test]
    fn another_server_is_not_replaced() {
        let other = r#"{"mcpServers": {"codex": {"command": "other"}}}"#;
        let refused = adding(Client::Cursor, other, None, &wanted());
        assert_eq!(refused, Err(PlanError::Taken("codex".to_owned())));
        let plan = adding(Client::Cursor, other, Some("mine"), &wanted()).unwrap();
        assert!(plan.after.contains("\"other\""), "{}", plan.after);
        let (text, names) = removing(Client::Cursor, other, None).unwrap();
        assert_eq!((text.as_str(), names.len()), (other, 0));
    }

    #[test]
    fn loss_by_another_program_is_noticed() {
        let before = r#"{"a": 1, "mcpServers": {"time": {"command": "uvx"}}}"#;
        let entry = r#""codex": {"command": "codex-mcp"}"#;
        let time = r#""time": {"command": "uvx"}"#;
        for (after, wanted) in [
            (
                format!(r#"{{"a": 1, "mcpServers": {{{time}, {entry}}}}}"#),
                Difference::EntryAlone,
            ),
            (
                format!(r#"{{"a": 2, "b": 1, "mcpServers": {{{time}, {entry}}}}}"#),
                Difference::More,
            ),
            (
                format!(r#"{{"a": 1, "mcpServers": {{{entry}}}}}"#),
                Difference::Loss,
            ),
            (
                format!(r#"{{"mcpServers": {{{time}, {entry}}}}}"#),
                Difference::Loss,
            ),
            (String::new(), Difference::Loss),
            ("garbage".to_owned(), Difference::Loss),
        ] {
            let found = difference(Client::ClaudeCode, before, &after, "codex");
            assert_eq!(found, wanted, "{after}");
        }
    }

    #[test]
    fn older_servers_of_projects_are_found() {
        let text = r#"{"projects": {"/src": {"mcpServers": {
            "old": {"command": "codex", "args": ["mcp-server"]},
            "new": {"command": "codex-mcp", "args": ["serve"]}
        }}, "/other": {}}}"#;
        assert_eq!(of_projects(text), [("/src".to_owned(), "old".to_owned())]);
        assert_eq!(of_projects("no JSON"), []);
    }
}
