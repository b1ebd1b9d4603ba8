//! The usage limits of an account of ChatGPT, whose backend is on loopback.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use scripted_model::{Patch, Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::Home;
use testkit::app_server::AppServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::{Stage, on_each_release, structured, text};

on_each_release!(
    job_of_a_used_up_account_waits_for_the_reset_without_being_watched,
    turn_that_hits_the_limit_is_taken_up_after_the_reset,
    turn_that_has_worked_before_the_limit_fails_and_reports_its_work,
    waiting_job_says_so_and_can_be_called_off,
    job_that_reads_100_percent_tries_its_turn,
    job_beyond_100_percent_tries_no_turn,
    waiting_job_runs_when_the_login_is_replaced,
    look_that_fails_before_its_turn_keeps_the_job_waiting,
    job_without_a_known_reset_is_tried_again_later,
    job_with_an_api_key_fails_at_its_limit,
    job_of_another_account_does_not_wait,
    job_runs_although_the_backend_fails,
    job_runs_although_the_backend_is_silent,
    run_of_a_used_up_account_waits,
    run_that_fails_for_another_reason_does_not_wait,
    resumed_job_waits_again,
    limits_are_told_by_codex_status_and_doctor,
);

/// How far ahead a reset is that comes in a test.
const SOON: u64 = 4;

/// How far ahead one is that does not.
const LATER: u64 = 3600;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// The reset of a limit, so many seconds after somebody has first been told of it.
#[derive(Debug, Clone)]
struct Reset {
    ahead: u64,
    at: Arc<OnceLock<u64>>,
}

impl Reset {
    fn ahead(ahead: u64) -> Self {
        let at = Arc::default();
        Self { ahead, at }
    }

    /// In seconds since 1970.
    fn at(&self) -> u64 {
        *self.at.get_or_init(|| now() + self.ahead)
    }

    fn is_past(&self) -> bool {
        self.at() <= now()
    }
}

/// What a backend says of the account.
#[derive(Debug, Clone)]
enum Account {
    /// Something is left.
    Free,
    /// Nothing is, until the reset.
    UsedUp(Reset),
    /// Nothing is, by more than Codex rounds.
    Exceeded(Reset),
    /// It answers with an error.
    Broken,
    /// It never answers.
    Silent,
}

/// A backend of ChatGPT.
struct Backend {
    account: Arc<Mutex<Account>>,
    /// How often it was asked for the limits.
    asked: Arc<AtomicUsize>,
    address: String,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

impl Backend {
    async fn start(account: Account) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backend = Self {
            account: Arc::new(Mutex::new(account)),
            asked: Arc::default(),
            address: format!("http://{address}/backend-api"),
        };
        let (account, asked) = (Arc::clone(&backend.account), Arc::clone(&backend.asked));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (account, asked) = (Arc::clone(&account), Arc::clone(&asked));
                tokio::spawn(answer(connection, account, asked));
            }
        });
        backend
    }

    fn is_now(&self, account: Account) {
        *self.account.lock().unwrap() = account;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Answers one request. Codex is told to connect anew for the next.
async fn answer(
    mut connection: TcpStream,
    account: Arc<Mutex<Account>>,
    asked: Arc<AtomicUsize>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.ok()?);
    }
    let is_usage = String::from_utf8_lossy(&head).contains("/wham/usage");
    let account = account.lock().unwrap().clone();
    if is_usage {
        asked.fetch_add(1, Ordering::Relaxed);
    }
    let (status, body) = match (is_usage, account) {
        (false, _) => ("404 Not Found", json!({})),
        (true, Account::Silent) => return std::future::pending().await,
        (true, Account::Broken) => ("500 Internal Server Error", json!({})),
        (true, Account::UsedUp(reset)) if !reset.is_past() => ("200 OK", usage(100, reset.at())),
        (true, Account::Exceeded(reset)) => ("200 OK", usage(102, reset.at())),
        (true, Account::UsedUp(_) | Account::Free) => ("200 OK", usage(42, now() + LATER)),
    };
    let body = body.to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    connection.write_all(answer.as_bytes()).await.ok()
}

fn usage(used: u32, reset: u64) -> Value {
    json!({
        "plan_type": "pro",
        "rate_limit": {
            "allowed": true,
            "limit_reached": false,
            "primary_window": { "used_percent": used, "limit_window_seconds": 18_000,
                "reset_after_seconds": 1, "reset_at": reset },
            "secondary_window": null,
        },
        "credits": { "has_credits": false, "unlimited": false, "balance": "0" },
    })
}

