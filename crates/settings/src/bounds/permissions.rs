//! Determines the sandbox mode that includes everything that a profile of permissions allows.

use std::path::{Component, Path};

use codex_protocol::codex::SandboxMode;
use serde_json::{Map, Value};

/// The names that stand for the workspace's directories in profiles (0.130.0 and 0.153.4 to
/// 0.169.0).
const ROOTS: [&str; 2] = [":project_roots", ":workspace_roots"];

/// The names of the other directories to which `workspace-write` gives write access.
const TEMPORARY: [&str; 2] = [":tmpdir", ":slash_tmp"];

/// The narrowest mode that allows all that a profile allows; `None` if it cannot be determined.
/// `profiles` is the table `permissions`.
pub(super) fn mode_around(name: &str, profiles: &Map<String, Value>) -> Option<SandboxMode> {
    match name {
        ":read-only" => return Some(SandboxMode::ReadOnly),
        ":workspace" => return Some(SandboxMode::WorkspaceWrite),
        _ => {}
    }
    let mut writes = false;
    for (key, value) in profiles.get(name)?.as_object()? {
        match key.as_str() {
            "description" => {}
            "network" if value.get("enabled") == Some(&Value::Bool(false)) => {}
            "filesystem" => {
                for (place, access) in value.as_object()? {
                    writes |= writes_in(place, access)?;
                }
            }
            _ => return None,
        }
    }
    Some(match writes {
        true => SandboxMode::WorkspaceWrite,
        false => SandboxMode::ReadOnly,
    })
}

/// Whether an entry lets commands write where `workspace-write` does; `None` if it may let
/// them write elsewhere.
fn writes_in(place: &str, access: &Value) -> Option<bool> {
    let is_root = ROOTS.contains(&place);
    match access {
        Value::Number(_) if place == "glob_scan_max_depth" => Some(false),
        Value::String(access) => {
            let is_writable = is_root || TEMPORARY.contains(&place);
            can_write(access).filter(|writes| !writes || is_writable)
        }
        Value::Object(below) => {
            let mut writes = false;
            for (path, access) in below {
                let is_writable = is_root && is_plain(path);
                writes |= can_write(access.as_str()?).filter(|writes| !writes || is_writable)?;
            }
            Some(writes)
        }
        _ => None,
    }
}

fn can_write(access: &str) -> Option<bool> {
    match access {
        "write" => Some(true),
        "read" | "deny" | "none" => Some(false),
        _ => None,
    }
}

/// Whether a path stays below its directory, and avoids the parts that `workspace-write`
/// protects there, such as `.git` and `.codex`.
fn is_plain(path: &str) -> bool {
    Path::new(path).components().all(|part| match part {
        Component::CurDir => true,
        Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn profile_is_as_wide_as_its_writable_paths() {
        use SandboxMode::{ReadOnly, WorkspaceWrite};
        let mode = |profile: Value| {
            let profiles = json!({ "p": profile });
            mode_around("p", profiles.as_object().unwrap())
        };
        let files = |entries: Value| mode(json!({ "filesystem": entries }));
        for (entries, expected) in [
            (
                json!({ ":root": "read", "/secret": "deny" }),
                Some(ReadOnly),
            ),
            (
                json!({ ":root": { "etc": "none" }, "glob_scan_max_depth": 3 }),
                Some(ReadOnly),
            ),
            (
                json!({ ":workspace_roots": { ".": "write", "src": "read" } }),
                Some(WorkspaceWrite),
            ),
            (
                json!({ ":project_roots": "write", ":tmpdir": "write" }),
                Some(WorkspaceWrite),
            ),
            (json!({ ":workspace_roots": { ".git": "write" } }), None),
            (json!({ ":workspace_roots": { "a/.codex": "write" } }), None),
            (json!({ ":workspace_roots": { "..": "write" } }), None),
            (json!({ ":workspace_roots": { "/": "write" } }), None),
            (json!({ ":root": "write" }), None),
            (json!({ "/home": { "x": "write" } }), None),
            (json!({ ":tmpdir": { ".": "write" } }), None),
            (json!({ "/a": "made up" }), None),
        ] {
            assert_eq!(files(entries.clone()), expected, "{entries}");
        }
        let closed = json!({ "network": { "enabled": false }, "description": "x" });
        assert_eq!(mode(closed), Some(ReadOnly));
        assert_eq!(mode(json!({ "network": { "enabled": true } })), None);
        assert_eq!(mode(json!({ "extends": ":workspace" })), None);
        let of = |name: &str| mode_around(name, &Map::new());
        assert_eq!(of(":read-only"), Some(ReadOnly));
        assert_eq!(of(":workspace"), Some(WorkspaceWrite));
        assert_eq!((of(":danger-full-access"), of("absent")), (None, None));
    }
}
