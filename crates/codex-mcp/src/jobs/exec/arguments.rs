//! The command line of `codex exec`.

use std::ffi::OsString;
use std::path::Path;

use codex_mcp_core::toml;
use codex_mcp_protocol::codex::SandboxMode;
use serde_json::{Map, Value};

use super::files::Files;
use super::{DEFAULT_SANDBOX, Request};
use crate::codex_config::CodexConfig;
use crate::engine::confinement::{ConfiguredSandbox, Conversation, NO_GIT, Wanted, Workplace};
use crate::own_mcp_server;
use crate::team::Repository;
use crate::trust::DirectoryTrust;

/// A command line.
pub(super) struct CommandLine {
    pub(super) arguments: Vec<OsString>,
    /// The sandbox that it puts into force: a mode, or the name of permissions.
    pub(super) sandbox: String,
}

/// The arguments. Flags come before `resume`, values are joined to their flags so
/// that none is taken for a flag or for a second picture, and the prompt comes on
/// stdin: as an argument it would have a length and could not begin with a dash.
pub(super) fn arguments(
    request: &Request,
    files: &Files,
    trust: &DirectoryTrust,
    config: &CodexConfig,
) -> CommandLine {
    let Confined {
        sandbox,
        in_force,
        config,
    } = confined(request, trust, config);
    let mut args: Vec<OsString> = vec!["exec".into()];
    for image in &files.images {
        args.push(joined("--image=", image));
    }
    args.extend(["--json", "--color=never"].map(OsString::from));
    args.push(joined("--cd=", &request.cwd));
    if Repository::around(&request.cwd, &[]).is_none() {
        args.push("--skip-git-repo-check".into());
    }
    if let Some(model) = &request.model {
        args.push(format!("--model={model}").into());
    }
    if let Some(sandbox) = word(sandbox) {
        args.push(format!("--sandbox={sandbox}").into());
    }
    if let Some(profile) = &request.profile {
        args.push(format!("--profile={profile}").into());
    }
    args.extend(overrides(request, config));
    if let Some(schema) = &files.schema {
        args.push(joined("--output-schema=", schema));
    }
    if let Some(id) = &request.resume {
        args.extend(["resume", id.as_str()].map(OsString::from));
    }
    args.push("-".into());
    CommandLine {
        arguments: args,
        sandbox: in_force,
    }
}

/// Variables for Codex on top of our environment.
pub(super) fn variables(request: &Request) -> Vec<(OsString, OsString)> {
    let mut variables = request.env.clone();
    variables.extend(request.codex.env());
    variables.push(("CODEX_HOME".into(), request.codex_home.clone().into()));
    variables.push((NO_GIT.0.into(), NO_GIT.1.into()));
    variables
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut arg = OsString::from(flag);
    arg.push(path);
    arg
}

/// What Codex is given so that nothing of the repository runs outside of the sandbox.
struct Confined {
    /// The mode to ask for; `None` if the configuration names one.
    sandbox: Option<SandboxMode>,
    /// That mode, or what is configured.
    in_force: String,
    config: Map<String, Value>,
}

fn confined(request: &Request, trust: &DirectoryTrust, config: &CodexConfig) -> Confined {
    let workplace = Workplace {
        conversation: match request.resume {
            None => Conversation::New,
            Some(_) => Conversation::Resumed,
        },
        config,
        release: request.release,
        trust: Some(trust),
    };
    let mut overrides = request.settings.overrides(|key| config.get(key).cloned());
    let configured = ConfiguredSandbox::of(&overrides, config);
    let (mut sandbox, in_force) = match (request.sandbox, configured) {
        (None, Some(configured)) => (None, configured.to_string()),
        (asked, _) => {
            let mode = asked.unwrap_or(DEFAULT_SANDBOX);
            (Some(mode), word(mode).unwrap_or_default())
        }
    };
    workplace.confine(Wanted {
        sandbox: &mut sandbox,
        // `codex exec` asks nobody, whatever is said.
        approval_policy: &mut None,
        config: &mut overrides,
    });
    own_mcp_server::add(&mut overrides, &request.mcp_servers, Some(&request.cwd));
    if let Some(limit) = request.tool_limit {
        workplace.limit_tools(&mut overrides, limit);
    }
    Confined {
        sandbox,
        in_force,
        config: overrides,
    }
}

fn overrides(request: &Request, config: Map<String, Value>) -> Vec<OsString> {
    let effort = word(request.effort).map(Value::from);
    let effort = effort
        .as_ref()
        .map(|effort| ("model_reasoning_effort", effort));
    let config = config.iter().map(|(key, value)| (key.as_str(), value));
    config
        .chain(effort)
        .filter_map(|(key, value)| Some(format!("--config={key}={}", toml::value(value)?).into()))
        .collect()
}

