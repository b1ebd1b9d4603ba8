//! The address of the repository on its forge, which packages and download links name.

use std::str::FromStr;

use anyhow::bail;

/// The forge whose accounts each have a part of the MCP registry's names.
pub(crate) const GITHUB: &str = "https://github.com/";

/// An address of the form `https://HOST/OWNER/NAME`, on a forge whose releases are laid out as
/// those of GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    url: String,
    owner: String,
}

impl Repository {
    /// The address, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The account that has the repository.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// The part of the MCP registry's names that the account has, if it has one there.
    ///
    /// Source: the page "Authentication" of <https://modelcontextprotocol.io/registry>.
    pub(crate) fn mcp_namespace(&self) -> Option<String> {
        let is_known = self.url.starts_with(GITHUB);
        is_known.then(|| format!("io.github.{}", self.owner()))
    }

    /// Where a file of the release `version` is downloaded.
    pub(crate) fn download(&self, version: &str, file: &str) -> String {
        format!("{}/releases/download/v{version}/{file}", self.url)
    }
}

impl FromStr for Repository {
    type Err = anyhow::Error;

    fn from_str(url: &str) -> anyhow::Result<Self> {
        let url = url.trim_end_matches('/').trim_end_matches(".git");
        // The address is put into scripts.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        let rest = url.strip_prefix("https://").unwrap_or_default();
        let parts: Vec<&str> = rest.split('/').collect();
        let [host, owner, name] = parts.as_slice() else {
            bail!("{url:?}: the address of the repository must be https://HOST/OWNER/NAME");
        };
        if !rest.chars().all(plain) {
            bail!("{url:?}: the address of the repository has characters that it must not have");
        }
        if [host, owner, name].iter().any(|part| part.is_empty()) {
            bail!("{url:?}: a part of the repository's address is empty");
        }
        Ok(Self {
            url: url.to_owned(),
            owner: (*owner).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn address_has_an_owner_and_a_name() {
        let found: Repository = "https://forge.example/acme/tool.git".parse().unwrap();
        assert_eq!(found.owner(), "acme");
        assert_eq!(
            found.download("1.2.3", "a.tar.gz"),
            "https://forge.example/acme/tool/releases/download/v1.2.3/a.tar.gz"
        );
    }

    #[test]
    fn namespace_is_that_of_the_account() {
        let namespace = |url: &str| url.parse::<Repository>().unwrap().mcp_namespace();
        let found = namespace("https://github.com/acme/tool");
        assert_eq!(found.as_deref(), Some("io.github.acme"));
        assert_eq!(namespace("https://forge.example/acme/tool"), None);
    }

    #[test]
    fn malformed_address_is_refused() {
        for url in [
            "",
            "https://forge.example",
            "https://forge.example//tool",
            "http://forge.example/acme/tool",
            "https://forge.example/acme/$(tool)",
            "https://forge.example/acme/tool/issues",
        ] {
            assert!(url.parse::<Repository>().is_err(), "{url}");
        }
    }
}
