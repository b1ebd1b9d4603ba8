//! The clients: where each has its configuration, and what an entry is there.
//!
//! Sources: the documentation of each client, and its source where it is public, November 2026.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::document::{Format, Member};
use super::entry::{CALL_TIMEOUT, Entry, START_TIMEOUT};

/// An MCP client.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::AsRefStr,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex, as a client of MCP servers.
    Codex,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    #[strum(serialize = "vscode")]
    VsCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Zed.
    Zed,
    /// Windsurf.
    Windsurf,
    /// opencode.
    #[strum(serialize = "opencode")]
    OpenCode,
    /// Gemini CLI.
    Gemini,
    /// GitHub Copilot CLI.
    Copilot,
    /// Goose.
    Goose,
    /// Cline, the extension and the command line.
    Cline,
}

/// The variables and the platform that determine the directories of a user's programs.
pub struct Locations<'a> {
    /// The value of an environment variable, if it is set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The user's home directory.
    pub home: PathBuf,
    /// Whether the system is macOS.
    pub is_macos: bool,
}

impl Locations<'_> {
    /// A relative path would mean another file in each directory.
    fn of_variable(&self, name: &str) -> Option<PathBuf> {
        let path = (self.variable)(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    }

    /// `XDG_CONFIG_HOME`, which counts only if it is absolute, or `~/.config`.
    fn config(&self) -> PathBuf {
        let set = self.of_variable("XDG_CONFIG_HOME");
        set.unwrap_or_else(|| self.home.join(".config"))
    }

    /// The directory of desktop programs.
    fn applications(&self) -> PathBuf {
        match self.is_macos {
            true => self.home.join("Library/Application Support"),
            false => self.config(),
        }
    }
}