/// The word that Codex has for a setting.
fn word(setting: impl serde::Serialize) -> Option<String> {
    match serde_json::to_value(setting) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use codex_mcp_protocol::codex::{Effort, Release, SandboxMode, ThreadId};
    use serde_json::json;

    use super::*;
    use crate::codex_config::UserConfig;
    use crate::engine::binary::{CodexBinary, Source};
    use crate::engine::profile::ProfileName;
    use crate::jobs::exec::{KeepStream, ToolLimit};
    use crate::jobs::settings::{CallSettings, LimitOrigin};
    use crate::own_mcp_server::Server;
    use crate::picture::Picture;
    use crate::trust::Trust;

    const ID: &str = "01a200a4-af16-7971-bdb2-fa12438e61e4";

    fn request(release: &str, cwd: &Path) -> Request {
        Request {
            codex: CodexBinary {
                chosen: PathBuf::from("/codex"),
                native: PathBuf::from("/codex"),
                helpers: None,
                source: Source::Path,
            },
            release: Release::parse(release),
            codex_home: PathBuf::from("/home"),
            env: Vec::new(),
            prompt: "- $(x)".to_owned(),
            cwd: cwd.to_owned(),
            resume: None,
            model: None,
            sandbox: None,
            effort: None,
            profile: None,
            settings: CallSettings::default(),
            mcp_servers: Vec::new(),
            images: Vec::new(),
            output_schema: None,
            timeout: Duration::from_secs(1),
            tool_limit: None,
            stream: KeepStream::No,
        }
    }

    fn command_line(request: &Request) -> CommandLine {
        let files = Files::write(&request.images, request.output_schema.as_ref()).unwrap();
        let trust = DirectoryTrust {
            trust: Trust::Untrusted,
            top: request.cwd.clone(),
            directory: request.cwd.clone(),
            told: vec![request.cwd.clone()],
            changes: None,
        };
        let config = UserConfig::read(&request.codex_home).layers(None, Some(&trust));
        arguments(request, &files, &trust, &config)
    }

    fn shown(request: &Request) -> Vec<String> {
        let args = command_line(request).arguments;
        args.iter()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn the_flags_are_those_that_each_release_takes() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        let image = cwd.join("a.png");
        std::fs::write(&image, b"\x89PNG\r\n\x1a\n").unwrap();
        for release in ["0.104.0", "0.130.0", "0.153.4", "0.154.0", "0.169.0"] {
            let mut request = request(release, &cwd);
            request.resume = Some(ThreadId::parse(ID).unwrap());
            request.model = Some("-m".to_owned());
            request.sandbox = Some(SandboxMode::WorkspaceWrite);
            request.effort = Some(Effort::High);
            request.profile = Some(ProfileName::try_from("fast".to_owned()).unwrap());
            request.settings.config = json!({"a.b": "x\"\n", "c": null})
                .as_object()
                .unwrap()
                .clone();
            request.images = vec![Picture::File(image.clone())];
            request.output_schema = Some(serde_json::Map::new());
            let shown = shown(&request);
            let (schema, rest): (Vec<String>, Vec<String>) = shown
                .into_iter()
                .filter(|arg| arg != "--config=features.shell_snapshot=false")
                .partition(|arg| arg.starts_with("--output-schema="));
            assert_eq!(schema.len(), 1);
            let (images, rest): (Vec<String>, Vec<String>) = rest
                .into_iter()
                .partition(|arg| arg.starts_with("--image="));
            // A copy of it.
            assert!(images[0].ends_with("/a.png"));
            assert_ne!(images[0], format!("--image={}", image.display()));
            let cwd = cwd.display();
            assert_eq!(
                rest,
                [
                    "exec",
                    "--json",
                    "--color=never",
                    &format!("--cd={cwd}"),
                    "--skip-git-repo-check",
                    "--model=-m",
                    "--sandbox=workspace-write",
                    "--profile=fast",
                    r#"--config=a.b="x\"\n""#,
                    r#"--config=shell_environment_policy.exclude=["GIT_DIR"]"#,
                    r#"--config=model_reasoning_effort="high""#,
                    "resume",
                    ID,
                    "-",
                ],
                "{release}"
            );
        }
    }

    #[test]
    fn only_the_sandbox_has_a_default_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        std::fs::create_dir(cwd.join(".git")).unwrap();
        std::fs::write(cwd.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let args = shown(&request("0.169.0", cwd));
        let cd = format!("--cd={}", cwd.display());
        let trust = format!(
            r#"--config=projects={{"{}" = {{"trust_level" = "untrusted"}}}}"#,
            cwd.display()
        );
        assert_eq!(
            args,
            [
                "exec",
                "--json",
                "--color=never",
                &cd,
                "--sandbox=workspace-write",
                &trust,
                r#"--config=shell_environment_policy.exclude=["GIT_DIR"]"#,
                "-"
            ]
        );
    }

    #[test]
    fn sandbox_of_codex_configuration_stays_in_force() {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("0.169.0", home.path());
        request.codex_home = home.path().to_owned();
        for (config, in_force, flag) in [
            ("", "workspace-write", Some("--sandbox=workspace-write")),
            ("sandbox_mode = \"read-only\"", "read-only", None),
            (
                "default_permissions = \":workspace\"",
                "permissions :workspace",
                None,
            ),
        ] {
            std::fs::write(home.path().join("config.toml"), config).unwrap();
            let line = command_line(&request);
            assert_eq!(line.sandbox, in_force);
            let flags = line.arguments.iter().filter_map(|arg| arg.to_str());
            let mut flags = flags.filter(|arg| arg.starts_with("--sandbox"));
            assert_eq!((flags.next(), flags.next()), (flag, None));
        }
        request.sandbox = Some(SandboxMode::DangerFullAccess);
        assert_eq!(command_line(&request).sandbox, "danger-full-access");
    }

    #[test]
    fn servers_of_ours_are_settings_unless_the_caller_has_one_of_the_name() {
        let mut request = request("0.169.0", Path::new("/a b"));
        let server = Server::new("image-request-mcp", Vec::new()).unwrap();
        request.mcp_servers = vec![server.told_the_folder()];
        let shown_servers = |request: &Request| -> Vec<String> {
            let shown = shown(request).into_iter();
            shown.filter(|arg| arg.contains("mcp_servers")).collect()
        };
        let args = shown_servers(&request);
        let [arg] = args.as_slice() else {
            panic!("{args:?}")
        };
        assert!(
            arg.starts_with("--config=mcp_servers.image-request-mcp={"),
            "{arg}"
        );
        assert!(arg.contains(r#""args" = ["--root", "/a b"]"#), "{arg}");
        let own = json!({ "command": "c" });
        request.settings.config =
            Map::from_iter([("mcp_servers.image-request-mcp".to_owned(), own)]);
        assert_eq!(
            shown_servers(&request),
            [r#"--config=mcp_servers.image-request-mcp={"command" = "c"}"#]
        );
    }

    /// By Codex's own reader of them.
    #[test]
    fn values_are_toml() {
        for value in [
            json!("\u{7f}\u{1}ß\\"),
            json!(["x", 1, null]),
            json!({"a b": {"c": true}}),
        ] {
            let text = toml::value(&value).unwrap();
            let read: ::toml::Table = ::toml::from_str(&format!("x = {text}")).unwrap();
            let read = serde_json::to_value(&read["x"]).unwrap();
            assert_eq!(toml::value(&read), Some(text));
        }
    }

    #[test]
    fn time_limit_of_tools_is_set_for_each_server_in_force() {
        let home = tempfile::tempdir().unwrap();
        let config = "[mcp_servers.plain]\ncommand = \"a\"\n[mcp_servers.own]\nurl = \"b\"\n\
                      tool_timeout_sec = 7\n[mcp_servers.half]\nargs = []\n";
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        let mut request = request("0.169.0", home.path());
        request.codex_home = home.path().to_owned();
        request.mcp_servers = vec![Server::new("ours", Vec::new()).unwrap()];
        let nested = json!({ "call": { "command": "c" } });
        request.settings.config = Map::from_iter([("mcp_servers".to_owned(), nested)]);
        let limits = |request: &Request| -> Vec<String> {
            let shown = shown(request).into_iter();
            let mut limits: Vec<String> =
                shown.filter(|arg| arg.contains("tool_timeout")).collect();
            limits.sort();
            limits
        };
        let limit = |origin| {
            Some(ToolLimit {
                limit: Duration::from_millis(1001),
                origin,
            })
        };
        assert_eq!(limits(&request), [""; 0]);
        request.tool_limit = limit(LimitOrigin::Default);
        let set = limits(&request);
        let [plain, servers] = set.as_slice() else {
            panic!("{set:#?}")
        };
        assert_eq!(plain, "--config=mcp_servers.plain.tool_timeout_sec=2");
        assert_eq!(
            servers.matches("\"tool_timeout_sec\" = 2").count(),
            2,
            "{servers}"
        );
        request.tool_limit = limit(LimitOrigin::Asked);
        let set = limits(&request);
        assert!(
            set.contains(&"--config=mcp_servers.own.tool_timeout_sec=2".to_owned()),
            "{set:#?}"
        );
        let variables = variables(&request);
        assert!(!variables.iter().any(|(name, _)| name == "TOOL_TIMEOUT_SEC"));
    }
}
