//! Codex's home directory and the configuration in it.

use std::collections::BTreeMap;

use codex_config::rules::GitRules;
use serde_json::json;

use super::super::facts::{ConfigFile, Directory, Home, HomeSource};
use super::super::report::{Check, Finding};
use super::words::one_line;

pub(super) fn directory(home: &Home) -> Finding {
    let path = home.path.display();
    let source = match home.chosen_by {
        HomeSource::Variable => "from CODEX_HOME",
        HomeSource::Default => "the default",
    };
    let problem = |what: &str, hint: &str| {
        let message = format!("{path} ({source}) {what}");
        Finding::problem(Check::CodexHome, message, hint)
    };
    let finding = match (&home.directory, home.chosen_by) {
        (Directory::Writable, _) => Finding::ok(Check::CodexHome, format!("{path} ({source})")),
        (Directory::ReadOnly, _) => problem(
            "cannot be written to, and Codex keeps its threads there",
            "Make the directory writable for this user, or set CODEX_HOME to one that is.",
        ),
        (Directory::Missing, HomeSource::Default) => Finding::note(
            Check::CodexHome,
            format!("{path} ({source}) does not exist yet"),
        ),
        (Directory::MadeByProbe, _) => Finding::note(
            Check::CodexHome,
            format!("{path} ({source}) did not exist; the check of Codex has made it"),
        ),
        (Directory::Missing, HomeSource::Variable) => problem(
            "does not exist, and Codex does not make it",
            "Make the directory, or unset CODEX_HOME.",
        ),
        (Directory::Other, _) => problem("is not a directory", "Set CODEX_HOME to a directory."),
        (Directory::Unknown(reason), _) => problem(
            &format!("cannot be used: {}", one_line(reason)),
            "Set CODEX_HOME to a directory that this user may read and write.",
        ),
    };
    finding.with_value(home.path.to_string_lossy())
}

/// `refused` is Codex's reason for not loading its configuration, if it gave one.
pub(super) fn config(home: &Home, refused: Option<&str>) -> Finding {
    let path = home.path.join("config.toml");
    let path = path.display();
    let problem = |message: String| {
        let hint = format!("Correct {path}; Codex starts no thread before.");
        Finding::problem(Check::Config, message, hint)
    };
    match (&home.config, refused) {
        (ConfigFile::Malformed(malformed), _) => {
            problem(format!("{path} is not valid TOML: {malformed}"))
        }
        (ConfigFile::Unreadable(reason), _) => {
            problem(format!("{path} cannot be read: {}", one_line(reason)))
        }
        (_, Some(_)) if !home.is_fit() => {
            Finding::not_checked(Check::Config, "Codex cannot use its home directory")
        }
        (_, Some(reason)) => Finding::problem(
            Check::Config,
            format!("Codex cannot load its configuration: {reason}"),
            "Correct it; Codex starts no thread before.",
        ),
        (file @ (ConfigFile::Absent | ConfigFile::Valid), None) => {
            let found = match file {
                ConfigFile::Absent => "no ",
                _ => "",
            };
            let shown = &home.settings.shown;
            let message = format!("{found}{path}; {}", in_words(shown));
            Finding::ok(Check::Config, message).with_value(json!(shown))
        }
    }
}

pub(super) fn git_rules(rules: &GitRules) -> Finding {
    Finding::warning(Check::Config, one_line(&rules.to_string()), GitRules::HINT)
}

fn in_words(shown: &BTreeMap<&str, String>) -> String {
    if shown.is_empty() {
        return "Codex's defaults hold for model, provider, sandbox and approval policy".to_owned();
    }
    let words = shown
        .iter()
        .map(|(name, value)| format!("{name} = {}", one_line(value)));
    words.collect::<Vec<_>>().join(", ")
}
