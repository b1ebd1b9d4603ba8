//! Makes the changes: through the client's own command where there is one, else in its file.

use std::path::PathBuf;
use std::time::Duration;

use client_setup::files::ConfigFile;
use client_setup::logic::plan::{Difference, Plan, PlanError, difference, has_ours};
use client_setup::receipts::{Before, Receipts};
use supervise::short_lived;
use supervise::spawn::Program;

use super::change::{Action, Change, ChangeError, Request, planned, program};

/// How long a client's own command may take: some start an interpreter.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A change that was made, or not.
pub(super) struct Applied {
    pub(super) change: Change,
    /// Whether the file was written.
    pub(super) is_written: bool,
    /// The copy of the file from before.
    pub(super) copy: Option<PathBuf>,
    /// Why it was not made.
    pub(super) error: Option<ChangeError>,
    /// Why the client's own command was not enough.
    pub(super) note: Option<String>,
}

impl Applied {
    pub(super) fn not_written(change: Change) -> Self {
        Self {
            change,
            is_written: false,
            copy: None,
            error: None,
            note: None,
        }
    }

    /// Whether the client is as it should be.
    pub(super) fn is_fine(&self) -> bool {
        self.error.is_none() && self.change.action.is_ok()
    }
}

/// Makes a change.
pub(super) async fn apply(request: &Request, change: Change) -> Applied {
    let mut applied = Applied::not_written(change);
    if applied.change.is_to_write() {
        match write(request, &mut applied).await {
            Ok(()) => applied.is_written = true,
            Err(error) => applied.error = Some(error),
        }
    }
    applied
}

async fn write(request: &Request, applied: &mut Applied) -> Result<(), ChangeError> {
    // Whoever else sets up clients waits until this file and its receipt agree.
    let mut receipts = Receipts::lock(&request.state)?;
    let change = &applied.change;
    match &change.action {
        Err(_) => Ok(()),
        Ok(Action::Set { file, plan }) => {
            file.check_unchanged()?;
            let text = file.text();
            let is_known = text.is_some_and(|text| has_ours(change.client, text).unwrap_or(true));
            let before = receipts.back_up(file.path(), text, is_known)?;
            if let Before::Copy(name) = &before {
                applied.copy = receipts.copy(name);
            }
            // First, so that no crash leaves a change without it.
            receipts.note(file.path(), before.clone(), &plan.after)?;
            let command = own_command(request, change, plan);
            match command {
                None => Ok(file.replace(&plan.after)?),
                Some((name, command)) => {
                    let note = by_command(request, change, file, &name, &command).await;
                    let (note, text) = note.map_err(|error| explained(error, applied))?;
                    applied.note = note;
                    let before = match text == plan.after || is_added(change, file, &text, &name) {
                        true => before,
                        false => Before::Unknown,
                    };
                    Ok(receipts.note(file.path(), before, &text)?)
                }
            }
        }
        Ok(Action::Remove { file, removal, .. }) => {
            match removal.after() {
                Some(after) => file.replace(after)?,
                None => file.remove()?,
            }
            Ok(receipts.forget(file.path())?)
        }
    }
}

/// Where the copy is, if a command has left the file broken.
fn explained(error: ChangeError, applied: &Applied) -> ChangeError {
    match (error, &applied.copy) {
        (
            ChangeError::Plan {
                path,
                error: PlanError::Edit(_),
            },
            Some(copy),
        ) => ChangeError::Lost {
            path,
            copy: copy.clone(),
        },
        (error, _) => error,
    }
}

/// Whether the text is the file's with the entry, and nothing else has changed.
fn is_added(change: &Change, file: &ConfigFile, text: &str, name: &str) -> bool {
    let before = file.text().unwrap_or_default();
    difference(change.client, before, text, name) == Difference::EntryAlone
}

/// The command of the client itself that makes the entry, and the entry's name. An entry that is
/// there is corrected in the file: the command would drop its other members.
fn own_command(request: &Request, change: &Change, plan: &Plan) -> Option<(String, Program)> {
    if request.top.is_some() {
        return None;
    }
    let added = plan.only_added()?;
    let client = change.client;
    let args = client.own_command_args(&added.name, &added.entry)?;
    let path = client.programs().iter().find_map(|name| program(name))?;
    Some((added.name.clone(), Program::new(&path, args)))
}

/// Has the client's own command make the entry, and writes what it leaves out. Returns why it was
/// not enough, and the text of the file.
async fn by_command(
    request: &Request,
    change: &Change,
    file: &ConfigFile,
    name: &str,
    command: &Program,
) -> Result<(Option<String>, String), ChangeError> {
    let permissions = file.permissions();
    let mut note = run(command).await.err();
    let mut now = file.reread()?;
    let before = file.text().unwrap_or_default();
    let lost =
        difference(change.client, before, now.text().unwrap_or_default(), name) == Difference::Loss;
    if lost {
        // The user agreed to an entry, and not to that.
        let program = command.path.display();
        note = Some(format!(
            "{program}: it removed other settings, which were restored"
        ));
        now.replace(before)?;
        now = file.reread()?;
    }
    let rest = planned(
        change.client,
        &now,
        request.name.as_deref(),
        &request.wanted,
    )?;
    if now.text() != Some(&rest.after) {
        now.replace(&rest.after)?;
    }
    if let Some(permissions) = permissions {
        now.restore_permissions(permissions)?;
    }
    Ok((note, rest.after))
}

async fn run(command: &Program) -> Result<(), String> {
    let name = command.path.display();
    match short_lived::run(command, COMMAND_TIMEOUT).await {
        Ok(output) if output.succeeded() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", output.stderr.trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
