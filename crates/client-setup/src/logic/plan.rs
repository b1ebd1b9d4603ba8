//! What setting up a client changes in its configuration.

use super::clients::Client;
use serde_json::Value;

use super::document::{EditError, Member};
use super::entry::{Entry, Kind, command_line};

/// A change of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The name of the entry.
    pub name: String,
    /// The entry.
    pub entry: Entry,
    /// What the entry replaces, if it is another server.
    pub replaces: Option<Kind>,
    /// The text of the file afterwards.
    pub after: String,
}

/// Why a client is not set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The file cannot be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Another server has the name.
    #[error("`{0}` in it is another server; choose a name for codex-mcp with --name")]
    Taken(String),
}

/// Plans to add the entry to a file with this text, or to correct it. An entry of `codex
/// mcp-server` or of the npm package is replaced, under its name.
///
/// # Errors
///
/// [`PlanError`].
pub fn adding(
    client: Client,
    text: &str,
    name: Option<&str>,
    entry: &Entry,
) -> Result<Plan, PlanError> {
    let servers = client.format().servers(text, client.key())?;
    let kind_of = |name: &str| {
        let server = servers.get(name)?;
        Kind::of(&command_line(server))
    };
    let known = servers.keys().find(|name| kind_of(name).is_some());
    let name = name.or(known.map(String::as_str));
    let name = name.unwrap_or(super::entry::NAME).to_owned();
    let replaces = match (servers.contains_key(&name), kind_of(&name)) {
        (true, None) => return Err(PlanError::Taken(name)),
        (_, kind) => kind.filter(|kind| *kind != Kind::Ours),
    };
    let mut entry = entry.clone();
    if let Some(kind) = replaces
        && !entry.args.iter().any(|arg| arg == "--api")
    {
        entry
            .args
            .extend(kind.replacing_args().iter().map(|&arg| arg.to_owned()));
    }
    let mut members = client.members(&name, &entry);
    if let Some(present) = servers.get(&name) {
        members.retain(|member| is_needed(present, member));
    }
    let after = client.format().set(text, client.key(), &name, &members)?;
    Ok(Plan {
        name,
        entry,
        replaces,
        after,
    })
}

/// Whether a member is written to an entry that is there. What starts the server always is; for the
/// rest, the user's own choice counts, but for a shorter time limit.
fn is_needed(present: &Value, (member, value): &Member) -> bool {
    let starts = ["command", "args", "cmd", "name", "enabled", "env"].contains(member);
    match present.get(member) {
        None => true,
        Some(_) if starts => true,
        Some(there) => match (there.as_f64(), value.as_f64()) {
            (Some(there), Some(wanted)) => there < wanted,
            _ => false,
        },
    }
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
    let is_ours = |found: &&String| {
        let kind = servers
            .get(*found)
            .and_then(|server| Kind::of(&command_line(server)));
        kind == Some(Kind::Ours) && name.is_none_or(|name| name == found.as_str())
    };
    let names: Vec<String> = servers.keys().filter(is_ours).cloned().collect();
    let mut text = text.to_owned();
    for name in &names {
        text = client.format().remove(&text, client.key(), name)?;
    }
    Ok((text, names))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::VariantArray;

    use super::*;

    fn entry() -> Entry {
        Entry {
            command: "/opt/bin/codex-mcp".to_owned(),
            args: vec!["serve".to_owned()],
            env: vec![("CODEX_HOME".to_owned(), "/codex".to_owned())],
        }
    }

    #[test]
    fn every_client_is_set_up_once() {
        for client in Client::VARIANTS {
            let plan = adding(*client, "", None, &entry()).unwrap();
            assert_eq!(
                (plan.name.as_str(), plan.replaces),
                ("codex", None),
                "{client}"
            );
            let servers = client.format().servers(&plan.after, client.key()).unwrap();
            let line = command_line(&servers["codex"]);
            assert_eq!(line, ["/opt/bin/codex-mcp", "serve"], "{client}");
            let again = adding(*client, &plan.after, None, &entry()).unwrap();
            assert_eq!(again.after, plan.after, "{client}");
            let (rest, names) = removing(*client, &plan.after, None).unwrap();
            assert_eq!(names, ["codex"], "{client}");
            let rest = client.format().servers(&rest, client.key()).unwrap();
            assert!(rest.is_empty(), "{client}: {rest:?}");
        }
    }

    #[test]
    fn earlier_servers_are_replaced_under_their_names() {
        let old = r#"{"mcpServers": {"delegate": {"command": "codex", "args": ["mcp-server"]}}}"#;
        let plan = adding(Client::Cursor, old, None, &entry()).unwrap();
        assert_eq!(plan.name, "delegate");
        assert_eq!(plan.replaces, Some(Kind::McpServer));
        assert!(!plan.after.contains("mcp-server"), "{}", plan.after);

        let npm =
            r#"{"mcpServers": {"x": {"command": "npx", "args": ["-y", "@leo000001/codex-mcp"]}}}"#;
        let plan = adding(Client::Cursor, npm, None, &entry()).unwrap();
        assert_eq!(plan.replaces, Some(Kind::NpmPackage));
        assert_eq!(plan.entry.args, ["serve", "--api", "sessions"]);
    }

    #[test]
    fn choices_of_the_user_stay() {
        let old = "[mcp_servers.codex]\ncommand = \"codex\"\nargs = [\"mcp-server\"]\ntool_timeout_sec = 9000\n\
                   startup_timeout_sec = 1\ndefault_tools_approval_mode = \"prompt\"\n\n\
                   [mcp_servers.codex.env]\nMINE = \"1\" # a comment\n";
        let plan = adding(Client::Codex, old, None, &entry()).unwrap();
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
    }

    #[test]
    fn another_server_is_not_replaced() {
        let other = r#"{"mcpServers": {"codex": {"command": "other"}}}"#;
        let refused = adding(Client::Cursor, other, None, &entry());
        assert_eq!(refused, Err(PlanError::Taken("codex".to_owned())));
        let plan = adding(Client::Cursor, other, Some("mine"), &entry()).unwrap();
        assert!(plan.after.contains("\"other\""), "{}", plan.after);
        let (text, names) = removing(Client::Cursor, other, None).unwrap();
        assert_eq!((text.as_str(), names.len()), (other, 0));
    }
}
