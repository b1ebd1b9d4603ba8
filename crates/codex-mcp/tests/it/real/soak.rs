//! A host, a worker, a server and the page under steady load, while their memory, files and threads and
//! the sizes of what they store are measured. `cargo xtask soak` runs it, and judges the measurements.

mod samples;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use scripted_model::{Recording, Script};
use serde_json::{Value, json};
use testkit::McpClient;
use testkit::http::Request;
use tokio::time::{Instant, sleep_until};

use self::samples::{Processes, sample_until};
use super::kill_storm::{count, report};
use super::sessions::Poller;
use super::team::{inbox, make_team, put_mail};
use super::web::WebFixture;
use super::{CodexFixture, VERSION, said, structured, tasks};
use crate::jobs::wait_for;
use crate::random::Random;

/// How long the load lasts, in seconds.
const SECONDS: &str = "CODEX_MCP_TEST_SECONDS";

/// The turns of a conversation.
const TURNS: usize = 5;

/// The mean time from one step of a client to its next, in milliseconds. A step takes less, also on a
/// busy machine: what is kept for a time would grow with the number of steps.
const STEP: u64 = 4000;

/// Retention that is reached during the warm-up, and that lines of the audit and of logs reach.
const SETTINGS: &str = "keep_jobs_secs = 120\nkeep_tasks_secs = 120\n\
    max_audit_bytes = 16384\nmax_log_bytes = 16384";

/// The work that continues until the time is over.
struct Load<'a> {
    stage: &'a CodexFixture,
    over: Instant,
    random: RefCell<Random>,
    number: Cell<usize>,
    done: RefCell<BTreeMap<&'static str, usize>>,
}

/// The steps of a client, which begin at times that do not depend on how long they take.
struct Steps<'a> {
    load: &'a Load<'a>,
    next: Instant,
}

impl Steps<'_> {
    /// Counts what was done, and waits for the next step; returns whether there is one.
    async fn continues_after(&mut self, what: &'static str) -> bool {
        *self.load.done.borrow_mut().entry(what).or_default() += 1;
        let step = self.load.random.borrow_mut().below(2 * STEP);
        self.next += Duration::from_millis(step);
        sleep_until(self.next).await;
        Instant::now() < self.load.over
    }
}

impl Load<'_> {
    fn steps(&self) -> Steps<'_> {
        Steps {
            load: self,
            next: Instant::now(),
        }
    }

    /// A prompt that no other turn has.
    fn prompt(&self) -> String {
        self.number.set(self.number.get() + 1);
        format!("turn {}", self.number.get())
    }

    fn first_call(&self) -> Value {
        json!({ "prompt": self.prompt(), "sandbox": "workspace-write", "approval-policy": "never" })
    }

    /// Sessions of the host, one after the other.
    async fn sessions(&self, client: &mut Poller) {
        let mut steps = self.steps();
        loop {
            let settings = json!({ "sandbox": "workspace-write", "approvalPolicy": "never" });
            let session = client.start(&self.prompt(), settings).await;
            client.until_idle(&session).await;
            for _ in 1..TURNS {
                client.reply(&session, &self.prompt(), json!({})).await;
                client.until_idle(&session).await;
                steps.continues_after("turns of sessions").await;
            }
            client.session("cancel", &session).await;
            if !steps.continues_after("sessions").await {
                return;
            }
        }
    }

    /// Threads and mail of a member, in a server without a host.
    async fn threads(&self, client: &mut McpClient) {
        let mut steps = self.steps();
        loop {
            let begun = succeeds(client, "codex", self.first_call()).await;
            for _ in 1..TURNS {
                let reply = json!({ "threadId": begun["threadId"], "prompt": self.prompt() });
                succeeds(client, "codex-reply", reply).await;
                let letter = json!({ "to": "lead", "message": self.prompt() });
                succeeds(client, "atm_send", letter).await;
                self.lead_takes_mail();
                succeeds(client, "atm_read", json!({})).await;
                steps.continues_after("turns of threads, with mail").await;
            }
            cancel(client, &begun).await;
            if !steps.continues_after("threads").await {
                return;
            }
        }
    }

    /// Reads the mail of the lead and removes it: each message rewrites the whole inbox, so with one
    /// that grows, the memory of its writer would grow too. This needs no lock, as nobody else writes
    /// to the lead, and a message is stored when `atm_send` answers.
    fn lead_takes_mail(&self) {
        assert!(!inbox(self.stage, "lead").is_empty());
        put_mail(self.stage, "lead", &[]);
    }

    /// Clients that come, have the host do a task, and go.
    async fn tasks(&self) {
        let mut steps = self.steps();
        loop {
            let extensions = json!({ tasks::EXTENSION: {} });
            let mut client = tasks::client_of(self.stage, &["--host"], extensions);
            let task = tasks::begin(&mut client, "codex", self.first_call()).await;
            let ended = tasks::until(&mut client, &task, "completed").await;
            cancel(&mut client, structured(&ended["result"])).await;
            assert!(client.finish().await.success());
            if !steps.continues_after("clients with a task").await {
                return;
            }
        }
    }

    async fn jobs(&self) {
        let mut steps = self.steps();
        loop {
            self.submit().await;
            if !steps.continues_after("jobs").await {
                return;
            }
        }
    }

    async fn submit(&self) {
        let submit = [
            "submit",
            "--sandbox",
            "workspace-write",
            "--",
            &self.prompt(),
        ];
        let output = self.stage.jobs_command(&submit).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Keeps the registries of threads small: each client has a copy of one, and their bound is 10,000
    /// threads.
    async fn prunes(&self) {
        let mut steps = self.steps();
        loop {
            let prune = ["threads", "--prune", "--older-than", "2m"];
            said(self.stage.program(&prune)).await;
            if !steps.continues_after("prunes of registries").await {
                return;
            }
        }
    }

    /// Looks at the lists, and at the first session and job of the page.
    async fn pages(&self, page: &Page) {
        let mut steps = self.steps();
        loop {
            page.get("/").await;
            let listed: Value = serde_json::from_str(&page.get("/api/work").await).unwrap();
            for kind in ["session", "job"] {
                let all = listed["work"].as_array().unwrap().iter();
                let found = all.rev().find(|work| work["kind"] == kind);
                if let Some(id) = found.and_then(|work| work["id"].as_str()) {
                    // A job may have been removed meanwhile.
                    page.request(&format!("/{kind}s/{id}")).send().await;
                }
            }
            if !steps.continues_after("looks at pages").await {
                return;
            }
        }
    }
}

