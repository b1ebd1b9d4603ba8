//! The page of `codex-mcp web`.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::sys::signal::Signal;
use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::chromium::Driver;
use testkit::http::Request;
use testkit::process;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, TIME_LIMIT, codex_binary, program};
use crate::sessions::Poller;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// How many sessions the page lists.
const SESSIONS: usize = 200;

/// How many watch one session.
const WATCHERS: usize = 50;

/// The pieces of text of the session that is watched.
const PIECES: usize = 20_000;

/// From the request for the page to its last byte, in seconds.
const PAINT: f64 = 0.1;

/// From Codex's word to the element in the browser, in seconds.
const SHOWN: f64 = 0.05;

/// The processor time for the watchers, as a part of a core.
const WATCHED: f64 = 0.1;

/// The memory of the host and of the endpoint, in bytes (15 MiB).
const MEMORY: f64 = 15.0 * 1024.0 * 1024.0;

const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let mut rows = vec![memory().await, paint(rounds).await];
    rows.push(shown(rounds).await);
    rows.push(watched().await);
    rows
}

/// An endpoint, and a client whose sessions it shows.
struct Page {
    fixture: Fixture,
    poller: Poller,
    server: Child,
    address: SocketAddr,
    link: String,
    /// One credential may have 32 watchers.
    tokens: [String; 2],
}

