//! Further writable directories that overrides of Codex's configuration name.

use std::path::Path;

use safe_files::directory::{self, ReplacedDirectory};
use serde_json::{Map, Value};

/// The keys of the directories in overrides: nested, or dotted as on the command line.
const TABLE: &str = "sandbox_workspace_write";
const ROOTS: &str = "writable_roots";
const DOTTED_ROOTS: &str = "sandbox_workspace_write.writable_roots";

/// Resolves the further writable directories that overrides of Codex's configuration
/// name. Relative paths are resolved from the working directory `cwd`: Codex would
/// resolve them from the directory in which its server was started.
pub fn resolve(config: &mut Map<String, Value>, cwd: &Path) {
    for (key, value) in config {
        let roots = match key.as_str() {
            TABLE => value.get_mut(ROOTS),
            DOTTED_ROOTS => Some(value),
            _ => None,
        };
        for root in roots.and_then(Value::as_array_mut).into_iter().flatten() {
            let path = root
                .as_str()
                .map(|path| directory::resolved(&cwd.join(path)));
            if let Some(path) = path.as_deref().and_then(Path::to_str) {
                *root = path.into();
            }
        }
    }
}

/// Checks the directories that [`resolve`] has resolved.
///
/// # Errors
///
/// [`ReplacedDirectory`].
pub fn check(config: &Map<String, Value>) -> Result<(), ReplacedDirectory> {
    let nested = config.get(TABLE).and_then(|table| table.get(ROOTS));
    let lists = nested.into_iter().chain(config.get(DOTTED_ROOTS));
    let roots = lists.filter_map(Value::as_array).flatten();
    let mut paths = roots.filter_map(Value::as_str).map(Path::new);
    paths.try_for_each(|path| match path.is_absolute() {
        true => directory::check(path),
        false => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn writable_roots_are_resolved_and_checked_in_both_forms() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let (real, link) = (all.join("real"), all.join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        for form in [
            json!({ "sandbox_workspace_write": { "writable_roots": [link, "link"] }, "model": "m" }),
            json!({ "sandbox_workspace_write.writable_roots": [link, "link"] }),
        ] {
            let Value::Object(mut config) = form else {
                unreachable!()
            };
            assert_eq!(check(&config).unwrap_err().noted, link);
            resolve(&mut config, &all);
            assert_eq!(check(&config), Ok(()));
            let both = json!([real, real]);
            let nested = config.get(TABLE).and_then(|table| table.get(ROOTS));
            assert_eq!(nested.or(config.get(DOTTED_ROOTS)), Some(&both));
            fs::rename(&real, all.join("aside")).unwrap();
            symlink("/", &real).unwrap();
            assert_eq!(check(&config).unwrap_err().now, Path::new("/"));
            fs::remove_file(&real).unwrap();
            fs::rename(all.join("aside"), &real).unwrap();
        }
    }
}
