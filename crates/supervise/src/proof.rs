//! The proof that a client of a Unix socket can write in the socket's directory.
//!
//! A command in Codex's sandbox runs as the same user and may reach the socket, but cannot write in
//! its directory. So the server names a file, and serves the client only after the client has
//! created this file.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use common::text::hex;
use serde::{Deserialize, Serialize};

/// The server's demand on a new client: to create an empty file of this name next to the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// The file's name.
    pub file: ProofName,
}

/// The name of a file that proves that a client can write in the directory of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProofName(String);

/// The end of the name of a proof.
const PROOF: &str = ".proof";

/// The number of random bytes in the name of a proof, so that nobody can guess it.
pub const PROOF_BYTES: usize = 16;

impl ProofName {
    /// Creates a random name that nobody knows yet.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut random = [0; PROOF_BYTES];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Self::new(random))
    }

    /// The name with these random bytes.
    #[must_use]
    pub fn new(random: [u8; PROOF_BYTES]) -> Self {
        Self(hex(&random) + PROOF)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProofName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let random = name.strip_suffix(PROOF).unwrap_or_default();
        let is_random = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match random.len() == 2 * PROOF_BYTES && random.bytes().all(is_random) {
            true => Ok(Self(name)),
            false => Err("not the name of a proof"),
        }
    }
}

impl From<ProofName> for String {
    fn from(ProofName(name): ProofName) -> Self {
        name
    }
}

/// Creates the file of a proof in the directory of a socket, on the client's side.
///
/// # Errors
///
/// Those of the file system; [`io::ErrorKind::AlreadyExists`] if there is such a file.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of our own state, made anew; nothing at its path is opened"
)]
pub fn make(directory: &Path, name: &ProofName) -> io::Result<()> {
    let path = directory.join(name.as_str());
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.map(drop)
}

/// Checks on the server's side whether the client has created the file of a proof, and removes the
/// file.
///
/// # Errors
///
/// Those of the file system.
pub fn take(directory: &Path, name: &ProofName) -> io::Result<bool> {
    match fs::remove_file(directory.join(name.as_str())) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_lies_beside_the_socket() {
        let name = ProofName::new([0xa0; PROOF_BYTES]);
        assert_eq!(name.as_str(), format!("{}.proof", "a0".repeat(16)));
        assert_eq!(ProofName::try_from(name.as_str().to_owned()), Ok(name));
        for other in ["", ".proof", "../x.proof", "k.sock"] {
            assert!(ProofName::try_from(other.to_owned()).is_err(), "{other}");
        }
        let path = format!("/{}.proof", "a".repeat(31));
        assert!(ProofName::try_from(path).is_err());
    }

    #[test]
    fn random_names_differ() {
        let name = ProofName::random().unwrap();
        assert_ne!(name, ProofName::random().unwrap());
        assert_eq!(ProofName::try_from(name.as_str().to_owned()), Ok(name));
    }

    #[test]
    fn proof_is_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let name = ProofName::new([7; PROOF_BYTES]);
        assert!(!take(directory.path(), &name).unwrap());
        make(directory.path(), &name).unwrap();
        assert!(make(directory.path(), &name).is_err());
        assert!(take(directory.path(), &name).unwrap());
        assert!(!take(directory.path(), &name).unwrap());
    }
}
