//! What threads are begun with where a call doesn't say.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_team::{Context, Member};
use codex_engine::command::{Settings, joined};
use codex_engine::own_mcp_server::{self, Server};
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use safe_files::off_runtime;
use safe_files::untrusted_file::{self, Links};
use serde_json::{Map, Value, json};
use settings::{ConfigError, Setting, ThreadDefaults};

/// The longest prompt that is taken from a file, in bytes. Codex takes its own
/// instructions from files of 32 KiB (`project_doc_max_bytes`).
const LONGEST_PROMPT: u64 = 256 * 1024;

/// What threads are begun with where a call doesn't say. What isn't set here either
/// is left to Codex's own configuration.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    model: Option<String>,
    effort: Option<Effort>,
    sandbox: Option<SandboxMode>,
    approval_policy: Option<ApprovalPolicy>,
    base_instructions: Option<String>,
    /// Stands before what a call says.
    developer_instructions: Option<String>,
    /// For whom Codex works, which stands behind it.
    member: Option<Member>,
    /// MCP servers that each thread gets, for a Codex that isn't given them in another
    /// way.
    mcp_servers: Vec<Server>,
    /// What is told to the first thread alone, of the one that it goes on from.
    recollection: Arc<Mutex<Option<String>>>,
}

/// The same in the words of `codex mcp-server`.
#[derive(Debug, Default, PartialEq)]
pub struct Additions {
    /// Arguments that the call doesn't have.
    pub arguments: Map<String, Value>,
    /// What its `config` doesn't have, or has in another way.
    pub config: Map<String, Value>,
    /// What its `config` must not have.
    pub without: Vec<String>,
    /// What goes before its developer instructions.
    pub before: Option<String>,
    /// What goes behind them.
    pub behind: Option<String>,
    /// The developer instructions in Codex's configuration, where the call has none: what
    /// goes before and behind must not take their place.
    pub configured: Option<String>,
}

impl Defaults {
    /// Takes them from the configuration, and prompts from their files.
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
            base_instructions: prompt("base_prompt_file", &threads.base_prompt_file)?,
            developer_instructions: prompt(
                "extra_instructions_file",
                &threads.extra_instructions_file,
            )?,
            ..Self::default()
        })
    }

    /// The same for a member of a team: Codex is told where it works and for whom.
    #[must_use]
    pub fn for_member(self, member: Member) -> Self {
        Self {
            member: Some(member),
            ..self
        }
    }

    /// The same, with MCP servers that each thread of `codex mcp-server` gets beside the
    /// user's own.
    #[must_use]
    pub fn with_mcp_servers(self, mcp_servers: Vec<Server>) -> Self {
        Self {
            mcp_servers,
            ..self
        }
    }

    /// The same, with what is told to the first thread alone, before all else.
    #[must_use]
    pub fn recalling(self, recollection: String) -> Self {
        Self {
            recollection: Arc::new(Mutex::new(Some(recollection))),
            ..self
        }
    }

    fn recollection(&self) -> MutexGuard<'_, Option<String>> {
        // A text is valid at every point.
        self.recollection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has begun, and was told what there was to recall: no other one is.
    pub fn recalled(&self) {
        self.recollection().take();
    }

    /// What goes before a call's own developer instructions.
    fn before(&self) -> Option<String> {
        joined(
            self.recollection().clone(),
            self.developer_instructions.clone(),
        )
    }

    /// For whom Codex works, if that is known.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    fn context(&self, wanted: Option<&Path>) -> Option<Context> {
        let member = self.member.as_ref()?;
        Some(Context::gather(member, wanted))
    }

    /// The settings of a call, with what it doesn't say. One that names a profile, or
    /// sets the same in `config`, has said it.
    ///
    /// The repository's files are read on another thread. Where they cannot be read in
    /// time, Codex is not told of the repository.
    pub async fn under(&self, given: Settings) -> Settings {
        let context = match self.member.clone() {
            None => None,
            Some(member) => {
                let wanted = given.thread.cwd.clone();
                let gather = move || Context::gather(&member, wanted.as_deref());
                let gathered = off_runtime::run(gather).await;
                gathered
                    .inspect_err(|error| tracing::warn!("cannot look at the repository: {error}"))
                    .ok()
            }
        };
        self.under_in(given, context)
    }

    fn under_in(&self, given: Settings, context: Option<Context>) -> Settings {
        let mut settings = given;
        let said = Said {
            profile: settings.profile.is_some(),
            config: &settings.thread.config,
        };
        let (model, sandbox, policy, effort) = (
            said.unless("model", &self.model),
            said.unless("sandbox_mode", &self.sandbox),
            said.unless("approval_policy", &self.approval_policy),
            said.unless("model_reasoning_effort", &self.effort),
        );
        let thread = &mut settings.thread;
        thread.model = thread.model.take().or(model);
        thread.sandbox = thread.sandbox.or(sandbox);
        thread.approval_policy = thread.approval_policy.or(policy);
        settings.manner.effort = settings.manner.effort.or(effort);
        let base = &mut thread.base_instructions;
        *base = base.take().or_else(|| self.base_instructions.clone());
        settings.added.before = self.before();
        if let Some(context) = context {
            settings.added.behind = Some(context.text());
            thread.cwd.get_or_insert(context.cwd);
        }
        settings
    }

    /// The same for a call of `codex mcp-server`'s tool with these arguments. One that is
    /// null says nothing.
    pub fn additions(&self, given: &Map<String, Value>) -> Additions {
        let says = |name: &str| given.get(name).is_some_and(|value| !value.is_null());
        let nothing = Map::new();
        let config = given.get("config").and_then(Value::as_object);
        let config = config.unwrap_or(&nothing);
        let said = Said {
            profile: says("profile"),
            config,
        };
        let wanted = given.get("cwd").and_then(Value::as_str);
        let context = self.context(wanted.map(Path::new));
        let cwd = context.as_ref().and_then(|context| context.cwd.to_str());
        let arguments = [
            ("model", said.unless("model", &self.model).map(Value::from)),
            (
                "sandbox",
                said.unless("sandbox_mode", &self.sandbox)
                    .map(|it| json!(it)),
            ),
            (
                "approval-policy",
                said.unless("approval_policy", &self.approval_policy)
                    .map(|it| json!(it)),
            ),
            (
                "base-instructions",
                self.base_instructions.clone().map(Value::from),
            ),
            ("cwd", cwd.map(Value::from)),
        ];
        let arguments = arguments
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|_| !says(name))?)));
        let mut more = config.clone();
        if let Some(effort) = said.unless("model_reasoning_effort", &self.effort) {
            more.insert("model_reasoning_effort".to_owned(), json!(effort));
        }
        let directory = context.as_ref().map(|context| context.cwd.as_path());
        own_mcp_server::add(&mut more, &self.mcp_servers, directory);
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

