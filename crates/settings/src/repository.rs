//! Finds the repository's `.atm.toml`, and narrows it unless the user trusts the repository.
//!
//! An untrusted file may lower the sandbox and the approval policy, choose a role that
//! the user has defined, and switch tools and summaries off. All its other settings are
//! ignored, with one warning.

use std::fs;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agent_team::logic::RoleName;
use codex_config::layers::{CodexConfig, UserConfig};
use codex_config::trust::covered_files::shown;
use codex_config::trust::{Trust, TrustChanges, directory_trust_with, top_of};
use codex_protocol::codex::{ApprovalPolicy, SandboxMode};
use common::text::shell_word;
use rustix::process::geteuid;
use safe_files::untrusted_file::{self, Links, ReadError};
use serde::de::DeserializeOwned;

use crate::error::ConfigError;
use crate::file::{
    CORE, Core, File, LeftOut, PRESET_KEYS, Preset, SECTION, SECTION_KEYS, SECTION_PATH, Scope,
    Section,
};
use crate::lookup::{Lookup, in_section};
use crate::policy::PolicyName;
use crate::presets::Presets;
use crate::source::{Setting, Source, Warning};
use crate::threads::ThreadDefaults;

/// The name of the file.
const FILE: &str = ".atm.toml";

/// The longest file that is read, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The most warnings about unknown keys of an untrusted file.
const UNKNOWN_TOLD: usize = 5;

/// Keys that have no effect in a repository's file, even if the user trusts the repository.
pub(super) const NEVER: [&str; 19] = [
    "codex_bin",
    "http",
    "store",
    "worker_concurrency",
    "worker_idle_secs",
    "max_sandbox",
    "allow_commands",
    "allow_dirs",
    "jobs_of_others",
    "notify",
    "notify_on",
    "answer_by_mail",
    "stall_timeout_secs",
    "keep_jobs_secs",
    "keep_tasks_secs",
    "max_audit_bytes",
    "max_log_bytes",
    "prices",
    "currency",
];

/// The reason for which a key of our section has no effect in a repository's file, even if the user
/// trusts the repository.
#[must_use]
pub fn key_without_effect(key: &str) -> Option<&'static str> {
    let is_known = SECTION_KEYS.contains(&key) || PRESET_KEYS.contains(&key);
    match is_known {
        _ if NEVER.contains(&key) => Some("never taken from a repository"),
        true => None,
        false => Some("unknown"),
    }
}

/// A repository's file.
pub(super) enum RepositoryFile {
    /// The user trusts the repository.
    Trusted(File),
    /// The user does not trust the repository: the rest of the file, and its narrowing settings.
    Narrowed(File, Narrowing),
}

/// The settings of an untrusted file that may narrow the user's own.
#[derive(Debug, Default)]
pub(super) struct Narrowing {
    path: PathBuf,
    /// The whole file, as it was parsed.
    document: toml::Table,
    sandbox: Option<SandboxMode>,
    approval_policy: Option<ApprovalPolicy>,
    left_out: Vec<&'static str>,
    /// The changes to the repository that have ended the user's trust, if the user trusted it
    /// before.
    changes: Option<TrustChanges>,
}

impl Lookup<'_> {
    /// The nearest usable file, from the working directory up to the top of the repository. That of
    /// a trusted repository is read without the keys `left_out` of our section.
    pub(super) fn repository_file(
        &self,
        codex_home: &Path,
        user: Option<&File>,
        left_out: &[LeftOut],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<RepositoryFile>, ConfigError> {
        let Ok(here) = self.here.canonicalize() else {
            return Ok(None);
        };
        let asked = || directory_trust_with(&here, &UserConfig::read(codex_home), self.variables);
        let top = top_of(&here);
        let within = |above: &&Path| above.starts_with(&top);
        for directory in here.ancestors().take_while(within) {
            let path = directory.join(FILE);
            match read(&path) {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let asked = asked()?;
                    return match asked.trust {
                        Trust::Trusted => {
                            File::parse(&path, &text, Scope::Repository, left_out, warnings)
                                .map(|file| Some(RepositoryFile::Trusted(file)))
                        }
                        Trust::Untrusted => {
                            Ok(narrowed(&path, &text, user, asked.changes, warnings))
                        }
                    };
                }
                Err(warning) => warnings.push(warning),
            }
        }
        Ok(None)
    }
}

