//! The changes that are to be made, file by file.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use client_setup::files::{ConfigFile, FileError};
use client_setup::logic::clients::{Client, Locations};
use client_setup::logic::document::{EditError, Servers};
use client_setup::logic::entry::{Entry, WantedEntry};
use client_setup::logic::plan::{self, Plan, PlanError, PlannedEntry};
use client_setup::logic::removal;
use client_setup::receipts::{Before, ReceiptError, Receipts};
use common::secrets::mask;
use common::text::one_line;
use git_probe::repository::{Repository, ceilings};
use safe_files::state_file;
use strum::VariantArray as _;
use supervise::search_path::{PATH, SearchPaths, find_program};

use super::Failure;
use crate::environment::variable;

/// The longest member of an entry that a warning shows, in bytes.
const MEMBER: usize = 400;

/// The user's request.
pub(super) struct Request {
    pub(super) home: PathBuf,
    pub(super) state: PathBuf,
    /// The top of the repository whose shared files are written; the user's own if `None`.
    pub(super) top: Option<PathBuf>,
    pub(super) name: Option<String>,
    pub(super) wanted: WantedEntry,
    pub(super) remove: bool,
    /// Whether the user named the clients.
    pub(super) names_clients: bool,
}

/// The planned change of a client's configuration.
pub(super) struct Change {
    pub(super) client: Client,
    pub(super) path: PathBuf,
    pub(super) action: Result<Action, ChangeError>,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// The change of a file.
pub(super) enum Action {
    /// Entries are added or corrected.
    Set { file: ConfigFile, plan: Plan },
    /// Entries are removed.
    Remove {
        file: ConfigFile,
        /// The names of the entries.
        names: Vec<String>,
        removal: Removal,
    },
}

/// The state of a file after its entries are removed.
pub(super) enum Removal {
    /// The file is removed: there was none before.
    File,
    /// The file is the user's text again, byte for byte.
    Restored(String),
    /// The file without the entries: it was edited since they were added, or nothing is known of it.
    Edited {
        text: String,
        /// The names of the entries that are again what they were before they were replaced or
        /// changed.
        put_back: Vec<String>,
        /// Whether the file keeps entries of this program under other names.
        has_others: bool,
    },
}

/// Why a file is not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {error}", path.display())]
    Plan { path: PathBuf, error: PlanError },
    #[error(transparent)]
    State(#[from] state_file::FileError),
    #[error(transparent)]
    Receipts(#[from] ReceiptError),
}

impl Removal {
    /// The text afterwards; `None` if the file is removed.
    pub(super) fn after(&self) -> Option<&str> {
        match self {
            Self::File => None,
            Self::Restored(text) | Self::Edited { text, .. } => Some(text),
        }
    }
}

impl Change {
    /// The file, unless it is not changed.
    fn file(&self) -> Option<&ConfigFile> {
        match self.action.as_ref().ok()? {
            Action::Set { file, .. } | Action::Remove { file, .. } => Some(file),
        }
    }

    /// The text before and afterwards, if it changes.
    pub(super) fn texts(&self) -> Option<(&str, &str)> {
        let (file, after) = match self.action.as_ref().ok()? {
            Action::Set { file, plan } => (file, Some(plan.after.as_str())),
            Action::Remove { file, removal, .. } => (file, removal.after()),
        };
        let changes = file.text() != after;
        changes.then(|| (file.text().unwrap_or_default(), after.unwrap_or_default()))
    }

    /// Whether a file is to be written.
    pub(super) fn is_to_write(&self) -> bool {
        self.texts().is_some()
    }
}

/// The user's own file of a client.
pub(super) fn user_file(home: &Path, client: Client) -> PathBuf {
    let file = client.user_file(&Locations {
        variable: &variable,
        home: home.to_owned(),
        is_macos: cfg!(target_os = "macos"),
    });
    let other = client.other_user_file(&file);
    let other = other.filter(|other| other.exists() && !file.exists());
    other.unwrap_or(file)
}

/// The shared file of a client in a repository, from its top; `None` if it has none.
fn project_file(top: &Path, client: Client) -> Option<PathBuf> {
    let file = PathBuf::from(client.project_file()?);
    let other = client.other_user_file(&file);
    let is_there = |file: &Path| top.join(file).symlink_metadata().is_ok();
    let other = other.filter(|other| is_there(other) && !is_there(&file));
    Some(other.unwrap_or(file))
}

/// The clients whose own file has an entry of this program, or which have our plugin.
pub(super) fn set_up(home: &Path) -> Vec<Client> {
    let all = Client::VARIANTS.iter().copied();
    all.filter(|client| {
        let has_plugin = *client == Client::ClaudeCode && has_plugin(home);
        has_plugin || has_entry(*client, ConfigFile::of_user(&user_file(home, *client)))
    })
    .collect()
}

/// The files with an entry of this program that `setup` has not added: the user's, or those of the
/// repository.
pub(super) fn written_by_hand(request: &Request, receipts: &Receipts) -> Vec<(Client, PathBuf)> {
    let is_known = |file: &Path| receipts.all().iter().any(|receipt| receipt.file == file);
    let all = Client::VARIANTS.iter().copied();
    let by_hand = all.filter_map(|client| {
        // The only failure is that the client has no file in repositories.
        let (path, file) = request.file(client).ok()?;
        let is_by_hand = !is_known(&path) && has_entry(client, file);
        is_by_hand.then_some((client, path))
    });
    by_hand.collect()
}

/// Whether a text has an entry of this program.
pub(super) fn has_ours(client: Client, text: &str) -> Result<bool, EditError> {
    removal::has_ours(client, text, &real_path)
}

/// The file behind the first word of a command line.
fn real_path(word: &str) -> Option<PathBuf> {
    let path = match word.contains('/') {
        true => PathBuf::from(word),
        false => program(word)?,
    };
    path.canonicalize().ok()
}

/// Whether a file of a client has an entry of this program. One that cannot be read has none.
pub(super) fn has_entry(client: Client, file: Result<ConfigFile, FileError>) -> bool {
    let has_ours = |text: &str| has_ours(client, text).unwrap_or(false);
    file.is_ok_and(|file| file.text().is_some_and(has_ours))
}

/// The shared file of a client in a repository, by its path.
pub(super) fn file_of_repository(client: Client, path: &Path) -> Result<ConfigFile, FileError> {
    let name = client.project_file().unwrap_or_default();
    // A file that is not in a repository was the user's before a variable has moved it.
    let depth = Path::new(name).components().count().max(1);
    let top = path.ancestors().nth(depth).unwrap_or(path);
    ConfigFile::of_repository(top, path.strip_prefix(top).unwrap_or(path))
}

impl Request {
    /// The entry that an empty file would get.
    pub(super) fn entry_alone(&self) -> Entry {
        self.wanted.entry(None, None).0
    }

    /// The file of a client as it is.
    fn file(&self, client: Client) -> Result<(PathBuf, Result<ConfigFile, FileError>), Failure> {
        match &self.top {
            None => {
                let path = user_file(&self.home, client);
                let file = ConfigFile::of_user(&path);
                Ok((path, file))
            }
            Some(top) => {
                let name = project_file(top, client);
                let name = name.ok_or(Failure::NoProjectFile(client.title()))?;
                let file = ConfigFile::of_repository(top, &name);
                Ok((top.join(name), file))
            }
        }
    }
}

/// The clients that are meant if the user names none. To add the program: those that are installed
/// or have files of their own. To remove it: all clients.
pub(super) fn clients(request: &Request) -> Vec<Client> {
    let is_installed = |client: &Client| {
        let has_program = client.programs().iter().any(|name| is_on_path(name));
        has_program || user_file(&request.home, *client).exists()
    };
    let has_file = |client: &Client| request.top.is_none() || client.project_file().is_some();
    let all = Client::VARIANTS.iter().copied().filter(has_file);
    match request.remove {
        true => all.collect(),
        false => all.filter(is_installed).collect(),
    }
}

/// The program of this name in the directories of [`protected_path`], from which it is safe to run
/// programs.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    find_program(name, &protected_path()?)
}

/// Whether PATH has a program of this name, which may be one that Codex's commands have written.
pub(super) fn is_on_path(name: &str) -> bool {
    variable(PATH).is_some_and(|path| find_program(name, &path).is_some())
}

/// PATH without the directories that Codex's commands can write, such as `.venv/bin` of the
/// repository: `setup` runs the programs that it finds as the user, outside of any sandbox.
pub(super) fn protected_path() -> Option<OsString> {
    let path = variable(PATH)?;
    // HOME can be a repository (dotfiles), and has the user's own programs then.
    let paths = SearchPaths::of_client(repository_top().as_deref());
    Some(paths.without_writable(&path).unwrap_or(path))
}

/// The top of the repository around the working directory.
pub(super) fn repository_top() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    Repository::around(&here, &ceilings()).map(|repository| repository.root)
}

