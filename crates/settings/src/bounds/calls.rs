//! The bounds of a call: its directory, its sandbox and its overrides of Codex's
//! configuration.

use std::path::Path;

use codex_config::layers::UserConfig;
use codex_engine::command::{Overrides, Settings};
use codex_protocol::codex::ApprovalPolicy;
use serde_json::{Map, Value};

use super::Bounds;
use super::error::OutOfBounds;
use super::sandbox::{NETWORK, WORKSPACE, sandbox_in, sandbox_mode};

/// Keys of Codex's `config.toml` that a call may set even where there is a bound. They choose the
/// model, its effort and its instructions.
const HARMLESS: [&str; 20] = [
    "compact_prompt",
    "developer_instructions",
    "hide_agent_reasoning",
    "instructions",
    "model",
    "model_auto_compact_token_limit",
    "model_context_window",
    "model_max_output_tokens",
    "model_provider",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_supports_reasoning_summaries",
    "model_verbosity",
    "personality",
    "plan_mode_reasoning_effort",
    "project_doc_max_bytes",
    "review_model",
    "service_tier",
    "show_raw_agent_reasoning",
    "tool_output_token_limit",
];

/// The keys of the writable sandbox that a call may set in addition to its network.
const ROOTS: &str = "writable_roots";
const EXCLUSIONS: [&str; 2] = ["exclude_slash_tmp", "exclude_tmpdir_env_var"];

/// The key of the approval policy.
const APPROVAL_POLICY: &str = "approval_policy";

