//! Adds settings to calls of the child's tool `codex`. The members that a call has keep their
//! bytes.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use agent_team::logic::registry::Settings;
use codex_config::layers::{UserConfig, configured_instructions};
use codex_config::profile::ProfileName;
use codex_config::trust::{TrustError, directory_trust};
use codex_engine::EngineError;
use codex_engine::command::{AddedInstructions, Settings as EngineSettings};
use codex_engine::confinement::{Conversation, RequestedSettings, ThreadContext, left_out};
use codex_protocol::codex::{SandboxMode, ThreadSettings};
use codex_protocol::rpc::Message;
use mcp_server::defaults::{Additions, Defaults};
use mcp_server::error::ToolError;
use safe_files::directory;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use settings::bounds::{Bounds, OutOfBounds};

use crate::logic::replace_part;
use crate::members::Members;
use crate::recorder::ThreadStart;
use crate::wire;

/// The tool that begins a thread. `codex-reply` takes no settings.
const TOOL: &str = "codex";

const INSTRUCTIONS: &str = "developer-instructions";

/// The argument with the caller's name for the thread. It is for our records: the child's tool has
/// no such argument.
const TAG: &str = "tag";

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// A call that begins a thread, with its additions.
pub(super) struct AugmentedCall {
    /// The changed call; `None` if nothing changes.
    pub(super) bytes: Option<Vec<u8>>,
    /// The settings of the new thread.
    pub(super) thread_start: ThreadStart,
    /// A warning about files of the repository that have no effect.
    pub(super) warning: Option<String>,
}

/// Changes calls that begin threads.
#[derive(Debug, Clone)]
pub(super) struct Augmenter {
    pub(super) defaults: Defaults,
    pub(super) bounds: Bounds,
    /// The directory of Codex's own configuration.
    pub(super) codex_home: PathBuf,
}

