//! The changes that setting up a client makes to its configuration.

use std::path::PathBuf;

use codex_config::logic::codex_servers::{Kind, OWN_NAME, RealPath, command_line, own_args};
use serde_json::Value;
use strum::VariantArray;

use super::clients::Client;
use super::document::{EditError, Member, Servers};
use super::entry::{
    Entry, WantedEntry, options_of_mcp_server, options_of_npm_package, with_options,
};

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
    /// The server that it starts.
    pub entry: Entry,
    /// How it comes about.
    pub change: EntryChange,
    /// The server that has this name in the file before the change, be it another one or ours.
    pub replaced: Option<Value>,
    /// The options of the replaced server that this program does not have.
    pub left_out: Vec<String>,
    /// Whether the user has switched it off.
    pub is_off: bool,
}

/// The variables and the working directory that an entry sets for its server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerProcess {
    /// Variables that are set.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub directory: Option<PathBuf>,
}

/// The change of an entry.
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
    /// The file has the form of opencode 2, which translates the older form by itself, but not both
    /// in one file.
    #[error(
        "this file has its servers under `mcp.servers`, as opencode 2 writes it; add codex-mcp there by hand"
    )]
    OpenCode2Layout,
}

impl Plan {
    /// The process that a client starts for an entry, as far as the file says it afterwards.
    #[must_use]
    pub fn process(&self, client: Client, name: &str) -> ServerProcess {
        let server = self.server(client, name);
        let mut variables = ["env", "envs", "environment"].into_iter();
        let variables = variables.find_map(|member| server.get(member)?.as_object());
        let variables = variables.into_iter().flatten();
        let env = variables
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect();
        let directory = server.get("cwd").and_then(Value::as_str).map(PathBuf::from);
        ServerProcess { env, directory }
    }

    /// The members of an entry that come from the file of a repository, not from this program, and
    /// that can decide what a client starts. Numbers and booleans cannot.
    #[must_use]
    pub fn members_of_file(
        &self,
        client: Client,
        entry: &PlannedEntry,
        wanted: &WantedEntry,
    ) -> Vec<Member> {
        let Value::Object(members) = self.server(client, &entry.name) else {
            return Vec::new();
        };
        let kind = match entry.change {
            EntryChange::Replace(kind) => Some(kind),
            EntryChange::Add | EntryChange::Update | EntryChange::Keep => None,
        };
        let (plain, _) = wanted.entry(kind, None);
        // Claude Code and Copilot CLI share a file, and each gets members of its own.
        let sharing = Client::VARIANTS.iter();
        let sharing = sharing.filter(|other| other.project_file() == client.project_file());
        let own: Vec<Member> = sharing
            .flat_map(|other| other.members(&entry.name, &plain))
            .collect();
        let others = members.into_iter().filter(|member| !own.contains(member));
        others.filter(|(_, value)| has_words(value)).collect()
    }

    /// An entry as the file has it afterwards.
    fn server(&self, client: Client, name: &str) -> Value {
        let servers = client.format().servers(&self.after, client.key());
        let server = servers.ok().and_then(|mut servers| servers.remove(name));
        server.unwrap_or_default()
    }

    /// Whether the plan adds an entry of this name: the file has none yet.
    #[must_use]
    pub fn adds(&self, name: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.name == name && entry.change == EntryChange::Add)
    }

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
    real_path: RealPath<'_>,
) -> Result<Plan, PlanError> {
    let servers = client.format().servers(text, client.key())?;
    if client == Client::OpenCode && servers.get("servers").is_some_and(is_table_of_servers) {
        return Err(PlanError::OpenCode2Layout);
    }
    let mut after = text.to_owned();
    let mut entries = Vec::new();
    for name in names(&servers, name, real_path)? {
        let present = servers.get(&name);
        let kind = present.and_then(|server| Kind::of(&command_line(server), real_path));
        let (entry, left_out) = wanted.entry(kind, present);
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
            replaced: present.cloned(),
            name,
            entry,
            change,
            left_out,
            is_off: present.is_some_and(is_off),
        });
    }
    Ok(Plan { entries, after })
}