/// What a call says in other ways than by its own parameter.
struct Said<'a> {
    profile: bool,
    config: &'a Map<String, Value>,
}

impl Said<'_> {
    fn unless<T: Clone>(&self, key: &str, default: &Option<T>) -> Option<T> {
        let said = self.profile || self.config.contains_key(key);
        default.clone().filter(|_| !said)
    }
}

fn prompt(
    key: &'static str,
    file: &Option<Setting<PathBuf>>,
) -> Result<Option<String>, ConfigError> {
    let Some(Setting {
        value: path,
        source,
    }) = file
    else {
        return Ok(None);
    };
    let text = untrusted_file::read_text(path, LONGEST_PROMPT, Links::Followed);
    let text = text.map_err(|error| ConfigError::Invalid {
        key,
        from: source.clone(),
        why: error.to_string(),
    })?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
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
    fn what_a_call_does_not_say_is_added() {
        let settings = all().under_in(Settings::default(), None);
        let thread = settings.thread;
        assert_eq!(thread.model.as_deref(), Some("m"));
        assert_eq!(thread.sandbox, Some(SandboxMode::ReadOnly));
        assert_eq!(thread.approval_policy, Some(ApprovalPolicy::Never));
        assert_eq!(thread.base_instructions.as_deref(), Some("base"));
        assert_eq!(settings.added.before.as_deref(), Some("extra"));
        assert_eq!(settings.manner.effort, Some(Effort::High));

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
    fn what_a_call_says_stays() {
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
        let settings = all().under_in(given, None);
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
    fn what_is_null_is_not_said() {
        let given = json!({ "model": null, "sandbox": null, "approval-policy": null,
            "profile": null, "config": null, "base-instructions": null, "cwd": null });
        let added = all().additions(&object(given));
        let nothing = all().additions(&Map::new());
        assert_eq!(added, nothing);
        assert_eq!(added.arguments.len(), 4);
        assert_eq!(added.config.len(), 1);
    }

    #[test]
    fn what_is_recalled_is_told_first_until_a_thread_has_begun() {
        let defaults = all().recalling("before".to_owned());
        let instructions = || {
            let settings = defaults.under_in(Settings::default(), None);
            settings.added.before.unwrap()
        };
        assert_eq!(instructions(), "before\n\nextra");
        assert_eq!(instructions(), "before\n\nextra");
        defaults.clone().recalled();
        assert_eq!(instructions(), "extra");
    }

    #[test]
    fn servers_are_added_to_the_config_that_there_is() {
        let server = Server::new("pictures", Vec::new()).unwrap();
        let member = Member {
            identity: "codex".parse().unwrap(),
            team: None,
        };
        let defaults = Defaults::default()
            .for_member(member)
            .with_mcp_servers(vec![server.told_the_directory()]);
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
        // Codex takes a relative directory from its own on, which is ours.
        let here = std::env::current_dir().unwrap();
        let below = config(json!({ "cwd": "src" }));
        let root = &below["mcp_servers.pictures"]["args"][1];
        assert_eq!(*root, json!(here.join("src")));
    }

    #[test]
    fn a_profile_says_it_all_but_instructions() {
        let given = Settings {
            profile: Some(serde_json::from_value(json!("fast")).unwrap()),
            ..Settings::default()
        };
        let settings = all().under_in(given, None);
        assert_eq!(settings.thread.model, None);
        assert_eq!(settings.manner.effort, None);
        assert_eq!(settings.thread.base_instructions.as_deref(), Some("base"));
        let added = all().additions(&object(json!({ "profile": "fast" })));
        assert_eq!(
            Value::Object(added.arguments),
            json!({ "base-instructions": "base" })
        );
    }

    #[test]
    fn prompts_are_read_from_their_files() {
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
