//! The pages, and signing in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Extension;
use axum::extract::{ConnectInfo, Form, Path, Query, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::app::App;
use crate::auth::{self, Caller};
use crate::page;
use crate::refusal::{NO_JOB, Refusal};

/// What a browser that signs in must remove. While no endpoint ran, another user may have had the
/// port, and have left copies of pages and a service worker under an address of ours.
const LEFT_BY_OTHERS: &str = r#""cache", "storage""#;

#[derive(Debug, Deserialize)]
pub(crate) struct Code {
    code: Option<String>,
}

pub(crate) async fn sign_in_form(Query(Code { code }): Query<Code>) -> Html<String> {
    Html(page::login::sign_in(code.as_deref(), None).into_string())
}

pub(crate) async fn sign_in(
    State(app): State<Arc<App>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(Code { code }): Form<Code>,
) -> Response {
    match app
        .access
        .sign_in(from.ip(), &headers, code.unwrap_or_default())
        .await
    {
        Ok(cookie) => {
            let clear = HeaderName::from_static("clear-site-data");
            let headers = [
                (header::SET_COOKIE, cookie),
                (clear, LEFT_BY_OTHERS.to_owned()),
            ];
            (headers, Redirect::to("/")).into_response()
        }
        Err(refusal) => refusal.for_request(&headers),
    }
}

pub(crate) async fn work(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Html<String> {
    let work = app.board.work().await;
    Html(page::home::page(caller.scope, &work, SystemTime::now()).into_string())
}

pub(crate) async fn session(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        let work = app.board.find_session(&id).await?;
        let feed = app.feeds.feed(&id).await?;
        let now = SystemTime::now();
        let html = feed.look(|conversation, latest| {
            page::session::page(caller.scope, &work, conversation, latest, now)
        });
        Ok(Html(html.into_string()))
    };
    shown
        .await
        .map_err(|refusal: Refusal| refusal.for_request(&headers))
        .into_response()
}

pub(crate) async fn job(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let shown = app.board.jobs.job(&id).await.map_err(Refusal::from);
    match shown.and_then(|shown| shown.ok_or(NO_JOB)) {
        Ok(shown) => Html(page::job::page(caller.scope, &shown, SystemTime::now()).into_string())
            .into_response(),
        Err(refusal) => refusal.for_request(&headers),
    }
}

/// Signs a browser out. Its cookie is removed even if it is no longer valid.
pub(crate) async fn sign_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    match app.access.sign_out(&headers).await {
        Ok(()) => {
            let cookie = [(header::SET_COOKIE, auth::no_cookie())];
            (cookie, Redirect::to("/login")).into_response()
        }
        Err(refusal) => refusal.for_request(&headers),
    }
}

pub(crate) async fn threads(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let records = match app.board.threads().await {
        Ok(records) => records,
        Err(why) => return Refusal::Failed(why).for_request(&headers),
    };
    let html = page::threads::page(caller.scope, &records, SystemTime::now());
    Html(html.into_string()).into_response()
}

pub(crate) async fn mail(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Html<String> {
    let mail = app
        .board
        .mail
        .read()
        .await
        .map_err(|error| error.to_string());
    Html(page::mail::page(caller.scope, &mail, app.board.mail.sender()).into_string())
}