/// Whether a value is a text, list or table that is not empty.
fn has_words(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether an entry is switched off, by the word that its client has for it.
fn is_off(server: &Value) -> bool {
    let says = |member, value: bool| server.get(member) == Some(&value.into());
    says("enabled", false) || says("disabled", true)
}

/// Whether a value of opencode has servers instead of being one.
fn is_table_of_servers(value: &Value) -> bool {
    value.is_object() && value.get("type").is_none()
}

/// The names of the entries that are to be there.
fn names(
    servers: &Servers,
    name: Option<&str>,
    real_path: RealPath<'_>,
) -> Result<Vec<String>, PlanError> {
    let kind_of = |server: &Value| Kind::of(&command_line(server), real_path);
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
    members.retain_mut(|(name, value)| match (present.get(name.as_str()), value) {
        (None, _) => true,
        (Some(_), _) if ["command", "args", "cmd"].contains(&name.as_str()) => true,
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
        members.push(("env".to_owned(), env.clone()));
    }
    members
}

/// Whether Claude Code's settings have our plugin switched on, from whichever marketplace.
#[must_use]
pub fn has_plugin(settings: &str) -> bool {
    let settings = Client::ClaudeCode.format().read(settings);
    let settings = settings.unwrap_or_default();
    let plugins = settings.get("enabledPlugins").and_then(Value::as_object);
    plugins.into_iter().flatten().any(|(name, is_on)| {
        let plugin = name.split('@').next();
        plugin == Some(OWN_NAME) && is_on.as_bool() == Some(true)
    })
}

/// The servers of Claude Code's projects in the user's file that hand work to Codex in an older
/// way, each with its project: they win over the user's own.
#[must_use]
pub fn of_projects(text: &str, real_path: RealPath<'_>) -> Vec<(String, String)> {
    let document = Client::ClaudeCode.format().read(text).unwrap_or_default();
    let projects = document.get("projects").and_then(Value::as_object);
    let mut found = Vec::new();
    for (project, members) in projects.into_iter().flatten() {
        let servers = members.get("mcpServers").and_then(Value::as_object);
        for (name, server) in servers.into_iter().flatten() {
            match Kind::of(&command_line(server), real_path) {
                None | Some(Kind::Ours) => {}
                Some(_) => found.push((project.clone(), name.clone())),
            }
        }
    }
    found
}

impl WantedEntry {
    /// The entry in the place of another, of this kind, and the options of that one that are left out.
    #[must_use]
    pub fn entry(&self, kind: Option<Kind>, present: Option<&Value>) -> (Entry, Vec<String>) {
        let line = present.map(command_line).unwrap_or_default();
        let (args, left_out) = match kind {
            Some(Kind::Ours) => (own_args(&line), Vec::new()),
            Some(Kind::NpmPackage) => (
                words(&["serve", "--api", "sessions"]),
                options_of_npm_package(&line),
            ),
            Some(Kind::McpServer) => {
                let (options, left_out) = options_of_mcp_server(&line, self.accepts);
                ([words(&["serve"]), options].concat(), left_out)
            }
            None => (words(&["serve"]), Vec::new()),
        };
        let args = with_options(args, &self.options);
        let mut words = self.command.iter().cloned().chain(args);
        let entry = Entry {
            command: words.next().unwrap_or_default(),
            args: words.collect(),
            env: self.env.clone(),
        };
        (entry, left_out)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Programs are known by their names alone.
    pub(in crate::logic) const NO_LINKS: RealPath<'static> = &|_| None;

    pub(in crate::logic) fn wanted() -> WantedEntry {
        WantedEntry {
            command: words(&["/opt/bin/codex-mcp"]),
            options: Vec::new(),
            env: vec![("CODEX_HOME".to_owned(), "/codex".to_owned())],
            accepts: |_, _| true,
        }
    }

    fn with_option(name: &'static str, value: &str) -> WantedEntry {
        WantedEntry {
            options: vec![(name, value.to_owned())],
            ..wanted()
        }
    }

    pub(in crate::logic) fn changes(plan: &Plan) -> Vec<(&str, EntryChange)> {
        let entries = plan.entries.iter();
        entries
            .map(|entry| (entry.name.as_str(), entry.change))
            .collect()
    }

    #[test]
    fn every_client_is_set_up_once() {
        for client in Client::VARIANTS {
            let plan = adding(*client, "", None, &wanted(), NO_LINKS).unwrap();
            assert_eq!(changes(&plan), [("codex", EntryChange::Add)], "{client}");
            let servers = client.format().servers(&plan.after, client.key()).unwrap();
            let line = command_line(&servers["codex"]);
            assert_eq!(line, ["/opt/bin/codex-mcp", "serve"], "{client}");
            let again = adding(*client, &plan.after, None, &wanted(), NO_LINKS).unwrap();
            assert_eq!(again.after, plan.after, "{client}");
            assert_eq!(changes(&again), [("codex", EntryChange::Keep)], "{client}");
        }
    }

    #[test]
    fn earlier_servers_are_replaced_under_their_names() {
        let old = r#"{"mcpServers": {
            "delegate": {"command": "codex", "args": ["-c", "model=x", "-c", "x.y=1", "mcp-server"]},
            "x": {"command": "npx", "args": ["-y", "@leo000001/codex-mcp"]},
            "time": {"command": "uvx"}
        }}"#;
        let plan = adding(Client::Cursor, old, None, &wanted(), NO_LINKS).unwrap();
        let replaced = [
            ("delegate", EntryChange::Replace(Kind::McpServer)),
            ("x", EntryChange::Replace(Kind::NpmPackage)),
        ];
        assert_eq!(changes(&plan), replaced);
        assert!(!plan.after.contains("mcp-server"), "{}", plan.after);
        let entry = &plan.entries[0];
        assert_eq!(entry.entry.args, ["serve", "--model", "x"]);
        assert_eq!(entry.left_out, ["-c x.y=1"]);
        assert_eq!(plan.entries[1].entry.args, ["serve", "--api", "sessions"]);
        // What the second call finds is ours, and keeps its arguments.
        let again = adding(Client::Cursor, &plan.after, None, &wanted(), NO_LINKS).unwrap();
        assert_eq!(again.after, plan.after);
    }

    #[test]
    fn options_change_only_if_they_are_given() {
        let team = |name: &str| with_option("--team", name);
        let plan = adding(Client::Zed, "", None, &team("mine"), NO_LINKS);
        let text = plan.unwrap().after;
        for same in [wanted(), team("mine")] {
            let again = adding(Client::Zed, &text, None, &same, NO_LINKS).unwrap();
            assert_eq!(again.after, text);
        }
        let other = adding(Client::Zed, &text, None, &team("other"), NO_LINKS).unwrap();
        assert_eq!(changes(&other), [("codex", EntryChange::Update)]);
        assert_eq!(other.entries[0].entry.args, ["serve", "--team", "other"]);
    }

    #[test]
    fn other_options_of_an_entry_stay_when_one_is_given() {
        let wanted = with_option("--codex-bin", "/codex");
        for (old, args, left_out) in [
            (
                "codex-mcp serve --max-sandbox read-only --no-commands",
                "serve --max-sandbox read-only --no-commands --codex-bin /codex",
                "",
            ),
            (
                "codex-mcp serve --codex-bin /old --no-commands",
                "serve --codex-bin /codex --no-commands",
                "",
            ),
            (
                "codex-mcp serve --codex-bin=/old --no-commands --codex-bin /older",
                "serve --codex-bin=/codex --no-commands",
                "",
            ),
            (
                "codex-mcp -C /repo",
                "-C /repo serve --codex-bin /codex",
                "",
            ),
            (
                "codex -s read-only -a never --search mcp-server",
                "serve --sandbox read-only --approval-policy never --codex-bin /codex",
                "--search",
            ),
            (
                "npx -y @leo000001/codex-mcp@latest --log debug --quiet",
                "serve --api sessions --codex-bin /codex",
                "--log debug, --quiet",
            ),
        ] {
            let line: Vec<&str> = old.split(' ').collect();
            let server = json!({ "command": line[0], "args": line[1..] });
            let text = json!({ "mcpServers": { "codex": server } }).to_string();
            let plan = adding(Client::Cursor, &text, None, &wanted, NO_LINKS).unwrap();
            let entry = &plan.entries[0];
            assert_eq!(entry.entry.args.join(" "), args, "{old}");
            assert_eq!(entry.left_out.join(", "), left_out, "{old}");
            let again = adding(Client::Cursor, &plan.after, None, &wanted, NO_LINKS).unwrap();
            assert_eq!(changes(&again), [("codex", EntryChange::Keep)], "{old}");
        }
    }

    #[test]
    fn arguments_stay_when_another_copy_of_the_program_is_meant() {
        let npx = WantedEntry {
            command: words(&["npx", "-y", "codex-mcp"]),
            ..with_option("--team", "t")
        };
        let line = |text: &str| {
            let servers = Client::Cursor.format().servers(text, "mcpServers").unwrap();
            command_line(&servers["codex"]).join(" ")
        };
        let by_npx = adding(Client::Cursor, "", None, &npx, NO_LINKS)
            .unwrap()
            .after;
        assert_eq!(line(&by_npx), "npx -y codex-mcp serve --team t");
        let installed = adding(Client::Cursor, &by_npx, None, &wanted(), NO_LINKS).unwrap();
        assert_eq!(line(&installed.after), "/opt/bin/codex-mcp serve --team t");
        let npx = WantedEntry {
            options: Vec::new(),
            ..npx
        };
        let back = adding(Client::Cursor, &installed.after, None, &npx, NO_LINKS).unwrap();
        assert_eq!(back.after, by_npx);
    }

    #[test]
    fn choices_of_the_user_stay() {
        let old = "[mcp_servers.codex]\ncommand = \"codex\"\nargs = [\"mcp-server\"]\ntool_timeout_sec = 9000\n\
                   startup_timeout_sec = 1\ndefault_tools_approval_mode = \"prompt\"\n\n\
                   [mcp_servers.codex.env]\nMINE = \"1\" # a comment\n";
        let plan = adding(Client::Codex, old, None, &wanted(), NO_LINKS).unwrap();
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
        let again = adding(Client::Codex, &mine, None, &wanted(), NO_LINKS).unwrap();
        assert_eq!(again.after, mine);

        let disabled = "extensions:\n  codex:\n    cmd: codex-mcp\n    args: [serve]\n    enabled: false\n    \
                        name: Mine\n";
        let plan = adding(Client::Goose, disabled, None, &wanted(), NO_LINKS).unwrap();
        assert!(
            plan.after.contains("enabled: false\n    name: Mine"),
            "{}",
            plan.after
        );

        let old = r#"{"context_servers": {"codex": {"command": {"path": "codex", "args": ["mcp-server"], "env": {"KEY": "k"}}}}}"#;
        let plan = adding(Client::Zed, old, None, &wanted(), NO_LINKS).unwrap();
        let servers = Client::Zed
            .format()
            .servers(&plan.after, "context_servers")
            .unwrap();
        assert_eq!(servers["codex"]["env"], json!({ "KEY": "k" }));
        assert_eq!(servers["codex"]["command"], "/opt/bin/codex-mcp");
    }

    #[test]
    fn user_members_are_distinguished_from_ours() {
        let wanted = WantedEntry {
            command: words(&["codex-mcp"]),
            env: Vec::new(),
            ..wanted()
        };
        let members = |client: Client, text: &str| -> (String, Vec<String>) {
            let plan = adding(client, text, None, &wanted, NO_LINKS).unwrap();
            let members = plan.members_of_file(client, &plan.entries[0], &wanted);
            let mut names: Vec<String> = members.into_iter().map(|(name, _)| name).collect();
            names.sort();
            (plan.after, names)
        };
        let shared = |client: &&Client| client.project_file().is_some();
        for client in Client::VARIANTS.iter().filter(shared) {
            let (text, names) = members(*client, "");
            assert_eq!(names, Vec::<String>::new(), "{client}");
            assert_eq!(members(*client, &text), (text, names), "{client}");
        }
        let (text, _) = members(Client::ClaudeCode, "");
        let (text, names) = members(Client::Copilot, &text);
        assert_eq!(names, Vec::<String>::new());
        assert_eq!(members(Client::ClaudeCode, &text), (text, names));

        for (server, expected) in [
            (
                json!({
                    "command": "codex-mcp", "args": ["serve", "--codex-bin", "./x"], "cwd": "x",
                    "envFile": "x", "env": {}, "disabled": false, "timeout": 1
                }),
                vec!["args", "cwd", "envFile"],
            ),
            (
                json!({ "command": "codex", "args": ["mcp-server", "-m", "x"] }),
                vec!["args"],
            ),
            (
                json!({ "command": "npx", "args": ["@leo000001/codex-mcp", "-x"], "env": { "A": "b" } }),
                vec!["env"],
            ),
        ] {
            let text = json!({ "mcpServers": { "codex": server } }).to_string();
            let (_, names) = members(Client::Cursor, &text);
            assert_eq!(names, expected, "{text}");
        }
    }

    #[test]
    fn another_server_is_not_replaced() {
        let other = r#"{"mcpServers": {"codex": {"command": "other"}}}"#;
        let refused = adding(Client::Cursor, other, None, &wanted(), NO_LINKS);
        assert_eq!(refused, Err(PlanError::Taken("codex".to_owned())));
        let plan = adding(Client::Cursor, other, Some("mine"), &wanted(), NO_LINKS).unwrap();
        assert!(plan.after.contains("\"other\""), "{}", plan.after);
    }

    #[test]
    fn plugin_counts_while_it_is_switched_on() {
        let settings = |plugins: &str| format!("{{\"enabledPlugins\": {plugins}}}");
        assert!(has_plugin(&settings(r#"{"codex-mcp@codex-mcp": true}"#)));
        assert!(!has_plugin(&settings(r#"{"codex-mcp@codex-mcp": false}"#)));
        assert!(!has_plugin(&settings(r#"{"other@codex-mcp": true}"#)));
        assert!(!has_plugin("no JSON"));
    }

    #[test]
    fn file_in_the_form_of_opencode_2_is_not_changed() {
        let text = r#"{"mcp": {"servers": {"x": {"type": "local", "command": ["x"]}}}}"#;
        let refused = adding(Client::OpenCode, text, None, &wanted(), NO_LINKS);
        assert_eq!(refused, Err(PlanError::OpenCode2Layout));
        let of_that_name = r#"{"mcp": {"servers": {"type": "remote", "url": "https://x"}}}"#;
        let plan = adding(Client::OpenCode, of_that_name, None, &wanted(), NO_LINKS).unwrap();
        assert_eq!(changes(&plan), [("codex", EntryChange::Add)]);
    }

    #[test]
    fn older_servers_of_projects_are_found() {
        let text = r#"{"projects": {"/src": {"mcpServers": {
            "old": {"command": "codex", "args": ["mcp-server"]},
            "new": {"command": "codex-mcp", "args": ["serve"]}
        }}, "/other": {}}}"#;
        assert_eq!(
            of_projects(text, NO_LINKS),
            [("/src".to_owned(), "old".to_owned())]
        );
        assert_eq!(of_projects("no JSON", NO_LINKS), []);
    }
}
