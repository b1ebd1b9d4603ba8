//! What `codex-mcp setup` shows.

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use common::output::{self, Output};
use common::text::visible;
use serde_json::{Value, json};
use similar::TextDiff;

use super::Done;
use super::apply::Applied;
use super::change::{Action, Change};
use crate::doctor::as_text;

const HEADING: Style = Style::new().bold();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();

/// The lines of context round a change.
const CONTEXT: usize = 3;

/// Shows what is to change.
pub(super) fn changes(changes: &[Change]) -> io::Result<()> {
    let mut out = output::stdout();
    for change in changes {
        let path = change.path.display().to_string();
        out.styled(HEADING, change.client.title())?;
        writeln!(out, ": {}", words(change))?;
        if change.is_to_write() {
            writeln!(out, "  {}", visible(&path))?;
            diff(&mut out, change)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn words(change: &Change) -> String {
    match (&change.action, change.is_to_write()) {
        (Action::Broken(error), _) => format!("not changed: {error}"),
        (Action::Set { plan }, false) => format!("is set up already, as `{}`", plan.name),
        (Action::Set { plan }, true) => match plan.replaces {
            Some(kind) => format!("`{}` is {kind} now, and becomes codex-mcp", plan.name),
            None if change.has_entry(&plan.name) => {
                format!("`{}` is brought up to date", plan.name)
            }
            None => format!("codex-mcp is added as `{}`", plan.name),
        },
        (
            Action::Remove {
                names,
                after,
                is_exact,
            },
            _,
        ) => {
            let names = names.join("`, `");
            match (after, is_exact) {
                (None, _) => format!("`{names}` is removed, and the file, which was made for it"),
                (Some(_), true) => format!("`{names}` is removed; the file is as it was before"),
                (Some(_), false) => format!(
                    "`{names}` is removed; the file was edited since it was added, and the rest stays"
                ),
            }
        }
    }
}

fn diff(out: &mut Output<impl Write>, change: &Change) -> io::Result<()> {
    for line in diff_text(change).lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => ADDED,
            Some(b'-') => REMOVED,
            _ => Style::new(),
        };
        write!(out, "  ")?;
        out.styled(style, visible(line))?;
        writeln!(out)?;
    }
    Ok(())
}

/// The change as a unified diff without the names of the files.
fn diff_text(change: &Change) -> String {
    let after = change.after().unwrap_or_default();
    let diff = TextDiff::from_lines(change.before(), after);
    diff.unified_diff().context_radius(CONTEXT).to_string()
}

/// Shows what was done, and what to do next.
pub(super) fn outcome(done: &Done, agreed: bool, is_removal: bool) -> io::Result<()> {
    let mut out = output::stdout();
    for applied in &done.applied {
        let title = applied.change.client.title();
        match (&applied.error, applied.backup.as_deref()) {
            (Some(error), _) => writeln!(out, "{title}: {}", visible(error))?,
            (None, Some(backup)) if agreed => {
                writeln!(
                    out,
                    "{title}: done; the file from before is {}",
                    shown(backup)
                )?;
            }
            (None, _) if agreed && applied.change.is_to_write() => writeln!(out, "{title}: done")?,
            (None, _) => {}
        }
        if let Some(note) = &applied.note {
            writeln!(
                out,
                "  its own command failed, so the file was edited: {}",
                visible(note)
            )?;
        }
    }
    match &done.check {
        None => {}
        Some(Ok(tools)) => writeln!(out, "`codex-mcp serve` answers, with {tools} tools.")?,
        Some(Err(error)) => writeln!(
            out,
            "`codex-mcp serve` does not answer: {}\nRun `codex-mcp doctor`.",
            visible(error)
        )?,
    }
    if !agreed {
        return writeln!(out, "Nothing was written.");
    }
    if let Some(report) = &done.report {
        writeln!(out)?;
        as_text(&report.only_failures(), &mut out)?;
    }
    match is_removal {
        true if done.applied.is_empty() => {
            writeln!(out, "No client has codex-mcp in its configuration.")
        }
        true => writeln!(out, "Restart the clients that run."),
        false => writeln!(
            out,
            "\nRestart the clients that run, then ask one of them:\n  \
             Have Codex explain in three sentences what this repository does."
        ),
    }
}

fn shown(path: &Path) -> String {
    visible(&path.display().to_string()).into_owned()
}

/// Prints what was done for programs.
pub(super) fn json(done: &Done, agreed: bool) -> io::Result<()> {
    let changes: Vec<Value> = done.applied.iter().map(as_json).collect();
    let check = match &done.check {
        None => Value::Null,
        Some(Ok(tools)) => json!({ "tools": tools }),
        Some(Err(error)) => json!({ "error": error }),
    };
    let mut object = json!({
        "changes": changes,
        "written": agreed,
        "check": check,
        "doctor": done.report,
    });
    drop_nulls(&mut object);
    output::json(&object)
}

fn as_json(applied: &Applied) -> Value {
    let change = &applied.change;
    let (action, name, replaces) = match (&change.action, change.is_to_write()) {
        (Action::Broken(_), _) => ("none", None, None),
        (Action::Set { plan }, false) => ("none", Some(plan.name.as_str()), None),
        (Action::Set { plan }, true) => {
            let action = match (plan.replaces, change.has_entry(&plan.name)) {
                (Some(_), _) => "replace",
                (None, true) => "update",
                (None, false) => "add",
            };
            (action, Some(plan.name.as_str()), plan.replaces)
        }
        (
            Action::Remove {
                names, is_exact, ..
            },
            _,
        ) => {
            let action = match is_exact {
                true => "restore",
                false => "remove",
            };
            (action, names.first().map(String::as_str), None)
        }
    };
    let diff = change.is_to_write().then(|| diff_text(change));
    let mut object = json!({
        "client": change.client.as_ref(),
        "file": change.path,
        "action": action,
        "name": name,
        "replaces": replaces.map(|kind| kind.to_string()),
        "diff": diff,
        "backup": applied.backup,
        "error": applied.error,
    });
    drop_nulls(&mut object);
    object
}

fn drop_nulls(object: &mut Value) {
    if let Value::Object(members) = object {
        members.retain(|_, value| !value.is_null());
    }
}
