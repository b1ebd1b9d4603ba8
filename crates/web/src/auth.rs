//! Authentication: identifies the caller of a request, and decides whether it is admitted.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use common::sync::lock;
use futures::StreamExt;
use safe_files::off_runtime;
use tokio::time::sleep;

use crate::logic::access::{BROWSER_LIFE, CredentialId, Credentials, Kind, Scope, TokenName};
use crate::logic::authority::{Authorities, WrongAuthority};
use crate::logic::throttle::{Throttle, Wait};
use crate::refusal::Refusal;
use crate::server::Connection;
use crate::store::{CredentialStore, FileMark, StoreError};

/// The name of the cookie.
const COOKIE: &str = "codex_mcp";

/// The interval at which the credential of an open stream is checked again.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Decides which requests are admitted.
#[derive(Debug)]
pub(crate) struct AccessControl {
    store: CredentialStore,
    /// The credentials, with the mark of the file at the time when they were read.
    known: Mutex<Option<(FileMark, Arc<Credentials>)>>,
    authorities: Authorities,
    throttle: Mutex<Throttle>,
}

/// A caller that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    /// The credential.
    pub(crate) id: CredentialId,
}

impl Caller {
    /// Refuses callers that may not change anything.
    pub(crate) fn must_decide(&self) -> Result<(), Refusal> {
        match self.scope {
            Scope::Decide => Ok(()),
            Scope::Look => Err(Refusal::MayOnlyLook),
        }
    }
}

impl AccessControl {
    pub(crate) fn new(store: CredentialStore, authorities: Authorities) -> Self {
        Self {
            store,
            known: Mutex::default(),
            authorities,
            throttle: Mutex::default(),
        }
    }

    /// Checks the origin of a request, which does not require a credential.
    fn check_origin(
        &self,
        method: &Method,
        target: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        // If a header occurs twice, a proxy before us may have checked the other one.
        let is_double = |name| headers.get_all(name).iter().count() > 1;
        if is_double(header::HOST) {
            return Err(WrongAuthority::Host.into());
        }
        if is_double(header::ORIGIN) {
            return Err(WrongAuthority::Origin.into());
        }
        if is_double(header::AUTHORIZATION) {
            return Err(Refusal::NotBearer);
        }
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        // A host in the target takes precedence over `Host` (RFC 9112, 3.2.2).
        let host = match target.authority() {
            Some(authority) => Some(authority.as_str()),
            None => text(header::HOST),
        };
        self.authorities.check(host, text(header::ORIGIN))?;
        // A browser that sends no origin at least states whether the request comes from our own
        // site.
        let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        match site {
            Some(b"same-origin" | b"none") | None => Ok(()),
            Some(_) if changes => Err(Refusal::CrossSite),
            Some(_) => Ok(()),
        }
    }

    /// The caller of a request. A token takes precedence over a cookie: if the token is wrong, the
    /// request is refused.
    fn caller(&self, from: IpAddr, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let (kind, secret) = match (bearer(headers)?, cookie(headers)) {
            (Some(token), _) => (Kind::Token, token),
            (None, Some(cookie)) => (Kind::Browser, cookie),
            (None, None) => return Err(Refusal::NotSignedIn),
        };
        match self.credentials()?.find(kind, secret, SystemTime::now()) {
            Some(found) => Ok(Caller {
                scope: found.scope,
                id: found.id.clone(),
            }),
            None => Err(self.wrong(from)),
        }
    }

    /// The credentials. They are read again when their file has changed; checking the file costs
    /// some microseconds.
    fn credentials(&self) -> Result<Arc<Credentials>, StoreError> {
        let mark = self.store.mark()?;
        let mut known = lock(&self.known);
        if let Some((at, credentials)) = &*known
            && *at == mark
        {
            return Ok(Arc::clone(credentials));
        }
        let credentials = Arc::new(self.store.read()?);
        *known = Some((mark, Arc::clone(&credentials)));
        Ok(credentials)
    }

    /// Whether a credential with which a caller was admitted is still valid.
    pub(crate) fn is_valid(&self, id: &CredentialId) -> bool {
        match self.credentials() {
            Ok(all) => all.has(id, SystemTime::now()),
            Err(error) => {
                // Callers that were admitted stay until the file can be read.
                tracing::warn!("{error}");
                true
            }
        }
    }