/// Reads a file if it exists, and refuses one that somebody else can have written.
fn read(path: &Path) -> Result<Option<String>, Warning> {
    let text = match untrusted_file::read_text(path, LONGEST, Links::Refused) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(ReadError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Ok(None);
        }
        Err(error) => {
            return Err(Warning {
                message: format!("settings are not read: {error}"),
                hint: "Fix or remove the file.".to_owned(),
            });
        }
    };
    match belongs_to_user(path) {
        true => Ok(Some(text)),
        false => Err(Warning {
            message: format!(
                "{} is not read: it belongs to somebody else, or others can write it",
                path.display()
            ),
            hint: "If its settings are yours, make it your own (chown) and run `chmod go-w`."
                .to_owned(),
        }),
    }
}

/// Whether the user or the administrator owns a file, and nobody else can write it. A group whose
/// number is that of the user counts as the user's private group.
fn belongs_to_user(path: &Path) -> bool {
    let user = geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|about| {
        let owned = about.uid() == user || about.uid() == 0;
        let group_can_write = about.mode() & 0o020 != 0 && about.gid() != user;
        owned && about.mode() & 0o002 == 0 && !group_can_write
    })
}

/// The parts of an untrusted file that may apply.
fn narrowed(
    path: &Path,
    text: &str,
    user: Option<&File>,
    changes: Option<TrustChanges>,
    warnings: &mut Vec<Warning>,
) -> Option<RepositoryFile> {
    let mut unknown = Vec::new();
    let mut file = match File::parse(path, text, Scope::Repository, &[], &mut unknown) {
        Ok(file) => {
            // A stranger may have written the file, and the model sees the warnings too.
            unknown.truncate(UNKNOWN_TOLD);
            warnings.append(&mut unknown);
            file
        }
        Err(error) => {
            // Only the place: the reason can quote the file.
            let place = match error {
                ConfigError::Malformed { error, .. } => format!(" at {}", error.place()),
                _ => String::new(),
            };
            warnings.push(Warning {
                message: format!("{} is not read: it is malformed{place}", path.display()),
                hint: "Fix or remove the file.".to_owned(),
            });
            return None;
        }
    };
    let document: toml::Table = toml::from_str(text).unwrap_or_default();
    let mut left_out = Vec::new();
    let knows = |role: &RoleName| user.is_some_and(|user| user.section.roles.contains_key(role));
    file.core = without_core(&file.core, &mut left_out);
    file.section = narrowed_section(file.section, knows);
    left_out.extend(ignored_keys(&document, &file.section));
    let Preset {
        sandbox,
        approval_policy,
        ..
    } = mem::take(&mut file.preset);
    let narrowing = Narrowing {
        path: path.to_owned(),
        document,
        sandbox,
        approval_policy,
        left_out,
        changes,
    };
    Some(RepositoryFile::Narrowed(file, narrowing))
}

fn without_core(core: &Core, left_out: &mut Vec<&'static str>) -> Core {
    let Core {
        identity,
        default_team,
    } = core;
    left_out.extend(identity.as_ref().map(|_| "[core] identity"));
    left_out.extend(default_team.as_ref().map(|_| "[core] default_team"));
    Core::default()
}

/// The settings of our section that apply: a role that the user has defined, and switches that are
/// off.
fn narrowed_section(section: Section, knows: impl FnOnce(&RoleName) -> bool) -> Section {
    let off = |switch: Option<bool>| switch.filter(|on| !on);
    Section {
        role: section.role.filter(knows),
        team_tools: off(section.team_tools),
        summaries: off(section.summaries),
        request_image: off(section.request_image),
        ..Section::default()
    }
}

/// The keys of our section in a file that are not in the narrowed section.
fn ignored_keys(document: &toml::Table, narrowed: &Section) -> Vec<&'static str> {
    let Some(set) = table(document, &SECTION_PATH) else {
        return Vec::new();
    };
    let is_kept = |key: &str| match key {
        "role" => narrowed.role.is_some(),
        "team_tools" => narrowed.team_tools.is_some(),
        "summaries" => narrowed.summaries.is_some(),
        "request_image" => narrowed.request_image.is_some(),
        // `Narrowing::narrow` compares them with the user's own.
        "sandbox" | "approval_policy" => true,
        _ => false,
    };
    let keys = SECTION_KEYS.into_iter().chain(PRESET_KEYS);
    keys.filter(|key| set.contains_key(*key) && !is_kept(key))
        .collect()
}

