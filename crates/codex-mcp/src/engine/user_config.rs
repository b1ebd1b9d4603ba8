//! What Codex's configuration says, as far as it matters before a thread begins.
//!
//! Layers as Codex reads them, the first that has a key counts: the administrator's, the
//! profile, a trusted repository's, the user's, the machine's. Codex's own answer
//! (`config/read`) takes 3 to 10 ms, and only the app-server gives it.
//!
//! Source: Codex 0.104.0, 0.153.4 and 0.169.0.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::confinement::get;
use super::profile::ProfileName;
use crate::trust::{DirectoryTrust, Trust};
use crate::untrusted_file::{Links, read_text};

/// Where the machine's administrator has the last word.
const MANAGED: &str = "/etc/codex/managed_config.toml";

/// What all users of a machine have.
const OF_ALL: &str = "/etc/codex/config.toml";

/// The longest file that is read, in bytes. Codex adds each directory that the user
/// trusts.
const LIMIT: u64 = 16 * 1024 * 1024;

/// The configuration, the part that counts most first.
#[derive(Debug)]
pub(super) struct UserConfig(Vec<Map<String, Value>>);

impl UserConfig {
    /// Reads it for a Codex with this home. A file that cannot be read is left to Codex,
    /// which says what is wrong with it.
    pub(super) fn read(
        codex_home: &Path,
        profile: Option<&ProfileName>,
        trust: Option<&DirectoryTrust>,
    ) -> Self {
        let user = file(codex_home.join("config.toml"), Links::Followed).unwrap_or_default();
        let mut layers: Vec<_> = file(MANAGED.into(), Links::Followed).into_iter().collect();
        let chosen = profile.map(ToString::to_string);
        let chosen = chosen.or_else(|| Some(user.get("profile")?.as_str()?.to_owned()));
        if let Some(name) = chosen {
            let path = codex_home.join(format!("{name}.config.toml"));
            layers.extend(file(path, Links::Followed));
            let of_old = || user.get("profiles")?.get(&name)?.as_object().cloned();
            layers.extend(of_old());
        }
        if let Some(trust) = trust.filter(|trust| trust.trust == Trust::Trusted) {
            let within = |above: &&Path| above.starts_with(&trust.top);
            let directories = trust.directory.ancestors().take_while(within);
            let paths = directories.map(|path| path.join(".codex/config.toml"));
            layers.extend(paths.filter_map(|path| file(path, Links::Refused)));
        }
        layers.push(user);
        layers.extend(file(OF_ALL.into(), Links::Followed));
        Self(layers)
    }

    /// The value of a dotted key.
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.0.iter().find_map(|layer| get(layer, key)).cloned()
    }
}

fn file(path: PathBuf, links: Links) -> Option<Map<String, Value>> {
    toml::from_str(&read_text(&path, LIMIT, links).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn layers_count_in_their_order() {
        let home = tempfile::tempdir().unwrap();
        let repository = tempfile::tempdir().unwrap();
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            home.path().join("config.toml"),
            "sandbox_mode = \"user\"\nx = 1\n[profiles.p]\nsandbox_mode = \"table\"\n",
        );
        write(
            repository.path().join(".codex/config.toml"),
            "sandbox_mode = \"repository\"\n[a]\nb.c = 2\n",
        );
        let trust = |trust| DirectoryTrust {
            trust,
            top: repository.path().to_owned(),
            directory: repository.path().join("sub"),
            told: Vec::new(),
        };
        let get = |profile: Option<&str>, level, key: &str| {
            let profile = profile.map(|name| ProfileName::try_from(name.to_owned()).unwrap());
            UserConfig::read(home.path(), profile.as_ref(), Some(&trust(level))).get(key)
        };
        use Trust::{Trusted, Untrusted};
        assert_eq!(get(None, Untrusted, "sandbox_mode"), Some(json!("user")));
        assert_eq!(
            get(None, Trusted, "sandbox_mode"),
            Some(json!("repository"))
        );
        assert_eq!(
            get(Some("p"), Trusted, "sandbox_mode"),
            Some(json!("table"))
        );
        assert_eq!(get(None, Trusted, "a.b.c"), Some(json!(2)));
        assert_eq!(get(None, Untrusted, "a.b.c"), None);
        assert_eq!(get(None, Untrusted, "x"), Some(json!(1)));
    }
}
