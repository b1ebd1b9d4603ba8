//! Codex's own configuration, read layer by layer.
//!
//! Codex takes a key from the first of these layers that has it:
//!
//! 1. the administrator's `/etc/codex/managed_config.toml`
//! 2. the table `[profiles.NAME]`, in whichever layer, of the profile that the caller names
//!    or else the key `profile` selects
//! 3. `.codex/config.toml` in the working directory and in each one above it up to the top
//!    of the repository, the nearest first, if the user trusts the repository
//! 4. `$CODEX_HOME/NAME.config.toml`, of a profile that the caller names
//! 5. `$CODEX_HOME/config.toml`
//! 6. `/etc/codex/config.toml`, which all users of the machine share
//!
//! Source: Codex 0.104.0, 0.153.4 and 0.169.0, run with one layer removed after the other.
//! Only 0.104.0 has profiles as tables, and only the newer two have them as files. A table
//! of 0.104.0 cannot set the keys in `NOT_IN_TABLES`, and precedes the managed file in all
//! but `sandbox_mode` and `approval_policy`. The newer two refuse to select a table.
//!
//! Codex's own answer, `config/read` of the app-server, is without profiles, takes 3 to
//! 10 ms, and goes by Codex's list of trusted directories alone.
//!
//! Codex takes relative paths from the directory of the file that has them, and `~` for
//! the user's home directory. Each file may be a symbolic link, the repository's too; then
//! the directory is that of the link (0.104.0, 0.153.4, 0.171.0).

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::directory_trust::{DirectoryTrust, Trust};
use crate::profile::ProfileName;
use crate::profile::overlay;
use crate::trust::covered_files::CODEX_CONFIG_FILE;
use safe_files::home_directory::home_directory;
use safe_files::untrusted_file::Links;
use safe_files::untrusted_file::read_text;

/// The file of the administrator's layer.
const MANAGED_CONFIG: &str = "/etc/codex/managed_config.toml";

/// The file of the layer that all users of the machine share.
const SYSTEM_CONFIG: &str = "/etc/codex/config.toml";

/// The longest file that is read, in bytes. Codex adds each directory that the user
/// trusts.
const LIMIT: u64 = 16 * 1024 * 1024;

/// The key of the instructions that the model gets as the developer's.
const INSTRUCTIONS: &str = "developer_instructions";

/// Keys that Codex ignores in `[profiles.NAME]`.
const NOT_IN_TABLES: [&str; 3] = [INSTRUCTIONS, MCP_SERVERS, "shell_environment_policy"];

/// The key of the MCP servers, by their names.
const MCP_SERVERS: &str = "mcp_servers";

/// The table of the sandbox `workspace-write`, and its key with paths.
const WORKSPACE: &str = "sandbox_workspace_write";
const ROOTS: &str = "writable_roots";

/// The keys of one layer.
pub(crate) type Layer = Map<String, Value>;

/// The user's own layer. It alone decides which directories Codex trusts.
#[derive(Debug)]
pub struct UserConfig {
    codex_home: PathBuf,
    layer: Layer,
}

/// All layers, in the order of their precedence.
#[derive(Debug)]
pub struct CodexConfig {
    layers: Vec<Layer>,
    /// The names of the MCP servers that a layer other than the repository's defines.
    other_servers: BTreeSet<String>,
}

impl UserConfig {
    /// Reads `config.toml` of a Codex with this home. A file that cannot be read counts
    /// as empty, here and in the other layers; Codex itself reports the error.
    #[must_use]
    pub fn read(codex_home: &Path) -> Self {
        let layer = read_layer(&codex_home.join("config.toml"));
        Self {
            codex_home: codex_home.to_owned(),
            layer: layer.unwrap_or_default(),
        }
    }

