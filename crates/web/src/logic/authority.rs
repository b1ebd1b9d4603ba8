//! The names under which the endpoint may be addressed.
//!
//! Another site's page can make a browser send requests to this endpoint. The browser then names
//! the page's origin. If the site's name was made to point here (DNS rebinding), the request
//! addresses that name. So both the origin and the addressed name must be ours.

use core::net::{IpAddr, SocketAddr};
use std::fmt;
use std::str::FromStr;

use common::text::hex;

/// A host and a port, as requests address them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The name in lower case, or the address without brackets.
    host: String,
    port: Option<u16>,
}

impl Authority {
    /// The host name of the page on this machine, for one start of the endpoint: a name below
    /// `localhost` that nobody else has or knows. A browser sends the cookies of a host to all of
    /// its ports, so with the plain name `localhost`, every other server of this machine would
    /// receive ours. With the name of an earlier start, a page of another user who has had the port
    /// meanwhile would have the same origin as ours.
    #[must_use]
    pub fn of_page(random: [u8; 8]) -> Self {
        Self {
            host: format!("codex-mcp-{}.localhost", hex(&random)),
            port: None,
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (true, None) => write!(f, "[{}]", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (false, None) => f.write_str(&self.host),
        }
    }
}

/// A text that is no [`Authority`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a host name, or a host name and a port: HOST or HOST:PORT")]
pub struct BadAuthority;

impl FromStr for Authority {
    type Err = BadAuthority;

    fn from_str(text: &str) -> Result<Self, BadAuthority> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(BadAuthority)?,
            None => match text.find(':') {
                Some(colon) => text.split_at(colon),
                None => (text, ""),
            },
        };
        let port = match port.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(port.parse().map_err(|_| BadAuthority)?)
            }
            None if port.is_empty() => None,
            _ => return Err(BadAuthority),
        };
        let is_named = !host.is_empty() && host.len() <= 253;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        match is_named && host.bytes().all(is_host) {
            true => Ok(Self {
                host: host.to_ascii_lowercase(),
                port,
            }),
            false => Err(BadAuthority),
        }
    }
}

/// The authorities of the endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    address: SocketAddr,
    names: Vec<Authority>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongAuthority {
    /// The request addresses another host.
    #[error(
        "this server is not addressed by that name; `codex-mcp web link` prints a link to its page, whose name \
         is new at each start, and `codex-mcp web --allow-host NAME` allows a name"
    )]
    Host,
    /// A page of another origin has made the request.
    #[error("the request comes from a page of another origin")]
    Origin,
}

impl Authorities {
    /// The authorities of an endpoint that listens at `address` and is also known by `names`.
    #[must_use]
    pub fn new(address: SocketAddr, names: Vec<Authority>) -> Self {
        Self { address, names }
    }