/// The changes for these clients. Clients can share a file, such as that of a repository or one
/// that the user has linked: each change builds on the previous one, and entries are removed once.
pub(super) fn plan(request: &Request, clients: &[Client]) -> Result<Vec<Change>, Failure> {
    let mut changes: Vec<Change> = Vec::new();
    for client in clients {
        let (path, file) = request.file(*client)?;
        let is_shared = |change: &&Change| {
            let files = change.file().zip(file.as_ref().ok());
            change.path == path || files.is_some_and(|(one, other)| one.is_same_file(other))
        };
        let shared = changes.iter().rfind(is_shared);
        let file = match shared.map(|change| &change.action) {
            Some(Ok(Action::Set { plan, .. })) => file.map(|file| file.with_text(&plan.after)),
            Some(_) => continue,
            None => file,
        };
        if let Some(change) = change(request, *client, path, file) {
            changes.push(change);
        }
    }
    Ok(changes)
}

fn change(
    request: &Request,
    client: Client,
    path: PathBuf,
    file: Result<ConfigFile, FileError>,
) -> Option<Change> {
    let text = file
        .as_ref()
        .ok()
        .and_then(ConfigFile::text)
        .unwrap_or_default();
    let mut warnings = match client {
        Client::ClaudeCode if request.top.is_none() => warnings_of_projects(text),
        _ => Vec::new(),
    };
    if client == Client::ClaudeCode && !request.remove && has_plugin(&request.home) {
        warnings.push(
            "the plugin codex-mcp is installed, which starts the server too: use only one of them"
                .to_owned(),
        );
    }
    let file = file.map_err(ChangeError::from);
    let action = match request.remove {
        false => file.and_then(|file| setting(request, client, file).map(Some)),
        true => file.and_then(|file| removing(request, client, file)),
    };
    let action = action.transpose()?;
    // A file that cannot be read and was not set up has no entry of ours.
    let is_meant = !request.remove || request.names_clients || is_known(request, &path);
    let is_unwritable = matches!(
        &action,
        Err(ChangeError::File(
            FileError::ReadOnly(_) | FileError::ReadOnlyDirectory(_) | FileError::OfAnotherUser(_)
        ))
    );
    if action.is_err() && !is_unwritable && !is_meant {
        return None;
    }
    if let Ok(Action::Set { plan, .. }) = &action {
        let left_out = plan.entries.iter().flat_map(|entry| &entry.left_out);
        warnings.extend(left_out.map(|words| {
            format!("`{words}` is left out: set it in Codex's own config.toml, if you need it")
        }));
        warnings.extend(warnings_of(plan));
        if request.top.is_some() {
            warnings.extend(warnings_of_repository(request, client, plan));
        }
    }
    Some(Change {
        client,
        path,
        action,
        warnings,
    })
}