/// A Codex that is logged in with a made-up account.
async fn stage(release: &str, script: Script, account: Account) -> (Stage, Backend) {
    let model = ScriptedModel::start(script).await.unwrap();
    let backend = Backend::start(account).await;
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
    let directory = home.atm_home().join(".config/atm");
    std::fs::create_dir_all(&directory).unwrap();
    let leaves = "[plugins.codex-mcp]\nworker_idle_secs = 1\n";
    std::fs::write(directory.join("config.toml"), leaves).unwrap();
    let stage = Stage {
        home,
        model,
        release: release.to_owned(),
    };
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

/// Whether Codex tells the limits while it goes on with other work.
fn answers_aside(release: &str) -> bool {
    release != "0.104.0"
}

/// Says hello after the reset, and that the limit is reached before.
fn after(reset: &Reset) -> Script {
    let reset = reset.clone();
    Script::by(move |_| match reset.is_past() {
        true => Reply::say("hello"),
        false => Reply::usage_limit(reset.at()),
    })
}

impl Stage {
    /// 0.104.0 takes the address of OpenAI's list of models from the environment.
    fn of_openai(&self, args: &[&str]) -> Command {
        let mut command = self.program(args);
        command.env("OPENAI_BASE_URL", self.model.base_url());
        command
    }

    async fn told_of(&self, args: &[&str]) -> String {
        let told = self.of_openai(&[&["jobs"], args].concat()).output().await;
        let told = told.unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    }

    async fn submitted(&self) -> String {
        let id = self.told_of(&["submit", "work"]).await;
        id.trim_end().to_owned()
    }

    async fn shown(&self, id: &str) -> Value {
        serde_json::from_str(&self.told_of(&["show", "--json", id]).await).unwrap()
    }

    /// The job as soon as it waits.
    async fn waiting(&self, id: &str) -> Value {
        let waiting = async {
            loop {
                let job = self.shown(id).await;
                if job["waits_until"].is_string() {
                    return job;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(LONG, waiting).await.unwrap()
    }
}

#[track_caller]
fn assert_waited_until(job: &Value, log: &str, reset: &Reset) {
    assert_eq!(job["status"], "completed", "{job:#}");
    assert_eq!(job["attempts"], 1, "{job:#}");
    let started = humantime::parse_rfc3339(job["started_at"].as_str().unwrap()).unwrap();
    assert!(
        started >= UNIX_EPOCH + Duration::from_secs(reset.at()),
        "{job:#}"
    );
    assert_eq!(log.matches("  waits until ").count(), 1, "{log}");
    assert!(!log.contains("run again"), "{log}");
}

/// Its worker would leave after a second without work.
async fn job_of_a_used_up_account_waits_for_the_reset_without_being_watched(release: &str) {
    let reset = Reset::ahead(SOON);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, backend) = stage(release, after(&reset), used_up).await;
    let id = stage.submitted().await;
    // At 100 %, which may be rounded, one turn is tried before the reset.
    let requests = 2;
    timeout(LONG, stage.model.requested(requests))
        .await
        .unwrap();
    assert!(reset.is_past());
    assert_eq!(stage.told_of(&["wait", &id]).await, "hello\n");
    let log = stage.told_of(&["logs", &id]).await;
    assert_waited_until(&stage.shown(&id).await, &log, &reset);
    assert_eq!(stage.model.request_count(), requests);
    assert_eq!(backend.asked() > 0, answers_aside(release));
}

async fn turn_that_hits_the_limit_is_taken_up_after_the_reset(release: &str) {
    let reset = Reset::ahead(SOON);
    let (stage, _backend) = stage(release, after(&reset), Account::Free).await;
    let id = stage.submitted().await;
    assert_eq!(stage.told_of(&["wait", &id]).await, "hello\n");
    let log = stage.told_of(&["logs", &id]).await;
    assert_waited_until(&stage.shown(&id).await, &log, &reset);
    assert_eq!(stage.model.request_count(), 2);
}

async fn waiting_job_says_so_and_can_be_called_off(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, after(&reset), used_up).await;
    let id = stage.submitted().await;
    let job = stage.waiting(&id).await;
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("queued"), &json!(0))
    );
    let reason = "the usage limit of the account is reached";
    assert_eq!(job["waits_for"], reason);
    let until = humantime::parse_rfc3339(job["waits_until"].as_str().unwrap()).unwrap();
    let after = until.duration_since(UNIX_EPOCH + Duration::from_secs(reset.at()));
    assert!(after.unwrap() < Duration::from_secs(3), "{job:#}");

    let minute = humantime::format_rfc3339_seconds(until).to_string();
    let words = format!(
        "waits until {} UTC: {reason}",
        minute[..16].replace('T', " ")
    );
    for args in [&["show", id.as_str()][..], &["list"], &["logs", &id]] {
        let args = [&["jobs"], args].concat();
        let said = stage.of_openai(&args).output().await.unwrap();
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(&words), "{args:?}: {said}");
    }
    let mut client = stage.client_of_openai().await;
    let status = client
        .call_tool("call_status", json!({ "job_id": id }))
        .await;
    let note = structured(&status)["note"].as_str().unwrap();
    assert!(note.contains(&words), "{note}");

    let cancelled = client
        .call_tool("call_cancel", json!({ "job_id": id }))
        .await;
    assert_eq!(
        structured(&cancelled)["new_status"],
        "cancelled",
        "{cancelled:#}"
    );
    let job = stage.shown(&id).await;
    assert_eq!(
        (&job["status"], &job["waits_until"]),
        (&json!("cancelled"), &Value::Null)
    );
    stage.finish_with_worker(client).await;
}

