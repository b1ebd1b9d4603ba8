//! Another user of the machine takes the port of an endpoint that has ended. The attacker's server is here.

use std::io;
use std::net::SocketAddr;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::chromium::{Browser, Driver};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::browser::DESK;
use super::{WebFixture, start_at};

/// What the attacker's page does: it has the browser keep this script in the place of ours, and reads our
/// interface for as long as it is open.
const EVIL: &str = "
const marks = document.documentElement.dataset;
marks.evil = 'it runs';
fetch('SCRIPT', { cache: 'reload' }).then((kept) => kept.text()).then(() => { marks.kept = 'yes'; });
setInterval(() => fetch('/api/work', { cache: 'no-store' })
  .then((answer) => { marks.seen = answer.status; }, () => {}), 100);
";

struct Attacker(JoinHandle<()>);

impl Attacker {
    async fn start(at: SocketAddr, our_script: &str) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let script = EVIL.replace("SCRIPT", our_script);
        Self(tokio::spawn(serve(listener, script)))
    }

    async fn finish(self) {
        self.0.abort();
        let ended = self.0.await.unwrap_err();
        assert!(ended.is_cancelled(), "{ended}");
    }
}

async fn serve(listener: TcpListener, script: String) {
    let mut clients = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        clients.spawn(answer(stream, script.clone()));
    }
}

/// Answers one request: with the attacker's page, with its script, or with a refusal.
async fn answer(stream: TcpStream, script: String) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let path = head.split(' ').nth(1).unwrap();
    let (status, kind, body) = match path {
        "/" => ("200 OK", "text/html", "<script src=/evil.js></script>"),
        _ if path.ends_with(".js") => ("200 OK", "text/javascript", script.as_str()),
        _ => ("403 Forbidden", "text/plain", "no"),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\
         cache-control: max-age=31536000, immutable\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Signs in by a link.
async fn sign_in(browser: &Browser, link: &str) {
    browser.open(link).await;
    let button = browser.wait_for("#sign-in button").await;
    button.click().await.unwrap();
    browser.wait_for_text("h2", "Needs you").await;
}

/// A mark that the attacker's script has left on the page.
async fn mark(browser: &Browser, name: &str) -> Value {
    let script = "return document.documentElement.dataset[arguments[0]]";
    browser.run(script, json!([name])).await
}

async fn script_of(browser: &Browser) -> String {
    let script = "return new URL(document.querySelector('script').src).pathname";
    let path = browser.run(script, json!([])).await;
    path.as_str().unwrap().to_owned()
}

/// The user signs in twice with links whose host is replaced so, and in between, the attacker has the port.
/// Returns what the attacker's page then gets from the second endpoint.
async fn attacked(host: impl Fn(String) -> String) -> Value {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&browser, &host(web.run(&["link"]).await)).await;
    let first = script_of(&browser).await;
    web.stop().await;
    let attacker = Attacker::start(web.address, &first).await;
    // The open page does not load the attacker's by itself.
    browser.wait_for_text("#status", "has ended").await;
    assert_eq!(mark(&browser, "evil").await, Value::Null);
    // The control: the attack, if a person loads it.
    let load = browser.wait_for("#status a").await;
    load.click().await.unwrap();
    browser.wait_for("html[data-evil][data-kept]").await;
    attacker.finish().await;

    let link;
    let listen = web.address.to_string();
    (web.server, web.address, link) = start_at(&web.stage, &listen, &[]).await;
    let theirs = browser.open_tab().await;
    sign_in(&browser, &host(link)).await;
    assert_eq!(mark(&browser, "evil").await, Value::Null);
    assert_ne!(script_of(&browser).await, first);

    browser.switch_to(&theirs).await;
    let forget = "delete document.documentElement.dataset.seen";
    browser.run(forget, json!([])).await;
    browser.wait_for("html[data-seen]").await;
    let seen = mark(&browser, "seen").await;
    browser.finish().await;
    web.finish().await;
    seen
}

#[tokio::test]
async fn page_of_another_user_who_has_had_the_port_is_of_another_origin() {
    assert_eq!(attacked(|link| link).await, "421");
}

/// This name stays the same, so the attacker's page reads ours as long as it is open. But nothing that the
/// browser has kept of it runs in our page.
#[tokio::test]
async fn cached_script_of_another_server_does_not_run() {
    let plain = |link: String| {
        let (_, rest) = link.split_once(".localhost:").unwrap();
        format!("http://localhost:{rest}")
    };
    assert_eq!(attacked(plain).await, "200");
}
