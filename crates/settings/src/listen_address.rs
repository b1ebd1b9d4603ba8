//! An address of this machine at which a server listens.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IP address of this machine and a port. `localhost` is its IPv4 address; other names are refused,
/// as they can have several addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(pub SocketAddr);

impl ListenAddress {
    /// A warning if other machines can reach the address.
    #[must_use]
    pub fn warning(self) -> Option<String> {
        let Self(address) = self;
        (!address.ip().is_loopback()).then(|| {
            format!(
                "{address} can be reached by other machines, and what they send and get is not \
                 encrypted: use a proxy with TLS, or a tunnel"
            )
        })
    }
}

/// A text that is not an address and a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not ADDRESS:PORT, such as 127.0.0.1:8377 or [::1]:8377")]
pub struct BadListenAddress(String);

impl FromStr for ListenAddress {
    type Err = BadListenAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.strip_prefix("localhost:");
        if let Some(port) = port.and_then(|port| port.parse().ok()) {
            return Ok(Self((Ipv4Addr::LOCALHOST, port).into()));
        }
        let address = text
            .parse()
            .map_err(|_| BadListenAddress(text.to_owned()))?;
        Ok(Self(address))
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = BadListenAddress;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_one_of_this_machine() {
        let local = ListenAddress("127.0.0.1:1".parse().unwrap());
        assert_eq!("localhost:1".parse(), Ok(local));
        assert_eq!("127.0.0.1:1".parse(), Ok(local));
        for wrong in ["localhost", "localhost:x", "example.org:80", "8377"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }
}