/// The page, for a browser that is signed in.
struct Page {
    address: SocketAddr,
    cookie: String,
}

impl Page {
    fn request(&self, path: &str) -> Request {
        Request::new(self.address, "GET", path)
            .header("cookie", &self.cookie)
            .header("accept", "text/html, application/json")
    }

    async fn get(&self, path: &str) -> String {
        let response = self.request(path).send().await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.body
    }
}

/// Calls a tool, which must succeed; returns its structured content.
async fn succeeds(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let result = client.call_tool(tool, arguments).await;
    assert_ne!(result["isError"], true, "{result:#}");
    structured(&result).clone()
}

/// Cancels the session of a call, which is then forgotten after five minutes.
async fn cancel(client: &mut McpClient, result: &Value) {
    let cancel = json!({ "action": "cancel", "sessionId": result["sessionId"] });
    succeeds(client, "codex_session", cancel).await;
}

/// A server that works alone, as a member of a team.
async fn member(stage: &CodexFixture) -> McpClient {
    make_team(stage, &["lead", "soak"]);
    let launch = stage.launch(&["--identity", "soak", "--team", "builders"]);
    let mut client = McpClient::start(&launch);
    client.ignore("notifications/tools/list_changed");
    client.initialize(VERSION, json!({})).await;
    client
}

/// The only process of this home with these words in its command line.
async fn process(stage: &CodexFixture, words: &str) -> u32 {
    wait_for("the process", async || {
        let all = stage.home.processes();
        let found = all.iter().find(|one| one.command.contains(words));
        found.map(|one| one.pid)
    })
    .await
}

#[tokio::test]
#[ignore = "`cargo xtask soak` runs it"]
async fn processes_are_measured_under_steady_load() {
    let seconds: u64 = std::env::var(SECONDS).map_or(60, |text| text.parse().unwrap());
    let script = Script::by(count).recording(Recording::Off);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.configure(SETTINGS);
    let mut web = WebFixture::on(stage).await;
    web.stage.codex_is_ready(&mut web.client.client).await;
    let mut member = member(&web.stage).await;
    let page = Page {
        address: web.address,
        cookie: web.cookie.clone(),
    };
    let load = Load {
        stage: &web.stage,
        over: Instant::now() + Duration::from_secs(seconds),
        random: RefCell::new(Random::seeded("soak")),
        number: Cell::new(0),
        done: RefCell::default(),
    };
    load.submit().await;
    let processes = Processes::new([
        ("host", process(&web.stage, " host run").await),
        ("worker", process(&web.stage, " worker ").await),
        ("web", web.server.id().unwrap()),
        ("serve (relay)", web.client.client.pid()),
        ("serve (alone)", member.pid()),
    ]);
    tokio::join!(
        load.sessions(&mut web.client),
        load.threads(&mut member),
        load.tasks(),
        load.jobs(),
        load.pages(&page),
        load.prunes(),
        sample_until(load.over, &web.stage, &processes),
    );
    report(&format!("{:?}", load.done.borrow()));
    assert!(member.finish().await.success());
    web.finish().await;
}
