//! The command line of `codex exec`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use super::Request;
use super::files::Files;
use crate::team::Repository;

/// The arguments. Flags come before `resume`, values are joined to their flags so
/// that none is taken for a flag or for a second picture, and the prompt comes on
/// stdin: as an argument it would have a length and could not begin with a dash.
pub(super) fn arguments(request: &Request, files: &Files) -> Vec<OsString> {
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
    if let Some(sandbox) = word(request.sandbox) {
        args.push(format!("--sandbox={sandbox}").into());
    }
    if let Some(profile) = &request.profile {
        args.push(format!("--profile={profile}").into());
    }
    args.extend(overrides(request));
    if let Some(schema) = &files.schema {
        args.push(joined("--output-schema=", schema));
    }
    if let Some(id) = &request.resume {
        args.extend(["resume", id.as_str()].map(OsString::from));
    }
    args.push("-".into());
    args
}

/// Variables for Codex on top of our environment.
pub(super) fn variables(request: &Request) -> Vec<(OsString, OsString)> {
    let mut variables = request.env.clone();
    variables.extend(request.codex.env());
    variables.push(("CODEX_HOME".into(), request.codex_home.clone().into()));
    if let Some(limit) = request.tool_timeout {
        let seconds = limit.as_nanos().div_ceil(1_000_000_000);
        variables.push(("TOOL_TIMEOUT_SEC".into(), seconds.to_string().into()));
    }
    variables
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut arg = OsString::from(flag);
    arg.push(path);
    arg
}

fn overrides(request: &Request) -> Vec<OsString> {
    let effort = word(request.effort).map(Value::from);
    let effort = effort
        .as_ref()
        .map(|effort| ("model_reasoning_effort", effort));
    let config = request
        .config
        .iter()
        .map(|(key, value)| (key.as_str(), value));
    config
        .chain(effort)
        .filter_map(|(key, value)| Some(format!("--config={key}={}", toml(value)?).into()))
        .collect()
}

/// The word that Codex has for a setting.
fn word(setting: Option<impl serde::Serialize>) -> Option<String> {
    match serde_json::to_value(setting) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

/// A value as TOML on one line; `None` for null, which TOML doesn't have.
fn toml(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .filter_map(|(key, value)| Some(format!("{} = {}", quoted(key), toml(value)?)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
    })
}

/// JSON's strings are TOML's basic strings but for DEL, which TOML wants escaped.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use codex_mcp_protocol::codex::{Effort, Release, SandboxMode, ThreadId};
    use serde_json::json;

    use super::*;
    use crate::engine::binary::{CodexBinary, Source};
    use crate::engine::profile::ProfileName;
    use crate::jobs::exec::KeepStream;
    use crate::picture::Picture;

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
            config: serde_json::Map::new(),
            images: Vec::new(),
            output_schema: None,
            timeout: Duration::from_secs(1),
            tool_timeout: None,
            stream: KeepStream::No,
        }
    }

    fn shown(request: &Request) -> Vec<String> {
        let files = Files::write(&request.images, request.output_schema.as_ref()).unwrap();
        let args = arguments(request, &files);
        args.iter()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn the_flags_are_those_that_each_release_takes() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        let image = cwd.join("a.png");
        std::fs::write(&image, "").unwrap();
        for release in ["0.104.0", "0.130.0", "0.153.4", "0.154.0", "0.169.0"] {
            let mut request = request(release, &cwd);
            request.resume = Some(ThreadId::parse(ID).unwrap());
            request.model = Some("-m".to_owned());
            request.sandbox = Some(SandboxMode::WorkspaceWrite);
            request.effort = Some(Effort::High);
            request.profile = Some(ProfileName::try_from("fast".to_owned()).unwrap());
            request.config = json!({"a.b": "x\"\n", "c": null})
                .as_object()
                .unwrap()
                .clone();
            request.images = vec![Picture::File(image.clone())];
            request.output_schema = Some(serde_json::Map::new());
            let shown = shown(&request);
            let (schema, rest): (Vec<String>, Vec<String>) = shown
                .into_iter()
                .partition(|arg| arg.starts_with("--output-schema="));
            assert_eq!(schema.len(), 1);
            let cwd = cwd.display();
            assert_eq!(
                rest,
                [
                    "exec",
                    &format!("--image={cwd}/a.png"),
                    "--json",
                    "--color=never",
                    &format!("--cd={cwd}"),
                    "--skip-git-repo-check",
                    "--model=-m",
                    "--sandbox=workspace-write",
                    "--profile=fast",
                    r#"--config=a.b="x\"\n""#,
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
    fn what_is_not_asked_for_is_left_to_codex() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        std::fs::create_dir(cwd.join(".git")).unwrap();
        std::fs::write(cwd.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let args = shown(&request("0.169.0", cwd));
        let cd = format!("--cd={}", cwd.display());
        assert_eq!(args, ["exec", "--json", "--color=never", &cd, "-"]);
    }

    #[test]
    fn values_are_toml() {
        for (value, expected) in [
            (json!("a"), Some(r#""a""#)),
            (json!("\u{7f}\u{1}ß\\"), Some(r#""\u007f\u0001ß\\""#)),
            (json!(1.5), Some("1.5")),
            (json!(["x", 1, null]), Some(r#"["x", 1]"#)),
            (
                json!({"a b": {"c": true}}),
                Some(r#"{"a b" = {"c" = true}}"#),
            ),
            (json!(null), None),
        ] {
            let text = toml(&value);
            assert_eq!(text.as_deref(), expected);
            let Some(text) = text else { continue };
            let read: toml::Table = toml::from_str(&format!("x = {text}")).unwrap();
            assert!(read.contains_key("x"));
        }
    }

    #[test]
    fn the_limit_of_tools_is_rounded_up() {
        let mut request = request("0.169.0", Path::new("/"));
        for (limit, seconds) in [(1, "1"), (1000, "1"), (1001, "2"), (300_000, "300")] {
            request.tool_timeout = Some(Duration::from_millis(limit));
            let variables = variables(&request);
            let expected = ("TOOL_TIMEOUT_SEC".into(), seconds.into());
            assert!(variables.contains(&expected), "{variables:?}");
        }
    }
}
