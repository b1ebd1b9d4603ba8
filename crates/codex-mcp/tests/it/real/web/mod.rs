//! `codex-mcp web`, with the real Codex behind it.

mod access;
mod approval_card;
mod bounds;
mod browser;
mod conductor;
mod conformance;
mod jobs;
mod mcp;
mod port_taken;
mod python;
mod screenshots;
mod story;
mod team;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::process::{signal, wait_until_gone};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use super::sessions::Poller;
use super::{CodexFixture, said};
use crate::jobs::wait_for;
use testkit::http::{Request, Response};

/// The limit for the start and the end of the server.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The endpoint, a client with a host, and a browser that is signed in.
pub(super) struct WebFixture {
    pub(super) stage: CodexFixture,
    pub(super) client: Poller,
    pub(super) server: Child,
    pub(super) address: SocketAddr,
    /// The cookie of the browser.
    pub(super) cookie: String,
}

impl WebFixture {
    async fn new(release: &str, script: Script) -> Self {
        Self::on(CodexFixture::new(release, script).await).await
    }

    pub(super) async fn on(stage: CodexFixture) -> Self {
        let client = Poller::new(&stage, &["--host"]).await;
        let (server, address, link) = start(&stage, &[]).await;
        let mut fixture = Self {
            stage,
            client,
            server,
            address,
            cookie: String::new(),
        };
        fixture.cookie = fixture.sign_in(&link).await;
        fixture
    }

    fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    /// A request of the browser.
    fn browser(&self, method: &str, path: &str) -> Request {
        let origin = format!("http://{}", self.address);
        self.request(method, path)
            .header("cookie", &self.cookie)
            .header("origin", &origin)
            .header("sec-fetch-site", "same-origin")
    }

    async fn get(&self, path: &str) -> String {
        let response = self
            .browser("GET", path)
            .header("accept", "text/html")
            .send()
            .await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.body
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        self.browser("POST", path).form(fields).send().await
    }

    /// Uses a one-time link, and returns the cookie.
    async fn sign_in(&self, link: &str) -> String {
        let (_, code) = link.split_once("/login?code=").unwrap();
        let response = self
            .request("POST", "/login")
            .form(&[("code", code)])
            .send()
            .await;
        assert_eq!(response.status, 303, "{response:?}");
        let cleared = response.header("clear-site-data");
        assert_eq!(cleared, Some(r#""cache", "storage""#));
        let cookie = response.header("set-cookie").unwrap();
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Runs a verb of `codex-mcp web`; returns its stdout.
    async fn run(&self, args: &[&str]) -> String {
        self.output(&[&["web"], args].concat()).await
    }

    /// Runs our program; returns whether it succeeds.
    async fn shell(&self, args: &[&str]) -> bool {
        let output = self.stage.program(args).output().await.unwrap();
        output.status.success()
    }

    /// Whether the page knows a session.
    async fn hosts_session(&self, session: &str) -> bool {
        work(self).await.iter().any(|one| one["id"] == session)
    }

    /// Runs our program, which must succeed; returns its stdout.
    async fn output(&self, args: &[&str]) -> String {
        said(self.stage.program(args)).await.trim_end().to_owned()
    }

    /// Starts the endpoint anew with these variables. The browser has to sign in again, as somebody else
    /// can have had the port meanwhile, and its cookie.
    async fn restart_with(&mut self, env: &[(&str, &str)]) {
        self.stop().await;
        let link;
        (self.server, self.address, link) = start(&self.stage, env).await;
        assert_eq!(self.browser("GET", "/api/work").send().await.status, 401);
        self.cookie = self.sign_in(&link).await;
    }

    async fn stop(&mut self) {
        let pid = self.server.id().unwrap();
        signal(pid, Signal::SIGTERM);
        let ended = timeout(TIME_LIMIT, self.server.wait()).await.unwrap();
        assert!(ended.unwrap().success());
    }

    pub(super) async fn finish(mut self) {
        self.stop().await;
        assert!(self.client.client.finish().await.success());
        self.stage.stop_hosts().await;
        let processes = self.stage.home.processes();
        // A worker waits for further jobs for a while.
        for worker in processes
            .iter()
            .filter(|one| one.command.contains(" worker "))
        {
            signal(worker.pid, Signal::SIGTERM);
        }
        wait_for("all processes are gone", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

async fn web() -> WebFixture {
    let script = Script::new().otherwise([Reply::say("done")]);
    WebFixture::new(testkit::codex::newest(), script).await
}

async fn status(request: &Request) -> u16 {
    request.send().await.status
}

/// Starts the endpoint at a free port; returns its address and the link that it prints.
async fn start(stage: &CodexFixture, env: &[(&str, &str)]) -> (Child, SocketAddr, String) {
    start_at(stage, "127.0.0.1:0", env).await
}

/// The same, at this address.
async fn start_at(
    stage: &CodexFixture,
    listen: &str,
    env: &[(&str, &str)],
) -> (Child, SocketAddr, String) {
    let mut server = stage
        .program(&["web", "--listen", listen])
        .envs(env.iter().copied())
        // Nobody reads it while the endpoint runs.
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = timeout(TIME_LIMIT, lines.next_line()).await.unwrap();
    let link = line.unwrap().unwrap();
    let host = link.strip_prefix("http://codex-mcp-").unwrap();
    let (_, port) = host.split_once(".localhost:").unwrap();
    let port = port.split_once('/').unwrap().0.parse().unwrap();
    (server, (Ipv4Addr::LOCALHOST, port).into(), link)
}

/// Ends the hosts at once.
async fn kill_hosts(web: &WebFixture) {
    let processes = web.stage.home.processes().into_iter();
    let hosts = processes.filter(|process| process.command.contains("host run"));
    let hosts: Vec<u32> = hosts.map(|process| process.pid).collect();
    assert!(!hosts.is_empty());
    for host in &hosts {
        signal(*host, Signal::SIGKILL);
    }
    assert_eq!(wait_until_gone(&hosts, TIME_LIMIT).await, []);
}

/// The work that the JSON interface lists.
async fn work(web: &WebFixture) -> Vec<Value> {
    let listed = web.browser("GET", "/api/work").send().await.json();
    listed["work"].as_array().unwrap().clone()
}

/// Starts a session that needs no approval unless it asks for one.
async fn start_session(web: &mut WebFixture, prompt: &str) -> String {
    web.client.start(prompt, json!({})).await
}