impl Bounds {
    /// Bounds the settings of a new thread, in its own directory or else in `base`. Afterwards, the
    /// settings name the resolved directory and a sandbox if these are bounded.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the settings exceed a bound.
    pub fn bound(&self, settings: &mut Settings) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let thread = &mut settings.thread;
        self.check_config(&thread.config)?;
        let cwd = self
            .base
            .join(thread.cwd.as_deref().unwrap_or(Path::new("")));
        if self.directories.is_some() {
            thread.cwd = Some(self.directory(&cwd)?);
        }
        let said = thread.sandbox.or_else(|| sandbox_mode(&thread.config));
        thread.sandbox = self.sandbox(said, settings.profile.as_ref(), &cwd)?;
        Ok(())
    }

    /// The settings of a call, with the defaults that `under` adds. The call's own settings are
    /// refused if they are out of bounds; the defaults are narrowed instead.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the call's own settings exceed a bound.
    pub fn bound_over(
        &self,
        given: Settings,
        under: impl FnOnce(Settings) -> Settings,
    ) -> Result<Settings, OutOfBounds> {
        self.check_asked(&given)?;
        self.bound_laid(under(given))
    }

    /// Refuses a sandbox of a call that is out of bounds.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`].
    pub fn check_asked(&self, given: &Settings) -> Result<(), OutOfBounds> {
        match given.thread.sandbox {
            Some(asked) => self.check_sandbox(asked),
            None => Ok(()),
        }
    }

    /// Narrows settings to which the defaults have been added.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if settings that cannot be narrowed exceed a bound.
    pub fn bound_laid(&self, mut settings: Settings) -> Result<Settings, OutOfBounds> {
        let sandbox = &mut settings.thread.sandbox;
        *sandbox = sandbox.map(|mode| self.narrowed(mode));
        self.bound(&mut settings)?;
        Ok(settings)
    }

    /// Bounds the settings with which a thread is resumed; `known` are the thread's earlier
    /// settings.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the settings exceed a bound.
    pub fn bound_resumed(
        &self,
        settings: &mut Settings,
        known: Option<&Settings>,
    ) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let known = known.map(|known| &known.thread);
        let cwd = settings.thread.cwd.clone();
        let cwd = cwd.or_else(|| known?.cwd.clone());
        if cwd.is_none() {
            self.check_unknown_directory()?;
        }
        let before = known.and_then(|known| known.sandbox);
        let before = before.map(|mode| self.narrowed(mode));
        let named = settings.thread.cwd.clone();
        settings.thread.cwd = cwd;
        settings.thread.sandbox = settings.thread.sandbox.or(before);
        self.bound(settings)?;
        // Permissions in the configuration apply only to new threads; Codex gives this thread its
        // earlier ones.
        if let (None, None, Some(by)) =
            (known, settings.thread.sandbox, self.sandbox_escape_bound())
        {
            return Err(OutOfBounds::UnknownSandbox(by));
        }
        if self.directories.is_none() {
            settings.thread.cwd = named;
        }
        Ok(())
    }

    /// Bounds the overrides that come with a prompt, and that apply to its session from then on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if the overrides exceed a bound.
    pub fn bound_overrides(&self, overrides: &mut Overrides) -> Result<(), OutOfBounds> {
        if let (Some(cwd), true) = (&overrides.cwd, self.directories.is_some()) {
            overrides.cwd = Some(self.directory(&self.base.join(cwd))?);
        }
        match overrides.sandbox {
            Some(asked) => self.check_sandbox(asked),
            None => Ok(()),
        }
    }

    /// Checks overrides of Codex's configuration, with plain or dotted keys.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Config`], [`OutOfBounds::Sandbox`], [`OutOfBounds::Directory`],
    /// [`OutOfBounds::Network`], [`OutOfBounds::ApprovalPolicy`].
    pub fn check_config(&self, config: &Map<String, Value>) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let refused = |key: &str| self.refused_key(key);
        for (key, value) in config {
            match key.as_str() {
                "sandbox_mode" => {
                    let asked = sandbox_in(Some(value)).ok_or_else(|| refused(key))?;
                    self.check_sandbox(asked)?;
                }
                APPROVAL_POLICY => self.check_approval_policy(value)?,
                WORKSPACE => {
                    let table = value.as_object().ok_or_else(|| refused(key))?;
                    for (key, value) in table {
                        self.check_workspace(key, value)?;
                    }
                }
                plain if HARMLESS.contains(&plain) => {}
                dotted => match dotted.strip_prefix(WORKSPACE) {
                    Some(rest) if rest.starts_with('.') => {
                        let rest = rest.trim_start_matches('.');
                        self.check_workspace(rest, value)?;
                    }
                    _ => return Err(refused(key)),
                },
            }
        }
        Ok(())
    }

    /// The refusal of a key of Codex's configuration.
    pub fn refused_key(&self, key: &str) -> OutOfBounds {
        OutOfBounds::Config {
            key: key.to_owned(),
            by: self.in_force(),
        }
    }

    fn check_workspace(&self, key: &str, value: &Value) -> Result<(), OutOfBounds> {
        let refused = || self.refused_key(&format!("{WORKSPACE}.{key}"));
        // Any call may narrow the sandbox.
        match (key, value) {
            (NETWORK, Value::Bool(false)) => return Ok(()),
            (NETWORK, Value::Bool(true)) => {
                return self.check_network("network_access or network", || self.in_force());
            }
            (key, Value::Bool(true)) if EXCLUSIONS.contains(&key) => return Ok(()),
            _ => {}
        }
        let roots = value.as_array().filter(|_| key == ROOTS);
        for root in roots.ok_or_else(refused)? {
            let path = root.as_str().map(Path::new);
            let path = path.filter(|path| path.is_absolute());
            let path = path.ok_or_else(refused)?;
            match &self.directories {
                Some(_) => drop(self.directory(path)?),
                None => return Err(refused()),
            }
        }
        Ok(())
    }

    /// Refuses a policy that is wider than the user's own: it would let Codex's commands do more
    /// without a question, or leave the sandbox after one. `untrusted` is never wider, unless the
    /// user's policy is `never`.
    fn check_approval_policy(&self, value: &Value) -> Result<(), OutOfBounds> {
        let config = UserConfig::read(&self.codex_home).layers(None, None);
        let own = self
            .approval_policy
            .or_else(|| config.value_of(APPROVAL_POLICY));
        let mut allowed: Vec<_> = own.into_iter().collect();
        if !matches!(own, Some(ApprovalPolicy::Never | ApprovalPolicy::Untrusted)) {
            allowed.push(ApprovalPolicy::Untrusted);
        }
        let asked: Option<ApprovalPolicy> = serde_json::from_value(value.clone()).ok();
        match asked.is_some_and(|asked| allowed.contains(&asked)) {
            true => Ok(()),
            false => Err(OutOfBounds::ApprovalPolicy {
                allowed,
                by: self.in_force(),
            }),
        }
    }
}
