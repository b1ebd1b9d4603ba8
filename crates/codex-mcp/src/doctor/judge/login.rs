//! The login at the model provider, and the usage limits.

use std::time::SystemTime;

use codex_engine::logic::usage_limits::{as_json, in_words, used_up_until};
use codex_protocol::codex::RateLimits;
use common::timestamp::minute;

use super::super::facts::{CommandOutcome, Home};
use super::super::report::{Check, Finding};
use super::super::settings::Credential;
use super::config_refused;
use super::words::{one_line, what_happened};
use codex_engine::LimitsUnknown;
use supervise::short_lived::TextOutput;

/// `command` runs this Codex at a shell.
pub(in super::super) fn login(home: &Home, status: &CommandOutcome, command: &str) -> Finding {
    if config_refused(status).is_some() {
        return Finding::not_checked(Check::Login, "Codex cannot load its configuration");
    }
    match &home.settings.credential {
        Credential::Login => by_status(status, command),
        Credential::Key {
            provider,
            variable,
            instructions,
        } => by_key(provider, variable, instructions.as_deref(), home.key_is_set),
        Credential::Nothing { provider } => Finding::ok(
            Check::Login,
            format!("not needed: provider {provider} takes no OpenAI login"),
        ),
    }
}

fn by_key(provider: &str, variable: &str, instructions: Option<&str>, is_set: bool) -> Finding {
    let takes = format!("provider {provider} takes its key from {variable}");
    if is_set {
        return Finding::ok(Check::Login, format!("{takes}, which is set"));
    }
    let mut hint = format!(
        "Set {variable} where codex-mcp is started, which is usually the `env` of its entry in \
         the MCP client's configuration."
    );
    if let Some(instructions) = instructions {
        hint.push(' ');
        hint.push_str(&one_line(instructions));
    }
    Finding::problem(Check::Login, format!("{takes}, which is not set"), hint)
}

/// Source: `codex login status` of 0.104.0, 0.153.4 and 0.169.0 exits with 0 if
/// there is a login, else with 1 and these words.
fn by_status(status: &CommandOutcome, command: &str) -> Finding {
    match status {
        CommandOutcome::Ended(finished) if finished.succeeded() => {
            Finding::ok(Check::Login, kind_of_login(finished))
        }
        CommandOutcome::Ended(finished)
            if output_lines(finished).any(|line| line == "Not logged in") =>
        {
            Finding::problem(
                Check::Login,
                "not logged in",
                format!(
                    "Run `{command} login`, or with an API key `printenv OPENAI_API_KEY | \
                     {command} login --with-api-key`."
                ),
            )
        }
        other => Finding::warning(
            Check::Login,
            format!("unknown: `{command} login status` {}", what_happened(other)),
            format!("See what `{command} login status` says at a shell."),
        ),
    }
}

/// How much of the account's usage limits is used.
pub(super) fn limits(told: &Result<RateLimits, LimitsUnknown>, now: SystemTime) -> Finding {
    let limits = match told {
        Ok(limits) => limits,
        Err(why) => return Finding::note(Check::Limits, format!("not known: {why}")),
    };
    let words = in_words(limits, now);
    let finding = match used_up_until(limits, now) {
        None => Finding::ok(Check::Limits, words),
        Some(until) => Finding::warning(
            Check::Limits,
            format!("used up: {words}"),
            format!("Wait until {}; jobs wait by themselves.", minute(until)),
        ),
    };
    finding.with_value(as_json(limits, now))
}

fn output_lines(finished: &TextOutput) -> impl Iterator<Item = String> {
    let lines = finished.stdout.lines().chain(finished.stderr.lines());
    lines.map(one_line)
}

/// Codex's output without the part of the key that it shows after a dash, as reports are passed
/// on.
fn kind_of_login(finished: &TextOutput) -> String {
    let words =
        output_lines(finished).find(|line| !line.is_empty() && !line.starts_with("WARNING"));
    let words = words.unwrap_or_else(|| "logged in".to_owned());
    let kind = words.split(" - ").next().unwrap_or_default();
    kind.to_owned()
}
