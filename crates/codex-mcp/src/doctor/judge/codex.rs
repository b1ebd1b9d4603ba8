//! The program, its version, commands, app-server and sandbox.

use std::time::Duration;

use codex_engine::binary::{CodexBinary, NoCodex};
use codex_engine::is_known;
use codex_protocol::codex::Release;
use serde_json::json;
use supervise::exit::Exit;

use super::super::facts::{Codex, CommandOutcome, Commands, Home, InitializeOutcome};
use super::super::report::{Check, Finding};
use super::words::{one_line, what_happened};

/// The command that installs Codex.
pub(crate) const INSTALL: &str = "npm install -g @openai/codex";

/// The ways to name a Codex.
const NAME_IT: &str = "--codex-bin, CODEX_MCP_CODEX_BIN or `codex_bin` in `[plugins.codex-mcp]` of your configuration (~/.config/atm/config.toml, or below ATM_HOME)";

pub(super) fn none(error: &NoCodex) -> Finding {
    let hint = match error {
        NoCodex::NotOnPath => {
            format!("Install Codex with `{INSTALL}`, or say where it is with {NAME_IT}.")
        }
        NoCodex::NotExecutable { from, .. } | NoCodex::NoSuchName { from, .. } => {
            format!("Correct the path in {from}, or take it out to use the `codex` on PATH.")
        }
    };
    Finding::problem(Check::Codex, error.to_string(), hint)
}

pub(super) fn binary(binary: &CodexBinary) -> Finding {
    let chosen = format!("{} (from {})", binary.chosen.display(), binary.source);
    let message = if binary.native == binary.chosen {
        chosen
    } else {
        format!("{chosen}, runs {}", binary.native.display())
    };
    Finding::ok(Check::Codex, message).with_value(json!({
        "chosen": binary.chosen.to_string_lossy(),
        "native": binary.native.to_string_lossy(),
        "source": binary.source.to_string(),
    }))
}

/// The version text of a program, if it is Codex, and the release if the text is one.
pub(in super::super) fn codex_version(outcome: &CommandOutcome) -> Option<(&str, Option<Release>)> {
    match outcome {
        CommandOutcome::Ended(finished) => Release::announced(&finished.stdout),
        CommandOutcome::TimedOut(_) | CommandOutcome::Failed(_) => None,
    }
}

pub(super) fn version(codex: &Codex) -> Finding {
    let Some((version, release)) = codex_version(&codex.version) else {
        return no_codex(codex);
    };
    let finding = match release {
        Some(release) if release < Release::OLDEST_TESTED => Finding::warning(
            Check::Version,
            format!("{version}, older than any that codex-mcp is tested with"),
            format!(
                "Update to {} or newer: `{INSTALL}`.",
                Release::OLDEST_TESTED
            ),
        ),
        Some(release) => match waits_for_tools(release) {
            Some(who) => Finding::note(
                Check::Version,
                format!(
                    "{version}; in a thread of codex-mcp, where it calls request_image or a tool of \
                     the team's, {who}"
                ),
            ),
            None => Finding::ok(Check::Version, version),
        },
        None => Finding::ok(
            Check::Version,
            format!("{version}, built from source; taken for the newest"),
        ),
    };
    finding.with_value(version)
}

/// The problem of a release that waits at calls of tools that only codex-mcp can answer.
fn waits_for_tools(release: Release) -> Option<&'static str> {
    if release < Release::FIRST_EXEC_WITH_DYNAMIC_TOOLS {
        Some(
            "plain `codex resume` waits until Esc is pressed, and `codex exec resume` until Ctrl-C",
        )
    } else if release < Release::FIRST_TUI_WITH_DYNAMIC_TOOLS {
        Some("plain `codex resume` waits until Esc is pressed")
    } else {
        None
    }
}

fn no_codex(codex: &Codex) -> Finding {
    let path = codex.binary.native.display();
    let message = match &codex.version {
        CommandOutcome::Ended(finished) if finished.succeeded() => {
            format!("{path} is not Codex: `--version` did not print a Codex version")
        }
        outcome => format!("`{path} --version` {}", what_happened(outcome)),
    };
    let hint = format!("Install Codex with `{INSTALL}`, or name another one with {NAME_IT}.");
    Finding::problem(Check::Version, message, hint)
}

