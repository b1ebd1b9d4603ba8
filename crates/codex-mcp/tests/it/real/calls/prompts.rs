//! The input of Codex: prompts, pictures, settings.

use codex_config::profile::ProfileName;
use codex_engine::logic::work::FailureClass;
use codex_engine::picture::Picture;
use codex_protocol::codex::Effort;
use scripted_model::{Reply, Request as Asked, Script};
use serde_json::json;

use super::CodexFixture;
use crate::real::on_oldest_and_newest;
use crate::runs::{assert_failed, assert_said};

on_oldest_and_newest!(
    prompt_is_answered,
    profile_and_overrides_apply,
    prompt_of_any_form_arrives_unchanged,
    pictures_and_output_schema_arrive,
);

/// The smallest picture that Codex accepts: one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

fn last(stage: &CodexFixture) -> Asked {
    stage.model.requests().pop().unwrap()
}

async fn prompt_is_answered(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("Hello.")])).await;
    let outcome = stage.run_turn(&stage.request("hi")).await;
    assert_said(&outcome, "Hello.");
    assert_eq!(outcome.digest.usage.unwrap().input_tokens, 100);
    assert_eq!(outcome.digest.evidence.commands, 0);
    assert_eq!(outcome.changes.files, []);
    assert_eq!(outcome.changes.incomplete, None);
    assert_eq!(outcome.changes.head_before, outcome.changes.head_after);
    assert_eq!(
        outcome.changes.head_after,
        Some(stage.home.git(&["rev-parse", "HEAD"]))
    );
}

async fn prompt_of_any_form_arrives_unchanged(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let long = "0123456789abcde\n".repeat(300 * 64);
    for prompt in [
        "-",
        "--help",
        "resume",
        "a 'b' \"c\" \\ $(touch x) `touch x`\nand\tmore \u{1f600}\n\n  end",
        long.trim_end(),
    ] {
        let outcome = stage.run_turn(&stage.request(prompt)).await;
        assert_said(&outcome, "ok");
        let last = last(&stage);
        assert_eq!(last.user_messages().pop().unwrap().trim(), prompt);
    }
    assert!(!stage.file("x").exists());
}

async fn pictures_and_output_schema_arrive(release: &str) {
    let script = Script::new().otherwise([Reply::say(r#"{"a":"b"}"#)]);
    let stage = CodexFixture::new(release, script).await;
    let url = format!("data:image/png;base64,{PIXEL}");
    let mut request = stage.request("look");
    request.images = vec![Picture::Inline(url)];
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false});
    request.output_schema = schema.as_object().cloned();
    let first = stage.run_turn(&request).await;
    assert_said(&first, r#"{"a":"b"}"#);
    assert_eq!(last(&stage).images().len(), 1);
    assert_eq!(last(&stage).body()["text"]["format"]["schema"], schema);

    // Pictures and schema apply to a resumed session too.
    request.resume = first.digest.session;
    assert_said(&stage.run_turn(&request).await, r#"{"a":"b"}"#);
    assert_eq!(last(&stage).images().len(), 2);
    assert_eq!(last(&stage).body()["text"]["format"]["schema"], schema);

    request.images = vec![Picture::File(stage.file("absent.png"))];
    let message = assert_failed(&stage.run_turn(&request).await, FailureClass::NotStarted);
    assert!(message.contains("absent.png"), "{message}");
}

async fn profile_and_overrides_apply(release: &str) {
    let old = release == "0.104.0";
    let table = "[profiles.fast]\nmodel = \"from-profile\"\n";
    let config = if old { table } else { "" };
    let script = Script::new().otherwise([Reply::say("ok")]);
    let stage = CodexFixture::with_config(release, script, config).await;
    if !old {
        let file = stage.home.codex_home().join("fast.config.toml");
        std::fs::write(file, "model = \"from-profile\"\n").unwrap();
    }
    let named = |name: &str| Some(ProfileName::try_from(name.to_owned()).unwrap());
    let mut request = stage.request("hi");
    request.profile = named("fast");
    assert_said(&stage.run_turn(&request).await, "ok");
    assert_eq!(last(&stage).model(), "from-profile");

    request.model = Some("from-request".to_owned());
    request.effort = Some(Effort::High);
    let overrides = json!({"developer_instructions": "Say \"ok\".\nNo more."});
    request.settings.config = overrides.as_object().unwrap().clone();
    assert_said(&stage.run_turn(&request).await, "ok");
    assert_eq!(last(&stage).model(), "from-request");
    assert!(
        last(&stage)
            .texts()
            .iter()
            .any(|text| text.contains("Say \"ok\".\nNo more."))
    );

    request.profile = named("absent");
    let outcome = stage.run_turn(&request).await;
    let message = outcome.failure.unwrap().message;
    assert!(message.contains("absent"), "{message}");
}
