//! The usage limits of a ChatGPT account, whose backend is a fake on loopback.

mod backend;
mod jobs;
mod runs;
mod status;
mod waits;

use std::time::SystemTime;

use backend::{Account, FakeBackend, Reset};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::Home;
use testkit::wait::wait_for;
use tokio::process::Command;

use super::{CodexFixture, structured, text};

/// Seconds until a reset that a test waits for.
const SOON: u64 = 4;

/// Seconds until a reset that no test reaches.
const LATER: u64 = 3600;

/// A Codex that is logged in with a fake account.
async fn stage(release: &str, script: Script, account: Account) -> (CodexFixture, FakeBackend) {
    let model = ScriptedModel::start(script).await.unwrap();
    let backend = FakeBackend::start(account).await;
    let provider = model.codex_config();
    let provider = provider.replace(
        "requires_openai_auth = false",
        "requires_openai_auth = true",
    );
    assert!(provider.contains("requires_openai_auth = true"));
    let home = Home::new(&format!(
        "{provider}\nfeatures.plugins = false\nfeatures.apps = false\n\
         chatgpt_base_url = \"{}\"\n",
        backend.address
    ));
    let login = home.codex_home().join("auth.json");
    std::fs::write(login, login_of_chatgpt().to_string()).unwrap();
    let stage = CodexFixture {
        home,
        model,
        release: release.to_owned(),
    };
    stage.configure("worker_idle_secs = 1");
    (stage, backend)
}

fn login_of_chatgpt() -> Value {
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let claims = json!({
        "email": "a@b.c",
        "exp": 4_102_444_800u64,
        "https://api.openai.com/auth": { "chatgpt_plan_type": "pro",
            "chatgpt_account_id": "account", "chatgpt_user_id": "user" },
    });
    let head = part(json!({ "alg": "none", "typ": "JWT" }));
    let token = format!("{head}.{}.{}", part(claims), part(json!("signature")));
    json!({
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": null,
        "tokens": { "id_token": token, "access_token": token, "refresh_token": "refresh",
            "account_id": "account" },
        "last_refresh": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
    })
}

/// Whether this release answers for the limits while it does other work.
fn answers_in_parallel(release: &str) -> bool {
    release != "0.104.0"
}

/// A model that reports a reached limit before the reset, and answers afterwards.
fn limited_until(reset: &Reset) -> Script {
    let reset = reset.clone();
    Script::by(move |_| match reset.is_past() {
        true => Reply::say("hello"),
        false => Reply::usage_limit(reset.at()),
    })
}

/// A model that reports a reached limit without a reset.
fn limited_for_ever() -> Script {
    let body = json!({ "error": { "type": "usage_limit_reached", "message": "The usage limit" } });
    Script::by(move |_| Reply::fail(429, body.to_string()))
}

impl CodexFixture {
    /// 0.104.0 takes the address of OpenAI's list of models from the environment.
    fn command_of_openai(&self, args: &[&str]) -> Command {
        let mut command = self.program(args);
        command.env("OPENAI_BASE_URL", self.model.base_url());
        command
    }

    async fn jobs_stdout(&self, args: &[&str]) -> String {
        let told = self
            .command_of_openai(&[&["jobs"], args].concat())
            .output()
            .await;
        let told = told.unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    }

    async fn submit(&self) -> String {
        let id = self.jobs_stdout(&["submit", "work"]).await;
        id.trim_end().to_owned()
    }

    async fn record(&self, id: &str) -> Value {
        serde_json::from_str(&self.jobs_stdout(&["show", "--json", id]).await).unwrap()
    }

    /// Waits until the job waits for its account; returns its record.
    async fn wait_until_waiting(&self, id: &str) -> Value {
        wait_for("the job waits for its account", async || {
            let job = self.record(id).await;
            job["waits_until"].is_string().then_some(job)
        })
        .await
    }
}
