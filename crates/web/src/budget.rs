//! Bounds the total memory of the answers that are being sent. A client may take its time to read a
//! page of many MiB, and there can be hundreds of clients. A client can only use a part of the budget,
//! so that some is left for others.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};

use crate::auth::Caller;
use crate::refusal::Refusal;
use crate::slots::SlotPool;

/// The unit of the budget, in bytes. Smaller answers are free: there are as many as connections.
const UNIT: usize = 64 * 1024;

/// The budget of all answers together, in units: 48 MiB.
const UNITS: u32 = 768;

/// The share for the answers with the same credential, in units. A longer answer is counted as this
/// many, as it could not be sent otherwise: two such answers can take more memory than [`UNITS`].
const UNITS_OF_ONE: u32 = UNITS / 2;

/// The budget of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<SlotPool>);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(SlotPool::with_share(UNITS, UNITS_OF_ONE))
    }
}

/// Answers with 503 as long as other answers use the whole budget, or the whole share of the
/// caller's credential.
pub(crate) async fn bound(
    State(budget): State<Budget>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    // A stream has no length, and is bounded separately.
    let length = response.body().size_hint().exact().unwrap_or_default();
    let units = u32::try_from(length / UNIT as u64)
        .unwrap_or(u32::MAX)
        .min(UNITS_OF_ONE);
    let caller = response.extensions().get::<Caller>().cloned();
    // Callers without a credential get only refusals, the sign-in form, and our scripts and
    // style sheet.
    let Some(caller) = caller.filter(|_| units > 0) else {
        return response;
    };
    let Some(held) = budget.0.take_many(&caller.id, units) else {
        return Refusal::Busy.for_request(&headers);
    };
    response.map(|body| {
        let pieces = body.into_data_stream().flat_map(|chunk| match chunk {
            Ok(chunk) => stream::iter(pieces(chunk).map(Ok)).left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        });
        Body::from_stream(pieces.map(move |piece| {
            // Until the last piece is on its way.
            let _held = &held;
            piece
        }))
    })
}

/// A text in pieces that share its memory.
fn pieces(mut whole: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = whole.len().min(UNIT);
        (length > 0).then(|| whole.split_to(length))
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::body::to_bytes;
    use axum::extract::ConnectInfo;
    use axum::http::{StatusCode, header};
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;
    use crate::auth::{AccessControl, check_caller};
    use crate::logic::access::{Kind, NewCredential, Scope, Secret};
    use crate::logic::authority::Authorities;
    use crate::store::CredentialStore;

    const LARGE: usize = 30 << 20;

    fn request(path: &str, token: &Secret) -> Request {
        let bearer = format!("Bearer {}", token.reveal());
        let request = Request::builder().uri(path);
        let request = request.header(header::AUTHORIZATION, bearer);
        let mut request = request.body(Body::empty()).unwrap();
        let from: SocketAddr = ([127, 0, 0, 1], 1).into();
        request.extensions_mut().insert(ConnectInfo(from));
        request
    }

    /// A reader who may only look and takes their time is refused further answers. The control is
    /// somebody else, who gets theirs.
    #[tokio::test]
    async fn large_answers_are_refused_while_others_are_being_read() {
        let state = tempfile::tempdir().unwrap();
        let store = CredentialStore::new(state.path());
        let [slow, other, third] = [Scope::Look, Scope::Decide, Scope::Decide].map(|scope| {
            let (kind, name) = (Kind::Token, "a test".parse().unwrap());
            store.add(NewCredential { kind, name, scope }).unwrap().1
        });
        let authorities = Authorities::new(([127, 0, 0, 1], 1).into(), Vec::new());
        let access = Arc::new(AccessControl::new(store, authorities));
        let mut routes: Router = Router::new()
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .route("/small", get(|| async { "small" }))
            .layer(from_fn_with_state(access, check_caller))
            .layer(from_fn_with_state(Budget::new(), bound));
        let mut get =
            async |path: &str, token: &Secret| routes.call(request(path, token)).await.unwrap();
        let (ok, busy) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let first = get("/large", &slow).await;
        assert_eq!(first.status(), ok);
        assert_eq!(get("/large", &slow).await.status(), busy);
        assert_eq!(get("/small", &slow).await.status(), ok);
        let theirs = get("/large", &other).await;
        assert_eq!(theirs.status(), ok);
        // All of the budget is taken.
        assert_eq!(get("/large", &third).await.status(), busy);
        let read = to_bytes(first.into_body(), usize::MAX).await.unwrap();
        assert_eq!(read.len(), LARGE);
        assert_eq!(get("/large", &slow).await.status(), ok);
    }
}
