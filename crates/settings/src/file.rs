//! Parses a file with settings: `.atm.toml` in a repository, or the user's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_team::logic::{AgentName, RoleName, TeamName};
use codex_engine::logic::session::AlertKind;
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use common::duration::SetDuration;
use common::nearest::nearest;
use common::text::one_line;
use common::toml_error::{self, TomlError};
use safe_files::untrusted_file::{self, Links};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::error::ConfigError;
use crate::key::IDENTITY;
use crate::listen_address::ListenAddress;
use crate::policy;
use crate::source::Warning;
use crate::store_access::OthersJobs;
use crate::store_location::Location;
use crate::strict::{self, Table};

/// The table of our settings.
pub(super) const SECTION: &str = "plugins.codex-mcp";

/// The same, key by key.
pub(super) const SECTION_PATH: [&str; 2] = ["plugins", "codex-mcp"];

/// The table of the `atm` program.
pub(super) const CORE: &str = "core";

/// The limit of the user's file, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The party to which a file belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Repository,
    User,
}

/// A parsed file with settings.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) scope: Scope,
    pub(super) core: Core,
    pub(super) section: Section,
    /// The settings of our section that a role can set too.
    pub(super) preset: Preset,
}

/// A key of our section that is left out in one of the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) file: PathBuf,
    pub(super) key: &'static str,
}

/// The settings of `[core]` that this program uses.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Core {
    pub(super) identity: Option<AgentName>,
    pub(super) default_team: Option<TeamName>,
}

/// The settings of our section that a role cannot set.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Section {
    #[serde(deserialize_with = "strict::text")]
    pub(super) codex_bin: Option<PathBuf>,
    pub(super) request_timeout_secs: Option<SetDuration>,
    pub(super) identity: Option<AgentName>,
    pub(super) team: Option<TeamName>,
    pub(super) role: Option<RoleName>,
    pub(super) team_tools: Option<bool>,
    pub(super) summaries: Option<bool>,
    pub(super) registry_journal: Option<bool>,
    pub(super) host: Option<bool>,
    pub(super) http: Option<ListenAddress>,
    pub(super) request_image: Option<bool>,
    pub(super) max_image_bytes: Option<u64>,
    pub(super) store: Option<Location>,
    pub(super) worker_concurrency: Option<u32>,
    pub(super) worker_idle_secs: Option<SetDuration>,
    pub(super) max_sandbox: Option<SandboxMode>,
    pub(super) allow_commands: Option<bool>,
    pub(super) allow_dirs: Option<Vec<PathBuf>>,
    pub(super) jobs_of_others: Option<OthersJobs>,
    /// Parsed only when it is looked up: an error about the file would quote the address of a
    /// webhook, which is secret.
    pub(super) notify: Option<Vec<String>>,
    pub(super) notify_on: Option<Vec<AlertKind>>,
    pub(super) answer_by_mail: Option<bool>,
    pub(super) stall_timeout_secs: Option<SetDuration>,
    pub(super) keep_jobs_secs: Option<SetDuration>,
    pub(super) keep_tasks_secs: Option<SetDuration>,
    pub(super) max_audit_bytes: Option<u64>,
    pub(super) max_log_bytes: Option<u64>,
    /// Checked only when they are looked up: those of a repository do not count.
    #[serde(deserialize_with = "price_tables")]
    pub(super) prices: Option<BTreeMap<String, SetPrice>>,
    pub(super) currency: Option<String>,
    #[serde(deserialize_with = "strict::tables")]
    pub(super) roles: BTreeMap<RoleName, Preset>,
}

fn price_tables<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, SetPrice>>, D::Error> {
    strict::tables(from).map(Some)
}

/// The prices of a model, each for one million tokens.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SetPrice {
    pub(super) input: Option<f64>,
    pub(super) cached_input: Option<f64>,
    pub(super) output: Option<f64>,
}

/// The settings of new threads, unless a call sets others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Preset {
    #[serde(deserialize_with = "strict::text")]
    pub(super) model: Option<String>,
    pub(super) reasoning_effort: Option<Effort>,
    pub(super) sandbox: Option<SandboxMode>,
    #[serde(deserialize_with = "policy::by_any_name")]
    pub(super) approval_policy: Option<ApprovalPolicy>,
    #[serde(deserialize_with = "strict::text")]
    pub(super) base_prompt_file: Option<PathBuf>,
    #[serde(deserialize_with = "strict::text")]
    pub(super) extra_instructions_file: Option<PathBuf>,
}

