//! The part of Codex's configuration that decides whether it can work.
//!
//! Source of names and defaults: the `config.toml` that Codex 0.104.0 to
//! 0.169.0 read, and what their `account/read` makes of it.

use std::collections::BTreeMap;

use codex_config::layers::CodexConfig;
use serde_json::Value;

/// The settings that are shown.
const SHOWN: [&str; 5] = [
    "model",
    "model_provider",
    "sandbox_mode",
    "approval_policy",
    "profile",
];

/// The default provider. Of Codex's own providers, it is the only one that needs an OpenAI login.
const OPENAI: &str = "openai";

/// Codex's settings outside of any repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The settings that are set and worth showing, as text.
    pub shown: BTreeMap<&'static str, String>,
    /// The credential that the model provider needs.
    pub credential: Credential,
}

/// The credential that a model provider needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A login at OpenAI.
    Login,
    /// A key in an environment variable.
    Key {
        /// The provider.
        provider: String,
        /// The variable.
        variable: String,
        /// The provider's instructions for getting a key.
        instructions: Option<String>,
    },
    /// The provider needs no credential that Codex knows of.
    Nothing {
        /// The provider.
        provider: String,
    },
}

impl Settings {
    /// Reads the settings of a configuration. A value of the wrong type is shown as it is: Codex
    /// reports such errors itself.
    #[must_use]
    pub fn of(config: &CodexConfig) -> Self {
        let shown = SHOWN
            .into_iter()
            .filter_map(|name| Some((name, in_words(config.get(name)?))))
            .collect();
        Self {
            shown,
            credential: credential(config),
        }
    }
}

/// A text without its quotes; of a table (a detailed approval policy), only the name.
fn in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(table) => table.keys().cloned().collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The credential of the model provider; a key takes precedence over a login.
fn credential(config: &CodexConfig) -> Credential {
    let provider = config.get("model_provider").and_then(Value::as_str);
    let provider = provider.unwrap_or(OPENAI);
    if provider == OPENAI {
        return Credential::Login;
    }
    let own = |name: &str| config.get(&format!("model_providers.{provider}.{name}"));
    let text = |name| own(name)?.as_str().map(str::to_owned);
    let wants_login = own("requires_openai_auth");
    if let Some(variable) = text("env_key") {
        Credential::Key {
            provider: provider.to_owned(),
            variable,
            instructions: text("env_key_instructions"),
        }
    } else if wants_login.and_then(Value::as_bool) == Some(true) {
        Credential::Login
    } else {
        Credential::Nothing {
            provider: provider.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codex_config::layers::UserConfig;

    fn parse(text: &str) -> Settings {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), text).unwrap();
        Settings::of(&UserConfig::read(home.path()).layers(None, None))
    }

    fn nothing(provider: &str) -> Credential {
        Credential::Nothing {
            provider: provider.to_owned(),
        }
    }

    #[test]
    fn settings_are_shown_and_profile_wins() {
        let text = "model = \"m\"\nsandbox_mode = 7\nprofile = \"p\"\nother = 1\n\
                    approval_policy = { granular = { rules = true } }\n\
                    [profiles.p]\nmodel = \"n\"\n[profiles.q]\nmodel = \"o\"\n";
        let shown: Vec<(&str, String)> = parse(text).shown.into_iter().collect();
        assert_eq!(
            shown,
            [
                ("approval_policy", "granular".to_owned()),
                ("model", "n".to_owned()),
                ("profile", "p".to_owned()),
                ("sandbox_mode", "7".to_owned()),
            ]
        );
    }

    #[test]
    fn login_is_required_by_openai_and_by_providers_that_say_so() {
        let provider = |more: &str| {
            parse(&format!(
                "model_provider = \"x\"\n[model_providers.x]\n{more}"
            ))
            .credential
        };
        assert_eq!(parse("").credential, Credential::Login);
        assert_eq!(parse("model = \"m\"").credential, Credential::Login);
        assert_eq!(
            parse("model_provider = \"openai\"").credential,
            Credential::Login
        );
        assert_eq!(
            parse("model_provider = \"ollama\"").credential,
            nothing("ollama")
        );
        assert_eq!(provider(""), nothing("x"));
        assert_eq!(provider("requires_openai_auth = false"), nothing("x"));
        assert_eq!(provider("requires_openai_auth = true"), Credential::Login);
        assert_eq!(
            provider("requires_openai_auth = true\nenv_key = \"K\"\nenv_key_instructions = \"I\""),
            Credential::Key {
                provider: "x".to_owned(),
                variable: "K".to_owned(),
                instructions: Some("I".to_owned()),
            }
        );
    }
}
