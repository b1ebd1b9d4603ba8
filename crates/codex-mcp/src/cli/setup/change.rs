//! The changes that are to be made, client by client.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use client_setup::files::{ConfigFile, FileError};
use client_setup::logic::clients::{Client, Places};
use client_setup::logic::entry::Entry;
use client_setup::logic::plan::{self, Plan, PlanError};
use client_setup::receipts::Receipts;
use git_probe::repository::{Repository, ceilings};
use safe_files::state_file;
use strum::VariantArray as _;
use supervise::search_path::{PATH, without_relative};

use super::Failure;

/// What is wanted.
pub(super) struct Setting {
    pub(super) home: PathBuf,
    pub(super) state: PathBuf,
    /// The top of the repository whose shared files are written; the user's own if `None`.
    pub(super) top: Option<PathBuf>,
    pub(super) name: Option<String>,
    pub(super) entry: Entry,
    pub(super) remove: bool,
}

/// The change of a client's configuration.
pub(super) struct Change {
    pub(super) client: Client,
    /// The file; `None` if it could not be read.
    pub(super) file: Option<ConfigFile>,
    pub(super) path: PathBuf,
    pub(super) action: Action,
}

/// What is done to a file.
pub(super) enum Action {
    /// The entry is added, or made as it should be.
    Set { plan: Plan },
    /// The entry is removed.
    Remove {
        /// The names of the entries.
        names: Vec<String>,
        /// The text afterwards; the file is removed if `None`.
        after: Option<String>,
        /// Whether the file is as the user had it, byte for byte.
        is_exact: bool,
    },
    /// The file is not changed, for this reason.
    Broken(ChangeError),
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
}

impl Change {
    pub(super) fn before(&self) -> &str {
        self.file
            .as_ref()
            .and_then(ConfigFile::text)
            .unwrap_or_default()
    }

    /// The text afterwards; `None` if the file is removed.
    pub(super) fn after(&self) -> Option<&str> {
        match &self.action {
            Action::Set { plan } => Some(&plan.after),
            Action::Remove { after, .. } => after.as_deref(),
            Action::Broken(_) => Some(self.before()),
        }
    }

    /// Whether the file has an entry of this name.
    pub(super) fn has_entry(&self, name: &str) -> bool {
        let servers = self
            .client
            .format()
            .servers(self.before(), self.client.key());
        servers.is_ok_and(|servers| servers.contains_key(name))
    }

    /// Whether a file is to be written.
    pub(super) fn is_to_write(&self) -> bool {
        let text = self.file.as_ref().and_then(ConfigFile::text);
        !matches!(self.action, Action::Broken(_)) && text != self.after()
    }
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl Setting {
    fn places(&self) -> Places<'static> {
        Places {
            variable: &variable,
            home: self.home.clone(),
            is_macos: cfg!(target_os = "macos"),
        }
    }

    pub(super) fn receipts(&self) -> Receipts {
        Receipts::of(&self.state)
    }
}

/// The clients that are installed, or have files of their own.
pub(super) fn installed(setting: &Setting) -> Vec<Client> {
    let places = setting.places();
    let is_installed = |client: &Client| {
        let has_program = client.programs().iter().any(|name| program(name).is_some());
        has_program || client.user_file(&places).exists()
    };
    let has_file = |client: &Client| setting.top.is_none() || client.project_file().is_some();
    let all = Client::VARIANTS.iter().copied();
    all.filter(has_file).filter(is_installed).collect()
}

/// The program of this name on PATH.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = variable(PATH)?;
    let path = without_relative(&path).unwrap_or(path);
    let mut directories = env::split_paths(&path);
    directories.find_map(|directory| {
        let program = directory.join(name);
        program.is_file().then_some(program)
    })
}

/// The top of the repository around the working directory.
pub(super) fn repository_top() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    Repository::around(&here, &ceilings()).map(|repository| repository.root)
}

/// The change of a client; `None` if there is nothing to remove.
pub(super) fn plan(setting: &Setting, client: Client) -> Result<Option<Change>, Failure> {
    let (path, file) = match &setting.top {
        None => {
            let path = client.user_file(&setting.places());
            let file = ConfigFile::of_user(&path);
            (path, file)
        }
        Some(top) => {
            let name = client.project_file();
            let name = name.ok_or(Failure::NoProjectFile(client.title()))?;
            (top.join(name), ConfigFile::of_repository(top, name))
        }
    };
    let file = match file {
        Ok(file) => file,
        Err(error) => {
            return Ok(Some(Change {
                client,
                file: None,
                path,
                action: Action::Broken(error.into()),
            }));
        }
    };
    let action = match setting.remove {
        false => planned(client, &file, setting.name.as_deref(), &setting.entry)
            .map(|plan| Some(Action::Set { plan })),
        true => removing(setting, client, &file),
    };
    let action = action.unwrap_or_else(|error| Some(Action::Broken(error)));
    Ok(action.map(|action| Change {
        client,
        file: Some(file),
        path,
        action,
    }))
}

/// How the file becomes what it should be.
pub(super) fn planned(
    client: Client,
    file: &ConfigFile,
    name: Option<&str>,
    entry: &Entry,
) -> Result<Plan, ChangeError> {
    let text = file.text().unwrap_or_default();
    plan::adding(client, text, name, entry).map_err(|error| ChangeError::Plan {
        path: file.path().to_owned(),
        error,
    })
}

fn removing(
    setting: &Setting,
    client: Client,
    file: &ConfigFile,
) -> Result<Option<Action>, ChangeError> {
    let Some(text) = file.text() else {
        return Ok(None);
    };
    let removed = plan::removing(client, text, setting.name.as_deref());
    let (after, names) = removed.map_err(|error| ChangeError::Plan {
        path: file.path().to_owned(),
        error: error.into(),
    })?;
    if names.is_empty() {
        return Ok(None);
    }
    let receipts = setting.receipts();
    let receipt = receipts.exact(file.path(), text)?;
    let is_exact = receipt.is_some();
    let after = match receipt {
        None => Some(after),
        Some(receipt) => match receipt.backup {
            Some(backup) => Some(receipts.backed_up(&backup)?),
            None => None,
        },
    };
    Ok(Some(Action::Remove {
        names,
        after,
        is_exact,
    }))
}