    /// The user's file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.codex_home.join("config.toml")
    }

    /// The directories that Codex trusts.
    pub fn trusted(&self) -> impl Iterator<Item = &Path> {
        let projects = self.layer.get("projects").and_then(Value::as_object);
        let projects = projects.into_iter().flatten();
        let trusted = |project: &Value| project.get("trust_level")?.as_str().map(str::to_owned);
        projects
            .filter(move |(_, project)| trusted(project).as_deref() == Some("trusted"))
            .map(|(path, _)| Path::new(path))
    }

    /// Whether Codex trusts exactly this directory; `None` if the user's `projects` do
    /// not list it.
    #[must_use]
    pub fn trust_in(&self, directory: &Path) -> Option<Trust> {
        let project = self.layer.get("projects")?.get(directory.to_str()?)?;
        match project.get("trust_level")?.as_str() {
            Some("trusted") => Some(Trust::Trusted),
            _ => Some(Trust::Untrusted),
        }
    }

    /// Reads the other layers. The profile's are included if one is given, the
    /// repository's if `trust` says that the user trusts it.
    #[must_use]
    pub fn layers(
        &self,
        profile: Option<&ProfileName>,
        trust: Option<&DirectoryTrust>,
    ) -> CodexConfig {
        let managed = read_layer(Path::new(MANAGED_CONFIG));
        let mut layers: Vec<_> = managed.into_iter().collect();
        let tables_at = layers.len();
        if let Some(trust) = trust.filter(|trust| trust.trust == Trust::Trusted) {
            let within = |above: &&Path| above.starts_with(&trust.top);
            let directories = trust.directory.ancestors().take_while(within);
            let paths = directories.map(|above| above.join(CODEX_CONFIG_FILE));
            layers.extend(paths.filter_map(|path| read_layer(&path)));
        }
        let of_repository = tables_at..layers.len();
        let file = profile.map(|name| self.codex_home.join(format!("{name}.config.toml")));
        layers.extend(file.and_then(|path| read_layer(&path)));
        layers.push(self.layer.clone());
        layers.extend(read_layer(Path::new(SYSTEM_CONFIG)));
        let of_others = layers.iter().enumerate();
        let of_others = of_others.filter(|(index, _)| !of_repository.contains(index));
        let servers = of_others.filter_map(|(_, layer)| layer.get(MCP_SERVERS)?.as_object());
        let other_servers = servers.flat_map(|table| table.keys().cloned()).collect();
        let mut config = CodexConfig {
            layers,
            other_servers,
        };
        let named = profile.map(ToString::to_string);
        if let Some(name) = named.or_else(|| config.value_of("profile")) {
            let tables = config.profile_tables(&name);
            config.layers.splice(tables_at..tables_at, tables);
        }
        config
    }
}

impl CodexConfig {
    /// The value of a dotted key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.layers.iter().find_map(|layer| get(layer, key))
    }

    /// The value of a dotted key. A value of another type counts as unset.
    #[must_use]
    pub fn value_of<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_value(self.get(key)?.clone()).ok()
    }

    /// A table, merged from all layers.
    pub fn table(&self, name: &str) -> Map<String, Value> {
        let mut table = Map::new();
        for layer in self.layers.iter().rev() {
            if let Some(Value::Object(over)) = layer.get(name) {
                overlay(&mut table, over.clone());
            }
        }
        table
    }

    /// The entries of all MCP servers, by their names. Keys of a layer with precedence
    /// replace those of the others.
    pub fn mcp_servers(&self) -> BTreeMap<String, Map<String, Value>> {
        let mut servers: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for layer in self.layers.iter().rev() {
            let Some(Value::Object(table)) = layer.get(MCP_SERVERS) else {
                continue;
            };
            for (name, entry) in table {
                let entry = entry.as_object().cloned().unwrap_or_default();
                servers.entry(name.clone()).or_default().extend(entry);
            }
        }
        servers
    }

    /// Whether only the repository's layers define an MCP server of this name.
    pub fn is_repository_only(&self, server: &str) -> bool {
        !self.other_servers.contains(server)
    }

    fn profile_tables(&self, name: &str) -> Vec<Layer> {
        let table = |layer: &Layer| layer.get("profiles")?.get(name)?.as_object().cloned();
        let mut tables: Vec<Layer> = self.layers.iter().filter_map(table).collect();
        for table in &mut tables {
            table.retain(|key, _| !NOT_IN_TABLES.contains(&key.as_str()));
        }
        tables
    }
}

/// The value of a key in a layer or among overrides, whose keys may be dotted, nested or
/// both.
pub fn get<'a>(layer: &'a Layer, key: &str) -> Option<&'a Value> {
    layer.get(key).or_else(|| {
        let dots = key.match_indices('.').map(|(dot, _)| dot);
        dots.filter_map(|dot| {
            let inner = layer.get(key.get(..dot)?)?.as_object()?;
            get(inner, key.get(dot + 1..)?)
        })
        .next()
    })
}

/// The developer instructions that these overrides set, or else the configuration.
pub fn configured_instructions(overrides: &Layer, config: &CodexConfig) -> Option<String> {
    match get(overrides, INSTRUCTIONS) {
        Some(set) => set.as_str().map(str::to_owned),
        None => config.value_of(INSTRUCTIONS),
    }
}

/// Reads a file of Codex's configuration, whether or not the user trusts it. A link is
/// followed, as Codex does.
pub fn read_layer(path: &Path) -> Option<Layer> {
    let text = read_text(path, LIMIT, Links::Followed).ok()?;
    let mut layer: Layer = toml::from_str(&text).ok()?;
    let roots = layer.get_mut(WORKSPACE).and_then(|it| it.get_mut(ROOTS));
    for root in roots.and_then(Value::as_array_mut).into_iter().flatten() {
        let absolute = root
            .as_str()
            .and_then(|root| absolute(root, path.parent()?));
        if let Some(absolute) = absolute.as_deref().and_then(Path::to_str) {
            *root = absolute.into();
        }
    }
    Some(layer)
}