/// Whether a command exists, if that is known.
fn exists(outcome: &CommandOutcome) -> Option<bool> {
    match outcome {
        CommandOutcome::Ended(finished) => is_known(finished.exit),
        CommandOutcome::TimedOut(_) | CommandOutcome::Failed(_) => None,
    }
}

pub(super) fn commands(commands: &Commands) -> Finding {
    let app_server = exists(&commands.app_server);
    let all = [
        ("app-server", app_server),
        ("exec", exists(&commands.exec)),
        ("mcp-server", exists(&commands.mcp_server)),
    ];
    let message = commands_in_words(&all);
    let update = format!("Update Codex: `{INSTALL}`.");
    let finding = match app_server {
        Some(false) => Finding::problem(Check::Commands, message, update),
        Some(true) => Finding::ok(Check::Commands, message),
        None => Finding::note(Check::Commands, message),
    };
    let value: serde_json::Map<_, _> = all
        .into_iter()
        .map(|(name, exists)| (name.to_owned(), json!(exists)))
        .collect();
    finding.with_value(value)
}

fn commands_in_words(all: &[(&str, Option<bool>)]) -> String {
    let of = |wanted: Option<bool>| {
        let fitting = all.iter().filter(|(_, exists)| *exists == wanted);
        fitting.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let parts = [
        ("has", of(Some(true))),
        ("lacks", of(Some(false))),
        ("cannot tell about", of(None)),
    ];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let words: Vec<String> = parts
        .map(|(word, names)| format!("{word} {}", names.join(", ")))
        .collect();
    let mut words = words.join("; ");
    if of(Some(false)) == ["mcp-server"] {
        words.push_str(" (gone since Codex 0.154, not needed by codex-mcp)");
    }
    words
}

/// `command` runs this Codex at a shell.
pub(super) fn app_server(introduction: &InitializeOutcome, home: &Home, command: &str) -> Finding {
    let message = match introduction {
        InitializeOutcome::Answered(after) => return answered(*after),
        InitializeOutcome::TimedOut(after) => silent(*after),
        InitializeOutcome::Failed(reason) => one_line(reason),
    };
    let hint = if home.is_fit() {
        format!(
            "See what `{command} app-server` says at a shell; if nothing helps, install Codex \
             anew with `{INSTALL}`."
        )
    } else {
        "Solve the problem of codex-home first.".to_owned()
    };
    Finding::problem(Check::AppServer, message, hint)
}

fn answered(after: Duration) -> Finding {
    let milliseconds = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    Finding::ok(
        Check::AppServer,
        format!("answers, after {milliseconds} ms"),
    )
    .with_value(json!({ "milliseconds": milliseconds }))
}

fn silent(after: Duration) -> String {
    format!(
        "Codex did not answer `initialize` within {} s",
        after.as_secs()
    )
}

pub(super) fn sandbox(outcome: &CommandOutcome, config_refused: Option<&str>) -> Finding {
    match outcome {
        CommandOutcome::Ended(finished) if finished.succeeded() => {
            Finding::ok(Check::Sandbox, "a command runs in it")
        }
        _ if config_refused.is_some() => {
            Finding::not_checked(Check::Sandbox, "Codex cannot load its configuration")
        }
        CommandOutcome::Ended(finished) if finished.exit == Exit::Code(2) => Finding::not_checked(
            Check::Sandbox,
            "this Codex has no command that tries its sandbox",
        ),
        outcome => Finding::warning(
            Check::Sandbox,
            format!("`true`, run in it, {}", what_happened(outcome)),
            SANDBOX_HINT,
        ),
    }
}

/// Source: <https://developers.openai.com/codex/concepts/sandboxing>, which
/// Codex itself refers to where it finds no bubblewrap.
const SANDBOX_HINT: &str = "On Linux install bubblewrap and see that the system allows \
    unprivileged user namespaces. In a container that is sandbox enough, ask for \
    `sandbox: danger-full-access`. More: https://developers.openai.com/codex/concepts/sandboxing";
