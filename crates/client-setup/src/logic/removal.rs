//! Plans the removal of this program's entries from the configuration of a client.

use codex_config::logic::codex_servers::{Kind, RealPath, command_line};
use serde_json::Value;

use super::clients::Client;
use super::document::{EditError, Member, Servers};

/// A file without this program's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its text.
    pub text: String,
    /// The names of the entries.
    pub names: Vec<String>,
    /// Those of them that are what they were before this program replaced or changed them.
    pub put_back: Vec<String>,
    /// Whether entries of this program with other names stay in the file.
    pub has_others: bool,
}

/// Plans to remove the entries of this program, or the one of this name. The servers in `replaced` are
/// put back; entries of this program that the user has written can be among them.
///
/// # Errors
///
/// [`EditError`], if the file cannot be edited.
pub fn removing(
    client: Client,
    text: &str,
    name: Option<&str>,
    replaced: &Servers,
    real_path: RealPath<'_>,
) -> Result<Removed, EditError> {
    let (format, key) = (client.format(), client.key());
    let servers = format.servers(text, key)?;
    let is_meant = |found: &String| name.is_none_or(|name| name == found);
    let ours = servers
        .iter()
        .filter(|(_, server)| is_ours(server, real_path));
    let ours = ours.map(|(name, _)| name.clone());
    let (names, others): (Vec<String>, Vec<String>) = ours.partition(is_meant);
    let mut text = text.to_owned();
    let mut put_back = Vec::new();
    for name in &names {
        let earlier = replaced.get(name);
        // An entry that is as it was before keeps its place and its comments.
        if earlier.is_some() && earlier == servers.get(name) {
            put_back.push(name.clone());
            continue;
        }
        text = format.remove(&text, key, name)?;
        if let Some(Value::Object(members)) = earlier {
            let members: Vec<Member> = members.clone().into_iter().collect();
            text = format.set(&text, key, name, &members)?;
            put_back.push(name.clone());
        }
    }
    Ok(Removed {
        text,
        names,
        put_back,
        has_others: !others.is_empty(),
    })
}

/// Whether the file has an entry of this program.
///
/// # Errors
///
/// [`EditError`], if the file cannot be read.
pub fn has_ours(client: Client, text: &str, real_path: RealPath<'_>) -> Result<bool, EditError> {
    let servers = client.format().servers(text, client.key())?;
    Ok(servers.values().any(|server| is_ours(server, real_path)))
}

fn is_ours(server: &Value, real_path: RealPath<'_>) -> bool {
    Kind::of(&command_line(server), real_path) == Some(Kind::Ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::VariantArray;

    use super::*;
    use crate::logic::plan::tests::{NO_LINKS, changes, wanted};
    use crate::logic::plan::{EntryChange, adding};

    #[test]
    fn entry_of_every_client_is_removed() {
        for client in Client::VARIANTS {
            let plan = adding(*client, "", None, &wanted(), NO_LINKS).unwrap();
            assert!(
                has_ours(*client, &plan.after, NO_LINKS).unwrap(),
                "{client}"
            );
            let removed = removing(*client, &plan.after, None, &Servers::new(), NO_LINKS).unwrap();
            assert_eq!(removed.names, ["codex"], "{client}");
            let rest = client
                .format()
                .servers(&removed.text, client.key())
                .unwrap();
            assert!(rest.is_empty(), "{client}: {rest:?}");
            assert!(
                !has_ours(*client, &removed.text, NO_LINKS).unwrap(),
                "{client}"
            );
        }
    }

    #[test]
    fn replaced_server_is_put_back_in_place_of_its_entry() {
        let old = r#"{"mcpServers": {
            "delegate": {"command": "codex", "args": ["mcp-server"]},
            "x": {"command": "npx", "args": ["-y", "@leo000001/codex-mcp"]},
            "time": {"command": "uvx"}
        }}"#;
        let plan = adding(Client::Cursor, old, None, &wanted(), NO_LINKS).unwrap();
        let mut replaced = Servers::new();
        let server = plan.entries[0].replaced.clone().unwrap();
        replaced.insert("delegate".to_owned(), server.clone());
        let removed = removing(Client::Cursor, &plan.after, None, &replaced, NO_LINKS).unwrap();
        assert_eq!(removed.names, ["delegate", "x"]);
        assert_eq!(removed.put_back, ["delegate"]);
        let rest = Client::Cursor.format().servers(&removed.text, "mcpServers");
        let rest = rest.unwrap();
        assert_eq!(rest.keys().collect::<Vec<_>>(), ["delegate", "time"]);
        assert_eq!(rest["delegate"], server);
    }

    #[test]
    fn own_entries_that_were_changed_are_put_back() {
        let old = json!({ "mcpServers": {
            "mine": { "command": "codex-mcp", "args": ["serve", "--max-sandbox", "read-only"] },
            "same": { "command": "/opt/bin/codex-mcp", "args": ["serve"] },
        } });
        let plan = adding(Client::Cursor, &old.to_string(), None, &wanted(), NO_LINKS).unwrap();
        let expected = [("mine", EntryChange::Update), ("same", EntryChange::Keep)];
        assert_eq!(changes(&plan), expected);
        let entries = plan.entries.iter();
        let replaced = entries.map(|entry| (entry.name.clone(), entry.replaced.clone().unwrap()));
        let replaced: Servers = replaced.collect();
        let removing = |name: Option<&str>, replaced: &Servers| {
            removing(Client::Cursor, &plan.after, name, replaced, NO_LINKS).unwrap()
        };
        let removed = removing(None, &replaced);
        assert_eq!(removed.put_back, ["mine", "same"]);
        assert!(!removed.has_others);
        let rest: Value = serde_json::from_str(&removed.text).unwrap();
        assert_eq!(rest, old);
        assert!(removing(Some("mine"), &replaced).has_others);
        // As a control: entries that are not known from before are gone.
        let removed = removing(None, &Servers::new());
        assert_eq!(removed.put_back, [""; 0]);
        assert!(!removed.text.contains("codex-mcp"), "{}", removed.text);
    }

    #[test]
    fn another_server_is_not_removed() {
        let other = r#"{"mcpServers": {"codex": {"command": "other"}}}"#;
        let removed = removing(Client::Cursor, other, None, &Servers::new(), NO_LINKS).unwrap();
        assert_eq!((removed.text.as_str(), removed.names.len()), (other, 0));
    }
}