impl Page {
    async fn new(script: Script) -> Self {
        let fixture = Fixture::with_script(script);
        let poller = fixture.poller_with(&["--host"]).await;
        let mut server = command(&fixture, &["--listen", "127.0.0.1:0"]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let link = lines.next_line().await.unwrap().unwrap();
        let (_, port) = link.split_once(".localhost:").unwrap();
        let port: u16 = port.split_once('/').unwrap().0.parse().unwrap();
        let token = async || {
            let mut token = command(&fixture, &["token", "a bench"]);
            let token = token.output().await.unwrap().stdout;
            String::from_utf8(token).unwrap().trim().to_owned()
        };
        let tokens = [token().await, token().await];
        Self {
            fixture,
            poller,
            server,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            link,
            tokens,
        }
    }

    fn get(&self, path: &str) -> Request {
        Request::new(self.address, "GET", path).bearer(&self.tokens[0])
    }

    fn pid(&self) -> u32 {
        self.server.id().unwrap()
    }

    /// Waits until the endpoint knows so many sessions.
    async fn knows(&self, count: usize) {
        let waiting = async {
            loop {
                let listed = self.get("/api/work").send().await.json();
                if listed["work"].as_array().unwrap().len() >= count {
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        timeout(TIME_LIMIT, waiting).await.unwrap();
    }

    async fn conversation(&self, session: &str) -> Value {
        self.get(&format!("/api/sessions/{session}"))
            .send()
            .await
            .json()
    }

    async fn finish(mut self) {
        process::signal(self.pid(), Signal::SIGTERM);
        self.server.wait().await.unwrap();
        self.poller.finish().await;
        let mut stop = Command::new(program());
        let stop = stop.args(["host", "stop"]).env_clear();
        stop.envs(self.fixture.home().env()).output().await.unwrap();
    }
}

fn command(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .arg("web")
        .args(args)
        .env_clear()
        .envs(fixture.home().env())
        .env("CODEX_MCP_CODEX_BIN", codex_binary())
        .current_dir(fixture.work())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

fn row(figure: &'static str, unit: Unit, values: Vec<f64>, target: Target, note: &str) -> Row {
    Row {
        figure,
        unit,
        ours: Summary::of(values),
        direct: None,
        target,
        notes: vec![note.to_owned()],
    }
}

/// The memory of the host and the endpoint while somebody looks at the page and nothing runs.
async fn memory() -> Row {
    let page = Page::new(Script::new().otherwise([Reply::say("done")])).await;
    let mut events = page.get("/events").events().await;
    events.next().await.unwrap();
    let hosts = Command::new(program())
        .args(["host", "status", "--json"])
        .env_clear()
        .envs(page.fixture.home().env())
        .output()
        .await
        .unwrap();
    let hosts: Value = serde_json::from_slice(&hosts.stdout).unwrap();
    let host = u32::try_from(hosts[0]["pid"].as_u64().unwrap()).unwrap();
    let kib = |pid| process::pss_kib(pid).unwrap();
    let (host, endpoint) = (kib(host), kib(page.pid()));
    let note = format!("host {host} KiB, endpoint {endpoint} KiB, without Codex");
    #[expect(clippy::cast_precision_loss, reason = "some MiB")]
    let bytes = (host + endpoint) as f64 * 1024.0;
    page.finish().await;
    let figure = "host and page, idle";
    row(
        figure,
        Unit::Bytes,
        vec![bytes],
        Target::AtMost(MEMORY),
        &note,
    )
}

async fn paint(rounds: u16) -> Row {
    let mut page = Page::new(Script::new().otherwise([Reply::say("done")])).await;
    for _ in 0..SESSIONS {
        page.poller.start().await;
    }
    page.knows(SESSIONS).await;
    let request = page.get("/").header("accept", "text/html");
    let mut took = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        let response = request.send().await;
        took.push(begin.elapsed().as_secs_f64());
        assert_eq!(response.body.matches("id=\"work-sess_").count(), SESSIONS);
    }
    page.finish().await;
    let note = "from the request to the last byte, on loopback";
    row(
        "page of 200 sessions",
        Unit::Seconds,
        took,
        Target::AtMost(PAINT),
        note,
    )
}

/// Notes when each step appears, in milliseconds of the clock of this machine.
const OBSERVE: &str = "window.seen = {}; new MutationObserver((changes) => changes.forEach((change) => \
    change.addedNodes.forEach((node) => { if (node.id) window.seen[node.id] ??= performance.timeOrigin + performance.now(); }))) \
    .observe(document.getElementById('steps'), { childList: true });";

async fn shown(rounds: u16) -> Row {
    let mut page = Page::new(Script::new().otherwise([Reply::say("done")])).await;
    let driver = Driver::start().await;
    let browser = driver.browser((1280, 900), "light").await;
    browser.open(&page.link).await;
    browser
        .wait_for("#sign-in button")
        .await
        .click()
        .await
        .unwrap();
    browser.wait_for_text("h2", "Needs you").await;
    let session = page.poller.start().await;
    page.knows(1).await;
    page.poller.wait(&session).await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".state", "idle").await;
    browser.run(OBSERVE, json!([])).await;
    for _ in 0..rounds {
        page.poller.reply(&session).await;
        page.poller.wait(&session).await;
    }
    let conversation = page.conversation(&session).await;
    let steps = conversation["steps"].as_array().unwrap();
    let last = format!("#step-{}", steps.last().unwrap()["number"]);
    browser.wait_for(&last).await;
    let seen = browser.run("return window.seen", json!([])).await;
    let took = steps.iter().filter_map(|step| {
        let shown = seen[format!("step-{}", step["number"])].as_f64()? / 1e3;
        let at = humantime::parse_rfc3339(step["at"].as_str()?).unwrap();
        let told = at.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        Some(shown - told)
    });
    let took: Vec<f64> = took.collect();
    assert!(took.len() >= rounds.into(), "{} steps", took.len());
    let note = format!(
        "{} steps in Chromium, after the host has got them",
        took.len()
    );
    browser.finish().await;
    page.finish().await;
    row(
        "event on the screen",
        Unit::Seconds,
        took,
        Target::AtMost(SHOWN),
        &note,
    )
}

/// The processor time of the endpoint while 50 watch a session that writes without a pause.
async fn watched() -> Row {
    let script = Script::new().otherwise([Reply::deltas(PIECES, "word ")]);
    let mut page = Page::new(script).await;
    let session = page.poller.start().await;
    page.knows(1).await;
    let shown = page
        .get(&format!("/sessions/{session}"))
        .header("accept", "text/html");
    let shown = shown.send().await.body;
    let (_, path) = shown.split_once("data-events=\"").unwrap();
    let path = path.split_once('"').unwrap().0.to_owned();
    let mut watchers = Vec::new();
    for number in 0..WATCHERS {
        let token = &page.tokens[number % page.tokens.len()];
        let mut events = page.get(&path).bearer(token).events().await;
        watchers.push(tokio::spawn(async move {
            let mut count = 0_u64;
            while let Some(event) = events.next().await {
                count += 1;
                if event.data["html"]
                    .as_str()
                    .is_some_and(|html| html.contains("completed"))
                {
                    break;
                }
            }
            count
        }));
    }
    let (begin, cpu) = (Instant::now(), process::cpu_time(page.pid()).unwrap());
    let mut events = 0;
    for watcher in watchers {
        events += timeout(TIME_LIMIT, watcher).await.unwrap().unwrap();
    }
    let took = begin.elapsed().as_secs_f64();
    let used = (process::cpu_time(page.pid()).unwrap() - cpu).as_secs_f64();
    let note = format!(
        "{used:.2} s of processor time in {took:.2} s: {PIECES} pieces, {events} events for all"
    );
    page.finish().await;
    let (figure, target) = ("50 watchers of a flood, of a core", Target::AtMost(WATCHED));
    row(figure, Unit::Ratio, vec![used / took], target, &note)
}
