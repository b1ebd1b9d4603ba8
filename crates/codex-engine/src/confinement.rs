//! Settings for Codex that keep a repository's programs from running outside of its
//! sandbox.
//!
//! **Trust.** When a thread is begun with a sandbox, Codex (0.130.0 to 0.169.0) marks the
//! directory as trusted, writes that into the user's `config.toml`, and starts the MCP
//! servers, hooks and the rest of the repository's own `.codex/config.toml` outside of
//! the sandbox. So the settings of each thread state whether the *user* trusts the
//! directory: as nested `projects`, since Codex ignores the dotted key. In an untrusted
//! directory Codex would also use other defaults (`workspace-write` and `untrusted`
//! instead of `read-only` and `on-request`), so the settings state the usual ones as
//! well.
//!
//! **Codex's own git.** Codex runs `git status` outside of the sandbox, with the
//! repository's filters. So Codex's process gets a `GIT_DIR` that leads nowhere; its
//! commands do not get the variable.
//!
//! **Search paths.** Codex's process gets a PATH without directories that commands can write, and
//! its commands get the user's, but with releases that look there for the program that makes the
//! sandbox.
//!
//! Source: tests with Codex 0.104.0, 0.130.0, 0.153.4 and 0.169.0; for `bwrap`, with 0.113.0 to
//! 0.118.0, 0.153.4, and 0.160.0 to 0.171.0.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use codex_config::layers::{CodexConfig, get};
use codex_config::trust::covered_files::CODEX_FILES;
use codex_config::trust::{DirectoryTrust, Trust};
use codex_protocol::codex::{ApprovalPolicy, Release, SandboxMode};
use common::text::shell_word;
use serde_json::{Map, Value, json};
use supervise::search_path::{self, PATH};

use super::mcp_servers;
use super::overrides::set;
use super::tool_timeout::{LimitOrigin, ToolLimit};

/// The variable of Codex's process that keeps its own git away from repositories.
pub(crate) const NO_GIT: (&str, &str) = ("GIT_DIR", "/nonexistent");

/// The variable of a [`CommandMark`](super::CommandMark). Commands always get it, even if the user
/// allows them only a few variables.
pub(crate) const MARK: &str = "CODEX_MCP_TURN";

/// The releases that look for `bwrap`, outside of the sandbox, on the PATH of their commands: they
/// would run a program of that name that a command has planted there.
const RUNS_PLANTED_BWRAP: Range<Release> = Release::new(0, 118, 0)..Release::new(0, 162, 0);

/// The releases that follow a `.git` file even if the git directory does not link back to it, and
/// so give a directory the trust of another repository. 0.104.0 does, and 0.130.0 does not.
const FOLLOWS_UNLINKED_GIT: Range<Release> = Release::FIRST_APP_SERVER..Release::new(0, 130, 0);

/// The first release that keeps the excluded variables out of its shell snapshots, too.
const FIRST_WITH_CLEAN_SNAPSHOTS: Release = Release::new(0, 169, 0);

/// The table that decides which variables commands get.
const ENVIRONMENT: &str = "shell_environment_policy";

/// The key of the excluded variables in that table.
const EXCLUDED: &str = "exclude";

/// The table of Codex's configuration with the trusted directories.
const PROJECTS: &str = "projects";

/// The keys of Codex's configuration that name a sandbox.
const SANDBOX_MODE: &str = "sandbox_mode";
const DEFAULT_PERMISSIONS: &str = "default_permissions";

/// Whether a conversation is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// A new conversation: Codex uses the defaults of the directory and may record trust
    /// in it.
    New,
    /// A resumed conversation, with its earlier settings. Codex does not record trust for it, and,
    /// since 0.130, loads nothing from a directory that is not listed as trusted.
    Resumed,
}

/// A thread's configuration, release and trust, on which its confinement depends.
#[derive(Debug, Clone, Copy)]
pub struct ThreadContext<'a> {
    /// Whether the thread is begun or resumed.
    pub conversation: Conversation,
    /// Codex's configuration.
    pub config: &'a CodexConfig,
    /// Codex's release; `None` if it is not known.
    pub release: Option<Release>,
    /// The user's trust in the directory; `None` if only Codex knows the directory, as
    /// for an earlier thread.
    pub trust: Option<&'a DirectoryTrust>,
}