/// Warnings about entries that are switched off, and about several that start the server.
fn warnings_of(plan: &Plan) -> Vec<String> {
    let off = plan.entries.iter().filter(|entry| entry.is_off);
    let off = off.map(|entry| format!("`{}` is switched off in this client", entry.name));
    let names: Vec<&str> = plan
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    let several = match names.as_slice() {
        [] | [_] => None,
        [one, other] => Some(format!(
            "`{one}` and `{other}` both start codex-mcp: remove the one that you do not need"
        )),
        several => Some(format!(
            "`{}` all start codex-mcp: remove those that you do not need",
            several.join("`, `")
        )),
    };
    off.chain(several).collect()
}

/// Warnings about what the file of a repository sets for our entries. The check starts the server
/// without it, because the author of the repository could have it run any program.
fn warnings_of_repository(request: &Request, client: Client, plan: &Plan) -> Vec<String> {
    let warn = |entry: &PlannedEntry| {
        let members = plan.members_of_file(client, entry, &request.wanted);
        let members = members.iter().map(|(member, value)| {
            let text = format!("{member} = {value}");
            one_line(&mask(&text), MEMBER)
        });
        let members = members.collect::<Vec<_>>().join("; ");
        let name = &entry.name;
        (!members.is_empty()).then(|| {
            format!(
                "`{name}` has settings of this repository's file that are not checked; read them before \
                 you use it: {members}"
            )
        })
    };
    plan.entries.iter().filter_map(warn).collect()
}

