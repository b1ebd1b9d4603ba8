//! Writes the changes: through the client's own command where there is one, else into its file.

use std::path::PathBuf;
use std::time::Duration;

use client_setup::files::ConfigFile;
use client_setup::logic::plan::Plan;
use supervise::short_lived;
use supervise::spawn::Program;

use super::change::{Action, Change, ChangeError, Setting, planned, program};

/// How long a client's own command may take: some start an interpreter.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A change that was made, or not.
pub(super) struct Applied {
    pub(super) change: Change,
    /// The copy of the file from before.
    pub(super) backup: Option<PathBuf>,
    /// Why it was not made.
    pub(super) error: Option<String>,
    /// What the client's own command said when it failed: the file was edited instead.
    pub(super) note: Option<String>,
}

impl Applied {
    pub(super) fn not_written(change: Change) -> Self {
        let error = match &change.action {
            Action::Broken(error) => Some(error.to_string()),
            Action::Set { .. } | Action::Remove { .. } => None,
        };
        Self {
            change,
            backup: None,
            error,
            note: None,
        }
    }
}

/// Makes a change.
pub(super) async fn apply(setting: &Setting, change: Change) -> Applied {
    let mut applied = Applied::not_written(change);
    if applied.error.is_some() || !applied.change.is_to_write() {
        return applied;
    }
    let written = match &applied.change {
        Change {
            file: Some(file),
            action: Action::Set { plan },
            ..
        } => match setting.receipts().back_up(file.path(), file.text()) {
            Ok(backup) => {
                applied.backup.clone_from(&backup);
                set(setting, &applied.change, file, plan, backup).await
            }
            Err(error) => Err(error.into()),
        },
        Change {
            file: Some(file),
            action: Action::Remove { after, .. },
            ..
        } => remove(setting, file, after.as_deref()).map(|()| None),
        Change { .. } => Ok(None),
    };
    match written {
        Ok(note) => applied.note = note,
        Err(error) => applied.error = Some(error.to_string()),
    }
    applied
}

/// Adds or corrects an entry. Returns what the client's own command said if it failed.
async fn set(
    setting: &Setting,
    change: &Change,
    file: &ConfigFile,
    plan: &Plan,
    backup: Option<PathBuf>,
) -> Result<Option<String>, ChangeError> {
    let command = match setting.top {
        None => own_command(change, plan),
        Some(_) => None,
    };
    let note = match command {
        Some(command) => run(&command).await.err(),
        None => None,
    };
    // What the client's command has left out, or could not do.
    let now = file.again()?;
    let rest = planned(change.client, &now, Some(&plan.name), &plan.entry)?;
    if now.text() != Some(&rest.after) {
        now.replace(&rest.after)?;
    }
    setting.receipts().note(file.path(), backup, &rest.after)?;
    Ok(note)
}

/// The command of the client itself that makes the entry.
fn own_command(change: &Change, plan: &Plan) -> Option<Program> {
    let client = change.client;
    let adding = client.adding(&plan.name, &plan.entry)?;
    let path = client.programs().iter().find_map(|name| program(name))?;
    // An entry that is there is corrected in the file: the command would drop its other members.
    (!change.has_entry(&plan.name)).then(|| Program::new(&path, adding))
}

async fn run(command: &Program) -> Result<(), String> {
    let name = command.path.display();
    match short_lived::run(command, COMMAND_TIMEOUT).await {
        Ok(output) if output.succeeded() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", output.stderr.trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn remove(setting: &Setting, file: &ConfigFile, after: Option<&str>) -> Result<(), ChangeError> {
    match after {
        Some(after) => file.replace(after)?,
        None => file.remove()?,
    }
    Ok(setting.receipts().forget(file.path())?)
}
