//! The turns of jobs, with the real Codex.

mod ends;
mod failures;
mod prompts;
mod shared;
mod work;

use codex_engine::Engine;
use job_queue::call::{CallOutcome, CallRequest, CallUpdate};
use tokio_util::sync::CancellationToken;

use super::CodexFixture;
use crate::runs::{engine_of, outcome_with, request};

impl CodexFixture {
    fn engine(&self) -> Engine {
        engine_of(&self.home, testkit::codex::native_binary(&self.release))
    }

    fn request(&self, prompt: &str) -> CallRequest {
        request(&self.home, prompt)
    }

    /// Runs a turn with an engine of its own.
    async fn run_turn(&self, request: &CallRequest) -> CallOutcome {
        self.run_turn_with(request, |_| (), CancellationToken::new())
            .await
    }

    async fn run_turn_with(
        &self,
        request: &CallRequest,
        on_news: impl FnMut(CallUpdate<'_>),
        cancel: CancellationToken,
    ) -> CallOutcome {
        let engine = self.engine();
        let outcome = outcome_with(&self.home, &engine, request, on_news, cancel).await;
        engine.shut_down().await;
        assert_eq!(self.home.processes(), []);
        outcome
    }
}
