//! The files of a repository that take effect once the user trusts it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use common::secrets::mask;
use common::text::one_line;
use common::toml_error;
use safe_files::untrusted_file::{Links, read_text};
use toml::{Table, Value};

use crate::logic::prompt_kind::PromptKind;

/// The file with codex-mcp's settings.
pub(crate) const SETTINGS: &str = ".atm.toml";

/// The directory of prompts, at the top of a repository.
pub(crate) const PROMPTS: &str = ".codex-mcp/prompts";

/// A repository's layer of Codex's configuration, in any of its directories.
pub const CODEX_CONFIG_FILE: &str = ".codex/config.toml";

/// The files that Codex itself reads, and directories with such files, in any directory
/// of the repository.
pub const CODEX_FILES: [&str; 4] = [
    CODEX_CONFIG_FILE,
    ".codex/hooks.json",
    ".codex/rules",
    ".codex/agents",
];

/// The longest file that is read, in bytes.
const LIMIT: u64 = 1024 * 1024;

/// The most that is shown of a value, in bytes.
const SHOWN: usize = 80;

/// The most keys of a file that are shown.
const KEYS: usize = 40;

/// The most directory entries that are searched for files in directories below.
const SEARCHED: usize = 100_000;

/// A file of a repository that the trust in it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredFile {
    /// The file.
    pub path: PathBuf,
    /// Its keys with their values, or with the names in them for tables. Empty if the
    /// file's content is not listed.
    pub keys: Vec<String>,
}

impl fmt::Display for CoveredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.keys.as_slice() {
            [] => Ok(()),
            keys => write!(f, ": {}", keys.join(", ")),
        }
    }
}

/// Says why a key of our section in `.atm.toml` has no effect in any repository.
pub type KeyNote = fn(&str) -> Option<&'static str>;

/// The covered files for work in a directory of the repository with this top, the nearest
/// first: `.atm.toml`, files for Codex, and prompts.
#[must_use]
pub fn covered_files(directory: &Path, top: &Path, note: KeyNote) -> Vec<CoveredFile> {
    let within = directory
        .ancestors()
        .take_while(|above| above.starts_with(top));
    let files = within.flat_map(|directory| in_directory(directory, note));
    let mut files: Vec<CoveredFile> = files.collect();
    let prompts = PromptKind::ALL.map(|kind| top.join(format!("{PROMPTS}/{kind}.md")));
    files.extend(prompts.into_iter().filter_map(named));
    files
}

/// The files in directories below. Trust in them is given for those directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoveredBelow {
    /// Paths from the top.
    pub files: Vec<PathBuf>,
    /// Whether the search ended at its limit.
    pub is_cut: bool,
}

/// Searches the directories of a repository for such files, except directories whose
/// files count for work in `directory`, and except nested repositories. Links are not
/// followed.
#[must_use]
pub fn covered_below(directory: &Path, top: &Path) -> CoveredBelow {
    let mut found = CoveredBelow::default();
    let mut queue = VecDeque::from([top.to_owned()]);
    let mut left = SEARCHED;
    while let Some(path) = queue.pop_front() {
        if path != top && path.join(".git").symlink_metadata().is_ok() {
            continue;
        }
        if !directory.starts_with(&path) {
            let names = CODEX_FILES
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

fn in_directory(directory: &Path, note: KeyNote) -> Vec<CoveredFile> {
    let settings = read(directory.join(SETTINGS), Links::Refused, |table| {
        let own = |path: &[&str]| {
            let mut table = table;
            for name in path {
                table = table.get(*name)?.as_table()?;
            }
            Some(table)
        };
        let core = own(&["core"]).into_iter().flatten();
        let core = core.map(|(key, value)| shown(key, value));
        let ours = own(&["plugins", "codex-mcp"]).into_iter().flatten();
        let ours = ours.map(|(key, value)| match note(key) {
            Some(note) => format!("{} ({note})", shown(key, value)),
            None => shown(key, value),
        });
        core.chain(ours).collect()
    });
    // Codex follows a link here.
    let codex = read(
        directory.join(CODEX_CONFIG_FILE),
        Links::Followed,
        |table| table.iter().map(|(key, value)| shown(key, value)).collect(),
    );
    // The other files are listed by name only.
    let others = CODEX_FILES
        .iter()
        .filter(|name| **name != CODEX_CONFIG_FILE);
    let others = others.map(|name| named(directory.join(name)));
    [settings, codex]
        .into_iter()
        .chain(others)
        .flatten()
        .collect()
}

fn named(path: PathBuf) -> Option<CoveredFile> {
    let exists = path.symlink_metadata().is_ok();
    exists.then_some(CoveredFile {
        path,
        keys: Vec::new(),
    })
}

fn read(path: PathBuf, links: Links, keys: impl Fn(&Table) -> Vec<String>) -> Option<CoveredFile> {
    let mut file = named(path)?;
    let text = read_text(&file.path, LIMIT, links);
    file.keys = match text.map(|text| toml_error::parse::<Table>(&text)) {
        Ok(Ok(table)) => keys(&table),
        Ok(Err(error)) => vec![format!("malformed at {}", error.place())],
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
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn linked_file_is_listed_with_the_keys_that_count() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        let target = top.join("elsewhere.toml");
        fs::write(&target, "model = \"m\"\n").unwrap();
        fs::create_dir(top.join(".codex")).unwrap();
        for name in [SETTINGS, CODEX_CONFIG_FILE] {
            symlink(&target, top.join(name)).unwrap();
        }
        let files = covered_files(top, top, |_| None).into_iter();
        let keys: Vec<Vec<String>> = files.map(|file| file.keys).collect();
        assert_eq!(keys, [["unreadable"], ["model = \"m\""]]);
    }

    #[test]
    fn covered_files_are_listed_with_their_keys() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for (name, text) in [
            (
                ".atm.toml",
                "[plugins.codex-mcp]\nsandbox = \"read-only\"\nstore = \"x\"\n",
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
            let note: KeyNote = |key| (key == "store").then_some("not used");
            let lines = covered_files(directory, top, note);
            let lines = lines.iter().map(|file| {
                let line = file.to_string();
                line.strip_prefix(&format!("{}/", top.display()))
                    .unwrap()
                    .to_owned()
            });
            lines.collect::<Vec<_>>()
        };
        let of_top = [
            ".atm.toml: sandbox = \"read-only\", store = \"x\" (not used)",
            ".codex/config.toml: mcp_servers (x), sandbox_mode = \"danger-full-access\"",
            ".codex-mcp/prompts/nudge.md",
        ];
        assert_eq!(listed(top), of_top);
        let below = covered_below(top, top);
        assert_eq!(below.files, [PathBuf::from("sub/.codex/config.toml")]);
        assert_eq!(
            covered_below(&top.join("sub"), top),
            CoveredBelow::default()
        );
        fs::create_dir(top.join("sub/.git")).unwrap();
        assert_eq!(covered_below(top, top), CoveredBelow::default());
        let of_sub = listed(&top.join("sub"));
        let malformed = "sub/.codex/config.toml: malformed at line 1, column ";
        assert!(of_sub[0].starts_with(malformed), "{}", of_sub[0]);
        assert_eq!(of_sub[1..], of_top);
    }
}
