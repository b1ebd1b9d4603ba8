//! The secret token with which a client authenticates to an app-server that listens on a port.

use std::fmt::{self, Debug, Formatter};
use std::io;

use common::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The number of random bytes in a token.
const RANDOM_BYTES: usize = 32;

/// A secret that nobody can guess. Anybody who knows it can have Codex do anything.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AccessToken(String);

impl AccessToken {
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub(super) fn random() -> io::Result<Self> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Self(hex(&random)))
    }

    /// The arguments that make Codex demand the token from its clients. They do not contain the
    /// token itself, since other processes can read a process's arguments. Known to 0.130.0,
    /// 0.153.4 and 0.169.0.
    pub(super) fn codex_args(&self) -> [String; 4] {
        let digest = hex(&Sha256::digest(&self.0));
        [
            "--ws-auth".to_owned(),
            "capability-token".to_owned(),
            "--ws-token-sha256".to_owned(),
            digest,
        ]
    }

    /// The token itself, for another client of Codex.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of the `Authorization` header with which a client presents the token.
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl Debug for AccessToken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_digest_only() {
        let token = AccessToken("tok".to_owned());
        let digest = "1a7674eb4ee78df7e1ac439a93c3fa8e3c945784d4dec9fd8e3011738b2f1d62";
        assert_eq!(token.codex_args().last().unwrap(), digest);
        assert_eq!(token.authorization(), "Bearer tok");
        assert_eq!(format!("{token:?}"), "AccessToken");
    }

    #[test]
    fn tokens_differ() {
        let token = AccessToken::random().unwrap();
        assert_ne!(token, AccessToken::random().unwrap());
        assert_eq!(token.0.len(), 2 * RANDOM_BYTES);
    }
}
