//! The settings of new threads that a call leaves open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_team::{Context, Member};
use codex_engine::command::{Settings, joined};
use codex_engine::injected_server::{self, Server};
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use common::sync::lock;
use safe_files::off_runtime;
use serde_json::{Map, Value, json};
use settings::{ConfigError, ExplicitSettings, Setting, ThreadDefaults};

/// The settings of new threads that a call leaves open. Settings that are missing here too are left
/// to Codex's own configuration.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    model: Option<String>,
    effort: Option<Effort>,
    sandbox: Option<SandboxMode>,
    approval_policy: Option<ApprovalPolicy>,
    base_instructions: Option<String>,
    /// Put before the developer instructions of a call.
    developer_instructions: Option<String>,
    /// The member for whom Codex works, whose context is placed after the developer instructions.
    member: Option<Member>,
    /// The directory of the server, which is used for calls that name none.
    directory: PathBuf,
    /// MCP servers that each thread of `codex mcp-server` gets.
    mcp_servers: Vec<Server>,
    /// The summary of the previous thread. Only the first new thread receives it.
    previous_thread: Arc<Mutex<Option<String>>>,
}

/// Additions to a call of `codex mcp-server`'s tool.
#[derive(Debug, Default, PartialEq)]
pub struct Additions {
    /// Arguments that the call doesn't have.
    pub arguments: Map<String, Value>,
    /// Keys for its `config`.
    pub config: Map<String, Value>,
    /// Keys to remove from its `config`.
    pub removed: Vec<String>,
    /// The text before its developer instructions.
    pub before: Option<String>,
    /// The text after them.
    pub behind: Option<String>,
    /// The developer instructions in Codex's configuration, if the call has none: the texts before
    /// and after must not replace them.
    pub configured: Option<String>,
}

impl Defaults {
    /// Takes the defaults from the configuration, and reads prompts from their files.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a file can't be read or is too long.
    pub fn read(threads: &ThreadDefaults) -> Result<Self, ConfigError> {
        fn value<T: Clone>(setting: &Option<Setting<T>>) -> Option<T> {
            setting.as_ref().map(|setting| setting.value.clone())
        }
        Ok(Self {
            model: value(&threads.model),
            effort: value(&threads.reasoning_effort),
            sandbox: value(&threads.sandbox),
            approval_policy: value(&threads.approval_policy),
            base_instructions: threads.base_instructions()?,
            developer_instructions: threads.extra_instructions()?,
            ..Self::default()
        })
    }

    /// The same defaults for a member of a team: Codex is told its directory, its repository and
    /// the member.
    #[must_use]
    pub fn for_member(self, member: Member, directory: PathBuf) -> Self {
        Self {
            member: Some(member),
            directory,
            ..self
        }
    }

    /// The same defaults, with MCP servers that each thread of `codex mcp-server` gets in addition
    /// to the user's own.
    #[must_use]
    pub fn with_mcp_servers(self, mcp_servers: Vec<Server>) -> Self {
        Self {
            mcp_servers,
            ..self
        }
    }

    /// The same defaults, with the summary of the previous thread. The first new thread receives it
    /// before all other instructions.
    #[must_use]
    pub fn with_previous_thread(self, previous_thread: String) -> Self {
        Self {
            previous_thread: Arc::new(Mutex::new(Some(previous_thread))),
            ..self
        }
    }

    /// Drops the summary of the previous thread, once the first new thread has received it.
    pub fn forget_previous_thread(&self) {
        lock(&self.previous_thread).take();
    }

    /// The text before a call's own developer instructions.
    fn before(&self) -> Option<String> {
        joined(
            lock(&self.previous_thread).clone(),
            self.developer_instructions.clone(),
        )
    }