    /// Checks the `Host` and the `Origin` of a request.
    ///
    /// # Errors
    ///
    /// [`WrongAuthority`].
    pub fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), WrongAuthority> {
        if !host.is_some_and(|host| self.is_ours(host, 80)) {
            return Err(WrongAuthority::Host);
        }
        match origin {
            None => Ok(()),
            Some(origin) if self.is_our_origin(origin, host) => Ok(()),
            Some(_) => Err(WrongAuthority::Origin),
        }
    }

    /// Whether an origin is the one that the request addresses, by its host and port. A proxy may speak
    /// TLS for us.
    fn is_our_origin(&self, origin: &str, host: Option<&str>) -> bool {
        let (authority, port) = match origin.split_once("://") {
            Some(("http", authority)) => (authority, 80),
            Some(("https", authority)) => (authority, 443),
            _ => return false,
        };
        let at = |text: &str| {
            let parsed: Authority = text.parse().ok()?;
            Some((parsed.host, parsed.port.unwrap_or(port)))
        };
        let addressed = host.and_then(at);
        addressed.is_some() && at(authority) == addressed && self.is_ours(authority, port)
    }

    fn is_ours(&self, text: &str, default_port: u16) -> bool {
        let Ok(authority) = text.parse::<Authority>() else {
            return false;
        };
        let is_named = |name: &Authority| {
            name.host == authority.host && (name.port.is_none() || name.port == authority.port)
        };
        if self.names.iter().any(is_named) {
            return true;
        }
        let port = authority.port.unwrap_or(default_port);
        port == self.address.port() && self.is_our_address(&authority.host)
    }

    /// Whether a host is an address at which we listen. Only a page that we have sent can have an
    /// address of ours as its origin.
    fn is_our_address(&self, host: &str) -> bool {
        let ours = self.address.ip();
        match host.parse::<IpAddr>() {
            Ok(address) if ours.is_unspecified() => !address.is_unspecified(),
            Ok(address) => address == ours || address.is_loopback() && ours.is_loopback(),
            // Nobody can make `localhost` point elsewhere (RFC 6761, section 6.3).
            Err(_) => host == "localhost" && (ours.is_loopback() || ours.is_unspecified()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listens: &str, host: &str, origin: Option<&str>) -> Result<(), WrongAuthority> {
        let names = vec![
            "codex.example".parse().unwrap(),
            Authority::of_page([10; 8]),
        ];
        Authorities::new(listens.parse().unwrap(), names).check(Some(host), origin)
    }

    const LOOPBACK: &str = "127.0.0.1:8080";

    #[test]
    fn host_is_ours() {
        for (listens, host) in [
            (LOOPBACK, "127.0.0.1:8080"),
            (LOOPBACK, "LocalHost:8080"),
            (LOOPBACK, "codex-mcp-0a0a0a0a0a0a0a0a.localhost:8080"),
            (LOOPBACK, "[::1]:8080"),
            (LOOPBACK, "codex.example"),
            (LOOPBACK, "Codex.Example:443"),
            ("127.0.0.1:80", "localhost"),
            ("0.0.0.0:8080", "192.0.2.7:8080"),
            ("192.0.2.7:8080", "192.0.2.7:8080"),
        ] {
            assert_eq!(check(listens, host, None), Ok(()), "{listens} {host}");
        }
        for (listens, host) in [
            (LOOPBACK, "attacker.example:8080"),
            (LOOPBACK, "127.0.0.1:8081"),
            (LOOPBACK, "127.0.0.1"),
            (LOOPBACK, "localhost.attacker.example:8080"),
            (LOOPBACK, "notlocalhost:8080"),
            // The name of an earlier start.
            (LOOPBACK, "codex-mcp-0b0b0b0b0b0b0b0b.localhost:8080"),
            ("192.0.2.7:8080", "localhost:8080"),
            (LOOPBACK, "192.0.2.7:8080"),
            (LOOPBACK, "127.0.0.1:8080@attacker.example"),
            (LOOPBACK, "127.0.0.1:+8080"),
            (LOOPBACK, ""),
            (LOOPBACK, "[::1"),
            ("0.0.0.0:8080", "attacker.example:8080"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
            ("192.0.2.7:8080", "192.0.2.8:8080"),
        ] {
            assert_eq!(
                check(listens, host, None),
                Err(WrongAuthority::Host),
                "{listens} {host}"
            );
        }
        let nobody = Authorities::new(LOOPBACK.parse().unwrap(), Vec::new());
        assert_eq!(nobody.check(None, None), Err(WrongAuthority::Host));
    }

    #[test]
    fn origin_is_the_one_that_is_addressed() {
        let host = "localhost:8080";
        assert_eq!(check(LOOPBACK, host, Some("http://localhost:8080")), Ok(()));
        for host in ["codex.example", "codex.example:443"] {
            let named = check(LOOPBACK, host, Some("https://codex.example"));
            assert_eq!(named, Ok(()), "{host}");
        }
        // A server of somebody else can listen at another port of the same machine.
        let other_port = check(
            LOOPBACK,
            "codex.example:8080",
            Some("http://codex.example:8081"),
        );
        assert_eq!(other_port, Err(WrongAuthority::Origin));
        for origin in [
            "null",
            "http://127.0.0.1:8080",
            "http://localhost:8081",
            "http://localhost",
            "http://attacker.example",
            "https://attacker.example:8080",
            "http://localhost:8080.attacker.example",
            "file://localhost:8080",
            "https://codex.example",
        ] {
            let checked = check(LOOPBACK, host, Some(origin));
            assert_eq!(checked, Err(WrongAuthority::Origin), "{origin}");
        }
    }
}