    /// Completes when a credential is no longer valid.
    pub(crate) async fn until_revoked(&self, caller: &Caller) {
        // The credential was valid just now, so the first check comes after a pause.
        loop {
            sleep(LOOK_AFTER).await;
            if !self.is_valid(&caller.id) {
                return;
            }
        }
    }

    /// Counts a wrong secret.
    fn wrong(&self, from: IpAddr) -> Refusal {
        match lock(&self.throttle).wrong(from, Instant::now()) {
            Ok(()) => Refusal::WrongSecret,
            Err(Wait(wait)) => Refusal::TooManyTries(wait),
        }
    }

    /// Counts a wrong code of a link.
    fn wrong_link(&self, from: IpAddr) -> Refusal {
        match self.wrong(from) {
            Refusal::WrongSecret => Refusal::WrongLink,
            refusal => refusal,
        }
    }

    /// Takes the code of a one-time link, and returns the cookie of the browser.
    pub(crate) async fn sign_in(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
        code: String,
    ) -> Result<String, Refusal> {
        // A wrong code changes nothing, so it is rejected before the file is locked.
        let now = SystemTime::now();
        if self.credentials()?.find(Kind::Link, &code, now).is_none() {
            return Err(self.wrong_link(from));
        }
        let store = self.store.clone();
        let signing_in = off_runtime::run(move || store.sign_in(&code, browser_at(from)));
        let signed_in = signing_in.await;
        let signed_in = signed_in.map_err(|error| Refusal::Failed(error.to_string()))??;
        let secret = signed_in.ok_or_else(|| self.wrong_link(from))?;
        let life = BROWSER_LIFE.as_secs();
        let secret = secret.reveal();
        // The browser speaks TLS to a proxy before us, and must send the cookie over TLS only.
        let origin = headers.get(header::ORIGIN);
        let secure = match origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://")) {
            true => "; Secure",
            false => "",
        };
        Ok(format!(
            "{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}"
        ))
    }

    /// Revokes the cookie of a browser, if it has one that is valid.
    pub(crate) async fn sign_out(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(secret) = cookie(headers) else {
            return Ok(());
        };
        let credentials = self.credentials()?;
        let Some(found) = credentials.find(Kind::Browser, secret, SystemTime::now()) else {
            return Ok(());
        };
        let (store, id) = (self.store.clone(), found.id.clone());
        let signing_out = off_runtime::run(move || store.change(|all| all.revoke(id.as_str())));
        let signed_out = signing_out.await;
        signed_out.map_err(|error| Refusal::Failed(error.to_string()))??;
        Ok(())
    }
}

/// A cookie header that removes the cookie of a browser.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// The name of a browser in the list of credentials. It contains only the address, as a browser's
/// statements about itself are unreliable.
fn browser_at(address: IpAddr) -> TokenName {
    // Always valid, as a test checks.
    format!("browser at {address}")
        .parse()
        .unwrap_or_else(|_| unreachable!())
}

/// The token of a program.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(Refusal::NotBearer),
    }
}

pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
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
    State(access): State<Arc<AccessControl>>,
    request: Request,
    next: Next,
) -> Response {
    match access.check_origin(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets a request with a valid credential pass. The request and its response carry the [`Caller`], for
/// the handlers and the budget.
pub(crate) async fn check_caller(
    State(access): State<Arc<AccessControl>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let caller = access.caller(from.ip(), request.headers());
    match caller.and_then(|caller| {
        // An event stream only reads, but a message for the tools may do anything.
        if changes {
            caller.must_decide()?;
        }
        Ok(caller)
    }) {
        Ok(caller) => {
            if let Some(connection) = request.extensions().get::<Connection>() {
                connection.recognise(&caller.id);
            }
            request.extensions_mut().insert(caller.clone());
            let mut response = next.run(request).await;
            response.extensions_mut().insert(caller.clone());
            until_revoked(response, access, caller)
        }
        Err(refusal) => refusal.for_request(request.headers()),
    }
}

/// Ends a stream when the credential of its reader is revoked.
fn until_revoked(response: Response, access: Arc<AccessControl>, caller: Caller) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let revoked = Box::pin(async move { access.until_revoked(&caller).await });
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(revoked)))
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
    fn browser_is_named_by_its_address() {
        for (address, name) in [
            ("192.0.2.7", "browser at 192.0.2.7"),
            (
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                "browser at 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
            (
                "::ffff:255.255.255.255",
                "browser at ::ffff:255.255.255.255",
            ),
        ] {
            assert_eq!(browser_at(address.parse().unwrap()).to_string(), name);
        }
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