    /// The member for whom Codex works, if there is one.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    fn context(&self, requested: Option<&Path>) -> Option<Context> {
        let member = self.member.as_ref()?;
        Some(Context::gather(member, &self.directory, requested))
    }

    /// The settings of a call, completed by the defaults. A setting that the call gives by a
    /// profile, or by `config`, is not overridden.
    ///
    /// The repository's files are read on another thread. If they cannot be read in time, Codex is
    /// told nothing about the repository.
    pub async fn apply(&self, given: Settings) -> Settings {
        let context = match self.member.clone() {
            None => None,
            Some(member) => {
                let requested = given.thread.cwd.clone();
                let here = self.directory.clone();
                let gather = move || Context::gather(&member, &here, requested.as_deref());
                let gathered = off_runtime::run(gather).await;
                gathered
                    .inspect_err(|error| tracing::warn!("cannot look at the repository: {error}"))
                    .ok()
            }
        };
        self.apply_in(given, context)
    }

    fn apply_in(&self, given: Settings, context: Option<Context>) -> Settings {
        let mut settings = given;
        let explicit = ExplicitSettings::of(&settings);
        let (model, sandbox, policy, effort) = (
            explicit.default_unless_set("model", &self.model),
            explicit.default_unless_set("sandbox_mode", &self.sandbox),
            explicit.default_unless_set("approval_policy", &self.approval_policy),
            explicit.default_unless_set("model_reasoning_effort", &self.effort),
        );
        let thread = &mut settings.thread;
        thread.model = thread.model.take().or(model);
        thread.sandbox = thread.sandbox.or(sandbox);
        thread.approval_policy = thread.approval_policy.or(policy);
        settings.model_options.effort = settings.model_options.effort.or(effort);
        let base = &mut thread.base_instructions;
        *base = base.take().or_else(|| self.base_instructions.clone());
        settings.added.before = self.before();
        if let Some(context) = context {
            settings.added.behind = Some(context.text());
            thread.cwd.get_or_insert(context.cwd);
        }
        settings
    }

    /// The additions to a call of `codex mcp-server`'s tool with these arguments. A null argument
    /// counts as missing.
    pub fn additions(&self, given: &Map<String, Value>) -> Additions {
        let is_given = |name: &str| given.get(name).is_some_and(|value| !value.is_null());
        let nothing = Map::new();
        let config = given.get("config").and_then(Value::as_object);
        let config = config.unwrap_or(&nothing);
        let explicit = ExplicitSettings {
            has_profile: is_given("profile"),
            config,
        };
        let requested = given.get("cwd").and_then(Value::as_str);
        let context = self.context(requested.map(Path::new));
        let cwd = context.as_ref().and_then(|context| context.cwd.to_str());
        let arguments = [
            (
                "model",
                explicit
                    .default_unless_set("model", &self.model)
                    .map(Value::from),
            ),
            (
                "sandbox",
                explicit
                    .default_unless_set("sandbox_mode", &self.sandbox)
                    .map(|it| json!(it)),
            ),
            (
                "approval-policy",
                explicit
                    .default_unless_set("approval_policy", &self.approval_policy)
                    .map(|it| json!(it)),
            ),
            (
                "base-instructions",
                self.base_instructions.clone().map(Value::from),
            ),
            ("cwd", cwd.map(Value::from)),
        ];
        let arguments = arguments.into_iter().filter_map(|(name, value)| {
            Some((name.to_owned(), value.filter(|_| !is_given(name))?))
        });
        let mut more = config.clone();
        if let Some(effort) = explicit.default_unless_set("model_reasoning_effort", &self.effort) {
            more.insert("model_reasoning_effort".to_owned(), json!(effort));
        }
        let directory = context.as_ref().map(|context| context.cwd.as_path());
        injected_server::add(&mut more, &self.mcp_servers, directory);
        more.retain(|key, value| config.get(key) != Some(value));
        Additions {
            arguments: arguments.collect(),
            config: more,
            before: self.before(),
            behind: context.map(|context| context.text()),
            ..Additions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use codex_protocol::codex::ThreadSettings;

    use super::*;
    use settings::Source;

    fn all() -> Defaults {
        Defaults {
            model: Some("m".to_owned()),
            effort: Some(Effort::High),
            sandbox: Some(SandboxMode::ReadOnly),
            approval_policy: Some(ApprovalPolicy::Never),
            base_instructions: Some("base".to_owned()),
            developer_instructions: Some("extra".to_owned()),
            ..Defaults::default()
        }
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn unset_settings_get_the_defaults() {
        let settings = all().apply_in(Settings::default(), None);
        let thread = settings.thread;
        assert_eq!(thread.model.as_deref(), Some("m"));
        assert_eq!(thread.sandbox, Some(SandboxMode::ReadOnly));
        assert_eq!(thread.approval_policy, Some(ApprovalPolicy::Never));
        assert_eq!(thread.base_instructions.as_deref(), Some("base"));
        assert_eq!(settings.added.before.as_deref(), Some("extra"));
        assert_eq!(settings.model_options.effort, Some(Effort::High));

        let Additions {
            arguments,
            config,
            before,
            behind,
            ..
        } = all().additions(&object(json!({ "prompt": "x" })));
        assert_eq!(
            Value::Object(arguments),
            json!({
                "model": "m",
                "sandbox": "read-only",
                "approval-policy": "never",
                "base-instructions": "base",
            })
        );
        assert_eq!(
            Value::Object(config),
            json!({ "model_reasoning_effort": "high" })
        );
        assert_eq!((before.as_deref(), behind), (Some("extra"), None));
    }

    #[test]
    fn settings_of_the_call_are_kept() {
        let given = Settings {
            thread: ThreadSettings {
                model: Some("mine".to_owned()),
                config: object(json!({ "sandbox_mode": "workspace-write" })),
                developer_instructions: Some("me too".to_owned()),
                base_instructions: Some("mine".to_owned()),
                ..ThreadSettings::default()
            },
            ..Settings::default()
        };
        let settings = all().apply_in(given, None);
        let thread = settings.thread;
        assert_eq!(thread.model.as_deref(), Some("mine"));
        assert_eq!(thread.sandbox, None);
        assert_eq!(thread.base_instructions.as_deref(), Some("mine"));
        assert_eq!(thread.developer_instructions.as_deref(), Some("me too"));
        assert_eq!(settings.added.before.as_deref(), Some("extra"));
        let given = json!({ "model": "mine", "config": { "sandbox_mode": "x",
            "model_reasoning_effort": "low" } });
        let added = all().additions(&object(given));
        assert_eq!(
            Value::Object(added.arguments),
            json!({ "approval-policy": "never", "base-instructions": "base" })
        );
        assert!(added.config.is_empty());
    }

    #[test]
    fn null_arguments_get_the_defaults() {
        let given = json!({ "model": null, "sandbox": null, "approval-policy": null,
            "profile": null, "config": null, "base-instructions": null, "cwd": null });
        let added = all().additions(&object(given));
        let nothing = all().additions(&Map::new());
        assert_eq!(added, nothing);
        assert_eq!(added.arguments.len(), 4);
        assert_eq!(added.config.len(), 1);
    }

    #[test]
    fn previous_thread_is_told_to_the_first_thread_only() {
        let defaults = all().with_previous_thread("before".to_owned());
        let instructions = || {
            let settings = defaults.apply_in(Settings::default(), None);
            settings.added.before.unwrap()
        };
        assert_eq!(instructions(), "before\n\nextra");
        assert_eq!(instructions(), "before\n\nextra");
        defaults.clone().forget_previous_thread();
        assert_eq!(instructions(), "extra");
    }

    #[test]
    fn mcp_servers_are_added_to_the_config_of_the_call() {
        let server = Server::new("pictures", Vec::new()).unwrap();
        let member = Member {
            identity: "codex".parse().unwrap(),
            team: None,
        };
        let defaults = Defaults::default()
            .for_member(member, "/work".into())
            .with_mcp_servers(vec![server.with_root_argument()]);
        let config = |given: Value| Value::Object(defaults.additions(&object(given)).config);
        let added = config(json!({ "cwd": "/a", "config": { "x": 1 } }));
        let server = &added["mcp_servers.pictures"];
        assert_eq!(server["args"], json!(["--root", "/a"]));
        assert_eq!(added.as_object().unwrap().len(), 1);
        let beside = json!({ "cwd": "/a", "config": { "mcp_servers": { "mine": 1 } } });
        assert_eq!(
            config(beside),
            json!({ "mcp_servers": { "mine": 1, "pictures": server } })
        );
        // Codex resolves a relative directory from its own directory, which is the server's.
        let below = config(json!({ "cwd": "src" }));
        let root = &below["mcp_servers.pictures"]["args"][1];
        assert_eq!(*root, json!(Path::new("/work").join("src")));
    }

    #[test]
    fn profile_replaces_all_defaults_but_instructions() {
        let given = Settings {
            profile: Some(serde_json::from_value(json!("fast")).unwrap()),
            ..Settings::default()
        };
        let settings = all().apply_in(given, None);
        assert_eq!(settings.thread.model, None);
        assert_eq!(settings.model_options.effort, None);
        assert_eq!(settings.thread.base_instructions.as_deref(), Some("base"));
        let added = all().additions(&object(json!({ "profile": "fast" })));
        assert_eq!(
            Value::Object(added.arguments),
            json!({ "base-instructions": "base" })
        );
    }

    #[test]
    fn prompts_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prompt.md");
        let threads = ThreadDefaults {
            extra_instructions_file: Some(Setting::new(path.clone(), Source::Default)),
            ..ThreadDefaults::default()
        };
        assert!(Defaults::read(&threads).is_err());
        for (text, read) in [("Be brief.\n", Some("Be brief.")), ("\n", None)] {
            std::fs::write(&path, text).unwrap();
            let defaults = Defaults::read(&threads).unwrap();
            assert_eq!(defaults.developer_instructions.as_deref(), read);
        }
        for text in [vec![0xff], vec![b'x'; 256 * 1024 + 1]] {
            std::fs::write(&path, text).unwrap();
            assert!(Defaults::read(&threads).is_err());
        }
    }
}
