//! The file of the credentials, which the server and `codex-mcp web token` share.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use safe_files::state_file::{self, FileError};

use crate::logic::access::{
    CredentialId, Credentials, Kind, MOST, NewCredential, Secret, TokenName,
};
use crate::logic::authority::Authority;

/// The file, in the directory of the endpoint.
const FILE: &str = "credentials.json";

/// The lock of the file.
const LOCK: &str = "credentials.lock";

/// The longest file, in bytes: 300 credentials take about 150 kB.
const LONGEST: u64 = 1 << 20;

/// Why the credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is damaged.
    #[error("{} cannot be read: {error}; remove it, and make new links and tokens", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// There are as many tokens as there may be.
    #[error(
        "there are {MOST} tokens; `codex-mcp web tokens` lists them, and `codex-mcp web revoke ID` makes room"
    )]
    Full,
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// A mark of the state of the file, which is replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMark(Option<(u64, i64, i64)>);

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], StoreError> {
    let mut random = [0; LENGTH];
    getrandom::fill(&mut random).map_err(StoreError::Random)?;
    Ok(random)
}

fn random_secret() -> Result<Secret, StoreError> {
    random().map(Secret::of)
}

/// A host name of the page that no start of an endpoint has had, see [`Authority::of_page`].
///
/// # Errors
///
/// [`StoreError::Random`].
pub fn new_page_host() -> Result<Authority, StoreError> {
    random().map(Authority::of_page)
}

/// The file of the credentials.
#[derive(Debug, Clone)]
pub struct CredentialStore {
    directory: PathBuf,
}

impl CredentialStore {
    /// The store in the state directory.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            directory: state.join("web"),
        }
    }

    /// All credentials.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn read(&self) -> Result<Credentials, StoreError> {
        let path = self.directory.join(FILE);
        let Some(file) = state_file::open(&path)? else {
            return Ok(Credentials::default());
        };
        let bytes = state_file::read(&file, &path, LONGEST)?;
        serde_json::from_slice(&bytes).map_err(|error| StoreError::Damaged { path, error })
    }

    /// Changes the credentials, unless nothing differs afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn change<T>(&self, change: impl FnOnce(&mut Credentials) -> T) -> Result<T, StoreError> {
        state_file::make_directory(&self.directory)?;
        let _lock = state_file::lock(&self.directory.join(LOCK))?;
        let before = self.read()?;
        let mut credentials = before.clone();
        let result = change(&mut credentials);
        if credentials != before {
            let path = self.directory.join(FILE);
            let bytes = serde_json::to_vec(&credentials);
            let bytes = bytes.map_err(|error| StoreError::Damaged {
                path: path.clone(),
                error,
            })?;
            state_file::replace(&path, &bytes)?;
        }
        Ok(result)
    }

    /// Revokes all cookies and links. After an endpoint has ended, another user may have listened
    /// on its port: pages that were left open have sent their cookies there, and an opened link its
    /// code.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn revoke_all_but_tokens(&self) -> Result<(), StoreError> {
        self.change(Credentials::revoke_all_but_tokens)
    }

    /// Takes a one-time link, and returns the secret of a browser in its place; `None` if there is no
    /// such link.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn sign_in(&self, code: &str, name: TokenName) -> Result<Option<Secret>, StoreError> {
        let (secret, now) = (random_secret()?, SystemTime::now());
        self.change(|all| {
            let scope = all.take_link(code, now)?;
            let browser = NewCredential {
                kind: Kind::Browser,
                name,
                scope,
            };
            all.add(browser, &secret, now);
            Some(secret)
        })
    }

    /// The mark of the current state of the file.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn mark(&self) -> Result<FileMark, StoreError> {
        let path = self.directory.join(FILE);
        match fs::symlink_metadata(&path) {
            Ok(about) => Ok(FileMark(Some((
                about.ino(),
                about.mtime(),
                about.mtime_nsec(),
            )))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileMark(None)),
            Err(error) => Err(state_file::about(&path)(error).into()),
        }
    }

    /// Makes a credential.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn add(&self, new: NewCredential) -> Result<(CredentialId, Secret), StoreError> {
        let (secret, now) = (random_secret()?, SystemTime::now());
        let added = self.change(|all| {
            let is_full = new.kind == Kind::Token && all.is_full_of_tokens();
            (!is_full).then(|| all.add(new, &secret, now))
        })?;
        Ok((added.ok_or(StoreError::Full)?, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::access::Scope;

    fn token() -> NewCredential {
        NewCredential {
            kind: Kind::Token,
            name: "a test".parse().unwrap(),
            scope: Scope::Decide,
        }
    }

    #[test]
    fn token_stays_when_there_are_too_many() {
        let state = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(state.path());
        for _ in 0..MOST {
            store.add(token()).unwrap();
        }
        let refused = store.add(token()).unwrap_err().to_string();
        assert!(refused.contains("there are 100 tokens"), "{refused}");
        let kept = store.read().unwrap();
        assert_eq!(kept.listed(SystemTime::now()).count(), MOST);
    }

    #[test]
    fn credentials_are_kept_without_their_secrets() {
        let state = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(state.path());
        assert_eq!(store.read().unwrap(), Credentials::default());
        let (id, secret) = store.add(token()).unwrap();
        let kept = store.read().unwrap();
        let found = kept.find(Kind::Token, secret.reveal(), SystemTime::now());
        assert_eq!(found.map(|one| &one.id), Some(&id));
        let file = std::fs::read_to_string(state.path().join("web").join(FILE)).unwrap();
        assert!(!file.contains(secret.reveal()));
        assert!(store.change(|all| all.revoke(id.as_str())).unwrap());
        assert_eq!(store.read().unwrap().listed(SystemTime::now()).count(), 0);
    }

    #[test]
    fn damaged_file_is_named_and_kept() {
        let state = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(state.path());
        store.add(token()).unwrap();
        let path = state.path().join("web").join(FILE);
        std::fs::write(&path, "{").unwrap();
        let error = store.add(token()).unwrap_err().to_string();
        assert!(error.contains("credentials.json"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
    }
}