impl Augmenter {
    /// Adds settings to a message that begins a thread; `None` for any other message. The arguments
    /// of the call have to be an object; arguments of a wrong type are left for the child to
    /// refuse. Reads files of the thread's directory.
    ///
    /// # Errors
    ///
    /// [`ToolError`] if the call asks for more than the bounds allow, or if it can't be determined
    /// whether the user trusts the directory.
    pub(super) fn augment(
        &self,
        bytes: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<AugmentedCall>, ToolError> {
        let Some((arguments, given)) = starting_call(message) else {
            return Ok(None);
        };
        let mut additions = self.defaults.additions(&given);
        apply_bounds(&given, &mut additions, &self.bounds)?;
        resolve_links(&given, &mut additions);
        let warning =
            state_trust(&given, &mut additions, &self.codex_home).map_err(EngineError::from)?;
        let thread_start = thread_start(&given, &additions.arguments);
        let longer = with_additions(arguments.get(), additions);
        let bytes = longer.and_then(|longer| replace_part(bytes, arguments.get(), &longer));
        Ok(Some(AugmentedCall {
            bytes,
            thread_start,
            warning,
        }))
    }
}

/// Whether a message begins a thread.
pub(super) fn begins_thread(message: &Message<'_>) -> bool {
    starting_call(message).is_some()
}

/// States whether the user trusts the directory, in place of any such claim in the call, and
/// returns a warning about files that have no effect.
///
/// `codex mcp-server` records no trust (0.104.0 and 0.153.4). So an untrusted directory is named
/// only if it has files that Codex would use: Codex may trust such a directory, because its own
/// list has the directory, or because the directory's `.git` leads to a listed repository.
fn state_trust(
    given: &Map<String, Value>,
    additions: &mut Additions,
    codex_home: &Path,
) -> Result<Option<String>, TrustError> {
    let value_of = |name: &str| {
        let added = additions.arguments.get(name);
        added.or_else(|| given.get(name).filter(|value| !value.is_null()))
    };
    let text = |name: &str| value_of(name).and_then(Value::as_str);
    let (has_sandbox, has_policy) = (value_of("sandbox"), value_of("approval-policy"));
    let (has_sandbox, has_policy) = (has_sandbox.is_some(), has_policy.is_some());
    let user = UserConfig::read(codex_home);
    let trust = directory_trust(Path::new(text("cwd").unwrap_or(".")), &user)?;
    let profile = text("profile").and_then(|name| ProfileName::try_from(name.to_owned()).ok());
    let warning = left_out(&trust);
    let configured = user.layers(profile.as_ref(), Some(&trust));
    let workplace = ThreadContext {
        conversation: match warning {
            Some(_) => Conversation::New,
            None => Conversation::Resumed,
        },
        config: &configured,
        release: None,
        trust: Some(&trust),
    };
    let before = given.get("config").and_then(Value::as_object);
    let before = before.cloned().unwrap_or_default();
    let mut config = before.clone();
    config.extend(additions.config.clone());
    if additions.before.is_some() || additions.behind.is_some() {
        additions.configured = configured_instructions(&before, &configured);
    }
    let (mut sandbox, mut policy) = (None, None);
    workplace.state_trust(&mut RequestedSettings {
        sandbox: &mut sandbox,
        approval_policy: &mut policy,
        config: &mut config,
    });
    let arguments = &mut additions.arguments;
    if let (Some(sandbox), false) = (sandbox, has_sandbox) {
        arguments.insert("sandbox".to_owned(), json!(sandbox));
    }
    if let (Some(policy), false) = (policy, has_policy) {
        arguments.insert("approval-policy".to_owned(), json!(policy));
    }
    let claims = before.keys().filter(|key| !config.contains_key(*key));
    additions.removed = claims.cloned().collect();
    config.retain(|key, value| before.get(key) != Some(value));
    additions.config = config;
    Ok(warning)
}

/// The parameters and the arguments of a call that begins a thread.
fn starting_call<'a>(message: &Message<'a>) -> Option<(&'a RawValue, Map<String, Value>)> {
    let params = wire::call_params(message)?;
    let Call { name, arguments } = serde_json::from_str(params.get()).ok()?;
    if name != TOOL {
        return None;
    }
    let given = serde_json::from_str(arguments.get()).ok()?;
    Some((arguments, given))
}

/// Narrows a call and its additions to the bounds.
fn apply_bounds(
    given: &Map<String, Value>,
    additions: &mut Additions,
    bounds: &Bounds,
) -> Result<(), OutOfBounds> {
    if !bounds.is_any() {
        return Ok(());
    }
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    let config = given.get("config").and_then(Value::as_object).cloned();
    let profile = text("profile").map(|name| {
        ProfileName::try_from(name.to_owned()).map_err(|_| bounds.refused_key("profile"))
    });
    let requested = EngineSettings {
        thread: ThreadSettings {
            cwd: text("cwd").map(PathBuf::from),
            sandbox: sandbox_mode(given.get("sandbox")),
            config: config.unwrap_or_default(),
            ..ThreadSettings::default()
        },
        profile: profile.transpose()?,
        ..EngineSettings::default()
    };
    let with_additions = |mut settings: EngineSettings| {
        let added = &additions.arguments;
        let thread = &mut settings.thread;
        let cwd = || Some(PathBuf::from(added.get("cwd")?.as_str()?));
        thread.sandbox = thread
            .sandbox
            .or_else(|| sandbox_mode(added.get("sandbox")));
        thread.cwd = thread.cwd.take().or_else(cwd);
        settings
    };
    let bounded = bounds.bound_over(requested, with_additions)?.thread;
    let arguments = &mut additions.arguments;
    if let Some(sandbox) = bounded.sandbox {
        arguments.insert("sandbox".to_owned(), json!(sandbox));
    }
    if bounds.sandbox_escape_bound().is_some() {
        arguments.insert("approval-policy".to_owned(), json!("never"));
    }
    if let (Some(cwd), Some(_)) = (bounded.cwd, &bounds.directories) {
        arguments.insert("cwd".to_owned(), json!(cwd));
    }
    Ok(())
}

