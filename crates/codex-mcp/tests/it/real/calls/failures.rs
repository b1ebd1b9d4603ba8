//! Turns that fail, and what is told of them.

use codex_engine::logic::work::FailureClass;
use scripted_model::{Reply, Script};
use serde_json::json;

use super::Stage;
use crate::real::on_each_release;
use crate::runs::assert_failed;

on_each_release!(
    a_conversation_that_is_too_long_is_told,
    a_login_that_does_not_hold_is_told_with_a_hint,
    a_model_that_is_not_there_is_told,
    a_used_up_limit_is_told_with_its_reset,
);

/// One failure of each kind is enough: Codex tries again otherwise.
const NO_RETRIES: &str = "stream_max_retries = 0\nrequest_max_retries = 0\n";

async fn stage(release: &str, reply: Reply) -> Stage {
    let stage = Stage::new(release, Script::new().otherwise([reply])).await;
    let config = stage.home.codex_home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let provider = "supports_websockets";
    assert!(text.contains(provider), "{text}");
    let text = text.replacen(provider, &format!("{NO_RETRIES}{provider}"), 1);
    std::fs::write(&config, text).unwrap();
    stage
}

async fn a_login_that_does_not_hold_is_told_with_a_hint(release: &str) {
    let body = json!({"error": {"message": "Incorrect key", "code": "invalid"}});
    let stage = stage(release, Reply::fail(401, body.to_string())).await;
    let outcome = stage.ran(&stage.request("hi")).await;
    let message = assert_failed(&outcome, FailureClass::Auth);
    assert!(message.contains("401 Unauthorized"), "{message}");
    let hint = outcome.failure.unwrap().hint();
    assert!(hint.contains("codex login"), "{hint}");
    assert!(outcome.digest.session.is_some());
}

async fn a_conversation_that_is_too_long_is_told(release: &str) {
    let reply = Reply::error("context_length_exceeded", "Your input exceeds the window.");
    let stage = stage(release, reply).await;
    let outcome = stage.ran(&stage.request("hi")).await;
    assert_failed(&outcome, FailureClass::ContextWindow);
}

async fn a_used_up_limit_is_told_with_its_reset(release: &str) {
    let body = json!({"error": {"type": "usage_limit_reached", "message": "The usage limit",
        "plan_type": "plus", "resets_at": 2_000_000_000}});
    let stage = stage(release, Reply::fail(429, body.to_string())).await;
    let outcome = stage.ran(&stage.request("hi")).await;
    assert_failed(&outcome, FailureClass::RateLimit);
    let failure = outcome.failure.unwrap();
    let reset = failure.reset.clone().unwrap();
    assert!(reset.starts_with("at May 1"), "{reset}");
    assert!(failure.hint().contains(&reset));
}

async fn a_model_that_is_not_there_is_told(release: &str) {
    let message = "The model `nope` does not exist or you do not have access to it.";
    let body = json!({"error": {"message": message, "code": "model_not_found"}});
    let stage = stage(release, Reply::fail(404, body.to_string())).await;
    let mut request = stage.request("hi");
    request.model = Some("nope".to_owned());
    let outcome = stage.ran(&request).await;
    assert_failed(&outcome, FailureClass::ModelNotFound);
}
