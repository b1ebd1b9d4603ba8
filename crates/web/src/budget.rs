//! Bounds the memory of the answers that are being sent, all together: a client may take its time to
//! read a page or a picture of many MiB, and there can be hundreds of clients.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;

use crate::refusal::Refusal;

/// The unit of the budget, in bytes. Smaller answers are free: there are as many as connections.
const UNIT: usize = 64 * 1024;

/// What all answers may take at a time: 48 MiB.
const UNITS: u32 = 768;

/// The budget of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(UNITS as usize)))
    }
}

/// Answers with 503 as long as other answers take all there is.
pub(crate) async fn bound(
    State(budget): State<Budget>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    // A stream has no length, and bounds itself.
    let length = response.body().size_hint().exact().unwrap_or_default();
    let units = u32::try_from(length / UNIT as u64)
        .unwrap_or(u32::MAX)
        .min(UNITS);
    if units == 0 {
        return response;
    }
    let Ok(held) = budget.0.try_acquire_many_owned(units) else {
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
    use axum::Router;
    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

    const LARGE: usize = 30 << 20;

    fn request(path: &str) -> Request {
        Request::builder().uri(path).body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn large_answers_are_refused_while_others_are_being_read() {
        let mut routes: Router = Router::new()
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .route("/small", get(|| async { "small" }))
            .layer(from_fn_with_state(Budget::new(), bound));
        let first = routes.call(request("/large")).await.unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let second = routes.call(request("/large")).await.unwrap();
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        let small = routes.call(request("/small")).await.unwrap();
        assert_eq!(small.status(), StatusCode::OK);
        let read = to_bytes(first.into_body(), usize::MAX).await.unwrap();
        assert_eq!(read.len(), LARGE);
        let third = routes.call(request("/large")).await.unwrap();
        assert_eq!(third.status(), StatusCode::OK);
    }
}