/// Resolves links in the path of the directory, so that the child works in the same directory that
/// is checked before each prompt.
fn resolve_links(given: &Map<String, Value>, additions: &mut Additions) {
    let added = &mut additions.arguments;
    let cwd = added.get("cwd").or_else(|| given.get("cwd"));
    let Some(cwd) = cwd.and_then(Value::as_str) else {
        return;
    };
    let resolved = directory::resolved(Path::new(cwd));
    let is_plain = std::env::current_dir().is_ok_and(|here| here.join(cwd) == resolved);
    if let (false, Some(resolved)) = (is_plain, resolved.to_str()) {
        added.insert("cwd".to_owned(), resolved.into());
    }
}

fn sandbox_mode(value: Option<&Value>) -> Option<SandboxMode> {
    serde_json::from_value(value?.clone()).ok()
}

/// The arguments of a call with the additions; `None` if nothing changes.
fn with_additions(arguments: &str, additions: Additions) -> Option<String> {
    let mut members: Members<'_> = serde_json::from_str(arguments).ok()?;
    let tagged = members.get(TAG).is_some();
    if additions == Additions::default() && !tagged {
        return None;
    }
    members.remove(TAG);
    for (name, value) in additions.arguments {
        members.set(&name, value.to_string());
    }
    if !additions.config.is_empty() || !additions.removed.is_empty() {
        let config_text = members
            .get("config")
            .filter(|config_text| *config_text != "null");
        let config_text = config_text.unwrap_or("{}");
        let mut config: Members<'_> = serde_json::from_str(config_text).ok()?;
        for name in &additions.removed {
            config.remove(name);
        }
        for (name, value) in additions.config {
            config.set(&name, value.to_string());
        }
        let config = config.to_string();
        members.set("config", config);
    }
    let instructions = members.get(INSTRUCTIONS).unwrap_or("null");
    let instructions: Option<String> = serde_json::from_str(instructions).ok()?;
    let added = AddedInstructions {
        before: additions.before,
        behind: additions.behind,
    };
    if let Some(all) = added.around(instructions, || additions.configured) {
        members.set(INSTRUCTIONS, Value::from(all).to_string());
    }
    Some(members.to_string())
}

/// The settings of the thread that a call with these arguments and additions begins.
fn thread_start(given: &Map<String, Value>, added: &Map<String, Value>) -> ThreadStart {
    let text = |name: &str| {
        let value = added.get(name).or_else(|| given.get(name))?;
        value.as_str().map(str::to_owned)
    };
    ThreadStart {
        cwd: text("cwd").map(PathBuf::from),
        settings: Settings {
            model: text("model"),
            sandbox: text("sandbox"),
            approval_policy: text("approval-policy"),
            reasoning_effort: None,
            profile: text("profile"),
            mcp_servers: None,
        },
        tag: text(TAG),
    }
}

#[cfg(test)]
mod tests {
    use crate::augment::*;
    use settings::Setting;
    use settings::Source;
    use settings::ThreadDefaults;

    fn defaults() -> Defaults {
        let threads = ThreadDefaults {
            model: Some(Setting::new("m".to_owned(), Source::Default)),
            reasoning_effort: Some(Setting::new(
                serde_json::from_value(json!("high")).unwrap(),
                Source::Default,
            )),
            ..ThreadDefaults::default()
        };
        Defaults::read(&threads).unwrap()
    }

    fn augmenter(defaults: Defaults, bounds: Bounds) -> Augmenter {
        Augmenter {
            defaults,
            bounds,
            codex_home: "/nonexistent".into(),
        }
    }

