//! The turns of jobs, with the real Codex.

mod ends;
mod failures;
mod prompts;
mod shared;
mod work;

use codex_engine::Engine;
use job_queue::call::{News, Outcome, Request};
use tokio_util::sync::CancellationToken;

use super::Stage;
use crate::runs::{engine_of, outcome_with, request};

impl Stage {
    fn engine(&self) -> Engine {
        engine_of(&self.home, testkit::codex::native_binary(&self.release))
    }

    fn request(&self, prompt: &str) -> Request {
        request(&self.home, prompt)
    }

    /// With a Codex of its own.
    async fn ran(&self, request: &Request) -> Outcome {
        self.ran_with(request, |_| (), CancellationToken::new())
            .await
    }

    async fn ran_with(
        &self,
        request: &Request,
        on_news: impl FnMut(News<'_>),
        cancel: CancellationToken,
    ) -> Outcome {
        let engine = self.engine();
        let outcome = outcome_with(&self.home, &engine, request, on_news, cancel).await;
        engine.shut_down().await;
        assert_eq!(self.home.processes(), []);
        outcome
    }
}
