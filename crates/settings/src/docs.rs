//! The table of settings in docs/.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;
use testkit::docs::{check, code_list, table};

use crate::bound_settings::{ALLOW_COMMANDS, ALLOW_DIRS, MAX_SANDBOX};
use crate::eyes::{MAX_IMAGE_BYTES, REQUEST_IMAGE};
use crate::file::{PRESET_KEYS, SECTION_KEYS};
use crate::flags::Flags;
use crate::jobs::STORE;
use crate::key::{
    APPROVAL_POLICY, CODEX_BIN, EFFORT, HOST, IDENTITY, Key, MODEL, ROLE, SANDBOX, SUMMARIES, TEAM,
    TEAM_TOOLS, TIMEOUT,
};
use crate::lookup::Lookup;
use crate::repository::NEVER;
use crate::show::as_json;

/// The keys that have a flag and a variable.
const KEYS: [Key; 18] = [
    IDENTITY,
    TEAM,
    ROLE,
    CODEX_BIN,
    TIMEOUT,
    MODEL,
    EFFORT,
    SANDBOX,
    APPROVAL_POLICY,
    TEAM_TOOLS,
    SUMMARIES,
    HOST,
    REQUEST_IMAGE,
    MAX_IMAGE_BYTES,
    STORE,
    MAX_SANDBOX,
    ALLOW_COMMANDS,
    ALLOW_DIRS,
];

/// The keys that have a variable and no flag.
const VARIABLES: [(&str, &str); 2] = [
    ("base_prompt_file", "CODEX_MCP_BASE_PROMPT_FILE"),
    (
        "extra_instructions_file",
        "CODEX_MCP_EXTRA_INSTRUCTIONS_FILE",
    ),
];

/// The options of keys that have no variable.
const OPTIONS: [(&str, &str); 2] = [
    ("worker_concurrency", "--concurrency"),
    ("stall_timeout_secs", "--stall-timeout"),
];

/// The keys that a repository may set before the user trusts it, and how.
const NARROWED: [(&str, &str); 6] = [
    ("role", "a role that you have defined"),
    ("sandbox", "narrower only"),
    ("approval_policy", "stricter only"),
    ("team_tools", "`false` only"),
    ("summaries", "`false` only"),
    ("request_image", "`false` only"),
];

/// What each key does.
const MEANINGS: [(&str, &str); 36] = [
    (
        "codex_bin",
        "Which Codex to run: a path, or a name on PATH. Unset: `codex` on PATH. For npm's \
         script, the native program behind it is used.",
    ),
    (
        "request_timeout_secs",
        "How long a call of `codex` and `codex-reply` may take.",
    ),
    (
        "identity",
        "The server's identity in its team. `identity` in `[core]` of the same file counts too.",
    ),
    (
        "team",
        "The server's team. `default_team` in `[core]` of the same file counts too.",
    ),
    ("role", "The role whose preset is used."),
    (
        "team_tools",
        "Whether Codex's threads get the tools for the team's mail.",
    ),
    (
        "summaries",
        "Whether threads are asked for a summary when the server ends.",
    ),
    (
        "host",
        "Whether `serve` works in the background process that all clients share.",
    ),
    (
        "http",
        "The address at which the host process serves the page and MCP over HTTP, such as \
         `127.0.0.1:8377`: [codex-mcp web](web.md) as long as a host runs.",
    ),
    (
        "registry_journal",
        "`true` writes the registry of threads line by line, for very many threads.",
    ),
    (
        "request_image",
        "Whether Codex's threads get the tool `request_image`. With `--backend mcp-server`, \
         only if it is set to `true`.",
    ),
    (
        "max_image_bytes",
        "The largest picture that Codex is shown, from 1 to 100000000 bytes.",
    ),
    (
        "store",
        "Where jobs are kept: a file, or `postgres://USER:PASSWORD@HOST/DATABASE`, [by \
         TLS](jobs.md#postgresql) to another machine.",
    ),
    ("worker_concurrency", "How many jobs a worker runs at once."),
    (
        "worker_idle_secs",
        "How long a worker that was started on demand keeps running without work.",
    ),
    (
        "max_sandbox",
        "The widest sandbox that clients may ask for. Unset: any.",
    ),
    (
        "allow_commands",
        "Whether clients may name programs and servers: criteria (`command`) and notifiers \
         (`command:`, `webhook:`, `ntfy:`, `irc:`).",
    ),
    (
        "allow_dirs",
        "The directories in which clients may have Codex work. The variable separates them with \
         colons; the option can be given several times. Unset: anywhere.",
    ),
    (
        "jobs_of_others",
        "What this machine does with the jobs of others in a shared store: `leave`, `manage` \
         or `run`.",
    ),
    (
        "notify",
        "Who is notified of sessions, and of jobs and runs that name no recipient: a list such as \
         `[\"desktop\", \"ntfy:TOPIC\"]`. `allow_commands = false` disables its programs \
         (`command:`); with `--backend mcp-server`, sessions notify nobody.",
    ),
    (
        "notify_on",
        "The events to notify them of: `asks` (a session waits for an answer), `stalls` and \
         `ends` (a turn has ended).",
    ),
    (
        "answer_by_mail",
        "Whether the agents in `notify` (`mail:`) may [answer \
         questions](team.md#answering-by-mail) of sessions and jobs by a reply.",
    ),
    (
        "stall_timeout_secs",
        "How long a turn or a job must be silent to count as stalled, while no question is open.",
    ),
    (
        "keep_jobs_secs",
        "How long an ended job is kept with its events (a minute or more). The worker removes \
         older jobs that you have submitted.",
    ),
    (
        "keep_tasks_secs",
        "How long the result of an [MCP task](tools.md#tasks) that is not a job is kept (a \
         minute or more).",
    ),
    (
        "max_audit_bytes",
        "The size at which the audit log of an identity is rotated (16384 bytes or more). Five \
         older files are kept.",
    ),
    (
        "max_log_bytes",
        "The size at which the log of a host or a worker is rotated (16384 bytes or more). One \
         older file is kept.",
    ),
    (
        "prices",
        "Tables of the prices of models, see [prices](#prices).",
    ),
    (
        "currency",
        "The currency of the prices, a word of 1 to 8 characters.",
    ),
    (
        "roles",
        "Tables of presets: `[plugins.codex-mcp.roles.NAME]`, see above.",
    ),
    ("model", "The model of new threads, as Codex names it."),
    (
        "reasoning_effort",
        "How hard the model thinks: `none`, `minimal`, `low`, `medium`, `high` or `xhigh`.",
    ),
    (
        "sandbox",
        "How far commands of new threads may reach: `read-only`, `workspace-write` or \
         `danger-full-access`.",
    ),
    (
        "approval_policy",
        "When Codex asks: `untrusted`, `on-request` or `never`.",
    ),
    (
        "base_prompt_file",
        "A file that replaces Codex's own instructions.",
    ),
    (
        "extra_instructions_file",
        "A file that is added before the `developer-instructions` of the call.",
    ),
];

