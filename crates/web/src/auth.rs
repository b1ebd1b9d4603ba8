//! Who makes a request, and whether it is let in.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use common::sync::lock;

use crate::logic::access::{BROWSER_LIFE, Credentials, Kind, NewCredential, Scope, TokenName};
use crate::logic::authority::Authorities;
use crate::logic::throttle::{Throttle, Wait};
use crate::refusal::Refusal;
use crate::store::{CredentialStore, StoreError};

/// The name of the cookie.
const COOKIE: &str = "codex_mcp";

/// Decides on requests.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    store: CredentialStore,
    authorities: Authorities,
    throttle: Mutex<Throttle>,
}

/// Somebody who was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
}

impl Caller {
    /// Lets only those go on who may change something.
    pub(crate) fn must_decide(self) -> Result<(), Refusal> {
        match self.scope {
            Scope::Decide => Ok(()),
            Scope::Look => Err(Refusal::MayOnlyLook),
        }
    }
}

impl Doorkeeper {
    pub(crate) fn new(store: CredentialStore, authorities: Authorities) -> Self {
        Self {
            store,
            authorities,
            throttle: Mutex::default(),
        }
    }

    /// Checks where a request comes from, which needs no credential.
    fn check_origin(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        self.authorities
            .check(text(header::HOST), text(header::ORIGIN))?;
        // A browser that names no origin says at least whether it is ours.
        let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        match site {
            Some(b"same-origin" | b"none") | None => Ok(()),
            Some(_) if changes => Err(Refusal::CrossSite),
            Some(_) => Ok(()),
        }
    }

    /// Who makes a request. A token counts more than a cookie: if it is wrong, nobody does.
    fn caller(&self, from: IpAddr, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let (kind, secret) = match (bearer(headers)?, cookie(headers)) {
            (Some(token), _) => (Kind::Token, token),
            (None, Some(cookie)) => (Kind::Browser, cookie),
            (None, None) => return Err(Refusal::NotSignedIn),
        };
        let credentials = self.store.read()?;
        match credentials.find(kind, secret, SystemTime::now()) {
            Some(found) => Ok(Caller { scope: found.scope }),
            None => Err(self.wrong(from)),
        }
    }

    /// Counts a wrong secret.
    pub(crate) fn wrong(&self, from: IpAddr) -> Refusal {
        match lock(&self.throttle).wrong(from, Instant::now()) {
            Ok(()) => Refusal::WrongSecret,
            Err(Wait(wait)) => Refusal::TooManyTries(wait),
        }
    }

    /// Takes the code of a one-time link, and returns the cookie of the browser.
    pub(crate) fn sign_in(&self, from: IpAddr, code: &str) -> Result<String, Refusal> {
        let taken = |all: &mut Credentials| all.take_link(code, SystemTime::now());
        // A wrong code changes nothing, so nothing is written for it.
        let is_known = self.store.read()?;
        if is_known.find(Kind::Link, code, SystemTime::now()).is_none() {
            return Err(self.wrong(from));
        }
        let Some(scope) = self.store.change(taken)? else {
            return Err(self.wrong(from));
        };
        let browser = NewCredential {
            kind: Kind::Browser,
            name: browser_name(),
            scope,
        };
        let (_, secret) = self.store.add(browser)?;
        let life = BROWSER_LIFE.as_secs();
        let secret = secret.reveal();
        Ok(format!(
            "{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}"
        ))
    }
}

fn browser_name() -> TokenName {
    // It is one, as its test shows.
    "a browser".parse().unwrap_or_else(|_| unreachable!())
}

/// The token of a program.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(Refusal::NotBearer),
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

/// Lets a request from an origin of ours pass.
pub(crate) async fn check_origin(
    State(door): State<Arc<Doorkeeper>>,
    request: Request,
    next: Next,
) -> Response {
    match door.check_origin(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets a request of somebody who is known pass, and says who that is.
pub(crate) async fn check_caller(
    State(door): State<Arc<Doorkeeper>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let caller = door.caller(from.ip(), request.headers());
    match caller.and_then(|caller| {
        // An event stream only looks, a message for the tools may do anything.
        if changes {
            caller.must_decide()?;
        }
        Ok(caller)
    }) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.for_request(request.headers()),
    }
}

impl std::convert::From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn browser_has_a_name() {
        assert_eq!(browser_name().to_string(), "a browser");
    }

    #[test]
    fn cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers), None);
        headers.insert(
            header::COOKIE,
            HeaderValue::from_static("a=b; codex_mcp=c; xcodex_mcp=d"),
        );
        assert_eq!(cookie(&headers), Some("c"));
    }

    #[test]
    fn only_a_bearer_token_is_taken() {
        let mut headers = HeaderMap::new();
        assert!(matches!(bearer(&headers), Ok(None)));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("bearer t"));
        assert!(matches!(bearer(&headers), Ok(Some("t"))));
        for wrong in ["Basic dDp0", "Bearer", ""] {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(wrong));
            assert!(
                matches!(bearer(&headers), Err(Refusal::NotBearer)),
                "{wrong}"
            );
        }
    }
}