/// The settings that a caller requests.
#[derive(Debug)]
pub struct RequestedSettings<'a> {
    /// The sandbox of the thread, if a call or a setting names it.
    pub sandbox: &'a mut Option<SandboxMode>,
    /// The approval policy, likewise.
    pub approval_policy: &'a mut Option<ApprovalPolicy>,
    /// Overrides of `config.toml`, with dotted or nested keys.
    pub config: &'a mut Map<String, Value>,
}

/// The sandbox that overrides or Codex's configuration name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfiguredSandbox {
    /// `sandbox_mode`.
    Mode(String),
    /// `default_permissions`, which takes precedence.
    Permissions(String),
}

impl ConfiguredSandbox {
    /// The sandbox that these overrides name, or else the configuration. `None` if
    /// neither names one.
    pub fn of(overrides: &Map<String, Value>, config: &CodexConfig) -> Option<Self> {
        let named = |key: &str| {
            let value = get(overrides, key).or_else(|| config.get(key))?;
            let text = value.as_str().map(str::to_owned);
            Some(text.unwrap_or_else(|| value.to_string()))
        };
        let permissions = named(DEFAULT_PERMISSIONS).map(Self::Permissions);
        permissions.or_else(|| named(SANDBOX_MODE).map(Self::Mode))
    }

    /// The key of Codex's configuration that sets this sandbox.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Mode(_) => SANDBOX_MODE,
            Self::Permissions(_) => DEFAULT_PERMISSIONS,
        }
    }

    /// Names this sandbox in overrides, for a thread that may have had another one.
    pub fn set_in(&self, overrides: &mut Map<String, Value>) {
        let (Self::Mode(value) | Self::Permissions(value)) = self;
        overrides.insert(self.key().to_owned(), value.as_str().into());
    }

    /// The sandbox as a mode. Permissions and unknown modes count as the narrowest one.
    pub fn as_mode(&self) -> SandboxMode {
        let mode = match self {
            Self::Mode(mode) => serde_json::from_value(mode.as_str().into()).ok(),
            Self::Permissions(_) => None,
        };
        mode.unwrap_or(SandboxMode::ReadOnly)
    }
}

impl fmt::Display for ConfiguredSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(mode) => f.write_str(mode),
            Self::Permissions(name) => write!(f, "permissions {name}"),
        }
    }
}

/// The release that reads overrides before the repository's configuration. It refuses an override
/// for a server that only the repository's configuration defines.
const NEEDS_WHOLE_SERVERS: Release = Release::new(0, 104, 0);

/// The first release known to start the MCP servers of a thread in the thread's
/// directory. 0.117.0 starts them in that of the app-server.
const FIRST_WITH_PLACED_SERVERS: Release = Release::new(0, 130, 0);

