//! Addresses of webhooks and of ntfy topics: `https://HOST:PORT/PATH`.
//!
//! The path of such an address is a secret, as it is all that a sender needs. So addresses are
//! displayed without it.

use core::net::IpAddr;
use std::fmt;

use super::irc::address::Host;

/// The longest address, in bytes.
const LONGEST: usize = 2048;

/// The public server of ntfy.
pub const NTFY: &str = "ntfy.sh";

/// The longest name of a topic. Source: `topicRegex` of ntfy's server, 2.6.2.
const LONGEST_TOPIC: usize = 64;

/// Why a text is not the address of a webhook or a topic. The messages show no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWebAddress {
    /// It lacks the scheme or the host.
    #[error("write https://HOST/PATH")]
    Form,
    /// The connection would not be encrypted.
    #[error(
        "http:// is for a server on this machine alone (localhost, 127.0.0.1 or [::1]); write https://"
    )]
    Plain,
    /// It has a name or a password.
    #[error("a name or a password in the address is refused; write https://HOST/PATH")]
    User,
    /// The host is invalid.
    #[error("its host is invalid; write a name such as hooks.example.org, or an address")]
    Host,
    /// The port is invalid.
    #[error("its port is invalid; write a number from 1 to 65535")]
    Port,
    /// A character is not one of an address.
    #[error(
        "it has a character that no address has; write all of it (… stands for what is not shown), and %HH for other characters"
    )]
    Character,
    /// It is too long.
    #[error("it has more than {LONGEST} bytes")]
    Long,
    /// The path is no topic.
    #[error(
        "a topic has 1 to {LONGEST_TOPIC} letters, digits, - and _; write ntfy:TOPIC or ntfy:https://HOST/TOPIC"
    )]
    Topic,
}

/// The address of a webhook or a topic. `Display` and `Debug` hide its path.
#[derive(Clone, PartialEq, Eq)]
pub struct WebAddress {
    is_encrypted: bool,
    host: Host,
    port: Option<u16>,
    /// The path with the query. It begins with a slash.
    path: String,
}

impl WebAddress {
    /// Parses the address of a webhook.
    ///
    /// # Errors
    ///
    /// [`BadWebAddress`].
    pub fn of_webhook(text: &str) -> Result<Self, BadWebAddress> {
        let (is_encrypted, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(BadWebAddress::Form),
        };
        if text.len() > LONGEST {
            return Err(BadWebAddress::Long);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (server, path) = rest.split_at(end);
        if server.contains('@') {
            return Err(BadWebAddress::User);
        }
        if !path.bytes().all(is_of_path) {
            return Err(BadWebAddress::Character);
        }
        let (host, port) = split_port(server)?;
        let address = Self {
            is_encrypted,
            host: host.parse().map_err(|_| BadWebAddress::Host)?,
            port,
            path: match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            },
        };
        match is_encrypted || address.is_local() {
            true => Ok(address),
            false => Err(BadWebAddress::Plain),
        }
    }

    /// Parses a topic of ntfy, with or without its server.
    ///
    /// # Errors
    ///
    /// [`BadWebAddress`].
    pub fn of_topic(text: &str) -> Result<Self, BadWebAddress> {
        let address = match text.contains("://") {
            true => Self::of_webhook(text)?,
            false => Self::of_webhook(&format!("https://{NTFY}/{text}"))
                .map_err(|_| BadWebAddress::Topic)?,
        };
        let topic = address.path.strip_prefix('/').unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match (1..=LONGEST_TOPIC).contains(&topic.len()) && topic.bytes().all(plain) {
            true => Ok(address),
            false => Err(BadWebAddress::Topic),
        }
    }

    /// The whole address, with its path.
    #[must_use]
    pub fn secret(&self) -> String {
        format!("{}{}", self.server(), self.path)
    }

    /// The path with the query.
    #[must_use]
    pub fn secret_path(&self) -> &str {
        &self.path
    }

    /// The host, an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.as_str()
    }

    /// The host, with the port if it is not the usual one: the header `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.is_encrypted {
            true => 443,
            false => 80,
        })
    }

    /// Whether the connection is encrypted. Otherwise, the server is on this machine.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn is_local(&self) -> bool {
        let host = self.host.as_str();
        let address = host.parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    fn server(&self) -> String {
        let scheme = match self.is_encrypted {
            true => "https",
            false => "http",
        };
        format!("{scheme}://{}", self.authority())
    }
}

