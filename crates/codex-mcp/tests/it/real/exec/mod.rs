//! Runs of the real `codex exec`.

mod ends;
mod failures;
mod prompts;
mod work;

use codex_mcp::jobs::exec::{Outcome, Request};

use super::Stage;
use crate::runs::{outcome_of, request_to};

impl Stage {
    fn request(&self, prompt: &str) -> Request {
        let codex = testkit::codex::native_binary(&self.release);
        request_to(&self.home, codex, &self.release, prompt)
    }

    async fn ran(&self, request: &Request) -> Outcome {
        outcome_of(&self.home, request).await
    }
}