/// Codex rounds 99.5 % to 100 (0.104.0 to 0.169.0).
async fn job_that_reads_100_percent_tries_its_turn(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let used_up = Account::UsedUp(Reset::ahead(LATER));
    let (stage, backend) = stage(release, script, used_up).await;
    assert_eq!(
        stage.told_of(&["submit", "--wait", "work"]).await,
        "hello\n"
    );
    assert_eq!(backend.asked() > 0, answers_aside(release));
    let control = AppServer::real(release, &stage.home).await;
    let told = control.call("account/rateLimits/read", json!({})).await;
    assert_eq!(
        told["rateLimits"]["primary"]["usedPercent"], 100,
        "{told:#}"
    );
}

async fn job_beyond_100_percent_tries_no_turn(release: &str) {
    let reset = Reset::ahead(LATER);
    let exceeded = Account::Exceeded(reset.clone());
    let (stage, _backend) = stage(release, after(&reset), exceeded).await;
    let id = stage.submitted().await;
    stage.waiting(&id).await;
    let requests = if answers_aside(release) { 0 } else { 1 };
    assert_eq!(stage.model.request_count(), requests);
    stage.told_of(&["cancel", &id]).await;
}

async fn waiting_job_runs_when_the_login_is_replaced(release: &str) {
    let reset = Reset::ahead(LATER);
    let at = reset.clone();
    let is_first = AtomicBool::new(true);
    let script = Script::by(move |_| match is_first.swap(false, Ordering::Relaxed) {
        true => Reply::usage_limit(at.at()),
        false => Reply::say("hello"),
    });
    let (stage, _backend) = stage(release, script, Account::UsedUp(reset)).await;
    let id = stage.submitted().await;
    stage.waiting(&id).await;
    let login = stage.home.codex_home().join("auth.json");
    std::fs::write(login, r#"{"OPENAI_API_KEY":"sk-test"}"#).unwrap();
    let wait = ["wait", id.as_str()];
    let ended = timeout(LONG, stage.told_of(&wait)).await;
    assert_eq!(ended.unwrap(), "hello\n");
}

/// A login that is removed, and a directory that is away, last for a moment.
async fn look_that_fails_before_its_turn_keeps_the_job_waiting(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, after(&reset), used_up).await;
    let directory = stage.home.work().join("sub");
    std::fs::create_dir(&directory).unwrap();
    let id = stage.told_of(&["submit", "--cwd", "sub", "work"]).await;
    let id = id.trim_end();
    let wait = stage.waiting(id).await["waits_until"].clone();
    let looks = || {
        let log = stage.home.root().join("state/codex-mcp/worker.log");
        let log = std::fs::read_to_string(log).unwrap();
        log.matches("it is put back").count()
    };
    let login = stage.home.codex_home().join("auth.json");
    std::fs::remove_dir(&directory).unwrap();
    std::fs::write(login, login_of_chatgpt().to_string() + "\n").unwrap();
    let looked = async {
        while looks() < 2 {
            let job = stage.shown(id).await;
            assert_ne!(job["status"], "failed", "{job:#}");
            sleep(Duration::from_millis(50)).await;
        }
        stage.waiting(id).await
    };
    let job = timeout(LONG, looked).await.unwrap();
    assert_eq!((&job["waits_until"], &job["attempts"]), (&wait, &json!(0)));
    stage.told_of(&["cancel", id]).await;
}

