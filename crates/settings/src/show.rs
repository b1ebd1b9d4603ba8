//! Shows the settings, as a table or as JSON.

use std::io::{self, Write};

use agent_team::registry::Mode;
use common::text::visible_line;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::source::{Setting, Source};

/// The gap between two columns.
const GAP: &str = "  ";

/// A setting as it is shown.
struct ShownSetting {
    key: &'static str,
    value: Value,
    source: Source,
}

fn shown<T: Serialize>(key: &'static str, setting: Option<&Setting<T>>) -> ShownSetting {
    match setting {
        Some(Setting { value, source }) => ShownSetting {
            key,
            value: json!(value),
            source: source.clone(),
        },
        None => ShownSetting {
            key,
            value: Value::Null,
            source: Source::Default,
        },
    }
}

fn all(config: &Config) -> Vec<ShownSetting> {
    let threads = &config.threads;
    let timeout = &config.request_timeout;
    let seconds = Setting::new(timeout.value.as_secs(), timeout.source.clone());
    let mode = &config.registry_mode;
    let journal = Setting::new(mode.value == Mode::Journal, mode.source.clone());
    let jobs = &config.jobs;
    let store = Setting::new(jobs.store.value.to_string(), jobs.store.source.clone());
    let idle = Setting::new(jobs.idle.value.as_secs(), jobs.idle.source.clone());
    let kept = &config.retention;
    let keep_jobs = Setting::new(kept.jobs.value.as_secs(), kept.jobs.source.clone());
    let keep_tasks = Setting::new(kept.tasks.value.as_secs(), kept.tasks.source.clone());
    let stall = &config.alerts.stall_timeout;
    let stall = Setting::new(stall.value.as_secs(), stall.source.clone());
    let notify = config.alerts.notify.as_ref().map(|notify| {
        let notifiers = notify.value.iter().map(ToString::to_string);
        Setting::new(notifiers.collect::<Vec<_>>(), notify.source.clone())
    });
    vec![
        shown("identity", Some(&config.identity)),
        shown("team", config.team.as_ref()),
        shown("role", config.role.as_ref()),
        shown("codex_bin", config.codex_bin.as_ref()),
        shown("request_timeout_secs", Some(&seconds)),
        shown("model", threads.model.as_ref()),
        shown("reasoning_effort", threads.reasoning_effort.as_ref()),
        shown("sandbox", threads.sandbox.as_ref()),
        shown("approval_policy", threads.approval_policy.as_ref()),
        shown("base_prompt_file", threads.base_prompt_file.as_ref()),
        shown(
            "extra_instructions_file",
            threads.extra_instructions_file.as_ref(),
        ),
        shown("team_tools", Some(&config.team_tools)),
        shown("request_image", Some(&config.eyes.request_image)),
        shown("max_image_bytes", Some(&config.eyes.max_image_bytes)),
        shown("summaries", Some(&config.summaries)),
        shown("registry_journal", Some(&journal)),
        shown("host", Some(&config.host)),
        shown("http", config.http.as_ref()),
        shown("store", Some(&store)),
        shown("worker_concurrency", Some(&jobs.concurrency)),
        shown("worker_idle_secs", Some(&idle)),
        shown("max_sandbox", config.bounds.max_sandbox.as_ref()),
        shown("allow_commands", Some(&config.bounds.allow_commands)),
        shown("allow_dirs", config.bounds.allow_dirs.as_ref()),
        shown("jobs_of_others", Some(&jobs.others)),
        shown("notify", notify.as_ref()),
        shown("notify_on", Some(&config.alerts.notify_on)),
        shown("answer_by_mail", Some(&config.alerts.answer_by_mail)),
        shown("stall_timeout_secs", Some(&stall)),
        shown("keep_jobs_secs", Some(&keep_jobs)),
        shown("keep_tasks_secs", Some(&keep_tasks)),
        shown("max_audit_bytes", Some(&kept.audit_bytes)),
        shown("max_log_bytes", Some(&kept.log_bytes)),
        shown("prices", config.prices.models.as_ref()),
        shown("currency", Some(&config.prices.currency)),
    ]
}

/// The settings as one JSON object: `{key: {value, source}}`, with a null value if unset.
#[must_use]
pub fn as_json(config: &Config) -> Value {
    let entry = |ShownSetting { key, value, source }| {
        let setting = json!({ "value": value, "source": source });
        (key.to_owned(), setting)
    };
    let object: Map<String, Value> = all(config).into_iter().map(entry).collect();
    Value::Object(object)
}

/// Writes the settings as a table. On a terminal that is `columns` wide, a source that does not fit
/// next to its value is written below it.
///
/// # Errors
///
/// The errors of the writer.
pub fn as_text(config: &Config, columns: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<(&str, String, String)> = all(config)
        .into_iter()
        .map(|ShownSetting { key, value, source }| {
            let value = match value {
                Value::Null => "-".to_owned(),
                Value::String(text) => visible_line(&text).into_owned(),
                other => visible_line(&other.to_string()).into_owned(),
            };
            let source = visible_line(&source.to_string()).into_owned();
            (key, value, source)
        })
        .collect();
    let keys = rows.iter().map(|(key, ..)| key.len()).max();
    let keys = keys.unwrap_or_default();
    let fits = |value: usize, source: &str| {
        let width = keys + value + source.chars().count() + 2 * GAP.len();
        columns.is_none_or(|columns| width <= columns)
    };
    let side_by_side = rows
        .iter()
        .map(|(_, value, source)| (value.chars().count(), source))
        .filter(|(value, source)| fits(*value, source));
    let values = side_by_side.map(|(value, _)| value).max();
    let values = values.unwrap_or_default();
    for (key, value, source) in &rows {
        // Below a value there is room, unless the path of a file is long.
        let indent = match fits(0, source) {
            true => keys,
            false => GAP.len(),
        };
        match fits(values.max(value.chars().count()), source) {
            true => writeln!(out, "{key:keys$}{GAP}{value:values$}{GAP}{source}")?,
            false => writeln!(out, "{key:keys$}{GAP}{value}\n{:indent$}{GAP}{source}", "")?,
        }
    }
    Ok(())
}