/// The keys of [`Section`].
pub(super) const SECTION_KEYS: [&str; 30] = [
    "codex_bin",
    "request_timeout_secs",
    "identity",
    "team",
    "role",
    "team_tools",
    "summaries",
    "registry_journal",
    "host",
    "http",
    "request_image",
    "max_image_bytes",
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
    "roles",
];

/// Those that are tables.
const TABLES: [&str; 2] = ["prices", "roles"];

/// The keys of [`SetPrice`].
const PRICE_KEYS: [&str; 3] = ["input", "cached_input", "output"];

/// The keys of [`Preset`].
pub(super) const PRESET_KEYS: [&str; 6] = [
    "model",
    "reasoning_effort",
    "sandbox",
    "approval_policy",
    "base_prompt_file",
    "extra_instructions_file",
];

/// The least similarity, from 0 to 1, of a table's name to ours for a warning. It is high because
/// other programs have tables too.
const TABLES_ALIKE: f64 = 0.8;

/// The limit of an unknown name in a warning or an error, in bytes.
pub(super) const NAME_SHOWN: usize = 60;

/// The most keys that a warning lists.
const KEYS_SHOWN: usize = 6;

/// A whole file, with our section parsed as `T`.
#[derive(Deserialize)]
struct Document<T> {
    #[serde(default)]
    core: Table<Core>,
    #[serde(default)]
    plugins: Table<Plugins<T>>,
}

#[derive(Default, Deserialize)]
struct Plugins<T> {
    #[serde(default, rename = "codex-mcp")]
    codex_mcp: Table<T>,
}

