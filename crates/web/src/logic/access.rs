//! The credentials for the endpoint: tokens of programs, browsers that are signed in, and one-time
//! links.
//!
//! ```text
//!   codex-mcp web        ─► link ──(once, within 10 min)──► browser (a cookie, 30 days)
//!   codex-mcp web token  ─► token (a bearer token, until it is revoked)
//! ```
//!
//! Links and cookies end with the endpoint.
//!
//! Only the SHA-256 of each secret is stored. The secrets are random numbers of 256 bits, so a
//! deliberately slow hash would protect nothing more.

use std::fmt::{self, Debug, Formatter};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::{AsRefStr, EnumString, VariantNames};

/// How long a one-time link can be used.
pub const LINK_LIFE: Duration = Duration::from_secs(10 * 60);

/// How long a browser stays signed in.
pub const BROWSER_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The most credentials that are kept, of each kind. For one more link or browser, the oldest is removed;
/// one more token is refused.
pub const MOST: usize = 100;

/// The longest name of a token, in bytes.
const LONGEST_NAME: usize = 64;

/// How many hexadecimal digits an ID has.
const ID_DIGITS: usize = 8;

/// The permissions of a credential.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    EnumString,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// To see everything, and to change nothing.
    Look,
    /// To start work, to answer questions, and to end work.
    Decide,
}

/// The kind of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// The bearer token of a program.
    Token,
    /// The cookie of a browser.
    Browser,
    /// A one-time link.
    Link,
}

/// A secret, as its holder has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret of random bytes.
    #[must_use]
    pub fn of(random: [u8; 32]) -> Self {
        Self(URL_SAFE_NO_PAD.encode(random))
    }

    /// Its text, for its holder alone.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Debug for Secret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The ID of a credential, by which it is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(String);