impl ThreadContext<'_> {
    /// Limits the time of a tool call, for all MCP servers of the configuration and of
    /// the overrides, but not for servers of Codex's plugins, nor in 0.104.0 for those of
    /// a trusted repository.
    pub fn limit_tools(&self, overrides: &mut Map<String, Value>, limit: ToolLimit) {
        if mcp_servers::asks_for_none(overrides) {
            return;
        }
        for (name, entry) in self.servers(overrides) {
            let can_run = entry.contains_key("command") || entry.contains_key("url");
            let has_own = entry.contains_key(mcp_servers::TOOL_TIMEOUT);
            let is_asked = limit.origin == LimitOrigin::Requested;
            if can_run && (is_asked || !has_own) {
                let seconds = limit.seconds().into();
                mcp_servers::set(overrides, &name, mcp_servers::TOOL_TIMEOUT, seconds);
            }
        }
    }

    /// Makes the user's MCP servers run in the thread's directory, as newer releases do
    /// by themselves.
    pub(crate) fn place_servers(&self, config: &mut Map<String, Value>) {
        let directory = self.trust.and_then(|trust| trust.directory.to_str());
        let (Some(directory), Some(release)) = (directory, self.release) else {
            return;
        };
        if release >= FIRST_WITH_PLACED_SERVERS || mcp_servers::asks_for_none(config) {
            return;
        }
        for (name, entry) in self.servers(config) {
            if entry.contains_key("command") && !entry.contains_key("cwd") {
                mcp_servers::set(config, &name, "cwd", directory.into());
            }
        }
    }

    /// Keeps Codex from starting servers of its configuration that delegate work to Codex, such as
    /// this program: Codex's model could delegate without end, and to a Codex with a wider sandbox
    /// than its own. An override takes precedence if it enables or disables the server, or makes it
    /// start another program.
    pub(crate) fn without_delegation(&self, config: &mut Map<String, Value>) {
        let asks_for_none = mcp_servers::asks_for_none(config);
        let mut stated = BTreeMap::new();
        mcp_servers::in_overrides(config, &mut stated);
        let configured = self.servers(&Map::new());
        for (name, entry) in self.servers(config) {
            let is_stated = stated
                .get(&name)
                .is_some_and(|entry| entry.contains_key(mcp_servers::ENABLED));
            if is_stated || !configured.contains_key(&name) {
                continue;
            }
            if asks_for_none || mcp_servers::hands_on_work(entry) {
                tracing::debug!("the MCP server {name} is switched off in this thread");
                mcp_servers::set(config, &name, mcp_servers::ENABLED, false.into());
            }
        }
    }

    /// Keeps Codex from starting MCP servers of the configuration, of the overrides or of Codex's
    /// plugins, and from reading an AGENTS.md of the repository, which 0.104.0 also gives to a
    /// reviewer. 0.104.0 starts the servers of a trusted repository all the same.
    pub(crate) fn keep_apart(&self, config: &mut Map<String, Value>) {
        for name in self.servers(config).into_keys() {
            mcp_servers::set(config, &name, mcp_servers::ENABLED, false.into());
        }
        for feature in ["plugins", "apps"] {
            set(config, &["features", feature], false.into());
        }
        config.insert("project_doc_max_bytes".to_owned(), 0.into());
    }

    /// All MCP servers whose settings can be overridden.
    fn servers(&self, overrides: &Map<String, Value>) -> BTreeMap<String, Map<String, Value>> {
        let mut servers = self.config.mcp_servers();
        if self.release == Some(NEEDS_WHOLE_SERVERS) {
            servers.retain(|name, _| !self.config.is_repository_only(name));
        }
        mcp_servers::in_overrides(overrides, &mut servers);
        servers
    }

    /// Adds the settings that keep the repository's programs from being run.
    pub(crate) fn confine(&self, mut requested: RequestedSettings<'_>) {
        self.state_trust(&mut requested);
        self.exclude_no_git(requested.config);
        let directory = self.trust.map(|trust| trust.directory.as_path());
        if let (Some(path), false) = (
            search_path::for_commands(directory),
            self.runs_planted_bwrap(),
        ) {
            self.restore_path(requested.config, path);
        }
    }

    /// Whether Codex would run a `bwrap` that a command has planted in a directory of its PATH.
    fn runs_planted_bwrap(&self) -> bool {
        let looks = |release| RUNS_PLANTED_BWRAP.contains(&release);
        cfg!(target_os = "linux") && self.release.is_none_or(looks)
    }

    /// States whether the user trusts the directory, if Codex needs to know.
    pub fn state_trust(&self, requested: &mut RequestedSettings<'_>) {
        let RequestedSettings {
            sandbox,
            approval_policy,
            config,
        } = requested;
        // A caller's statements about trust are removed: only the user's own decision
        // counts.
        config.retain(|key, _| key.split('.').next() != Some(PROJECTS));
        let names = |key: &str| get(config, key).is_some();
        // The trust level changes only defaults. Not all releases know permissions.
        let needs_no_default = (sandbox.is_some() || names(SANDBOX_MODE))
            && (approval_policy.is_some() || names("approval_policy"));
        let is_misled = self.conversation == Conversation::Resumed
            && self
                .release
                .is_some_and(|release| FOLLOWS_UNLINKED_GIT.contains(&release));
        match (self.trust, self.conversation) {
            // Codex's own list may contain a directory whose files have changed, also for
            // a resumed thread, or one to which a planted `.git` leads Codex.
            (Some(trust), conversation)
                if trust.trust == Trust::Untrusted
                    && (conversation == Conversation::New
                        || needs_no_default
                        || is_misled
                        || trust.changes.is_some()) =>
            {
                let configured =
                    |key: &str| get(config, key).is_some() || self.config.get(key).is_some();
                let names_sandbox = match is_misled {
                    // A release that does not know permissions would use a wider default.
                    true => configured(SANDBOX_MODE),
                    false => ConfiguredSandbox::of(config, self.config).is_some(),
                };
                if !names_sandbox {
                    sandbox.get_or_insert(SandboxMode::ReadOnly);
                }
                if !configured("approval_policy") {
                    approval_policy.get_or_insert(ApprovalPolicy::OnRequest);
                }
                set_trust_level(config, trust);
            }
            (Some(trust), _) if trust.trust == Trust::Trusted => set_trust_level(config, trust),
            _ => {}
        }
    }

    /// Gives commands the user's whole PATH, of which Codex's process gets only a part. A PATH that
    /// the user has configured for commands takes precedence.
    fn restore_path(&self, config: &mut Map<String, Value>, path: String) {
        let configured = |config: &Map<String, Value>, key: &str| {
            let key = format!("{ENVIRONMENT}.{key}");
            get(config, &key).or_else(|| self.config.get(&key)).cloned()
        };
        let is_path = |name: &Value| {
            let name = name.as_str();
            name.is_some_and(|name| name.eq_ignore_ascii_case(PATH))
        };
        let is_excluded = match configured(config, EXCLUDED) {
            Some(Value::Array(excluded)) => excluded.iter().any(is_path),
            _ => false,
        };
        let inherits_nothing = configured(config, "inherit") == Some("none".into());
        if !is_excluded && !inherits_nothing && configured(config, "set.PATH").is_none() {
            set(config, &[ENVIRONMENT, "set", PATH], path.into());
        }
    }

    /// Adds the variables that we set for commands to the user's list of allowed
    /// variables, if there is one.
    fn keep_included(&self, config: &mut Map<String, Value>) {
        let path = [ENVIRONMENT, "include_only"];
        let key = path.join(".");
        let listed = get(config, &key).or_else(|| self.config.get(&key)).cloned();
        let Some(Value::Array(mut listed)) = listed else {
            return;
        };
        for name in ["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", MARK] {
            if get(config, &format!("{ENVIRONMENT}.set.{name}")).is_some() {
                listed.push(name.into());
            }
        }
        set(config, &path, listed.into());
    }

    /// Hides the variable [`NO_GIT`] from commands.
    fn exclude_no_git(&self, config: &mut Map<String, Value>) {
        let path = [ENVIRONMENT, EXCLUDED];
        let key = path.join(".");
        let excluded = get(config, &key).or_else(|| self.config.get(&key)).cloned();
        let mut excluded = match excluded {
            Some(Value::Array(excluded)) => excluded,
            _ => Vec::new(),
        };
        excluded.push(NO_GIT.0.into());
        self.keep_included(config);
        set(config, &path, excluded.into());
        if self
            .release
            .is_some_and(|release| release < FIRST_WITH_CLEAN_SNAPSHOTS)
        {
            set(config, &["features", "shell_snapshot"], false.into());
        }
    }
}

