//! Parameters and headers of HTTP requests.
//!
//! Input: the query, or the body of a form, in the first line, and a header in each other one.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use web::logic::access::{Credentials, Kind, NewCredential, Scope, Secret, TokenName};
use web::logic::authority::{Authorities, Authority};
use web::parsers;

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let query = lines.next().unwrap_or_default();
    if let Ok(query) = std::str::from_utf8(query) {
        form(query);
        credentials(query);
    }
    let mut headers = Vec::new();
    for line in lines.take(50) {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            headers.push((&line[..colon], line[colon + 1..].trim_ascii()));
        }
    }
    let secrets = parsers::secrets(&headers);
    let has = |name: &str| {
        headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
    };
    assert!(secrets.bearer.is_none() || has("authorization"));
    assert!(secrets.cookie.is_none() || has("cookie"));
    addressed(&headers);
}

/// A form that is read twice reads the same.
fn form(query: &str) {
    let form = parsers::form(query);
    assert_eq!(parsers::form(query), form);
    if let Some(files) = form
        .criteria
        .as_ref()
        .and_then(|criteria| criteria.get("files"))
    {
        assert!(files.as_array().is_some_and(|files| !files.is_empty()));
    }
}

/// The file of credentials is ours, but people edit files.
fn credentials(text: &str) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_760_000_000);
    let Ok(mut credentials) = serde_json::from_str::<Credentials>(text) else {
        return;
    };
    let before = credentials.listed(now).count();
    let secret = Secret::of([7; 32]);
    let name: TokenName = "a name".parse().unwrap();
    let new = NewCredential {
        kind: Kind::Browser,
        name,
        scope: Scope::Look,
    };
    let id = credentials.add(new, &secret, now);
    assert!(credentials.listed(now).count() <= before + 1);
    let found = credentials.find(Kind::Browser, secret.reveal(), now);
    assert_eq!(found.map(|found| found.scope), Some(Scope::Look));
    assert!(
        credentials
            .find(Kind::Token, secret.reveal(), now)
            .is_none()
    );
    let written = serde_json::to_string(&credentials).unwrap();
    assert_eq!(
        serde_json::from_str::<Credentials>(&written).unwrap(),
        credentials
    );
    assert!(credentials.has(&id, now));
    credentials.revoke(id.as_str());
    assert!(
        credentials
            .find(Kind::Browser, secret.reveal(), now)
            .is_none()
    );
}

/// A request that is accepted addresses us, by its host and by its origin.
fn addressed(headers: &[(&[u8], &[u8])]) {
    let text = |name: &str| {
        let mut all = headers.iter();
        let found = all.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| std::str::from_utf8(value).unwrap_or("?"))
    };
    let (host, origin) = (text("host"), text("origin"));
    for authority in [host, origin].into_iter().flatten() {
        if let Ok(read) = authority.parse::<Authority>() {
            assert_eq!(read.to_string().parse(), Ok(read));
        }
    }
    let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
    let ours = Authorities::new(address, vec!["codex.example".parse().unwrap()]);
    if ours.check(host, origin).is_ok() {
        let host = host.unwrap();
        assert!(is_ours(host), "{host:?} is not ours");
        if let Some(origin) = origin {
            let (scheme, authority) = origin.split_once("://").unwrap();
            assert!(matches!(scheme, "http" | "https"));
            assert!(is_ours(authority), "{origin:?} is not ours");
            let name = |authority: &str| split(authority).0;
            assert_eq!(name(authority), name(host));
        }
    }
}

/// The host in small letters, and the port.
fn split(authority: &str) -> (String, Option<&str>) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host.to_ascii_lowercase(), port)
}

fn is_ours(authority: &str) -> bool {
    let (host, port) = split(authority);
    let is_local = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    let port: Option<u16> = port.map(|port| port.parse().unwrap());
    host == "codex.example" || is_local && port == Some(8080)
}
