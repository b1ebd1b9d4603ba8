//! The output of `codex-mcp setup`.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use client_setup::logic::clients::Client;
use client_setup::logic::plan::{EntryChange, Plan};
use common::output::{self, Output};
use common::secrets::mask;
use common::text::{visible, visible_line};
use serde_json::{Value, json};
use similar::TextDiff;

use super::apply::Applied;
use super::change::{Action, Change, Removal, Request};
use super::codex::to_log_in;
use super::{CheckedEntry, OtherFile, Outcome};
use crate::doctor::{Report, Status, as_text};

const HEADING: Style = Style::new().bold();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// The lines of context round a change.
const CONTEXT: usize = 3;

/// How long the lines of a file are compared before a coarser difference is shown.
const DIFF_TIME: Duration = Duration::from_secs(1);

/// The longest line of a diff that is shown, in bytes: some files have one line.
const LINE: usize = 400;

/// Shows what is to change.
pub(super) fn changes(changes: &[Change]) -> io::Result<()> {
    let mut out = output::stdout();
    for change in changes {
        out.styled(HEADING, title_of(change.client))?;
        writeln!(out, ": {}", visible_line(&summary(change)))?;
        for warning in &change.warnings {
            out.styled(WARNING, "  warning")?;
            writeln!(out, ": {}", visible_line(warning))?;
        }
        if let Some((before, after)) = change.texts() {
            writeln!(
                out,
                "  {}",
                visible_line(&change.path.display().to_string())
            )?;
            show_diff(&mut out, &diff(before, after))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The client's name. Codex is also the program that does the work, of which the checks speak.
fn title_of(client: Client) -> &'static str {
    match client {
        Client::Codex => "Codex (the client)",
        client => client.title(),
    }
}

fn summary(change: &Change) -> String {
    match &change.action {
        Err(error) => format!("not changed: {error}"),
        Ok(Action::Set { plan, .. }) => plan_summary(plan),
        Ok(Action::Remove { names, removal, .. }) => {
            let names = names.join("`, `");
            match removal {
                Removal::File => format!("removes `{names}` and the file, which was made for it"),
                Removal::Restored(_) => "restores the file as it was before".to_owned(),
                Removal::Edited { put_back, .. } if put_back.is_empty() => {
                    format!("removes `{names}`; the rest of the file stays")
                }
                Removal::Edited { put_back, .. } => {
                    let put_back = put_back.join("`, `");
                    format!("removes `{names}`, and puts back the older `{put_back}`")
                }
            }
        }
    }
}

fn plan_summary(plan: &Plan) -> String {
    let entries = plan.entries.iter();
    let parts = entries.map(|entry| match entry.change {
        EntryChange::Add => format!("adds codex-mcp as `{}`", entry.name),
        EntryChange::Update => format!("brings `{}` up to date", entry.name),
        EntryChange::Replace(kind) => format!("`{}` replaces {kind}", entry.name),
        EntryChange::Keep => format!("is set up already, as `{}`", entry.name),
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// The change as a unified diff without the names of the files. Credentials are masked: the context has
/// lines of other entries.
fn diff(before: &str, after: &str) -> String {
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(before, after);
    let unified = diff.unified_diff().context_radius(CONTEXT).to_string();
    mask(&unified).into_owned()
}

fn show_diff(out: &mut Output<impl Write>, diff: &str) -> io::Result<()> {
    for line in diff.lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => ADDED,
            Some(b'-') => REMOVED,
            _ => Style::new(),
        };
        let shown = line.floor_char_boundary(LINE);
        let (shown, rest) = line.split_at(shown);
        write!(out, "  ")?;
        out.styled(style, visible(shown))?;
        match rest.len() {
            0 => writeln!(out)?,
            more => writeln!(out, " … {more} bytes more")?,
        }
    }
    Ok(())
}

/// Shows what was done, and what to do next.
pub(super) fn outcome(request: &Request, outcome: &Outcome) -> io::Result<()> {
    let mut out = output::stdout();
    for applied in &outcome.applied {
        show_applied(&mut out, applied)?;
    }
    show_checks(&mut out, outcome)?;
    if let Some(failures) = outcome.report.as_ref().map(Report::only_failures) {
        if !failures.findings.is_empty() {
            writeln!(out)?;
        }
        as_text(&failures, output::stdout_columns(), &mut out)?;
    }
    for other in &outcome.others {
        show_other(&mut out, request, other)?;
    }
    if request.top.is_some() && !request.remove {
        conditions(&mut out, outcome)?;
    }
    next(&mut out, outcome, request.remove)
}

/// Shows what has become of the change of a client's configuration.
fn show_applied(out: &mut Output<impl Write>, applied: &Applied) -> io::Result<()> {
    let title = title_of(applied.change.client);
    if let Some(error) = &applied.error {
        writeln!(out, "{title}: {}", visible_line(&error.to_string()))?;
    } else if applied.is_written {
        match &applied.copy {
            Some(copy) => {
                let copy = copy.display().to_string();
                writeln!(
                    out,
                    "{title}: done; the file from before is kept as {}",
                    visible_line(&copy)
                )?;
            }
            None => writeln!(out, "{title}: done")?,
        }
    }
    for note in &applied.notes {
        writeln!(out, "  {}", visible_line(note))?;
    }
    Ok(())
}

/// Shows whether the server answers, for each way in which the clients start it.
fn show_checks(out: &mut Output<impl Write>, outcome: &Outcome) -> io::Result<()> {
    for (entries, check) in &outcome.checks {
        let title = titles(entries, outcome);
        match check {
            Ok(1) => writeln!(out, "{title}: the server answers, with 1 tool")?,
            Ok(tools) => writeln!(out, "{title}: the server answers, with {tools} tools")?,
            Err(error) => {
                let error = visible(error);
                writeln!(out, "{title}: the server does not answer: {error}")?;
            }
        }
    }
    Ok(())
}

/// Shows a file that still has an entry of ours, and how to remove the entry.
fn show_other(
    out: &mut Output<impl Write>,
    request: &Request,
    other: &OtherFile,
) -> io::Result<()> {
    let (file, advice) = match other {
        OtherFile::OfRepository(file) => (
            file,
            ": run `codex-mcp setup --remove --project` in that repository".to_owned(),
        ),
        OtherFile::OfUser(client, file) => (
            file,
            format!(": `codex-mcp setup --remove {client}` removes it"),
        ),
        OtherFile::ByHand(client, file) => {
            let project = match request.top {
                Some(_) => " --project",
                None => "",
            };
            let command = format!("codex-mcp setup --remove{project} {client}");
            (
                file,
                format!(", which setup has not added: `{command}` removes it"),
            )
        }
    };
    let file = file.display().to_string();
    writeln!(out, "codex-mcp is still in {}{advice}", visible_line(&file))
}

/// The clients of these entries. An entry is named where its client starts the server in several
/// ways.
fn titles(entries: &[CheckedEntry], outcome: &Outcome) -> String {
    let titles = entries.iter().map(|checked| {
        let title = title_of(checked.client);
        let is_same = |one: &CheckedEntry| one.client == checked.client;
        let checks = outcome.checks.iter();
        let ways = checks.filter(|(entries, _)| entries.iter().any(is_same));
        match ways.count() {
            0 | 1 => title.to_owned(),
            _ => format!("{title} (`{}`)", visible_line(&checked.name)),
        }
    });
    titles.collect::<Vec<_>>().join(", ")
}

/// The conditions under which clients use the written files of a repository.
fn conditions(out: &mut Output<impl Write>, outcome: &Outcome) -> io::Result<()> {
    let written = outcome.applied.iter().filter(|applied| applied.is_written);
    for client in written.map(|applied| applied.change.client) {
        if let Some(condition) = client.project_condition() {
            writeln!(out, "{} {condition}.", title_of(client))?;
        }
    }
    Ok(())
}

fn next(out: &mut Output<impl Write>, outcome: &Outcome, is_removal: bool) -> io::Result<()> {
    match (is_removal, outcome.is_written()) {
        (true, _) if outcome.applied.is_empty() && outcome.others.is_empty() => {
            writeln!(out, "No client has codex-mcp in its configuration.")
        }
        (_, false) if outcome.report.is_none() => writeln!(out, "Nothing was written."),
        (true, _) => steps(out, None, outcome),
        (false, _) if !outcome.is_fine() => {
            let left = outcome.applied.iter().filter(|applied| !applied.is_fine());
            let left: Vec<&str> = left
                .map(|applied| title_of(applied.change.client))
                .collect();
            match left.is_empty() {
                true => writeln!(out, "\nThe server does not answer: see above."),
                false => writeln!(
                    out,
                    "\nNot done: {}. See above, then run the command again.",
                    left.join(", ")
                ),
            }
        }
        (false, _) => {
            let report = outcome.report.as_ref();
            let needs_login = report.and_then(to_log_in).is_some();
            let has_problem = report.is_some_and(|report| report.count(Status::Problem) > 0);
            let first = match (needs_login, has_problem) {
                (true, _) => Some("log in to Codex"),
                (false, true) => Some("solve this"),
                (false, false) => None,
            };
            writeln!(out)?;
            steps(out, first, outcome)?;
            writeln!(
                out,
                "To try it, ask a client:\n  \
                 Have Codex explain in three sentences what this repository does."
            )
        }
    }
}

/// Says what to do next, if anything: this, and to restart the clients whose files were written.
fn steps(out: &mut Output<impl Write>, first: Option<&str>, outcome: &Outcome) -> io::Result<()> {
    let written = outcome.applied.iter().filter(|applied| applied.is_written);
    let written: Vec<&str> = written
        .map(|applied| title_of(applied.change.client))
        .collect();
    let restart = match written.as_slice() {
        [] => None,
        [client] => Some(format!("restart {client} if it is running")),
        clients => Some(format!(
            "restart {} if they are running",
            clients.join(", ")
        )),
    };
    let steps: Vec<&str> = first.into_iter().chain(restart.as_deref()).collect();
    match steps.is_empty() {
        true => Ok(()),
        false => writeln!(out, "Next: {}.", steps.join(", and ")),
    }
}

/// Prints what was done for programs.
pub(super) fn json(outcome: &Outcome) -> io::Result<()> {
    let changes: Vec<Value> = outcome.applied.iter().map(as_json).collect();
    let checks = outcome.checks.iter().flat_map(|(entries, check)| {
        let clients = entries.iter().map(|entry| entry.client);
        clients.map(move |client| match check {
            Ok(tools) => json!({ "client": client.as_ref(), "tools": tools }),
            Err(error) => json!({ "client": client.as_ref(), "error": error }),
        })
    });
    let mut object = json!({
        "changes": changes,
        "written": outcome.is_written(),
        "checks": checks.collect::<Vec<_>>(),
        "doctor": outcome.report,
    });
    drop_nulls(&mut object);
    output::json(&object)
}

fn as_json(applied: &Applied) -> Value {
    let change = &applied.change;
    let error = change.action.as_ref().err().or(applied.error.as_ref());
    let mut object = json!({
        "client": change.client.as_ref(),
        "file": change.path.to_string_lossy(),
        "action": action(change),
        "entries": entries(change),
        "diff": change.texts().map(|(before, after)| diff(before, after)),
        "copy": applied.copy.as_ref().map(|copy| copy.to_string_lossy()),
        "warnings": (!change.warnings.is_empty()).then_some(&change.warnings),
        "note": (!applied.notes.is_empty()).then(|| applied.notes.join("; ")),
        "error": error.map(ToString::to_string),
    });
    drop_nulls(&mut object);
    object
}

fn action(change: &Change) -> &'static str {
    match &change.action {
        Err(_) => "none",
        Ok(Action::Set { plan, .. }) => {
            let has = |wanted: fn(EntryChange) -> bool| {
                plan.entries.iter().any(|entry| wanted(entry.change))
            };
            if has(|change| matches!(change, EntryChange::Replace(_))) {
                "replace"
            } else if has(|change| change == EntryChange::Add) {
                "add"
            } else if has(|change| change == EntryChange::Update) {
                "update"
            } else {
                "none"
            }
        }
        Ok(Action::Remove { removal, .. }) => match removal {
            Removal::File | Removal::Restored(_) => "restore",
            Removal::Edited { .. } => "remove",
        },
    }
}

/// The names of the entries.
fn entries(change: &Change) -> Option<Vec<&str>> {
    match change.action.as_ref().ok()? {
        Action::Set { plan, .. } => Some(
            plan.entries
                .iter()
                .map(|entry| entry.name.as_str())
                .collect(),
        ),
        Action::Remove { names, .. } => Some(names.iter().map(String::as_str).collect()),
    }
}

fn drop_nulls(object: &mut Value) {
    if let Value::Object(members) = object {
        members.retain(|_, value| !value.is_null());
    }
}