impl Client {
    /// Its name, as people write it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Zed => "Zed",
            Self::Windsurf => "Windsurf",
            Self::OpenCode => "opencode",
            Self::Gemini => "Gemini CLI",
            Self::Copilot => "Copilot CLI",
            Self::Goose => "Goose",
            Self::Cline => "Cline",
        }
    }

    /// The format of its files.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            Self::Codex => Format::Toml,
            Self::Goose => Format::Yaml,
            _ => Format::Json,
        }
    }

    /// The key below which its files have the servers.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Codex => "mcp_servers",
            Self::VsCode => "servers",
            Self::Zed => "context_servers",
            Self::OpenCode => "mcp",
            Self::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// The user's configuration file.
    #[must_use]
    pub fn user_file(self, locations: &Locations<'_>) -> PathBuf {
        let home = &locations.home;
        let moved = |name: &str, usual: &str| {
            locations
                .of_variable(name)
                .unwrap_or_else(|| home.join(usual))
        };
        match self {
            Self::ClaudeCode => moved("CLAUDE_CONFIG_DIR", "").join(".claude.json"),
            Self::Codex => moved("CODEX_HOME", ".codex").join("config.toml"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::VsCode => locations.applications().join("Code/User/mcp.json"),
            Self::ClaudeDesktop => locations
                .applications()
                .join("Claude/claude_desktop_config.json"),
            Self::Zed => match locations.is_macos {
                true => home.join(".config/zed/settings.json"),
                false => locations.config().join("zed/settings.json"),
            },
            Self::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            Self::OpenCode => locations.config().join("opencode/opencode.json"),
            Self::Gemini => moved("GEMINI_CLI_HOME", "").join(".gemini/settings.json"),
            Self::Copilot => moved("COPILOT_HOME", ".copilot").join("mcp-config.json"),
            Self::Goose => locations.of_variable("GOOSE_PATH_ROOT").map_or_else(
                || locations.config().join("goose/config.yaml"),
                |root| root.join("config/config.yaml"),
            ),
            Self::Cline => locations
                .of_variable("CLINE_MCP_SETTINGS_PATH")
                .unwrap_or_else(|| home.join(".cline/data/settings/cline_mcp_settings.json")),
        }
    }

    /// Another name that the user's file can have instead.
    #[must_use]
    pub fn other_user_file(self, file: &Path) -> Option<PathBuf> {
        (self == Self::OpenCode).then(|| file.with_extension("jsonc"))
    }

    /// The configuration file of a repository, from its top; `None` if the client has none.
    #[must_use]
    pub fn project_file(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode | Self::Copilot => Some(".mcp.json"),
            Self::Codex => Some(".codex/config.toml"),
            Self::Cursor => Some(".cursor/mcp.json"),
            Self::VsCode => Some(".vscode/mcp.json"),
            Self::Zed => Some(".zed/settings.json"),
            Self::OpenCode => Some("opencode.json"),
            Self::Gemini => Some(".gemini/settings.json"),
            Self::ClaudeDesktop | Self::Windsurf | Self::Goose | Self::Cline => None,
        }
    }

    /// The condition under which the client uses the shared file of a repository.
    #[must_use]
    pub fn project_condition(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => {
                Some("asks each user of the repository before it starts the server")
            }
            Self::Codex => Some("reads the file only where its user trusts the directory"),
            _ => None,
        }
    }

    /// The variables of its environment that the client passes to servers; `None` for all. The entry
    /// sets the others that they need.
    ///
    /// Sources: Codex 0.169; Copilot CLI's reference; for the others
    /// `DEFAULT_INHERITED_ENV_VARS` of MCP's TypeScript library.
    #[must_use]
    pub fn passed_variables(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Codex => Some(&["HOME", "LANG", "PATH", "TERM"]),
            Self::Copilot => Some(&["PATH"]),
            Self::ClaudeDesktop | Self::Cline => {
                Some(&["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"])
            }
            _ => None,
        }
    }

    /// The name of the client's variable that a value in its file stands for, if it is nothing else.
    #[must_use]
    pub fn variable_in(self, value: &str) -> Option<&str> {
        let (before, after) = match self {
            Self::ClaudeCode | Self::Copilot | Self::Gemini => ("${", "}"),
            Self::Cursor | Self::VsCode | Self::Windsurf => ("${env:", "}"),
            Self::OpenCode => ("{env:", "}"),
            Self::Codex | Self::ClaudeDesktop | Self::Zed | Self::Goose | Self::Cline => {
                return None;
            }
        };
        let name = value.strip_prefix(before)?.strip_suffix(after)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        name.bytes().all(is_name).then_some(name)
    }

    /// The programs by which it is known to be installed.
    #[must_use]
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["claude"],
            Self::Codex => &["codex"],
            Self::Cursor => &["cursor", "cursor-agent"],
            Self::VsCode => &["code"],
            Self::ClaudeDesktop => &["claude-desktop"],
            Self::Zed => &["zed", "zeditor"],
            Self::Windsurf => &["windsurf"],
            Self::OpenCode => &["opencode"],
            Self::Gemini => &["gemini"],
            Self::Copilot => &["copilot"],
            Self::Goose => &["goose"],
            Self::Cline => &["cline"],
        }
    }

    /// The command of the client itself that adds an entry to the user's configuration, without
    /// the program's name; `None` if there is none that a program can use.
    #[must_use]
    pub fn own_command_args(self, name: &str, entry: &Entry) -> Option<Vec<String>> {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        match self {
            Self::ClaudeCode => {
                let json: serde_json::Map<String, Value> =
                    self.members(name, entry).into_iter().collect();
                let json = Value::Object(json).to_string();
                Some(words(&["mcp", "add-json", "--scope", "user", name, &json]))
            }
            Self::Codex => {
                let add = words(&["mcp", "add", name, "--", &entry.command]);
                Some([add, entry.args.clone()].concat())
            }
            _ => None,
        }
    }

    /// The members of the entry in its configuration, with what this client needs for it: the
    /// usual time limits of some are shorter than a turn.
    #[must_use]
    pub fn members(self, name: &str, entry: &Entry) -> Vec<Member> {
        let members = self.named_members(name, entry).into_iter();
        members
            .map(|(member, value)| (member.to_owned(), value))
            .collect()
    }

    fn named_members(self, name: &str, entry: &Entry) -> Vec<(&'static str, Value)> {
        let Entry { command, args, env } = entry;
        let call_secs = CALL_TIMEOUT.as_secs();
        let call_millis = call_secs * 1000;
        let env = env.iter().map(|(name, value)| (name.clone(), json!(value)));
        let mut env: Map<String, Value> = env.collect();
        let mut members = vec![("command", json!(command)), ("args", json!(args))];
        match self {
            Self::ClaudeCode => {
                members.insert(0, ("type", json!("stdio")));
                members.push(("timeout", json!(call_millis)));
            }
            Self::VsCode => members.insert(0, ("type", json!("stdio"))),
            Self::Codex => {
                members.extend([
                    ("startup_timeout_sec", json!(START_TIMEOUT.as_secs())),
                    ("tool_timeout_sec", json!(call_secs)),
                    // Codex's questions come through codex-mcp; where nobody can be asked, Codex would
                    // cancel every call of a tool.
                    ("default_tools_approval_mode", json!("approve")),
                ]);
            }
            Self::Zed => members.push(("timeout", json!(call_secs))),
            Self::OpenCode => {
                let line: Vec<&String> = std::iter::once(command).chain(args).collect();
                members = vec![
                    ("type", json!("local")),
                    ("command", json!(line)),
                    ("enabled", json!(true)),
                    ("timeout", json!(call_millis)),
                ];
            }
            Self::Copilot => {
                // The older word `local` makes Claude Code skip the entry, which reads the same file
                // of a repository.
                members.insert(0, ("type", json!("stdio")));
                // It passes on PATH alone, and puts in the value of what stands in braces.
                env.insert("HOME".to_owned(), json!("${HOME}"));
                members.extend([("tools", json!(["*"])), ("timeout", json!(call_millis))]);
            }
            Self::Goose => {
                members = vec![
                    ("type", json!("stdio")),
                    ("name", json!(name)),
                    ("enabled", json!(true)),
                    ("cmd", json!(command)),
                    ("args", json!(args)),
                    ("timeout", json!(call_secs)),
                ];
            }
            Self::Cline => members.push(("timeout", json!(call_secs))),
            Self::Gemini => members.push(("timeout", json!(call_millis))),
            Self::Cursor | Self::ClaudeDesktop | Self::Windsurf => {}
        }
        if self.passed_variables().is_some() && !env.is_empty() {
            members.push(("env", Value::Object(env)));
        }
        members
    }
}