    fn call(params: &str) -> Option<String> {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let message = Message::read(line.as_bytes()).unwrap();
        let added = augmenter(defaults(), Bounds::default()).augment(line.as_bytes(), &message);
        let added = added.unwrap()?;
        Some(String::from_utf8(added.bytes?).unwrap())
    }

    #[test]
    fn given_arguments_keep_their_bytes() {
        let longer = call(
            r#"{"name":"codex","_meta":{"n":1.50},"arguments":{"z":1e2,"prompt":"\u00fc","config":{"b":1.0}}}"#,
        );
        assert_eq!(
            longer.unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"codex","_meta":{"n":1.50},"arguments":{"z":1e2,"prompt":"\u00fc","config":{"b":1.0,"model_reasoning_effort":"high"},"model":"m"}}}"#
        );
    }

    #[test]
    fn null_arguments_count_as_missing() {
        let longer = call(
            r#"{"name":"codex","arguments":{"model":null,"config":null,"prompt":"x","tag":"t"}}"#,
        );
        let longer: Value = serde_json::from_str(&longer.unwrap()).unwrap();
        assert_eq!(
            longer["params"]["arguments"],
            json!({ "model": "m", "config": { "model_reasoning_effort": "high" }, "prompt": "x" })
        );
    }

    #[test]
    fn call_is_narrowed_to_the_bounds_or_refused() {
        let bounds = Bounds {
            max_sandbox: Some(SandboxMode::WorkspaceWrite),
            directories: Some(vec!["/".into()]),
            ..Bounds::default()
        };
        let sent = |arguments: &str| {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"codex","arguments":{arguments}}}}}"#
            );
            let message = Message::read(line.as_bytes()).unwrap();
            let augmenter = augmenter(Defaults::default(), bounds.clone());
            let added = augmenter.augment(line.as_bytes(), &message);
            let bytes = added.map(|added| added.unwrap().bytes.unwrap());
            bytes.map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap())
        };
        let message = sent(r#"{"prompt":"x","cwd":"/usr/.."}"#).unwrap();
        let arguments = &message["params"]["arguments"];
        assert_eq!(arguments["sandbox"], "read-only");
        assert_eq!(arguments["approval-policy"], "never");
        assert_eq!(arguments["cwd"], "/");
        for refused in [
            r#"{"prompt":"x","sandbox":"danger-full-access"}"#,
            r#"{"prompt":"x","config":{"sandbox_mode":"danger-full-access"}}"#,
            r#"{"prompt":"x","config":{"mcp_servers.x.command":"sh"}}"#,
            r#"{"prompt":"x","profile":"../x"}"#,
        ] {
            assert!(sent(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn trust_claimed_by_a_call_is_removed() {
        let sent = |config: &str| {
            let call_text = format!(
                r#"{{"name":"codex","arguments":{{"model":"m","config":{{"model_reasoning_effort":"low",{config}}}}}}}"#
            );
            let sent = call(&call_text).unwrap();
            serde_json::from_str::<Value>(&sent).unwrap()["params"]["arguments"].clone()
        };
        for claim in [
            r#""projects":{"/":{"trust_level":"trusted"}}"#,
            r#""pro\u006aects":{"/":{"trust_level":"trusted"}}"#,
            r#""projects./.trust_level":"trusted""#,
        ] {
            assert_eq!(
                sent(claim),
                json!({ "model": "m", "config": { "model_reasoning_effort": "low" } }),
                "{claim}"
            );
        }
    }

    #[test]
    fn other_calls_are_not_changed() {
        for params in [
            r#"{"name":"codex-reply","arguments":{"prompt":"x"}}"#,
            r#"{"name":"codex","arguments":null}"#,
            r#"{"name":"codex"}"#,
            r#"{"name":"codex","arguments":{"model":"mine","config":{"model_reasoning_effort":"low"}}}"#,
            r#"{"name":"codex","arguments":{"config":5}}"#,
        ] {
            assert_eq!(call(params), None, "{params}");
        }
    }
}
