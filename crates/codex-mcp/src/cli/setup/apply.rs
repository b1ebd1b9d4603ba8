//! Makes the changes: through the client's own command where there is one, else in its file.

use std::path::PathBuf;
use std::time::Duration;

use client_setup::files::ConfigFile;
use client_setup::logic::document::Servers;
use client_setup::logic::plan::{EntryChange, Plan, PlannedEntry};
use client_setup::receipts::{Before, Receipt, ReceiptError, Receipts, digest};
use supervise::short_lived;
use supervise::spawn::Program;

use super::change::{Action, Change, ChangeError, Removal, Request, has_ours, planned, program};

/// How long a client's own command may take: some start an interpreter.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A change that was made, or not.
pub(super) struct Applied {
    pub(super) change: Change,
    /// Whether the file was written.
    pub(super) is_written: bool,
    /// The copy of the file as it was before the change.
    pub(super) copy: Option<PathBuf>,
    /// The reason why the change was not made.
    pub(super) error: Option<ChangeError>,
    /// Problems of a change that was made all the same.
    pub(super) notes: Vec<String>,
}

impl Applied {
    pub(super) fn not_written(change: Change) -> Self {
        Self {
            change,
            is_written: false,
            copy: None,
            error: None,
            notes: Vec::new(),
        }
    }

    /// Whether the client is as it should be.
    pub(super) fn is_fine(&self) -> bool {
        self.error.is_none() && self.change.action.is_ok()
    }

    /// Notes that the change was made. If its receipt is still the earlier one, the change can be
    /// removed nevertheless.
    fn made(&mut self, noted: Result<(), ReceiptError>) {
        self.is_written = true;
        if let Err(error) = noted {
            let note = format!("the receipt of this change could not be updated: {error}");
            self.notes.push(note);
        }
    }
}

/// Makes a change.
pub(super) async fn apply(request: &Request, change: Change) -> Applied {
    let mut applied = Applied::not_written(change);
    if applied.change.is_to_write() {
        applied.error = write(request, &mut applied).await.err();
    }
    applied
}

async fn write(request: &Request, applied: &mut Applied) -> Result<(), ChangeError> {
    // Other processes that set up clients wait until this file and its receipt agree.
    let mut receipts = Receipts::lock(&request.state)?;
    match &applied.change.action {
        Err(_) => Ok(()),
        Ok(Action::Set { .. }) => set(request, applied, receipts).await,
        Ok(Action::Remove { .. }) => remove(applied, &mut receipts),
    }
}

async fn set(
    request: &Request,
    applied: &mut Applied,
    mut receipts: Receipts,
) -> Result<(), ChangeError> {
    let change = &applied.change;
    let Ok(Action::Set { file, plan }) = &change.action else {
        return Ok(());
    };
    file.check_unchanged()?;
    let text = file.text();
    let is_set_up = text.is_some_and(|text| has_ours(change.client, text).unwrap_or(true));
    let before = receipts.back_up(file.path(), text, is_set_up)?;
    if let Before::Copy(name) | Before::SetUp(name) = &before {
        applied.copy = receipts.copy(name);
    }
    let texts = text.into_iter().chain([plan.after.as_str()]);
    let mut earlier = receipts.all().iter();
    let has_receipt = earlier.any(|receipt| receipt.file == file.path());
    let receipt = Receipt {
        file: file.path().to_owned(),
        client: change.client.to_string(),
        before,
        replaced: replaced(plan, has_receipt),
        texts: texts.map(digest).collect(),
        directories: file.make_directory()?,
    };
    // The receipt is written first, so that no crash leaves a change without one.
    receipts.note(receipt.clone(), |name| !plan.adds(name))?;
    let after = match own_command(request, change, file, plan) {
        None => {
            file.replace(&plan.after)?;
            plan.after.clone()
        }
        Some(command) => {
            // The command may take a minute, which is longer than other processes wait for the
            // lock.
            drop(receipts);
            let failed = run(&command).await.err();
            receipts = Receipts::lock(&request.state)?;
            applied.notes.extend(failed.map(|error| {
                format!("its own command failed, so the file was written without it: {error}")
            }));
            complete(request, change, file)?
        }
    };
    let texts = vec![digest(&after)];
    let noted = receipts.note(Receipt { texts, ..receipt }, |_| true);
    applied.made(noted);
    Ok(())
}