/// Source: RFC 3986, 3.3 and 3.4. A fragment is not sent.
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_graphic() && !br##""#<>\^`{|}"##.contains(&byte)
}

fn split_port(server: &str) -> Result<(&str, Option<u16>), BadWebAddress> {
    match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_number && *port > 0);
            Ok((host, Some(port.ok_or(BadWebAddress::Port)?)))
        }
        _ => Ok((server, None)),
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/…", self.server())
    }
}

impl fmt::Debug for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_kept_whole_and_displayed_without_path() {
        for (text, whole, shown) in [
            (
                "https://hooks.example/services/T0/B0/s3cret?token=x",
                "https://hooks.example/services/T0/B0/s3cret?token=x",
                "https://hooks.example/…",
            ),
            ("https://h", "https://h/", "https://h/…"),
            ("https://h?a", "https://h/?a", "https://h/…"),
            ("https://h:8443/a", "https://h:8443/a", "https://h:8443/…"),
            (
                "https://[fd00::1]/a",
                "https://[fd00::1]/a",
                "https://[fd00::1]/…",
            ),
            (
                "http://localhost:80/a",
                "http://localhost:80/a",
                "http://localhost:80/…",
            ),
            (
                "http://127.9.9.9/a",
                "http://127.9.9.9/a",
                "http://127.9.9.9/…",
            ),
            ("http://[::1]:7/a", "http://[::1]:7/a", "http://[::1]:7/…"),
        ] {
            let address = WebAddress::of_webhook(text).unwrap();
            assert_eq!(address.secret(), whole);
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(WebAddress::of_webhook(whole).unwrap(), address);
        }
        for (text, whole) in [
            ("my-topic_1", "https://ntfy.sh/my-topic_1"),
            ("https://ntfy.example/t", "https://ntfy.example/t"),
            ("http://127.0.0.1:8080/t", "http://127.0.0.1:8080/t"),
        ] {
            assert_eq!(WebAddress::of_topic(text).unwrap().secret(), whole);
        }
    }

    #[test]
    fn other_addresses_are_refused_without_showing_their_path() {
        use BadWebAddress as Bad;
        let long = format!("https://h/{}", "s3cret".repeat(400));
        for (text, why) in [
            ("", Bad::Form),
            ("h/s3cret", Bad::Form),
            ("HTTPS://h/s3cret", Bad::Form),
            ("file:///s3cret", Bad::Form),
            ("http://h/s3cret", Bad::Plain),
            ("http://127.0.0.1.evil.example/s3cret", Bad::Plain),
            ("http://localhost.evil.example/s3cret", Bad::Plain),
            ("http://10.0.0.1/s3cret", Bad::Plain),
            ("http://0.0.0.0/s3cret", Bad::Plain),
            ("https://me:s3cret@h/x", Bad::User),
            ("https://s3cret@h", Bad::User),
            ("http://127.0.0.1@evil.example/s3cret", Bad::User),
            ("https://", Bad::Host),
            ("https:///s3cret", Bad::Host),
            ("https://h h/s3cret", Bad::Host),
            ("https://h\r\n/s3cret", Bad::Host),
            ("https://h\\s3cret", Bad::Host),
            ("https://h#s3cret", Bad::Host),
            ("https://bär/s3cret", Bad::Host),
            ("https://h:0/s3cret", Bad::Port),
            ("https://h:65536/s3cret", Bad::Port),
            ("https://h:+1/s3cret", Bad::Port),
            ("https://h:/s3cret", Bad::Port),
            ("https://::1/s3cret", Bad::Host),
            ("https://h/s3cret x", Bad::Character),
            ("https://h/s3cret\r\nHost: evil", Bad::Character),
            ("https://h/s3cret#x", Bad::Character),
            ("https://h/…", Bad::Character),
            (&long, Bad::Long),
        ] {
            let error = WebAddress::of_webhook(text).unwrap_err();
            assert_eq!(error, why, "{text}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        for text in [
            "",
            "a b",
            "a/b",
            "a?auth=s3cret",
            "../x",
            "https://ntfy.example/",
            "https://ntfy.example/a/b",
            "https://ntfy.example/a?auth=s3cret",
            &"x".repeat(65),
        ] {
            assert_eq!(WebAddress::of_topic(text), Err(Bad::Topic), "{text}");
        }
    }
}