/// A path as Codex reads it in a file of this directory.
fn absolute(path: &str, directory: &Path) -> Option<PathBuf> {
    let of_home = match path {
        "~" => Some(""),
        path => path.strip_prefix("~/"),
    };
    match of_home {
        Some(rest) => Some(home_directory(|name| env::var_os(name))?.join(rest)),
        None => Some(directory.join(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// A CODEX_HOME, and a repository `repo` with the directory `sub`.
    struct World(tempfile::TempDir);

    impl World {
        fn new(files: &[(&str, &str)]) -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = world.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            world
        }

        fn read(&self, profile: Option<&str>, trust: Trust) -> CodexConfig {
            let profile = profile.map(|name| ProfileName::try_from(name.to_owned()).unwrap());
            let top = self.0.path().join("repo");
            let trust = DirectoryTrust {
                trust,
                directory: top.join("sub"),
                top,
                codex_paths: Vec::new(),
                changes: None,
            };
            let user = UserConfig::read(&self.0.path().join("home"));
            user.layers(profile.as_ref(), Some(&trust))
        }
    }

    #[test]
    fn layers_take_precedence_in_order() {
        let world = World::new(&[
            (
                "home/config.toml",
                "x = \"user\"\ny = \"user\"\nz = 1\n[profiles.table]\nx = \"table\"\n\
                 shell_environment_policy.inherit = \"none\"\n",
            ),
            ("home/file.config.toml", "x = \"file\"\ny = \"file\"\n"),
            (
                "repo/.codex/config.toml",
                "x = \"top\"\nw = \"top\"\n[a]\nb.c = 2\n",
            ),
            ("repo/sub/.codex/config.toml", "x = \"sub\"\n"),
            ("repo/sub/below/.codex/config.toml", "x = \"below\"\n"),
        ]);
        use Trust::{Trusted, Untrusted};
        for (profile, trust, key, expected) in [
            (None, Untrusted, "x", json!("user")),
            (None, Trusted, "x", json!("sub")),
            (None, Trusted, "w", json!("top")),
            (None, Trusted, "a.b.c", json!(2)),
            (Some("file"), Untrusted, "x", json!("file")),
            (Some("file"), Trusted, "x", json!("sub")),
            (Some("file"), Trusted, "y", json!("file")),
            (Some("table"), Trusted, "x", json!("table")),
            (Some("absent"), Untrusted, "z", json!(1)),
        ] {
            let config = world.read(profile, trust);
            assert_eq!(config.get(key), Some(&expected), "{profile:?} {key}");
        }
        let untrusted = world.read(Some("table"), Untrusted);
        assert_eq!(untrusted.get("a.b.c"), None);
        assert_eq!(untrusted.get("shell_environment_policy.inherit"), None);
        assert_eq!(untrusted.value_of::<u8>("x"), None);
        assert_eq!(untrusted.value_of::<u8>("z"), Some(1));
    }

    #[test]
    fn table_merges_the_keys_of_all_layers_and_resolves_paths_as_codex_does() {
        let world = World::new(&[
            (
                "home/config.toml",
                "[sandbox_workspace_write]\nnetwork_access = true\n\
                 writable_roots = [\"/a\", \"b\", \"~/c\"]\n",
            ),
            (
                "repo/.codex/config.toml",
                "[sandbox_workspace_write]\nwritable_roots = [\"/evil\"]\n",
            ),
        ]);
        let table = |trust| Value::Object(world.read(None, trust).table(WORKSPACE));
        let home = env::var("HOME").unwrap();
        let below = world.0.path().join("home/b");
        assert_eq!(
            table(Trust::Untrusted),
            json!({ "network_access": true, "writable_roots": ["/a", below, format!("{home}/c")] })
        );
        assert_eq!(
            table(Trust::Trusted),
            json!({ "network_access": true, "writable_roots": ["/evil"] })
        );
    }

    #[test]
    fn selected_profile_is_a_table() {
        let world = World::new(&[
            (
                "home/config.toml",
                "profile = \"p\"\nx = \"user\"\n[profiles.p]\nx = \"table\"\n",
            ),
            ("home/p.config.toml", "x = \"file\"\ny = \"file\"\n"),
        ]);
        let config = world.read(None, Trust::Untrusted);
        assert_eq!(config.get("x"), Some(&json!("table")));
        assert_eq!(config.get("y"), None);
    }

    #[test]
    fn link_is_followed_for_the_users_file_and_the_repositorys() {
        let world = World::new(&[
            ("home/dotfiles", "x = \"user\"\n"),
            ("repo/.codex/elsewhere", "x = \"repository\"\n"),
        ]);
        for directory in ["home", "repo/.codex"] {
            let directory = world.0.path().join(directory);
            let target = fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
            symlink(target.path(), directory.join("config.toml")).unwrap();
        }
        let value = |trust| world.read(None, trust).get("x").cloned();
        assert_eq!(value(Trust::Untrusted), Some(json!("user")));
        assert_eq!(value(Trust::Trusted), Some(json!("repository")));
    }
}
