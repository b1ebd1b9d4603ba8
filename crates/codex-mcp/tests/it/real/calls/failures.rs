//! Failed turns, and their errors.

use codex_engine::logic::work::FailureClass;
use scripted_model::{Reply, Script};
use serde_json::json;

use super::CodexFixture;
use crate::real::on_oldest_and_newest;
use crate::runs::assert_failed;

on_oldest_and_newest!(
    full_context_window_is_reported,
    refused_login_is_reported_with_a_hint,
    unknown_model_is_reported,
    used_up_limit_is_reported_with_its_reset,
);

/// Without this, Codex would try again after each failure.
const NO_RETRIES: &str = "stream_max_retries = 0\nrequest_max_retries = 0\n";

async fn stage(release: &str, reply: Reply) -> CodexFixture {
    let stage = CodexFixture::new(release, Script::new().otherwise([reply])).await;
    let config = stage.home.codex_home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let provider = "supports_websockets";
    assert!(text.contains(provider), "{text}");
    let text = text.replacen(provider, &format!("{NO_RETRIES}{provider}"), 1);
    std::fs::write(&config, text).unwrap();
    stage
}

async fn refused_login_is_reported_with_a_hint(release: &str) {
    let body = json!({"error": {"message": "Incorrect key", "code": "invalid"}});
    let stage = stage(release, Reply::fail(401, body.to_string())).await;
    let outcome = stage.run_turn(&stage.request("hi")).await;
    let message = assert_failed(&outcome, FailureClass::Auth);
    assert!(message.contains("401 Unauthorized"), "{message}");
    let hint = outcome.failure.unwrap().hint();
    assert!(hint.contains("codex login"), "{hint}");
    assert!(outcome.digest.session.is_some());
}

async fn full_context_window_is_reported(release: &str) {
    let reply = Reply::error("context_length_exceeded", "Your input exceeds the window.");
    let stage = stage(release, reply).await;
    let outcome = stage.run_turn(&stage.request("hi")).await;
    assert_failed(&outcome, FailureClass::ContextWindow);
}

async fn used_up_limit_is_reported_with_its_reset(release: &str) {
    let body = json!({"error": {"type": "usage_limit_reached", "message": "The usage limit",
        "plan_type": "plus", "resets_at": 2_000_000_000}});
    let stage = stage(release, Reply::fail(429, body.to_string())).await;
    let outcome = stage.run_turn(&stage.request("hi")).await;
    assert_failed(&outcome, FailureClass::RateLimit);
    let failure = outcome.failure.unwrap();
    let reset = failure.reset.clone().unwrap();
    assert!(reset.starts_with("at May 1"), "{reset}");
    assert!(failure.hint().contains(&reset));
}

async fn unknown_model_is_reported(release: &str) {
    let message = "The model `nope` does not exist or you do not have access to it.";
    let body = json!({"error": {"message": message, "code": "model_not_found"}});
    let stage = stage(release, Reply::fail(404, body.to_string())).await;
    let mut request = stage.request("hi");
    request.model = Some("nope".to_owned());
    let outcome = stage.run_turn(&request).await;
    assert_failed(&outcome, FailureClass::ModelNotFound);
}