impl File {
    /// Reads the user's file, if it exists, without the keys `left_out` of our section.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is malformed.
    pub(super) fn of_user(
        path: &Path,
        left_out: &[LeftOut],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Self>, ConfigError> {
        match untrusted_file::read_text(path, LONGEST, Links::Followed) {
            Ok(text) => Self::parse(path, &text, Scope::User, left_out, warnings).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Parses the text of a file, without the keys `left_out` of our section. An unknown key there
    /// becomes a warning.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text is malformed.
    pub(super) fn parse(
        path: &Path,
        text: &str,
        scope: Scope,
        left_out: &[LeftOut],
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, ConfigError> {
        let (core, section): (_, Section) = parse(path, text, left_out)?;
        let (_, preset): (_, Preset) = parse(path, text, left_out)?;
        let (_, plain): (_, toml::Table) = parse(path, text, left_out)?;
        warn_of_unknown_keys(path, &plain, warnings);
        let whole: toml::Table = toml::from_str(text).unwrap_or_default();
        warn_of_mistyped_tables(path, &whole, warnings);
        warn_of_settings_outside(path, &whole, warnings);
        warn_of_dropped_policies(path, &plain, warnings);
        Ok(Self {
            path: path.to_owned(),
            scope,
            core,
            section,
            preset,
        })
    }

    /// Resolves the path of a program that the file names: a relative path with directories starts
    /// at the file's directory, and a bare name is kept.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        match self.path.parent() {
            Some(directory) if path.is_relative() && path.components().count() > 1 => {
                directory.join(path)
            }
            _ => path.to_owned(),
        }
    }
}

/// Parses `[core]`, and our section as `T`.
fn parse<T: DeserializeOwned + Default>(
    path: &Path,
    text: &str,
    left_out: &[LeftOut],
) -> Result<(Core, T), ConfigError> {
    let of_this_file = left_out.iter().filter(|one| one.file == path);
    let keys: Vec<&str> = of_this_file.map(|one| one.key).collect();
    let parsed: Result<Document<T>, TomlError> =
        toml_error::parse_without(text, &SECTION_PATH, &keys);
    let Document {
        core: Table(core),
        plugins: Table(Plugins {
            codex_mcp: Table(section),
        }),
    } = parsed.map_err(|error| ConfigError::Malformed {
        path: path.to_owned(),
        error: with_model(error),
    })?;
    Ok((core, section))
}

/// The error; that of prices without the name of a model says that it is missing.
fn with_model(mut error: TomlError) -> TomlError {
    let keys = error.keys.as_deref();
    let key = keys.and_then(|keys| keys.strip_prefix(SECTION)?.strip_prefix(".prices."));
    if let Some(key) = key.filter(|key| PRICE_KEYS.contains(key)) {
        error.message = format!(
            "`{key}`: prices need the name of their model, as in [{SECTION}.prices.\"MODEL\"]"
        );
    }
    error
}

fn warn_of_unknown_keys(path: &Path, section: &toml::Table, warnings: &mut Vec<Warning>) {
    let all: Vec<&str> = SECTION_KEYS.into_iter().chain(PRESET_KEYS).collect();
    let mut warn = |table: &str, keys: &toml::Table, known: &[&str]| {
        for key in keys.keys().filter(|key| !known.contains(&key.as_str())) {
            let (table, shown) = (one_line(table, NAME_SHOWN), one_line(key, NAME_SHOWN));
            warnings.push(Warning {
                message: format!("{}: [{table}] has no key `{shown}`", path.display()),
                hint: match (of_a_run(key), nearest(key, known)) {
                    (Some(ours), _) => {
                        format!("It is {ours}. Criteria are no settings: give them to a run.")
                    }
                    (None, Some(near)) => format!("Did you mean `{near}`?"),
                    (None, None) if known.len() <= KEYS_SHOWN => {
                        format!("The keys are {}.", known.join(", "))
                    }
                    (None, None) => "`codex-mcp config` lists the keys.".to_owned(),
                },
            });
        }
    };
    warn(SECTION, section, &all);
    let tables = [
        ("roles", PRESET_KEYS.as_slice()),
        ("prices", PRICE_KEYS.as_slice()),
    ];
    for (tables, known) in tables {
        let named = section.get(tables).and_then(toml::Value::as_table);
        for (name, table) in named.into_iter().flatten() {
            if let Some(table) = table.as_table() {
                warn(&format!("{SECTION}.{tables}.{name}"), table, known);
            }
        }
    }
}

/// Warns about a policy that Codex no longer has, in the section or in a role.
fn warn_of_dropped_policies(path: &Path, section: &toml::Table, warnings: &mut Vec<Warning>) {
    let roles = section.get("roles").and_then(toml::Value::as_table);
    let roles = roles.into_iter().flatten();
    let roles = roles.filter_map(|(_, role)| role.as_table());
    let policies = std::iter::once(section).chain(roles);
    let mut policies = policies.filter_map(|table| table.get("approval_policy")?.as_str());
    if policies.any(|name| name == policy::DROPPED) {
        warnings.push(Warning {
            message: format!("{}: {}", path.display(), policy::REPLACED),
            hint: "Set approval_policy to on-request.".to_owned(),
        });
    }
}

/// The setting of a run that replaces a key of earlier programs; `None` for any other key.
fn of_a_run(key: &str) -> Option<&'static str> {
    let key = key.trim_start_matches(':').trim_end_matches('?');
    match key.replace('-', "_").as_str() {
        "exit_criteria" => {
            Some("`exit_criteria` of the tool codex_run, and --until of `codex-mcp run`")
        }
        "pr_opened" | "pr" => Some("`pr` in `exit_criteria`, and `codex-mcp run --until pr`"),
        _ => None,
    }
}

/// Warns about tables whose names resemble ours. Other tables belong to other programs.
fn warn_of_mistyped_tables(path: &Path, whole: &toml::Table, warnings: &mut Vec<Warning>) {
    let [outer, inner] = SECTION_PATH;
    let plugins = whole.get(outer).and_then(toml::Value::as_table);
    let below = plugins.into_iter().flat_map(toml::Table::keys);
    let below = below.map(|key| (format!("{outer}.{key}"), key, inner, inner));
    let above = whole.keys().map(|key| (key.clone(), key, outer, outer));
    let alone = whole.keys().map(|key| (key.clone(), key, inner, SECTION));
    for (table, key, known, meant) in below.chain(above).chain(alone) {
        let is_ours = table == outer || table == SECTION;
        if !is_ours && strsim::normalized_levenshtein(key, known) >= TABLES_ALIKE {
            let table = one_line(&table, NAME_SHOWN);
            warnings.push(Warning {
                message: format!("{}: nobody reads [{table}]", path.display()),
                hint: format!("Did you mean `{meant}`?"),
            });
        }
    }
}

/// Warns about settings that stand at the top of the file, in `[plugins]` or in `[core]` instead of
/// in our section. Other keys there, and tables in the two, belong to other programs.
fn warn_of_settings_outside(path: &Path, whole: &toml::Table, warnings: &mut Vec<Warning>) {
    let [plugins, _] = SECTION_PATH;
    let in_table = |name: &'static str| Some((Some(name), whole.get(name)?.as_table()?));
    let places = [Some((None, whole)), in_table(plugins), in_table(CORE)];
    for (table, keys) in places.into_iter().flatten() {
        let is_read = |key: &str| table == Some(CORE) && key == IDENTITY.name;
        for key in SECTION_KEYS.into_iter().chain(PRESET_KEYS) {
            let Some(value) = keys.get(key).filter(|_| !is_read(key)) else {
                continue;
            };
            let hint = match value.is_table() {
                true if table.is_none() && TABLES.contains(&key) => {
                    format!("Rename its tables to `[{SECTION}.{key}.NAME]`.")
                }
                true => continue,
                false => "Put it below that line; add the line if there is none.".to_owned(),
            };
            let of_table = table.map_or_else(String::new, |table| format!(" of `[{table}]`"));
            warnings.push(Warning {
                message: format!(
                    "{}: `{key}`{of_table} stands outside of `[{SECTION}]`, and is not read",
                    path.display()
                ),
                hint,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(File, Vec<Warning>), ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".atm.toml");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Vec::new();
        let file = File::of_user(&path, &[], &mut warnings)?;
        Ok((file.unwrap(), warnings))
    }

    #[test]
    fn settings_of_other_programs_are_ignored() {
        let text = "[core]\nidentity = \"a\"\nmade_up = 1\n[plugins.other]\nx = 1\n\
                    [plugins.codex-mcp]\ncodex_bin = \"c\"\nmodel = \"m\"\n";
        let (file, warnings) = read(text).unwrap();
        assert_eq!(file.section.codex_bin, Some("c".into()));
        assert_eq!(file.preset.model.as_deref(), Some("m"));
        assert_eq!(warnings, []);
    }

    #[test]
    fn mistyped_key_is_reported_with_the_nearest_one() {
        let text = "[plugins.codex-mcp]\nsandbx = \"read-only\"\nxyz = 1\n\
                    [plugins.codex-mcp.roles.r]\nmodle = \"m\"\nidentity = \"i\"\n\
                    [plugins.codex-mcp.prices.m]\ninput = 1\noutptu = 1\n";
        let (_, warnings) = read(text).unwrap();
        let told: Vec<(&str, &str)> = warnings
            .iter()
            .map(|warning| {
                let (_, what) = warning.message.split_once(".atm.toml: ").unwrap();
                (what, warning.hint.as_str())
            })
            .collect();
        assert_eq!(
            told[0],
            (
                "[plugins.codex-mcp] has no key `sandbx`",
                "Did you mean `sandbox`?"
            )
        );
        assert_eq!(told[1].0, "[plugins.codex-mcp] has no key `xyz`");
        assert_eq!(told[1].1, "`codex-mcp config` lists the keys.");
        // A role cannot set the identity.
        assert_eq!(
            told[2].0,
            "[plugins.codex-mcp.roles.r] has no key `identity`"
        );
        assert_eq!(
            told[3],
            (
                "[plugins.codex-mcp.roles.r] has no key `modle`",
                "Did you mean `model`?"
            )
        );
        assert_eq!(
            told[4],
            (
                "[plugins.codex-mcp.prices.m] has no key `outptu`",
                "Did you mean `output`?"
            )
        );
    }

    #[test]
    fn key_of_a_run_is_reported_with_its_place() {
        let text =
            "[plugins.codex-mcp]\n\"pr-opened?\" = true\n[plugins.codex-mcp.exit-criteria]\n";
        let (_, warnings) = read(text).unwrap();
        let hints: Vec<&str> = warnings.iter().map(|one| one.hint.as_str()).collect();
        assert_eq!(hints.len(), 2);
        assert!(
            hints.iter().any(|hint| hint.contains("--until pr`")),
            "{hints:?}"
        );
        assert!(
            hints.iter().any(|hint| hint.contains("`exit_criteria` of")),
            "{hints:?}"
        );
    }

    #[test]
    fn mistyped_table_is_reported() {
        for (table, meant) in [
            ("plugins.codex_mcp", "codex-mcp"),
            ("plugin.codex-mcp", "plugins"),
            ("codex-mcp", "plugins.codex-mcp"),
            ("codex_mcp", "plugins.codex-mcp"),
        ] {
            let (_, warnings) = read(&format!("[{table}]\nmodel = \"m\"\n")).unwrap();
            assert_eq!(warnings.len(), 1, "{table}");
            assert!(warnings[0].hint.contains(meant));
        }
        let (_, warnings) = read("[plugins.gh-monitor]\nx = 1\n[core]\n").unwrap();
        assert_eq!(warnings, []);
    }

    #[test]
    fn setting_in_the_table_of_another_program_is_reported() {
        let text = "[plugins]\nmax_sandbox = \"read-only\"\n[plugins.host]\nx = 1\n\
                    [plugins.prices.m]\ninput = 1\n\
                    [core]\nidentity = \"a\"\ndefault_team = \"t\"\nteam = \"t\"\nother = 1\n";
        let (_, warnings) = read(text).unwrap();
        let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let [of_plugins, of_core] = told.as_slice() else {
            panic!("{told:?}");
        };
        let outside = "stands outside of `[plugins.codex-mcp]`, and is not read. Put it below";
        for (warning, setting) in [
            (of_plugins, "`max_sandbox` of `[plugins]`"),
            (of_core, "`team` of `[core]`"),
        ] {
            let words = format!("{setting} {outside}");
            assert!(warning.contains(&words), "{warning}");
        }
    }

    #[test]
    fn setting_outside_of_its_table_is_reported() {
        let text = "notify = [\"desktop\"]\nsandbox = \"read-only\"\nother = 1\n\
                    [roles.reviewer]\nsandbox = \"read-only\"\n[host]\nx = 1\n\
                    [plugins.codex-mcp]\nmodel = \"m\"\n";
        let (file, warnings) = read(text).unwrap();
        assert_eq!(file.preset.sandbox, None);
        let told = warnings.iter().map(|warning| {
            let told = warning.to_string();
            told.split_once(".atm.toml: ").unwrap().1.to_owned()
        });
        let outside = "stands outside of `[plugins.codex-mcp]`, and is not read.";
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                format!(
                    "`notify` {outside} Put it below that line; add the line if there is none."
                ),
                format!("`roles` {outside} Rename its tables to `[plugins.codex-mcp.roles.NAME]`."),
                format!(
                    "`sandbox` {outside} Put it below that line; add the line if there is none."
                ),
            ]
        );
    }

    #[test]
    fn malformed_file_is_an_error_with_its_position() {
        for (text, place) in [
            ("[plugins.codex-mcp]\ncodex_bin = 7\n", "line 2, column 13"),
            (
                "[plugins.codex-mcp]\nsandbox = \"none\"\n",
                "line 2, column 11",
            ),
            (
                "[plugins.codex-mcp]\nidentity = \"../x\"\n",
                "line 2, column 12",
            ),
            ("[core]\nidentity = 5\n", "line 2, column 12"),
            ("[plugins.codex-mcp.roles.\"a/b\"]\n", "line 1"),
            ("[plugins\n", "line 1"),
            (
                "[[plugins.codex-mcp]]\nmodel = \"m\"\n",
                "`plugins.codex-mcp`: it must be a table, with one pair of brackets",
            ),
            ("plugins = []\n", "`plugins`: it must be a table"),
            ("core = [\"me\"]\n", "`core`: it must be a table"),
            (
                "[[plugins.codex-mcp.roles.r]]\nmodel = \"m\"\n",
                "`plugins.codex-mcp.roles.r`: it must be a table",
            ),
            (
                "[plugins.codex-mcp.prices]\ninput = 1\n",
                "line 2, column 9: `input`: prices need the name of their model",
            ),
            (
                "[plugins.codex-mcp]\nprices.m = [1, 2, 3]\n",
                "it must be a table",
            ),
            (
                "[plugins.codex-mcp]\nmodel = \" \"\n",
                "line 2, column 9: `model`: it must not be empty",
            ),
            (
                "[plugins.codex-mcp]\ncodex_bin = \"\"\n",
                "`codex_bin`: it must not be empty",
            ),
            (
                "[plugins.codex-mcp.roles.r]\nbase_prompt_file = \"\"\n",
                "`base_prompt_file`: it must not be empty",
            ),
            (
                "[plugins.codex-mcp]\nstore = \"mysql://me:sesame@db/jobs\"\n",
                "line 2, column 9",
            ),
            (
                "[plugins.codex-mcp]\nnotify = \"webhook:https://hooks.example/sesame\"\n",
                "line 2",
            ),
            (
                "[plugins.codex-mcp]\nnotify_on = [\"webhook:https://hooks.example/sesame\"]\n",
                "line 2",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    /// Each listed key is parsed: a value of the wrong type is refused.
    #[test]
    fn every_listed_key_is_parsed() {
        for key in SECTION_KEYS.into_iter().chain(PRESET_KEYS) {
            let text = format!("[plugins.codex-mcp]\n{key} = 1.5\n");
            assert!(read(&text).is_err(), "{key}");
        }
        for key in PRESET_KEYS {
            let text = format!("[plugins.codex-mcp.roles.r]\n{key} = 1.5\n");
            assert!(read(&text).is_err(), "{key}");
        }
    }
}