/// The table at a path of tables.
fn table<'a>(document: &'a toml::Table, path: &[&str]) -> Option<&'a toml::Table> {
    path.iter()
        .try_fold(document, |table, name| table.get(*name)?.as_table())
}

/// The user's own settings, which a repository can only narrow.
struct UserLimits {
    sandbox: UserValue<SandboxMode>,
    approval_policy: UserValue<ApprovalPolicy>,
}

/// A setting of the user.
#[derive(Debug)]
enum UserValue<T> {
    /// The user has not set it: only the narrowest value is allowed.
    Unset,
    Set(Setting<T>),
    /// The user has set something else, such as a profile of permissions, to which values cannot be
    /// compared: none is allowed.
    Other,
}

impl Narrowing {
    /// Lowers the settings of new threads, and returns a warning about ignored settings. `role` is
    /// the role that a flag or a variable names.
    pub(super) fn narrow(
        mut self,
        threads: &mut ThreadDefaults,
        files: &[File],
        role: Option<&Setting<RoleName>>,
        codex_home: &Path,
        user_file: &Path,
    ) -> Result<Option<Warning>, ConfigError> {
        let allowed = allowed(files, role, codex_home)?;
        let source = Source::File(SECTION, self.path.clone());
        let sandbox = self.sandbox.map(|mode| Setting::new(mode, source.clone()));
        let policy = self.approval_policy;
        let policy = policy.map(|policy| Setting::new(policy, source));
        let (sandbox, without_sandbox) =
            adjusted(threads.sandbox.take(), sandbox, &allowed.sandbox);
        let (policy, without_policy) = adjusted(
            threads.approval_policy.take(),
            policy,
            &allowed.approval_policy,
        );
        threads.sandbox = sandbox;
        threads.approval_policy = policy;
        self.left_out.extend(without_sandbox.then_some("sandbox"));
        self.left_out
            .extend(without_policy.then_some("approval_policy"));
        Ok(self.warning(user_file))
    }

    fn warning(&self, user_file: &Path) -> Option<Warning> {
        if let Some(changes) = &self.changes {
            return Some(Warning {
                message: changes.message(),
                hint: changes.hint(),
            });
        }
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let (never, on_trust): (Vec<_>, Vec<_>) =
            self.left_out.iter().partition(|key| NEVER.contains(key));
        let list = |keys: &[&str]| {
            let keys = keys.iter().map(|key| self.shown(key));
            keys.collect::<Vec<_>>().join(", ")
        };
        let mut parts = Vec::new();
        let mut hints = Vec::new();
        if !on_trust.is_empty() {
            parts.push(format!("left out: {}", list(&on_trust)));
            hints.push(format!(
                "To use that, read the file and then run `codex-mcp trust {}`.",
                shell_word(directory)
            ));
        }
        if !never.is_empty() {
            parts.push(format!("never taken from a repository: {}", list(&never)));
            let file = user_file.display();
            hints.push(format!("Set what is never taken in {file} if you want it."));
        }
        (!parts.is_empty()).then(|| Warning {
            message: format!(
                "{} is not trusted, so its .atm.toml can only make your settings stricter; {}",
                directory.display(),
                parts.join("; ")
            ),
            hint: hints.join(" "),
        })
    }

    /// A key with its value in the file, for a warning.
    fn shown(&self, key: &str) -> String {
        let (path, name) = match key.strip_prefix("[core] ") {
            Some(name) => ([CORE].as_slice(), name),
            None => (SECTION_PATH.as_slice(), key),
        };
        let value = table(&self.document, path).and_then(|table| table.get(name));
        match value {
            Some(value) => shown(key, value),
            None => key.to_owned(),
        }
    }
}

/// A value that may be narrowed.
trait Narrowable: Copy + PartialEq {
    /// The narrowest value.
    const NARROWEST: Self;

    /// Whether `self` allows nothing that `own` does not allow.
    fn is_within(self, own: Self) -> bool;
}

impl Narrowable for SandboxMode {
    const NARROWEST: Self = Self::ReadOnly;