/// Removes entries. The present file is copied first, unless the earlier one is restored.
fn remove(applied: &mut Applied, receipts: &mut Receipts) -> Result<(), ChangeError> {
    let Ok(Action::Remove { file, removal, .. }) = &applied.change.action else {
        return Ok(());
    };
    applied.copy = match removal {
        Removal::File | Removal::Restored(_) => None,
        Removal::Edited { .. } => match receipts.back_up(file.path(), file.text(), true)? {
            Before::Absent => None,
            Before::Copy(name) | Before::SetUp(name) => receipts.copy(&name),
        },
    };
    match removal.after() {
        Some(after) => file.replace(after)?,
        None => file.remove()?,
    }
    let noted = note_removal(file, removal, receipts);
    applied.made(noted);
    Ok(())
}

/// Notes that entries were removed.
fn note_removal(
    file: &ConfigFile,
    removal: &Removal,
    receipts: &mut Receipts,
) -> Result<(), ReceiptError> {
    let (is_restored, has_others) = match removal {
        Removal::File | Removal::Restored(_) => (true, false),
        Removal::Edited { has_others, .. } => (false, *has_others),
    };
    // An entry of this program that was restored or put back is the user's own.
    if !has_others {
        return receipts.forget(file.path(), is_restored);
    }
    // Only the entry of one name was meant.
    let rest = removal.after().unwrap_or_default();
    let known = receipts.exact(file.path(), file.text().unwrap_or_default());
    if let Some(known) = known.cloned() {
        let texts = vec![digest(rest)];
        receipts.note(Receipt { texts, ..known }, |_| true)?;
    }
    Ok(())
}

/// The servers that a removal has to put back, by their names. An entry of this program is one of them
/// if no receipt says that `setup` has changed the file before: then the user has written it.
fn replaced(plan: &Plan, has_receipt: bool) -> Servers {
    let is_of_user =
        |entry: &&PlannedEntry| matches!(entry.change, EntryChange::Replace(_)) || !has_receipt;
    let entries = plan.entries.iter().filter(is_of_user);
    let replaced = entries.filter_map(|entry| Some((entry.name.clone(), entry.replaced.clone()?)));
    replaced.collect()
}

/// The client's own command that creates the file with the entry. It is used only if there is no
/// file yet: the commands of Claude Code and Codex rewrite an existing file, and drop its comments
/// and everything that they do not know.
fn own_command(
    request: &Request,
    change: &Change,
    file: &ConfigFile,
    plan: &Plan,
) -> Option<Program> {
    if request.top.is_some() || file.text().is_some() {
        return None;
    }
    let added = plan.only_added()?;
    let client = change.client;
    let args = client.own_command_args(&added.name, &added.entry)?;
    let path = client.programs().iter().find_map(|name| program(name))?;
    Some(Program::new(&path, args))
}

/// Adds to the file what the client's own command has left out. Returns the text of the file.
fn complete(request: &Request, change: &Change, file: &ConfigFile) -> Result<String, ChangeError> {
    let now = file.reread()?;
    let rest = planned(
        change.client,
        &now,
        request.name.as_deref(),
        &request.wanted,
    )?;
    if now.text() != Some(&rest.after) {
        now.replace(&rest.after)?;
    }
    Ok(rest.after)
}

async fn run(command: &Program) -> Result<(), String> {
    let name = command.path.display();
    match short_lived::run(command, COMMAND_TIMEOUT).await {
        Ok(output) if output.succeeded() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", output.stderr.trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