/// Whether this file was set up.
fn is_known(request: &Request, file: &Path) -> bool {
    let receipts = Receipts::read(&request.state);
    receipts.is_ok_and(|receipts| receipts.all().iter().any(|receipt| receipt.file == file))
}

/// Whether Claude Code has our plugin, which starts the server too.
fn has_plugin(home: &Path) -> bool {
    let directory =
        variable("CLAUDE_CONFIG_DIR").map_or_else(|| home.join(".claude"), PathBuf::from);
    let settings = ConfigFile::of_user(&directory.join("settings.json"));
    let text = settings.ok().and_then(|file| Some(file.text()?.to_owned()));
    text.is_some_and(|text| plan::has_plugin(&text))
}

fn warnings_of_projects(text: &str) -> Vec<String> {
    let found = plan::of_projects(text, &real_path).into_iter();
    let warn = |(project, name)| {
        format!(
            "in {project}, Claude Code has a server `{name}` of its own, which is an older one: run \
             `claude mcp remove --scope local {name}` there"
        )
    };
    found.map(warn).collect()
}

fn setting(request: &Request, client: Client, file: ConfigFile) -> Result<Action, ChangeError> {
    let plan = planned(client, &file, request.name.as_deref(), &request.wanted)?;
    if file.text() != Some(&plan.after) {
        file.check_writable()?;
    }
    Ok(Action::Set { file, plan })
}

/// How the file has to be changed.
pub(super) fn planned(
    client: Client,
    file: &ConfigFile,
    name: Option<&str>,
    wanted: &WantedEntry,
) -> Result<Plan, ChangeError> {
    let text = file.text().unwrap_or_default();
    plan::adding(client, text, name, wanted, &real_path).map_err(|error| ChangeError::Plan {
        path: file.path().to_owned(),
        error,
    })
}

fn removing(
    request: &Request,
    client: Client,
    file: ConfigFile,
) -> Result<Option<Action>, ChangeError> {
    let Some(text) = file.text() else {
        return Ok(None);
    };
    let receipts = Receipts::read(&request.state)?;
    let mut all = receipts.all().iter();
    if !request.names_clients && all.all(|receipt| receipt.file != file.path()) {
        // The user has written the entry.
        return Ok(None);
    }
    let without_entries = |replaced: &Servers| {
        let removed =
            removal::removing(client, text, request.name.as_deref(), replaced, &real_path);
        removed.map_err(|error| ChangeError::Plan {
            path: file.path().to_owned(),
            error: error.into(),
        })
    };
    let mut removed = without_entries(&receipts.replaced(file.path()))?;
    if removed.text == text && request.names_clients {
        // The entries are as the user had written them.
        removed = without_entries(&Servers::new())?;
    }
    if removed.text == text {
        return Ok(None);
    }
    file.check_writable()?;
    let restored = match request.name {
        None => restored(&receipts, &file),
        Some(_) => None,
    };
    // A change that was noted and then failed has left the earlier text in place.
    let restored = restored.filter(|removal| removal.after() != Some(text));
    let removal = restored.unwrap_or(Removal::Edited {
        text: removed.text,
        put_back: removed.put_back,
        has_others: removed.has_others,
    });
    Ok(Some(Action::Remove {
        file,
        names: removed.names,
        removal,
    }))
}

/// The user's text, if nobody has edited the file since.
fn restored(receipts: &Receipts, file: &ConfigFile) -> Option<Removal> {
    let receipt = receipts.exact(file.path(), file.text()?)?;
    match &receipt.before {
        // A link that the user has made since stays.
        Before::Absent if file.is_link() => None,
        Before::Absent => Some(Removal::File),
        Before::Copy(name) => receipts.copied(name).map(Removal::Restored),
        // The copy has an entry that is to be removed.
        Before::SetUp(_) => None,
    }
}
