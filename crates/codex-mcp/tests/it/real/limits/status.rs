//! The limits in `codex_status` and `doctor`.

use scripted_model::{Reply, Script};
use serde_json::{Value, json};

use super::{Account, LATER, Reset, stage, structured, text};
use crate::real::{assert_completed, on_each_release};

on_each_release!(limits_are_shown_by_codex_status_and_doctor,);

async fn limits_are_shown_by_codex_status_and_doctor(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Free).await;
    let mut client = stage.client_of_openai().await;
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    assert_completed(&answer, "hello");
    let status = client.call_tool("codex_status", json!({})).await;
    let limits = &structured(&status)["limits"];
    assert_eq!(limits["known"], true, "{status:#}");
    let window = &limits["windows"][0];
    assert_eq!(
        (&window["usedPercent"], &window["windowMinutes"]),
        (&json!(42.0), &json!(300))
    );
    assert!(text(&status, 0).contains("42 % of 5h used"), "{status:#}");
    stage.finish(client).await;

    let doctor = async || {
        let said = stage
            .command_of_openai(&["doctor", "--json"])
            .output()
            .await
            .unwrap();
        let report: Value = serde_json::from_slice(&said.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        let limits = checks.into_iter().find(|check| check["name"] == "limits");
        limits.unwrap()
    };
    let told = doctor().await;
    assert_eq!(told["status"], "ok", "{told:#}");
    assert_eq!(told["value"]["windows"][0]["usedPercent"], 42.0, "{told:#}");
    backend.set_account(Account::UsedUp(Reset::ahead(LATER)));
    assert_eq!(doctor().await["status"], "warning");
    for unknown in [Account::Broken, Account::Silent] {
        backend.set_account(unknown);
        let told = doctor().await;
        assert_eq!(told["status"], "note", "{told:#}");
        let message = told["message"].as_str().unwrap();
        assert!(message.starts_with("not known: "), "{message}");
    }

    // A call for the limits does not delay other calls.
    let mut client = stage.client_of_openai().await;
    let status = client.call_tool("codex_status", json!({})).await;
    assert_eq!(structured(&status)["limits"]["known"], false, "{status:#}");
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    assert_completed(&answer, "hello");
    stage.finish(client).await;
}