/// A later attempt would report its own work alone.
async fn turn_that_has_worked_before_the_limit_fails_and_reports_its_work(release: &str) {
    let reset = Reset::ahead(LATER);
    let at = reset.clone();
    let is_first = AtomicBool::new(true);
    let script = Script::by(move |_| match is_first.swap(false, Ordering::Relaxed) {
        true => Reply::patch(Patch::new().add("made.txt", "hello\n")),
        false => Reply::usage_limit(at.at()),
    });
    let (stage, _backend) = stage(release, script, Account::Free).await;
    let id = stage.submitted().await;
    let waited = stage.of_openai(&["jobs", "wait", &id]).output().await;
    assert_eq!(waited.unwrap().status.code(), Some(1));
    let job = stage.shown(&id).await;
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["metadata"]["failure"]["class"], "rate_limit", "{job:#}");
    let files = job["metadata"]["changed_files"].to_string();
    assert!(files.contains("made.txt"), "{job:#}");
}

/// The limit is reached, and nobody says until when.
fn refused() -> Script {
    let body = json!({ "error": { "type": "usage_limit_reached", "message": "The usage limit" } });
    Script::by(move |_| Reply::fail(429, body.to_string()))
}

async fn job_without_a_known_reset_is_tried_again_later(release: &str) {
    let (stage, _backend) = stage(release, refused(), Account::Broken).await;
    let id = stage.submitted().await;
    let job = stage.waiting(&id).await;
    let reason = job["waits_for"].as_str().unwrap();
    assert!(
        reason.contains("does not report when it is reset"),
        "{reason}"
    );
    assert_eq!(stage.model.request_count(), 1);
    stage.told_of(&["cancel", &id]).await;
}

/// Time does not lift the limit of a key.
async fn job_with_an_api_key_fails_at_its_limit(release: &str) {
    let (stage, backend) = stage(release, refused(), Account::Free).await;
    let login = stage.home.codex_home().join("auth.json");
    std::fs::write(login, r#"{"OPENAI_API_KEY":"sk-test"}"#).unwrap();
    let id = stage.submitted().await;
    let waited = stage.of_openai(&["jobs", "wait", &id]).output().await;
    assert_eq!(waited.unwrap().status.code(), Some(1));
    let job = stage.shown(&id).await;
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["metadata"]["failure"]["class"], "rate_limit", "{job:#}");
    assert_eq!(backend.asked(), 0);
}

async fn job_of_another_account_does_not_wait(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, _backend) = stage(release, after(&reset), used_up).await;
    let id = stage.submitted().await;
    stage.waiting(&id).await;
    let model = ScriptedModel::start(Script::new().otherwise([Reply::say("other")]));
    let model = model.await.unwrap();
    let other = Home::new(&format!(
        "{}\nfeatures.plugins = false\n",
        model.codex_config()
    ));
    let mut command = stage.of_openai(&["jobs", "submit", "--wait", "work"]);
    let said = command.env("CODEX_HOME", other.codex_home()).output().await;
    assert_eq!(String::from_utf8(said.unwrap().stdout).unwrap(), "other\n");
    assert_eq!(stage.shown(&id).await["status"], "queued");
    stage.told_of(&["cancel", &id]).await;
}

async fn job_runs_although_the_backend_fails(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Broken).await;
    let said = stage.told_of(&["submit", "--wait", "work"]).await;
    assert_eq!(said, "hello\n");
    assert_eq!(backend.asked() > 0, answers_aside(release));
}