#[test]
fn settings_in_docs_match_the_code() {
    check("configuration.md", [("settings", settings())]);
}

/// Every key, its variable, its option, its default, who may set it, and what it does.
fn settings() -> String {
    let defaults = defaults();
    let rows = SECTION_KEYS.into_iter().chain(PRESET_KEYS).map(|key| {
        let known = KEYS.iter().find(|known| known.name == key);
        let variable = known.map(|known| known.variable).or_else(|| {
            let (_, variable) = VARIABLES.iter().find(|(name, _)| *name == key)?;
            Some(*variable)
        });
        let option = known.map(|known| known.flag).or_else(|| {
            let (_, option) = OPTIONS.iter().find(|(name, _)| *name == key)?;
            Some(*option)
        });
        [
            code_list([key]),
            default(key, &defaults),
            code_list(variable),
            code_list(option),
            by_a_repository(key),
            meaning(key).to_owned(),
        ]
    });
    let head = [
        "key",
        "default",
        "variable",
        "option",
        "repository",
        "meaning",
    ];
    table(head, rows)
}

/// The home directory for which [`defaults`] computes the values; the table shows it as `~`.
const HOME: &str = "/home/me";

/// The default values of the settings.
fn defaults() -> Value {
    let directory = tempfile::tempdir().unwrap();
    let here: &Path = directory.path();
    let variables = |name: &str| match name {
        "HOME" => Some(OsString::from(HOME)),
        // The settings of the user who runs the test must not count.
        "ATM_HOME" => Some(here.into()),
        _ => None,
    };
    let lookup = Lookup {
        here,
        variables: &variables,
    };
    as_json(&lookup.load(Flags::default(), &[]).unwrap())
}

fn default(key: &str, defaults: &Value) -> String {
    match &defaults[key]["value"] {
        Value::Null => String::new(),
        Value::String(text) => code_list([text.replace(HOME, "~").as_str()]),
        other => code_list([other.to_string().as_str()]),
    }
}

/// The condition under which a repository's file may set a key.
fn by_a_repository(key: &str) -> String {
    if NEVER.contains(&key) {
        return "never".to_owned();
    }
    let narrowed = NARROWED.iter().find(|(name, _)| *name == key);
    match narrowed {
        Some((_, how)) => format!("if trusted; else {how}"),
        None => "if trusted".to_owned(),
    }
}

/// What a key does.
fn meaning(key: &str) -> &'static str {
    let found = MEANINGS.iter().find(|(name, _)| *name == key);
    match found {
        Some((_, meaning)) => meaning,
        None => panic!("say in {} what {key} does", file!()),
    }
}

#[test]
fn every_documented_key_exists() {
    let keys: Vec<&str> = SECTION_KEYS.into_iter().chain(PRESET_KEYS).collect();
    for (name, _) in MEANINGS {
        assert!(keys.contains(&name), "{name}");
    }
}

#[test]
fn every_variable_of_a_setting_is_in_the_table() {
    let table = settings();
    for name in crate::variables::KNOWN {
        // The variables of these names are left out: the log's filter, the framing, our marks of
        // processes, and secrets.
        if ![
            "ATTACH_TOKEN",
            "LOG",
            "NTFY_TOKEN",
            "STARTER",
            "STDIO_MODE",
            "TREE",
            "TURN",
        ]
        .contains(&name)
        {
            assert!(table.contains(&format!("`CODEX_MCP_{name}`")), "{name}");
        }
    }
}
