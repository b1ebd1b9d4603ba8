//! Warns about variables that have our prefix and that no part of the program reads.

use std::ffi::OsString;

use common::nearest::nearest;
use common::text::one_line;

use crate::source::Warning;

/// The prefix of our variables.
const PREFIX: &str = "CODEX_MCP_";

/// The names, without the prefix, of the variables that are read, or that mark our own processes
/// and Codex's commands.
pub(super) const KNOWN: [&str; 25] = [
    "ALLOW_COMMANDS",
    "ALLOW_DIRS",
    "APPROVAL_POLICY",
    "ATTACH_TOKEN",
    "BASE_PROMPT_FILE",
    "CODEX_BIN",
    "EXTRA_INSTRUCTIONS_FILE",
    "HOST",
    "LOG",
    "MAX_IMAGE_BYTES",
    "MAX_SANDBOX",
    "MODEL",
    "NTFY_TOKEN",
    "REASONING_EFFORT",
    "REQUEST_IMAGE",
    "REQUEST_TIMEOUT_SECS",
    "ROLE",
    "SANDBOX",
    "STARTER",
    "STDIO_MODE",
    "STORE",
    "SUMMARIES",
    "TEAM_TOOLS",
    "TREE",
    "TURN",
];

/// The limit of a name in a warning, in bytes.
const SHOWN: usize = 80;

/// Returns a warning for each variable that has our prefix and an unknown name.
pub(super) fn unknown(names: impl Iterator<Item = OsString>) -> Vec<Warning> {
    let mut unknown: Vec<String> = names
        .filter_map(|name| Some(name.to_string_lossy().strip_prefix(PREFIX)?.to_owned()))
        .filter(|name| !KNOWN.contains(&name.as_str()))
        .collect();
    unknown.sort_unstable();
    unknown.iter().map(|name| warning(name)).collect()
}

fn warning(name: &str) -> Warning {
    let shown = one_line(name, SHOWN);
    Warning {
        message: format!(
            "the variable {PREFIX}{shown} is set, and codex-mcp has none of this name"
        ),
        hint: match nearest(name, &KNOWN) {
            Some(near) => format!("Did you mean `{PREFIX}{near}`?"),
            None => "docs/configuration.md lists the variables.".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn mistyped_variable_is_named_with_the_right_one() {
        let names = [
            "CODEX_MCP_SANDBX",
            "CODEX_MCP_QQQ",
            "CODEX_MCP_SANDBOX",
            "CODEX_MCP_LOG",
            "CODEX_HOME",
            "PATH",
        ];
        let warnings = unknown(names.into_iter().map(OsString::from));
        let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "the variable CODEX_MCP_QQQ is set, and codex-mcp has none of this name. \
                 docs/configuration.md lists the variables.",
                "the variable CODEX_MCP_SANDBX is set, and codex-mcp has none of this name. Did \
                 you mean `CODEX_MCP_SANDBOX`?",
            ]
        );
    }

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
                false => {}
            }
        }
    }

    #[test]
    fn every_variable_in_the_sources_is_known() {
        let mut files = Vec::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
            sources(&entry.unwrap().path().join("src"), &mut files);
        }
        let is_of_a_name = |letter: &char| letter.is_ascii_uppercase() || *letter == '_';
        assert!(
            files
                .iter()
                .any(|file| file.ends_with("codex-mcp/src/cli/serve/mod.rs"))
        );
        for file in files {
            // This file is skipped because of its mistyped names. The other skipped files contain
            // names for tests, and a variable that the build script sets.
            let others = [
                "codex-mcp/src/installation/mod.rs",
                "settings/src/variables.rs",
                "tests/opening.rs",
                "testkit/src/codex.rs",
                "testkit/src/home.rs",
            ];
            if others.iter().any(|other| file.ends_with(other)) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            // `_CODEX_MCP_…` has another prefix.
            let found = text.match_indices(PREFIX);
            for (at, _) in found.filter(|(at, _)| !text[..*at].ends_with('_')) {
                let after = &text[at + PREFIX.len()..];
                let name: String = after.chars().take_while(is_of_a_name).collect();
                assert!(
                    name.is_empty() || KNOWN.contains(&name.as_str()),
                    "{}: {name}",
                    file.display()
                );
            }
        }
    }
}
