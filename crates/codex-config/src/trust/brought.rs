//! What the files of a repository bring, which counts once the user trusts it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use common::secrets::mask;
use common::text::one_line;
use safe_files::untrusted_file::{Links, read_text};
use toml::{Table, Value};

use crate::prompt_kind::PromptKind;
use crate::repository_files::{FOR_CODEX, OF_REPOSITORY, PROMPTS, SETTINGS};

/// The longest file that is looked into, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// How much of a value is shown, in bytes.
const SHOWN: usize = 80;

/// How many keys of a file are shown.
const KEYS: usize = 40;

/// How many entries of directories are searched for files below.
const SEARCHED: usize = 100_000;

/// A file that a repository brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The file.
    pub path: PathBuf,
    /// Its keys with their values, of tables the names in them; empty if only the file's
    /// name is known.
    pub keys: Vec<String>,
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.keys.as_slice() {
            [] => Ok(()),
            keys => write!(f, ": {}", keys.join(", ")),
        }
    }
}

/// The files for work in a directory of the repository with this top, the nearest first:
/// `.atm.toml`, files for Codex, and prompts.
#[must_use]
pub fn brought(directory: &Path, top: &Path) -> Vec<Brought> {
    let within = directory
        .ancestors()
        .take_while(|above| above.starts_with(top));
    let mut files: Vec<Brought> = within.flat_map(in_directory).collect();
    let prompts = PromptKind::ALL.map(|kind| top.join(format!("{PROMPTS}/{kind}.md")));
    files.extend(prompts.into_iter().filter_map(named));
    files
}

/// Files in directories below, for which trust is given there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BroughtBelow {
    /// Paths from the top.
    pub files: Vec<PathBuf>,
    /// Whether there were more directories than are searched.
    pub is_cut: bool,
}

/// Searches the directories of a repository, but for those that count for work in
/// `directory`, and for other repositories. Links are not followed.
#[must_use]
pub fn brought_below(directory: &Path, top: &Path) -> BroughtBelow {
    let mut found = BroughtBelow::default();
    let mut queue = VecDeque::from([top.to_owned()]);
    let mut left = SEARCHED;
    while let Some(path) = queue.pop_front() {
        if path != top && path.join(".git").symlink_metadata().is_ok() {
            continue;
        }
        if !directory.starts_with(&path) {
            let names = FOR_CODEX
                .iter()
                .chain([&SETTINGS])
                .map(|name| path.join(name));
            let files = names.filter(|path| path.symlink_metadata().is_ok());
            let files = files.filter_map(|path| path.strip_prefix(top).ok().map(Path::to_owned));
            found.files.extend(files);
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let Some(fewer) = left.checked_sub(1) else {
                found.is_cut = true;
                return found;
            };
            left = fewer;
            let name = entry.file_name();
            let is_searched = name != ".git" && name != ".codex";
            if is_searched && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                queue.push_back(entry.path());
            }
        }
    }
    found
}

fn in_directory(directory: &Path) -> Vec<Brought> {
    let settings = read(directory.join(SETTINGS), |table| {
        let own = |path: &[&str]| {
            let mut table = table;
            for name in path {
                table = table.get(*name)?.as_table()?;
            }
            Some(table.iter().map(|(key, value)| shown(key, value)))
        };
        let core = own(&["core"]).into_iter().flatten();
        let ours = own(&["plugins", "codex-mcp"]).into_iter().flatten();
        core.chain(ours).collect()
    });
    let codex = read(directory.join(OF_REPOSITORY), |table| {
        table.iter().map(|(key, value)| shown(key, value)).collect()
    });
    // The names of the others say enough.
    let others = FOR_CODEX.iter().filter(|name| **name != OF_REPOSITORY);
    let others = others.map(|name| named(directory.join(name)));
    [settings, codex]
        .into_iter()
        .chain(others)
        .flatten()
        .collect()
}

fn named(path: PathBuf) -> Option<Brought> {
    let exists = path.symlink_metadata().is_ok();
    exists.then_some(Brought {
        path,
        keys: Vec::new(),
    })
}

fn read(path: PathBuf, keys: impl Fn(&Table) -> Vec<String>) -> Option<Brought> {
    let mut file = named(path)?;
    let text = read_text(&file.path, LIMIT, Links::Refused);
    file.keys = match text.map(|text| toml::from_str::<Table>(&text)) {
        Ok(Ok(table)) => keys(&table),
        Ok(Err(_)) => vec!["malformed".to_owned()],
        Err(_) => vec!["unreadable".to_owned()],
    };
    if file.keys.len() > KEYS {
        let more = file.keys.len() - KEYS;
        file.keys.truncate(KEYS);
        file.keys.push(format!("and {more} more"));
    }
    Some(file)
}

/// A key with its value; of a table, the names in it. Credentials are masked.
pub fn shown(key: &str, value: &Value) -> String {
    let text = match value {
        Value::Table(table) => {
            let names: Vec<&str> = table.keys().map(String::as_str).collect();
            format!("{key} ({})", names.join(", "))
        }
        value => format!("{key} = {}", mask(&value.to_string())),
    };
    one_line(&text, SHOWN)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_listed_with_the_keys_that_they_set() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for (name, text) in [
            (
                ".atm.toml",
                "[plugins.codex-mcp]\nsandbox = \"read-only\"\n",
            ),
            (
                ".codex/config.toml",
                "sandbox_mode = \"danger-full-access\"\n[mcp_servers.x]\ncommand = \"sh\"\n",
            ),
            (".codex-mcp/prompts/nudge.md", "x"),
            ("sub/.codex/config.toml", "model = "),
        ] {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let listed = |directory: &Path| {
            let lines = brought(directory, top);
            let lines = lines.iter().map(|file| {
                let line = file.to_string();
                line.strip_prefix(&format!("{}/", top.display()))
                    .unwrap()
                    .to_owned()
            });
            lines.collect::<Vec<_>>()
        };
        let of_top = [
            ".atm.toml: sandbox = \"read-only\"",
            ".codex/config.toml: mcp_servers (x), sandbox_mode = \"danger-full-access\"",
            ".codex-mcp/prompts/nudge.md",
        ];
        assert_eq!(listed(top), of_top);
        let below = brought_below(top, top);
        assert_eq!(below.files, [PathBuf::from("sub/.codex/config.toml")]);
        assert_eq!(
            brought_below(&top.join("sub"), top),
            BroughtBelow::default()
        );
        fs::create_dir(top.join("sub/.git")).unwrap();
        assert_eq!(brought_below(top, top), BroughtBelow::default());
        let of_sub = listed(&top.join("sub"));
        assert_eq!(of_sub[0], "sub/.codex/config.toml: malformed");
        assert_eq!(of_sub[1..], of_top);
    }
}
