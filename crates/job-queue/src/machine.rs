//! This machine: its name, for a store that several machines share, and the key with which it
//! signs the jobs that it submits.
//!
//! The key is 32 random bytes in a file that only this user can read. Anybody who knows it can
//! run programs on this machine through a shared store.

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::text::hex;
use hmac::{Hmac, KeyInit, Mac};
use rustix::process::geteuid;
use safe_files::untrusted_file::{self, Links, ReadError};
use sha2::Sha256;

/// The name of this machine, as `hostname` prints it. The machines of one store must have different
/// names.
#[must_use]
pub fn name() -> String {
    match nix::unistd::gethostname() {
        Ok(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => "localhost".to_owned(),
    }
}

/// The name of the key's file in the state directory.
const FILE: &str = "host.key";

/// The length of a key, in bytes.
const LENGTH: usize = 32;

/// The message whose signature is the key's public name.
const NAME: &[u8] = b"codex-mcp: name of a host key";

/// The length of the name, in bytes of that signature.
const NAME_LENGTH: usize = 8;

/// The key of this machine.
pub struct MachineKey {
    mac: Hmac<Sha256>,
    id: String,
}

/// An error of loading or creating the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The state directory is a relative path, and the current directory may be another user's.
    #[error(
        "cannot determine the path of this machine's key: {} is not an absolute path; set HOME or \
         XDG_STATE_HOME", state.display()
    )]
    NoState {
        /// The directory of this machine's state.
        state: PathBuf,
    },
    /// The key cannot be read.
    #[error("the key of this machine: {0}")]
    Read(#[from] ReadError),
    /// The key cannot be created.
    #[error("cannot create the key of this machine, {}: {error}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Other users may have read or written the key.
    #[error(
        "other users can read the key of this machine, {} (mode {mode:03o}): with it, they can have \
         this machine run programs. Remove the file: the next start creates a new key, and jobs \
         that still wait are to be submitted again", path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error(
        "the key of this machine, {}, belongs to the user {uid}. Remove the file: the next start \
         creates a new key", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The file does not have the length of a key.
    #[error(
        "{} does not hold the {LENGTH} bytes of a key. Remove the file: the next start creates a \
         new key, and jobs that still wait are to be submitted again", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl MachineKey {
    /// Loads the key from the directory `state`, and creates it if there is none. Processes
    /// that create it at the same time get the same key.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn load_or_create(state: &Path) -> Result<Self, KeyError> {
        if state.is_relative() {
            return Err(KeyError::NoState {
                state: state.to_owned(),
            });
        }
        let path = state.join(FILE);
        match Self::load(&path) {
            Err(KeyError::Read(error)) if error.is_not_found() => {
                create(state, &path).map_err(|error| KeyError::Create {
                    path: path.clone(),
                    error,
                })?;
                Self::load(&path)
            }
            loaded => loaded,
        }
    }

    /// Loads the key from the directory `state`. If there is none, returns a new key that is not
    /// stored.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn load_or_forget(state: &Path) -> Result<Self, KeyError> {
        let path = state.join(FILE);
        match Self::load(&path) {
            Err(KeyError::Read(error)) if error.is_not_found() => {
                let random = random().map_err(|error| KeyError::Create {
                    path: path.clone(),
                    error,
                })?;
                Self::of(&random).ok_or(KeyError::Malformed { path })
            }
            loaded => loaded,
        }
    }

    fn load(path: &Path) -> Result<Self, KeyError> {
        let read = |error| ReadError::Io {
            path: path.to_owned(),
            error,
        };
        let file = untrusted_file::open(path, Links::Refused)?;
        let about = file.metadata().map_err(read)?;
        if about.uid() != geteuid().as_raw() {
            return Err(KeyError::Foreign {
                path: path.to_owned(),
                uid: about.uid(),
            });
        }
        if about.mode() & 0o077 != 0 {
            return Err(KeyError::Exposed {
                path: path.to_owned(),
                mode: about.mode() & 0o777,
            });
        }
        let mut bytes = Vec::with_capacity(LENGTH + 1);
        let most = u64::try_from(LENGTH + 1).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut bytes).map_err(read)?;
        Self::of(&bytes).ok_or_else(|| KeyError::Malformed {
            path: path.to_owned(),
        })
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != LENGTH {
            return None;
        }
        let mac = Hmac::<Sha256>::new_from_slice(bytes).ok()?;
        let name = mac.clone().chain_update(NAME).finalize().into_bytes();
        let id = hex(name.get(..NAME_LENGTH)?);
        Some(Self { mac, id })
    }

    /// The public name of the key: 16 hexadecimal digits, which do not reveal the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature of a message.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> String {
        let tag = self.mac.clone().chain_update(message).finalize();
        URL_SAFE_NO_PAD.encode(tag.into_bytes())
    }

    /// Whether this key has made the signature of this message.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], signature: &str) -> bool {
        let Ok(tag) = URL_SAFE_NO_PAD.decode(signature) else {
            return false;
        };
        let mac = self.mac.clone().chain_update(message);
        mac.verify_slice(&tag).is_ok()
    }
}

fn random() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Creates the key's file atomically, unless another process is faster.
fn create(state: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)?;
    let bytes = random()?;
    // A temporary file has the mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(state)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(refused) if refused.error.kind() != io::ErrorKind::AlreadyExists => Err(refused.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn key_is_created_once_and_only_for_this_user() {
        const THREADS: usize = 16;
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("a/state");
        let barrier = Barrier::new(THREADS);
        let ids: Vec<String> = std::thread::scope(|scope| {
            let load = || {
                barrier.wait();
                MachineKey::load_or_create(&state).unwrap().id().to_owned()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(load)).collect();
            let ids = threads.into_iter().map(|thread| thread.join().unwrap());
            ids.collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let about = fs::metadata(state.join(FILE)).unwrap();
        assert_eq!((about.mode() & 0o777, about.len()), (0o600, 32));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
        let other = MachineKey::load_or_create(directory.path()).unwrap();
        assert_ne!(other.id(), ids[0]);
    }

    #[test]
    fn signature_belongs_to_one_message_and_one_key() {
        let keys = [1, 2].map(|byte| MachineKey::of(&[byte; LENGTH]).unwrap());
        let signature = keys[0].sign(b"a message");
        assert!(keys[0].has_signed(b"a message", &signature));
        assert!(!keys[0].has_signed(b"another", &signature));
        assert!(!keys[1].has_signed(b"a message", &signature));
        for forged in ["", "AAAA", &signature[..42], "not base64!"] {
            assert!(!keys[0].has_signed(b"a message", forged), "{forged}");
        }
    }

    #[test]
    fn key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        MachineKey::load_or_create(directory.path()).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = MachineKey::load_or_create(directory.path()).err().unwrap();
            assert!(matches!(error, KeyError::Exposed { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(&format!("mode {mode:03o}")), "{said}");
            assert!(said.contains("Remove the file"), "{said}");
        }
    }

    #[test]
    fn relative_state_directory_is_refused() {
        let error = MachineKey::load_or_create(Path::new("state"))
            .err()
            .unwrap();
        assert!(matches!(error, KeyError::NoState { .. }), "{error}");
    }

    #[test]
    fn file_that_is_no_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for length in [0, LENGTH - 1, LENGTH + 1] {
            fs::write(&path, vec![7; length]).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let error = MachineKey::load_or_create(directory.path()).err().unwrap();
            assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
        }
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        symlink(directory.path().join("elsewhere"), &path).unwrap();
        let error = MachineKey::load_or_create(directory.path()).err().unwrap();
        assert!(matches!(error, KeyError::Read(_)), "{error}");
    }
}