/// A warning for the user about files for Codex that are not used because the user does
/// not trust the repository.
pub fn left_out(trust: &DirectoryTrust) -> Option<String> {
    if trust.trust == Trust::Trusted {
        return None;
    }
    if let Some(changes) = &trust.changes {
        return Some(changes.to_string());
    }
    let within = trust
        .directory
        .ancestors()
        .take_while(|above| above.starts_with(&trust.top));
    let files: Vec<PathBuf> = within
        .flat_map(|above| CODEX_FILES.map(|name| above.join(name)))
        .filter(|path| path.symlink_metadata().is_ok())
        .collect();
    let first = files.first()?;
    let more = match files.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let top = trust.top.display();
    Some(format!(
        "{}{more} is not used, because you do not trust {top}. If you do, run \
         `codex-mcp trust {}`.",
        first.display(),
        shell_word(&trust.top)
    ))
}

fn set_trust_level(config: &mut Map<String, Value>, trust: &DirectoryTrust) {
    if trust.codex_paths.is_empty() {
        return;
    }
    let level = match trust.trust {
        Trust::Trusted => "trusted",
        Trust::Untrusted => "untrusted",
    };
    let projects: Map<String, Value> = trust
        .codex_paths
        .iter()
        .filter_map(|path| Some((path.to_str()?.to_owned(), json!({ "trust_level": level }))))
        .collect();
    config.insert(PROJECTS.to_owned(), projects.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use codex_config::layers::UserConfig;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn trust(trust: Trust) -> DirectoryTrust {
        DirectoryTrust {
            trust,
            top: "/repo".into(),
            directory: "/repo/sub".into(),
            codex_paths: vec!["/repo".into(), "/repo/sub".into()],
            changes: None,
        }
    }

    struct Confined {
        sandbox: Option<SandboxMode>,
        policy: Option<ApprovalPolicy>,
        config: Value,
    }

    /// Confines a call with these overrides, for a user with this `config.toml`.
    fn confined(user: &str, config: Value, level: Option<Trust>, release: Release) -> Confined {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), user).unwrap();
        let trust = level.map(trust);
        let mut config = object(config);
        let (mut sandbox, mut policy) = (None, None);
        let place = ThreadContext {
            conversation: Conversation::New,
            config: &UserConfig::read(home.path()).layers(None, trust.as_ref()),
            release: Some(release),
            trust: trust.as_ref(),
        };
        place.confine(RequestedSettings {
            sandbox: &mut sandbox,
            approval_policy: &mut policy,
            config: &mut config,
        });
        without_path(&mut config);
        Confined {
            sandbox,
            policy,
            config: Value::Object(config),
        }
    }

    /// Removes PATH: on a test machine it may name directories that Codex's commands can
    /// write to.
    fn without_path(config: &mut Map<String, Value>) {
        config.remove("shell_environment_policy.set.PATH");
        if let Some(Value::Object(policy)) = config.get_mut("shell_environment_policy") {
            policy.remove("set");
        }
    }

    const NEW: Release = Release::new(0, 169, 0);

    /// Overrides as they are changed for a user whose Codex has this server and another one.
    fn without_delegation(overrides: Value) -> Value {
        let user = "[mcp_servers.ours]\ncommand = \"codex-mcp\"\nargs = [\"serve\"]\n\
                    [mcp_servers.docs]\ncommand = \"docs\"\n";
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), user).unwrap();
        let place = ThreadContext {
            conversation: Conversation::New,
            config: &UserConfig::read(home.path()).layers(None, None),
            release: Some(NEW),
            trust: None,
        };
        let mut overrides = object(overrides);
        place.without_delegation(&mut overrides);
        overrides.into()
    }

    #[test]
    fn delegating_servers_are_disabled() {
        let off = json!({ "mcp_servers.ours.enabled": false });
        assert_eq!(without_delegation(json!({})), off);
        let off = json!({ "enabled": false });
        assert_eq!(
            without_delegation(json!({ "mcp_servers": { "more": { "command": "more" } } })),
            json!({ "mcp_servers": { "more": { "command": "more" }, "ours": off } }),
            "nothing stands beside the table"
        );
        assert_eq!(
            without_delegation(json!({ "mcp_servers": {} })),
            json!({ "mcp_servers": { "docs": off, "ours": off } }),
            "no server is asked for"
        );
    }

    #[test]
    fn call_override_for_a_delegating_server_is_kept() {
        for stated in [
            json!({ "mcp_servers.ours.enabled": true }),
            json!({ "mcp_servers": { "ours": { "enabled": true } } }),
            json!({ "mcp_servers.ours": { "command": "another", "args": [] } }),
            json!({ "mcp_servers.mine": { "command": "codex-mcp" }, "mcp_servers.ours.enabled": false }),
        ] {
            assert_eq!(without_delegation(stated.clone()), stated);
        }
    }

    #[test]
    fn untrusted_directory_gets_the_usual_defaults_and_the_level() {
        let configured = confined("", json!({}), Some(Trust::Untrusted), NEW);
        assert_eq!(configured.sandbox, Some(SandboxMode::ReadOnly));
        assert_eq!(configured.policy, Some(ApprovalPolicy::OnRequest));
        let level = json!({ "trust_level": "untrusted" });
        assert_eq!(
            configured.config,
            json!({
                "projects": { "/repo": level, "/repo/sub": level },
                "shell_environment_policy.exclude": ["GIT_DIR"],
            })
        );
    }

    #[test]
    fn defaults_of_the_user_stay_in_force() {
        let user = "sandbox_mode = \"workspace-write\"\napproval_policy = \"never\"\n";
        let configured = confined(user, json!({}), Some(Trust::Untrusted), NEW);
        assert_eq!((configured.sandbox, configured.policy), (None, None));
        let configured = confined(
            "default_permissions = \":workspace\"",
            json!({ "approval_policy": "never" }),
            Some(Trust::Untrusted),
            NEW,
        );
        assert_eq!((configured.sandbox, configured.policy), (None, None));
        let configured = confined("", json!({}), Some(Trust::Trusted), NEW);
        assert_eq!((configured.sandbox, configured.policy), (None, None));
        assert_eq!(
            configured.config["projects"]["/repo"]["trust_level"],
            "trusted"
        );
        let configured = confined("", json!({}), None, NEW);
        assert_eq!((configured.sandbox, configured.policy), (None, None));
        assert_eq!(configured.config.get("projects"), None);
    }

    #[test]
    fn level_is_stated_for_a_resumed_thread_that_takes_no_default() {
        let home = tempfile::tempdir().unwrap();
        let untrusted = trust(Trust::Untrusted);
        let place = ThreadContext {
            conversation: Conversation::Resumed,
            config: &UserConfig::read(home.path()).layers(None, Some(&untrusted)),
            release: Some(NEW),
            trust: Some(&untrusted),
        };
        let stated = |mut sandbox, config: Value| {
            let mut config = object(config);
            place.state_trust(&mut RequestedSettings {
                sandbox: &mut sandbox,
                approval_policy: &mut Some(ApprovalPolicy::Never),
                config: &mut config,
            });
            config.contains_key(PROJECTS)
        };
        let mode = json!({ SANDBOX_MODE: "read-only" });
        assert!(stated(None, mode));
        assert!(stated(Some(SandboxMode::ReadOnly), json!({})));
        assert!(!stated(None, json!({ DEFAULT_PERMISSIONS: ":read-only" })));
        assert!(!stated(None, json!({})));
    }

    /// Permissions are unknown to 0.104.0, whose default is wider in an untrusted directory.
    #[test]
    fn level_is_stated_to_old_releases_for_each_resumed_thread() {
        let home = tempfile::tempdir().unwrap();
        let untrusted = trust(Trust::Untrusted);
        for (release, expected) in [
            (Release::new(0, 104, 0), Some(SandboxMode::ReadOnly)),
            (Release::new(0, 129, 0), Some(SandboxMode::ReadOnly)),
            (Release::new(0, 130, 0), None),
        ] {
            let place = ThreadContext {
                conversation: Conversation::Resumed,
                config: &UserConfig::read(home.path()).layers(None, Some(&untrusted)),
                release: Some(release),
                trust: Some(&untrusted),
            };
            for overrides in [json!({}), json!({ DEFAULT_PERMISSIONS: ":read-only" })] {
                let mut config = object(overrides);
                let (mut sandbox, mut policy) = (None, None);
                place.state_trust(&mut RequestedSettings {
                    sandbox: &mut sandbox,
                    approval_policy: &mut policy,
                    config: &mut config,
                });
                assert_eq!(sandbox, expected, "{release:?}");
                assert_eq!(policy.is_some(), expected.is_some(), "{release:?}");
                assert_eq!(config.contains_key(PROJECTS), expected.is_some());
            }
        }
    }

    #[test]
    fn trust_claimed_by_the_caller_is_ignored() {
        let claimed = json!({
            "projects": { "/repo": { "trust_level": "trusted" } },
            "projects./repo.trust_level": "trusted",
            "model": "m",
        });
        let configured = confined("", claimed, Some(Trust::Untrusted), NEW);
        let keys: Vec<&String> = configured.config.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            ["model", "projects", "shell_environment_policy.exclude"]
        );
        assert_eq!(
            configured.config["projects"]["/repo"]["trust_level"],
            "untrusted"
        );
    }

    #[test]
    fn excluded_variables_of_the_user_and_the_caller_stay_excluded() {
        let user = "[shell_environment_policy]\nexclude = [\"A_*\"]\n";
        let configured = confined(user, json!({}), None, NEW);
        let dotted = "shell_environment_policy.exclude";
        assert_eq!(configured.config[dotted], json!(["A_*", "GIT_DIR"]));
        let nested = json!({ "shell_environment_policy": { "exclude": ["B"], "inherit": "core" } });
        let configured = confined(user, nested, None, NEW);
        assert_eq!(
            configured.config,
            json!({ "shell_environment_policy": { "exclude": ["B", "GIT_DIR"], "inherit": "core" } })
        );
        let configured = confined("", json!({ dotted: ["C"] }), None, Release::new(0, 153, 4));
        assert_eq!(
            configured.config,
            json!({ dotted: ["C", "GIT_DIR"], "features.shell_snapshot": false })
        );
    }
}