    fn is_within(self, own: Self) -> bool {
        let width = |mode| match mode {
            Self::ReadOnly => 0,
            Self::WorkspaceWrite => 1,
            Self::DangerFullAccess => 2,
        };
        width(self) <= width(own)
    }
}

impl Narrowable for ApprovalPolicy {
    const NARROWEST: Self = Self::Untrusted;

    /// Only `never` is within `never`: under every other policy, Codex asks for commands that leave
    /// the sandbox, and an approval permits them.
    fn is_within(self, own: Self) -> bool {
        self == own || (self == Self::Untrusted && own != Self::Never)
    }
}

impl<T: Narrowable> UserValue<T> {
    fn allows(&self, setting: &Setting<T>) -> bool {
        match self {
            Self::Unset => setting.value.is_within(T::NARROWEST),
            Self::Set(own) => setting.value.is_within(own.value),
            Self::Other => false,
        }
    }

    /// The setting that replaces one that is too wide.
    fn replacement(&self) -> Option<Setting<T>> {
        match self {
            Self::Unset => Some(Setting::new(T::NARROWEST, Source::Default)),
            Self::Set(own) => Some(own.clone()),
            Self::Other => None,
        }
    }
}

/// The adjusted setting, and whether a value of the repository is ignored. `wanted` is the
/// repository's own value; `set` may come from the role that the repository has chosen, and may
/// then be wider than the user's own value. A variable or a flag of the user takes precedence.
fn adjusted<T: Narrowable>(
    set: Option<Setting<T>>,
    wanted: Option<Setting<T>>,
    own: &UserValue<T>,
) -> (Option<Setting<T>>, bool) {
    let too_wide = wanted.as_ref().is_some_and(|wanted| !own.allows(wanted));
    let wanted = wanted.filter(|wanted| own.allows(wanted));
    let Some(set) = set else {
        return (wanted, too_wide);
    };
    if matches!(set.source, Source::Variable(_) | Source::Flag(_)) {
        return (Some(set), too_wide);
    }
    let is_allowed = own.allows(&set);
    let now = match is_allowed {
        true => Some(set),
        false => own.replacement(),
    };
    let now_value = now.as_ref().map(|now| now.value);
    let is_narrower =
        |wanted: T| now_value.is_some_and(|now| wanted != now && wanted.is_within(now));
    let narrower = wanted.filter(|wanted| is_narrower(wanted.value));
    (narrower.or(now), too_wide || !is_allowed)
}

/// The settings that the user has made without the repository: in the user's file, or else in
/// Codex's configuration.
fn allowed(
    files: &[File],
    role: Option<&Setting<RoleName>>,
    codex_home: &Path,
) -> Result<UserLimits, ConfigError> {
    let belongs_to_user = |file: &&File| file.scope == Scope::User;
    let user: Vec<File> = files.iter().filter(belongs_to_user).cloned().collect();
    let role = role.cloned();
    let role = role.or_else(|| in_section(&user, |file| file.section.role.clone()));
    let presets = Presets::of(&user, role.as_ref())?;
    let sandbox = presets.first(|preset| preset.sandbox);
    let policy = presets.first(|preset| preset.approval_policy);
    let codex = UserConfig::read(codex_home).layers(None, None);
    let approval_policy = match policy {
        Some(set) => UserValue::Set(set),
        None => own(&codex, "approval_policy", PolicyName::today),
    };
    let has_permissions = codex.get("default_permissions").is_some();
    let sandbox = match (sandbox, &approval_policy) {
        (Some(set), _) => UserValue::Set(set),
        (None, UserValue::Other) => UserValue::Other,
        (None, _) if has_permissions => UserValue::Other,
        (None, _) => own(&codex, "sandbox_mode", |mode: SandboxMode| mode),
    };
    Ok(UserLimits {
        sandbox,
        approval_policy,
    })
}

/// The user's setting in Codex's configuration.
fn own<N: DeserializeOwned, T>(codex: &CodexConfig, key: &str, value: fn(N) -> T) -> UserValue<T> {
    match (codex.get(key), codex.value_of(key)) {
        (None, _) => UserValue::Unset,
        (Some(_), Some(named)) => UserValue::Set(Setting::new(value(named), Source::Codex)),
        (Some(_), None) => UserValue::Other,
    }
}