impl CredentialId {
    #[cfg(test)]
    pub(crate) fn of_test(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a token: printable ASCII, at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenName(String);

/// A text that is no [`TokenName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {LONGEST_NAME} letters, digits, spaces and signs of ASCII")]
pub struct BadTokenName;

impl FromStr for TokenName {
    type Err = BadTokenName;

    fn from_str(text: &str) -> Result<Self, BadTokenName> {
        let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let is_name = (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_printable);
        is_name.then(|| Self(text.to_owned())).ok_or(BadTokenName)
    }
}

impl TryFrom<String> for TokenName {
    type Error = BadTokenName;

    fn try_from(text: String) -> Result<Self, BadTokenName> {
        text.parse()
    }
}

impl From<TokenName> for String {
    fn from(name: TokenName) -> Self {
        name.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A credential, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// Its ID.
    pub id: CredentialId,
    /// Its kind.
    pub kind: Kind,
    /// The owner's name for it.
    pub name: TokenName,
    /// What it allows.
    pub scope: Scope,
    /// The SHA-256 of its secret.
    hash: [u8; 32],
    /// When it was made.
    pub created: SystemTime,
    /// When it ends.
    pub expires: Option<SystemTime>,
}

impl Credential {
    fn is_live(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// All credentials. Earlier builds have also written the host name of the page, so unknown fields are
/// ignored here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    list: Vec<Credential>,
}

/// A credential to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCredential {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: TokenName,
    /// What it allows.
    pub scope: Scope,
}

impl Credentials {
    /// The valid credentials without links, oldest first.
    pub fn listed(&self, now: SystemTime) -> impl Iterator<Item = &Credential> {
        let all = self.list.iter();
        all.filter(move |one| one.kind != Kind::Link && one.is_live(now))
    }

    /// Whether there are as many tokens as there may be.
    #[must_use]
    pub fn is_full_of_tokens(&self) -> bool {
        let tokens = self.list.iter().filter(|one| one.kind == Kind::Token);
        tokens.count() >= MOST
    }

    /// Adds a credential with this secret.
    pub fn add(&mut self, new: NewCredential, secret: &Secret, now: SystemTime) -> CredentialId {
        self.list.retain(|one| one.is_live(now));
        let is_of_kind = |one: &Credential| one.kind == new.kind;
        if self.list.iter().filter(|one| is_of_kind(one)).count() >= MOST
            && let Some(oldest) = self.list.iter().position(is_of_kind)
        {
            self.list.remove(oldest);
        }
        let hash = hash(secret.reveal());
        let life = match new.kind {
            Kind::Token => None,
            Kind::Browser => Some(BROWSER_LIFE),
            Kind::Link => Some(LINK_LIFE),
        };
        let id = CredentialId(id_of(&hash));
        self.list.push(Credential {
            id: id.clone(),
            kind: new.kind,
            name: new.name,
            scope: new.scope,
            hash,
            created: now,
            expires: life.map(|life| now + life),
        });
        id
    }

    /// The credential of this kind whose secret this is.
    #[must_use]
    pub fn find(&self, kind: Kind, secret: &str, now: SystemTime) -> Option<&Credential> {
        let hash = hash(secret);
        let mut all = self.list.iter();
        all.find(|one| one.kind == kind && one.hash == hash && one.is_live(now))
    }

    /// Whether the credential with this ID is valid.
    #[must_use]
    pub fn has(&self, id: &CredentialId, now: SystemTime) -> bool {
        self.list
            .iter()
            .any(|one| one.id == *id && one.is_live(now))
    }

    /// Uses up a link, and returns its permissions.
    pub fn take_link(&mut self, secret: &str, now: SystemTime) -> Option<Scope> {
        let scope = self.find(Kind::Link, secret, now)?.scope;
        let hash = hash(secret);
        self.list.retain(|one| one.hash != hash);
        Some(scope)
    }

    /// Removes the credential with this ID; `false` if there is none.
    pub fn revoke(&mut self, id: &str) -> bool {
        let before = self.list.len();
        self.list.retain(|one| one.id.as_str() != id);
        self.list.len() < before
    }

    /// Removes all credentials except tokens.
    pub fn revoke_all_but_tokens(&mut self) {
        self.list.retain(|one| one.kind == Kind::Token);
    }

    /// Removes all credentials, and returns how many there were.
    pub fn revoke_all(&mut self, now: SystemTime) -> usize {
        let count = self.listed(now).count();
        self.list.clear();
        count
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// An ID, derived from the hash of the hash so that it reveals neither the secret nor its hash.
fn id_of(hash: &[u8; 32]) -> String {
    let mut id = hex(&Sha256::digest(hash));
    id.truncate(ID_DIGITS);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: Kind, scope: Scope) -> NewCredential {
        NewCredential {
            kind,
            name: "a test".parse().unwrap(),
            scope,
        }
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn secret_is_valid_for_its_kind_until_it_is_revoked() {
        let mut all = Credentials::default();
        let secret = Secret::of([7; 32]);
        let id = all.add(new(Kind::Token, Scope::Look), &secret, NOW);
        let found = all.find(Kind::Token, secret.reveal(), NOW).unwrap();
        assert_eq!((found.scope, &found.id), (Scope::Look, &id));
        assert!(all.find(Kind::Browser, secret.reveal(), NOW).is_none());
        assert!(all.find(Kind::Token, "", NOW).is_none());
        assert!(all.revoke(id.as_str()));
        assert!(!all.revoke(id.as_str()));
        assert!(all.find(Kind::Token, secret.reveal(), NOW).is_none());
    }

    #[test]
    fn link_can_be_used_once_and_not_for_long() {
        let mut all = Credentials::default();
        let (one, other) = (Secret::of([1; 32]), Secret::of([2; 32]));
        all.add(new(Kind::Link, Scope::Decide), &one, NOW);
        all.add(new(Kind::Link, Scope::Look), &other, NOW);
        assert_eq!(all.listed(NOW).count(), 0);
        assert_eq!(all.take_link(one.reveal(), NOW), Some(Scope::Decide));
        assert_eq!(all.take_link(one.reveal(), NOW), None);
        assert_eq!(all.take_link(other.reveal(), NOW + LINK_LIFE), None);
    }

    #[test]
    fn only_tokens_outlive_the_endpoint() {
        let mut all = Credentials::default();
        let secret = |kind: Kind| Secret::of([kind as u8; 32]);
        let kinds = [Kind::Token, Kind::Browser, Kind::Link];
        for kind in kinds {
            all.add(new(kind, Scope::Decide), &secret(kind), NOW);
        }
        all.revoke_all_but_tokens();
        let is_valid = |kind: Kind| all.find(kind, secret(kind).reveal(), NOW).is_some();
        assert_eq!(kinds.map(is_valid), [true, false, false]);
    }

    #[test]
    fn no_secret_is_kept_or_shown() {
        let mut all = Credentials::default();
        let secret = Secret::of([9; 32]);
        all.add(new(Kind::Token, Scope::Decide), &secret, NOW);
        let kept = serde_json::to_string(&all).unwrap();
        assert!(!kept.contains(secret.reveal()));
        assert!(!format!("{secret:?}").contains(secret.reveal()));
        assert_eq!(serde_json::from_str::<Credentials>(&kept).unwrap(), all);
    }

    #[test]
    fn file_of_an_earlier_build_keeps_its_tokens() {
        let mut all = Credentials::default();
        all.add(new(Kind::Token, Scope::Look), &Secret::of([9; 32]), NOW);
        let mut kept = serde_json::to_value(&all).unwrap();
        kept["host"] = "codex-mcp-0a.localhost".into();
        assert_eq!(serde_json::from_value::<Credentials>(kept).unwrap(), all);
    }

    #[test]
    fn number_of_credentials_is_bounded() {
        let mut all = Credentials::default();
        let token = Secret::of([255; 32]);
        all.add(new(Kind::Token, Scope::Look), &token, NOW);
        for number in 0..200 {
            all.add(
                new(Kind::Browser, Scope::Look),
                &Secret::of([number; 32]),
                NOW,
            );
        }
        assert_eq!(all.listed(NOW).count(), MOST + 1);
        assert!(all.find(Kind::Token, token.reveal(), NOW).is_some());
        let (first, last) = (Secret::of([0; 32]), Secret::of([199; 32]));
        assert!(all.find(Kind::Browser, first.reveal(), NOW).is_none());
        assert!(all.find(Kind::Browser, last.reveal(), NOW).is_some());
    }

    #[test]
    fn name_is_short_and_printable() {
        for name in ["phone", "my phone", &"n".repeat(64)] {
            assert!(name.parse::<TokenName>().is_ok(), "{name}");
        }
        for name in ["", "\u{1b}[2J", "naïve", &"n".repeat(65)] {
            assert!(name.parse::<TokenName>().is_err(), "{name}");
        }
    }
}