/// With 0.104.0 the silence would keep Codex from beginning the thread, as the control shows.
async fn job_runs_although_the_backend_is_silent(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Silent).await;
    assert_eq!(
        stage.told_of(&["submit", "--wait", "work"]).await,
        "hello\n"
    );
    assert_eq!(backend.asked() > 0, answers_aside(release));

    let control = AppServer::real(release, &stage.home).await;
    let asked = backend.asked();
    let asking = control.request("account/rateLimits/read", json!({}));
    let asking = timeout(Duration::from_secs(5), asking);
    let beginning = async {
        while backend.asked() == asked {
            sleep(Duration::from_millis(10)).await;
        }
        let begun = control.request("thread/start", json!({ "cwd": stage.home.work() }));
        timeout(Duration::from_secs(3), begun).await.is_ok()
    };
    let (told, begun) = tokio::join!(asking, beginning);
    assert!(told.is_err());
    assert_eq!(begun, answers_aside(release));
}

async fn run_of_a_used_up_account_waits(release: &str) {
    let reset = Reset::ahead(LATER);
    let used_up = Account::UsedUp(reset.clone());
    let (stage, backend) = stage(release, after(&reset), used_up).await;
    let mut client = stage.client_of_openai().await;
    // A command of the criteria that succeeds is nothing that the run has made.
    let arguments = json!({ "task": "make a file", "cwd": stage.home.work(), "wait_ms": 0,
        "sandbox": "workspace-write",
        "exit_criteria": { "files": ["new"], "command": "true" } });
    let begun = client.call_tool("codex_run", arguments).await;
    let id = structured(&begun)["job_id"].as_str().unwrap();
    let job = stage.waiting(id).await;
    assert_eq!(job["status"], "queued", "{job:#}");
    backend.is_now(Account::Free);
    client
        .call_tool("call_cancel", json!({ "job_id": id }))
        .await;
    stage.finish_with_worker(client).await;
}

async fn run_that_fails_for_another_reason_does_not_wait(release: &str) {
    let body = json!({ "error": { "type": "invalid_request", "message": "not that" } });
    let script = Script::by(move |_| Reply::fail(400, body.to_string()));
    let used_up = Account::UsedUp(Reset::ahead(LATER));
    let (stage, _backend) = stage(release, script, used_up).await;
    let mut client = stage.client_of_openai().await;
    let arguments = json!({ "task": "make a file", "cwd": stage.home.work(),
        "sandbox": "workspace-write", "exit_criteria": { "files": ["new"] } });
    let ran = timeout(LONG, client.call_tool("codex_run", arguments)).await;
    let ran = ran.unwrap();
    assert_eq!(structured(&ran)["reason"], "could_not_run", "{ran:#}");
    stage.finish_with_worker(client).await;
}

/// The provider of the configuration is that of the thread.
async fn resumed_job_waits_again(release: &str) {
    let (first, second) = (Reset::ahead(SOON), Reset::ahead(LATER * 2));
    let resets = [first.clone(), second.clone()];
    let count = AtomicUsize::new(0);
    let script = Script::by(move |_| {
        let reset = resets.get(count.fetch_add(1, Ordering::Relaxed));
        Reply::usage_limit(reset.unwrap_or(&second).at())
    });
    let (stage, _backend) = stage(release, script, Account::Broken).await;
    let id = stage.submitted().await;
    timeout(LONG, stage.model.requested(2)).await.unwrap();
    let job = stage.waiting(&id).await;
    assert_eq!(job["status"], "queued", "{job:#}");
    assert!(first.is_past());
    stage.told_of(&["cancel", &id]).await;
}

async fn limits_are_told_by_codex_status_and_doctor(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let (stage, backend) = stage(release, script, Account::Free).await;
    let mut client = stage.client_of_openai().await;
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    super::assert_completed(&answer, "hello");
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
            .of_openai(&["doctor", "--json"])
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
    backend.is_now(Account::UsedUp(Reset::ahead(LATER)));
    assert_eq!(doctor().await["status"], "warning");
    for unknown in [Account::Broken, Account::Silent] {
        backend.is_now(unknown);
        let told = doctor().await;
        assert_eq!(told["status"], "note", "{told:#}");
        let message = told["message"].as_str().unwrap();
        assert!(message.starts_with("not known: "), "{message}");
    }

    // Others are not kept waiting by who asks.
    let mut client = stage.client_of_openai().await;
    let status = client.call_tool("codex_status", json!({})).await;
    assert_eq!(structured(&status)["limits"]["known"], false, "{status:#}");
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    super::assert_completed(&answer, "hello");
    stage.finish(client).await;
}
