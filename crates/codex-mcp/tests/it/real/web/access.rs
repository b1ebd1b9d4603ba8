//! Who gets in, and who does not. Each attack has a control that shows what it would do.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use job_queue::store::{JobStore, NewEvent, NewJob, Request as JobRequest, new_worker_id};
use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script};
use serde_json::json;
use settings::store_access::Access;
use testkit::McpClient;
use testkit::process::{cpu_time, peak_kib, pss_kib, signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::story::between;
use super::{WebFixture, start, start_session};
use crate::jobs::wait_for;
use crate::real::team::{make_team, put_mail};
use crate::real::{CodexFixture, VERSION};
use testkit::http::Request;

async fn web() -> WebFixture {
    let script = Script::new().otherwise([Reply::say("done")]);
    WebFixture::new(testkit::codex::newest(), script).await
}

async fn status(request: &Request) -> u16 {
    request.send().await.status
}

#[tokio::test]
async fn request_without_a_valid_credential_is_refused() {
    let web = web().await;
    let token = web.run(&["token", "a program"]).await;
    let list = || web.request("GET", "/api/work");
    // The controls: a token, and a cookie.
    assert_eq!(status(&list().bearer(&token)).await, 200);
    assert_eq!(status(&list().header("cookie", &web.cookie)).await, 200);

    for path in [
        "/",
        "/events",
        "/api/work",
        "/sessions/x",
        "/jobs/x",
        "/mcp",
    ] {
        let response = web.request("GET", path).send().await;
        assert_eq!(response.status, 401, "{path}: {response:?}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    }
    // A token that is wrong beside a cookie that is right.
    let stale = list().bearer("stale").header("cookie", &web.cookie);
    assert_eq!(status(&stale).await, 401);
    let other = list().header("authorization", &format!("Basic {token}"));
    assert_eq!(status(&other).await, 401);
    // Neither counts as the other.
    let (_, secret) = web.cookie.split_once('=').unwrap();
    assert_eq!(status(&list().bearer(secret)).await, 401);
    let as_cookie = format!("codex_mcp={token}");
    assert_eq!(status(&list().header("cookie", &as_cookie)).await, 401);

    let id = web.run(&["tokens", "--json"]).await;
    let id: serde_json::Value = serde_json::from_str(&id).unwrap();
    let listed = id.as_array().unwrap();
    let id = listed.iter().find(|one| one["kind"] == "token").unwrap();
    web.run(&["revoke", id["id"].as_str().unwrap()]).await;
    assert_eq!(status(&list().bearer(&token)).await, 401);
    let mut open = web.browser("GET", "/events").events().await;
    web.run(&["revoke", "--all"]).await;
    // An open stream ends with its credential.
    while open.next().await.is_some() {}
    assert_eq!(status(&list().header("cookie", &web.cookie)).await, 401);
    let state = web
        .stage
        .home
        .state_home()
        .join("codex-mcp/web/credentials.json");
    let kept = std::fs::read_to_string(state).unwrap();
    assert!(!kept.contains(&token) && !kept.contains(secret));
    web.finish().await;
}

#[tokio::test]
async fn wrong_secrets_are_followed_by_a_pause_for_those_alone() {
    let web = web().await;
    let link = web.run(&["link"]).await;
    let wrong = web.request("GET", "/api/work").bearer("wrong");
    for _ in 0..5 {
        assert_eq!(status(&wrong).await, 401);
    }
    let paused = wrong.send().await;
    assert_eq!(paused.status, 429, "{paused:?}");
    let seconds: u64 = paused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    let code = web.request("POST", "/login").form(&[("code", "wrong")]);
    assert_eq!(status(&code).await, 429);
    // Nobody locks out those who have a right one.
    assert_eq!(status(&web.browser("GET", "/api/work")).await, 200);
    web.sign_in(&link).await;
    web.finish().await;
}

#[tokio::test]
async fn link_is_used_once_and_not_by_a_look_at_it() {
    let web = web().await;
    let link = web.run(&["link"]).await;
    let (_, path) = link
        .split_once(&format!(":{}", web.address.port()))
        .unwrap();
    // Programs that look at links do not use them up.
    let look = async || {
        let page = web.request("GET", path).send().await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("set-cookie"), None);
        page.body
    };
    let page = look().await;
    assert!(page.contains("may have been used already"), "{page}");
    assert!(page.contains("codex-mcp web link"), "{page}");
    assert_eq!(look().await, page);
    web.sign_in(&link).await;
    // A look does not tell whether a code is valid.
    assert_eq!(look().await, page);
    let (_, code) = path.split_once('=').unwrap();
    let again = web.request("POST", "/login").form(&[("code", code)]);
    let again = again.header("accept", "text/html").send().await;
    assert_eq!(again.status, 401, "{again:?}");
    assert_eq!(again.header("www-authenticate"), Some("Bearer"));
    assert!(again.body.contains("the link is not valid"), "{again:?}");
    for other in ["token", "cookie"] {
        assert!(!again.body.contains(other), "{other}: {again:?}");
    }
    web.finish().await;
}

/// An ID that is not known, and a reader that has gone, leave nothing valid.
#[tokio::test]
async fn all_credentials_that_are_named_are_revoked() {
    let web = web().await;
    let mut tokens = Vec::new();
    for name in ["one", "two", "three", "four"] {
        tokens.push(web.run(&["token", name]).await);
    }
    let listed = web.run(&["tokens", "--json"]).await;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = |name: &str| {
        let mut all = listed.as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap()["id"].as_str()
    };
    let [one, two, three, four] = ["one", "two", "three", "four"].map(|name| id(name).unwrap());
    let are_valid = async |of: &[String]| {
        let mut valid = Vec::new();
        for token in of {
            let list = web.request("GET", "/api/work").bearer(token);
            valid.push(status(&list).await == 200);
        }
        valid
    };
    assert_eq!(are_valid(&tokens).await, [true; 4]);

    assert!(!web.shell(&["web", "revoke", one, "unknown", two]).await);
    let mut unread = Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["web", "revoke", three, four])
        .env_clear()
        .envs(web.stage.home.env())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(unread.stdout.take());
    assert!(unread.wait().await.unwrap().success());
    assert_eq!(are_valid(&tokens).await, [false; 4]);
    web.finish().await;
}

/// When the endpoint has ended, another user can take its port, and is sent the code of a link that
/// somebody opens. The control is a link to an endpoint that runs.
#[tokio::test]
async fn link_ends_with_the_endpoint() {
    let mut web = web().await;
    let running = web.stage.home.state_home();
    let running = running.join("codex-mcp/web/running.json");
    let old = web.run(&["link"]).await;
    let used = web.run(&["link"]).await;
    web.sign_in(&used).await;
    web.stop().await;
    assert!(!running.exists());
    let new;
    (web.server, web.address, new) = start(&web.stage, &[]).await;
    let (_, code) = old.split_once("/login?code=").unwrap();
    let late = web.request("POST", "/login").form(&[("code", code)]);
    assert_eq!(status(&late).await, 401);
    web.sign_in(&new).await;

    // One that is killed cannot remove its address, so the next one does, even if it finds no port.
    signal(web.server.id().unwrap(), Signal::SIGKILL);
    web.server.wait().await.unwrap();
    assert!(running.exists());
    assert!(!web.shell(&["web", "--listen", "192.0.2.1:1"]).await);
    assert!(!running.exists());
    (web.server, web.address, _) = start(&web.stage, &[]).await;
    web.finish().await;
}

/// Behind a proxy with TLS, somebody on the way could have a browser ask for the same name without TLS, and
/// read its cookie.
#[tokio::test]
async fn cookie_that_came_by_tls_is_sent_by_tls_alone() {
    let web = web().await;
    for (scheme, is_secure) in [("http", false), ("https", true)] {
        let link = web.run(&["link"]).await;
        let (_, code) = link.split_once("/login?code=").unwrap();
        let origin = format!("{scheme}://{}", web.address);
        let login = web.request("POST", "/login").header("origin", &origin);
        let signed_in = login.form(&[("code", code)]).send().await;
        assert_eq!(signed_in.status, 303, "{signed_in:?}");
        let cookie = signed_in.header("set-cookie").unwrap();
        assert_eq!(cookie.contains("; Secure"), is_secure, "{cookie}");
    }
    web.finish().await;
}

#[tokio::test]
async fn look_only_token_changes_nothing() {
    let web = web().await;
    let token = web.run(&["token", "--read-only", "a display"]).await;
    let directory = web.stage.home.work();
    let fields = [
        ("prompt", "p"),
        ("directory", directory.to_str().unwrap()),
        ("sandbox", "read-only"),
        ("approvals", "on-request"),
    ];
    let start = web.request("POST", "/sessions").form(&fields);
    assert_eq!(
        status(&web.request("GET", "/api/work").bearer(&token)).await,
        200
    );
    let acts = [
        "/sessions",
        "/sessions/x/answer",
        "/sessions/x/prompt",
        "/sessions/x/interrupt",
        "/sessions/x/cancel",
        "/sessions/x/fork",
        "/jobs/x/answer",
        "/jobs/x/steer",
        "/jobs/x/cancel",
        "/jobs/x/retry",
        "/runs",
        "/threads",
        "/mail",
        "/api/conductor",
        "/mcp",
    ];
    let acts = acts.map(|path| ("POST", path));
    for (method, path) in acts
        .into_iter()
        .chain([("GET", "/mcp"), ("DELETE", "/mcp")])
    {
        let refused = web.request(method, path).bearer(&token).send().await;
        assert_eq!(refused.status, 403, "{method} {path}: {refused:?}");
    }
    assert_eq!(status(&start.clone().bearer(&token)).await, 403);
    assert!(super::work(&web).await.is_empty());
    // The control: one that may decide.
    let token = web.run(&["token", "a program"]).await;
    assert_eq!(status(&start.bearer(&token)).await, 200);
    web.finish().await;
}

#[tokio::test]
async fn cross_site_request_is_refused() {
    let web = web().await;
    let port = web.address.port();
    let with_cookie = |method| {
        web.request(method, "/api/work")
            .header("cookie", &web.cookie)
    };
    // DNS rebinding: the name of somebody else points here.
    for host in [
        format!("attacker.example:{port}"),
        "attacker.example".to_owned(),
    ] {
        assert_eq!(
            status(&with_cookie("GET").header("host", &host)).await,
            421,
            "{host}"
        );
        for path in ["/login?code=x", "/assets/x/page.js", "/mcp"] {
            let rebound = web.request("GET", path).header("host", &host);
            assert_eq!(status(&rebound).await, 421, "{host} {path}");
        }
    }
    // A target with a host counts more than `Host`.
    for (target, expected) in [
        ("http://attacker.example/api/work".to_owned(), 421),
        (format!("http://{}/api/work", web.address), 200),
    ] {
        let absolute = web.request("GET", &target).header("cookie", &web.cookie);
        assert_eq!(status(&absolute).await, expected, "{target}");
    }
    // One name for a proxy, and another one for us.
    let two = format!("{}\r\nhost: attacker.example", web.address);
    assert_eq!(status(&with_cookie("GET").header("host", &two)).await, 421);
    for origin in ["http://attacker.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(
            status(&with_cookie("GET").header("origin", origin)).await,
            403,
            "{origin}"
        );
    }
    let directory = web.stage.home.work();
    let fields = [
        ("prompt", "p"),
        ("directory", directory.to_str().unwrap()),
        ("sandbox", "read-only"),
        ("approvals", "on-request"),
    ];
    let start = web
        .request("POST", "/sessions")
        .header("cookie", &web.cookie)
        .form(&fields);
    for site in ["cross-site", "same-site"] {
        let forged = start.clone().header("sec-fetch-site", site);
        assert_eq!(status(&forged).await, 403, "{site}");
    }
    assert!(super::work(&web).await.is_empty());
    // The control: the page itself.
    let own = web.browser("POST", "/sessions").form(&fields);
    assert_eq!(status(&own).await, 200);
    let page = web.browser("GET", "/").send().await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    for inline in ["<script>", "style=", "onclick", "javascript:"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    web.finish().await;
}

/// The memory of the server may not exceed this, in KiB.
const MOST_MEMORY: u64 = 100 * 1024;

/// Sends a body of 1 GB in chunks until the server refuses it. Returns the beginning of the answer, and
/// how much was sent.
async fn send_chunks(web: &WebFixture, path: &str, kind: &str) -> (String, usize) {
    let stream = TcpStream::connect(web.address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\ncookie: {cookie}\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: {kind}\r\n\
         transfer-encoding: chunked\r\n\r\n",
        host = web.address,
        cookie = web.cookie,
    );
    writer.write_all(head.as_bytes()).await.unwrap();
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b'x');
    chunk.extend(b"\r\n");
    let mut sent = 0;
    let sending = async {
        while sent < 1 << 30 && writer.write_all(&chunk).await.is_ok() {
            sent += 1 << 20;
        }
    };
    let mut answer = vec![0; 4096];
    let answering = async {
        let length = reader.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let both = async { tokio::join!(sending, answering).1 };
    let answer = timeout(Duration::from_secs(60), both).await.unwrap();
    (answer, sent)
}

#[tokio::test]
async fn memory_is_bounded_under_huge_requests() {
    let web = web().await;
    let pid = web.server.id().unwrap();
    for (path, kind) in [
        ("/sessions", "application/x-www-form-urlencoded"),
        ("/mcp", "application/json"),
    ] {
        // A body of 1 GB that is announced, and one of unknown length.
        let huge = web.browser("POST", path).json(&serde_json::json!({}));
        let huge = huge.header("content-length", "1000000000");
        let huge = huge.header("accept", "application/json, text/event-stream");
        let refused = huge.send().await;
        assert_eq!(refused.status, 413, "{path}: {refused:?}");
        let (answer, sent) = send_chunks(&web, path, kind).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
        // The system takes some MiB that the server does not read.
        assert!(sent < 100 << 20, "{path}: {sent}");
    }
    let long = web.request("GET", &format!("/{}", "x".repeat(200_000)));
    assert!((400..500).contains(&status(&long).await));
    assert_eq!(status(&web.browser("GET", "/api/work")).await, 200);
    assert!(pss_kib(pid).unwrap() < MOST_MEMORY);
    web.finish().await;
}

/// By how much the memory of the server may grow for the page of a job, in KiB.
const MOST_FOR_A_JOB: u64 = 64 * 1024;

/// The outputs of the job have 150 MiB, and the page shows none of them.
#[tokio::test]
async fn memory_is_bounded_under_long_outputs_of_a_job() {
    let web = web().await;
    let pid = web.server.id().unwrap();
    let before = peak_kib(pid).unwrap();
    let state = web.stage.home.state_home().join("codex-mcp");
    let location = state.join("jobs.db").to_str().unwrap().parse().unwrap();
    let store = JobStore::open(&location, &Access::of(state)).await.unwrap();
    let job = NewJob::new(JobRequest::new("p", "/repo"));
    store.submit(&job).await.unwrap();
    let (worker, lease) = (new_worker_id(), Duration::from_secs(600));
    let claimed = store.claim(&worker, "here", lease).await.unwrap().unwrap();
    let item = json!({ "type": "command_execution", "id": "1", "command": "true",
        "aggregated_output": "x".repeat(1 << 20), "exit_code": 0, "status": "completed" });
    let events = vec![
        NewEvent {
            kind: "item.completed".to_owned(),
            data: json!({ "type": "item.completed", "item": item }).to_string(),
        };
        10
    ];
    for _ in 0..15 {
        store.append(&claimed.claim, &events).await.unwrap();
    }
    let page = web.get(&format!("/jobs/{}", job.id)).await;
    assert!(page.contains("exit code 0: true"), "{page}");
    let grown = peak_kib(pid).unwrap() - before;
    assert!(grown < MOST_FOR_A_JOB, "{grown}");
    web.finish().await;
}

/// How many requests with the same token arrive at a time.
const CROWD: usize = 100;

/// How many pictures are sent at a time with the same credential.
const PICTURES_OF_ONE: usize = 32;

/// Asks for a page with a token, and reads no more of the answer than its status.
async fn begin(web: &WebFixture, path: &str, token: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(web.address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
        web.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    let read = stream.read_exact(&mut status);
    timeout(Duration::from_secs(60), read)
        .await
        .unwrap()
        .unwrap();
    (stream, String::from_utf8_lossy(&status).into_owned())
}

/// The holder of a token who may only look asks for a picture of 20 MB many times, and reads none of it. The
/// control is the user, who gets the whole picture meanwhile.
#[tokio::test]
async fn memory_is_bounded_under_large_pictures() {
    let look = json!({ "path": "./shown.png" });
    let script = Script::new().otherwise([Reply::call("request_image", look), Reply::say("Seen.")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let mut picture = web.stage.picture("shown.png");
    let session = start_session(&mut web, "look").await;
    web.client.until_idle(&session).await;
    let page = wait_for("the picture on the page", async || {
        let page = web.get(&format!("/sessions/{session}")).await;
        page.contains("<img").then_some(page)
    })
    .await;
    let source = between(&page, "<img src=\"", "\"");
    // Codex takes none that is as large.
    picture.resize(19_900_000, 0);
    fs::write(web.stage.file("shown.png"), &picture).unwrap();

    let token = web.run(&["token", "--read-only", "a display"]).await;
    let crowd = join_all((0..CROWD).map(|_| begin(&web, source, &token))).await;
    let sent = crowd.iter().filter(|(_, status)| status.ends_with("200"));
    assert_eq!(sent.count(), PICTURES_OF_ONE);
    let refused = crowd.iter().filter(|(_, status)| status.ends_with("503"));
    assert_eq!(refused.count(), CROWD - PICTURES_OF_ONE);
    let whole = web.browser("GET", source).send().await;
    assert_eq!(whole.status, 200);
    // Bytes that are no text are longer here.
    assert!(whole.body.len() >= picture.len(), "{}", whole.body.len());
    let peak = peak_kib(web.server.id().unwrap()).unwrap();
    assert!(peak < MOST_MEMORY, "{peak}");
    drop(crowd);
    web.finish().await;
}

/// The inboxes have many short messages, and 25 MB of long ones.
#[tokio::test]
async fn memory_is_bounded_under_large_inboxes() {
    let mut web = web().await;
    make_team(&web.stage, &["codex", "lead", "other"]);
    let short = json!({ "from": "codex", "text": "" });
    put_mail(&web.stage, "lead", &vec![short; 50_000]);
    let long = json!({ "from": "codex", "text": "x".repeat(500_000) });
    put_mail(&web.stage, "other", &vec![long; 50]);
    web.restart_with(&[("ATM_TEAM", "builders")]).await;
    let token = web.run(&["token", "--read-only", "a display"]).await;
    let list = web.request("GET", "/api/mail").bearer(&token);
    let crowd = join_all((0..CROWD).map(|_| list.send())).await;
    for answer in &crowd {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let listed = crowd[0].json();
    let [_, lead, other] = listed["members"].as_array().unwrap().as_slice() else {
        panic!("{listed:#}");
    };
    assert_eq!(lead["unread"].as_array().unwrap().len(), 50);
    assert_eq!(lead["remaining"], 49_950);
    let why = other["error"].as_str().unwrap();
    assert!(why.contains("at most 4194304 are read"), "{why}");
    let peak = peak_kib(web.server.id().unwrap()).unwrap();
    assert!(peak < MOST_MEMORY, "{peak}");
    web.finish().await;
}

/// How many pages with the same credential may watch a session or a job.
const WATCHERS_OF_ONE: usize = 32;

/// A page that watches a job takes a place, as one of a session does.
#[tokio::test]
async fn pages_that_watch_a_job_are_bounded() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let job = web.submit(&[], "work").await;
    gate.reached(1).await;
    let events = format!("{job}/events");
    let mut open = Vec::new();
    for _ in 0..WATCHERS_OF_ONE {
        open.push(web.browser("GET", &events).events().await);
    }
    let refused = web.browser("GET", &events).send().await;
    assert_eq!(refused.status, 409, "{refused:?}");
    // The control: others have places of their own, and the places of those that have gone are free.
    let token = web.run(&["token", "--read-only", "a display"]).await;
    let mut other = web.request("GET", &events).bearer(&token).events().await;
    assert!(other.next().await.is_some());
    drop(open);
    gate.release();
    web.job_in(&job, "completed").await;
    wait_for("a place", async || {
        let last = web.browser("GET", &events).send().await;
        (last.status == 200).then_some(())
    })
    .await;
    web.finish().await;
}

/// How many sessions may be watched with the same credential.
const SESSIONS_OF_ONE: usize = 8;

/// The holder of a token who may only look could watch all sessions that can be watched at a time, and
/// so keep the user from every other one.
#[tokio::test]
async fn sessions_that_one_credential_watches_are_bounded() {
    let mut web = web().await;
    let mut all = Vec::new();
    for _ in 0..=SESSIONS_OF_ONE {
        let session = start_session(&mut web, "work").await;
        web.client.until_idle(&session).await;
        wait_for("the session on the page", async || {
            web.hosts_session(&session).await.then_some(())
        })
        .await;
        // A reader that begins elsewhere is told to load the page anew, and ends.
        let page = web
            .browser("GET", &format!("/sessions/{session}"))
            .send()
            .await;
        let events = page
            .body
            .split('"')
            .find(|word| word.contains("/events?after="));
        all.push(events.unwrap().to_owned());
    }
    let token = web.run(&["token", "--read-only", "a display"]).await;
    let (last, first) = all.split_last().unwrap();
    let mut open = Vec::new();
    for events in first {
        open.push(web.request("GET", events).bearer(&token).events().await);
    }
    // A second page of a session that is watched takes nothing more.
    let again = web.request("GET", &first[0]).bearer(&token);
    drop(again.events().await);
    let refused = web.request("GET", last).bearer(&token).send().await;
    assert_eq!(refused.status, 409, "{refused:?}");
    // The control: the user watches it.
    let mut page = web.browser("GET", last).events().await;
    assert!(page.next().await.is_some());
    drop((open, page));
    web.finish().await;
}

/// The most connections that the server serves at a time.
const CONNECTIONS: usize = 512;

#[tokio::test]
async fn memory_is_bounded_under_many_connections() {
    let web = web().await;
    let pid = web.server.id().unwrap();
    let mut crowd = Vec::new();
    for _ in 0..1000 {
        let Ok(Ok(stream)) = timeout(Duration::from_secs(5), TcpStream::connect(web.address)).await
        else {
            break;
        };
        crowd.push(stream);
    }
    assert!(crowd.len() > CONNECTIONS, "{}", crowd.len());
    for stream in &mut crowd {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n").await;
    }
    assert!(pss_kib(pid).unwrap() < MOST_MEMORY);
    // Nobody who has a credential waits for them.
    assert_eq!(status(&web.browser("GET", "/api/work")).await, 200);
    // Those that are silent for a while are given up, and the ones that wait are accepted.
    for stream in &mut crowd {
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
        // The oldest of too many are cut off.
        let _ = ended.unwrap();
    }
    assert!(pss_kib(pid).unwrap() < MOST_MEMORY);
    assert!(cpu_time(pid).unwrap() < Duration::from_secs(30));
    web.finish().await;
}

#[tokio::test]
async fn browser_signs_out() {
    let web = web().await;
    let list = || web.browser("GET", "/api/work");
    assert_eq!(status(&list()).await, 200);
    // The page of another site cannot sign anybody out.
    let foreign = web.browser("POST", "/logout");
    let foreign = foreign.header("origin", "http://evil.example");
    assert_eq!(status(&foreign).await, 403);
    assert_eq!(status(&list()).await, 200);
    // It is for browsers, and leaves the token of a program.
    let token = web.run(&["token", "--read-only", "a display"]).await;
    let with_token = |method, path| web.request(method, path).bearer(&token);
    assert_eq!(status(&with_token("POST", "/logout")).await, 303);
    assert_eq!(status(&with_token("GET", "/api/work")).await, 200);
    let out = web.browser("POST", "/logout").send().await;
    assert_eq!(out.status, 303, "{out:?}");
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(status(&list()).await, 401);
    assert_eq!(status(&web.browser("POST", "/logout")).await, 303);
    web.finish().await;
}

#[tokio::test]
async fn host_serves_http_as_long_as_it_runs_if_the_user_says_so() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let running = stage.home.state_home().join("codex-mcp/web/running.json");
    // The setting of a repository does not count.
    let setting = "[plugins.codex-mcp]\nhttp = \"127.0.0.1:0\"\n";
    fs::write(stage.home.work().join(".atm.toml"), setting).unwrap();
    let client = stage.client(&["--host"]).await;
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
    // An endpoint leaves its lock there.
    assert!(!running.parent().unwrap().exists());

    fs::remove_file(stage.home.work().join(".atm.toml")).unwrap();
    let config = stage.home.atm_home().join(".config/atm/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, setting).unwrap();
    let token = ("CODEX_MCP_NTFY_TOKEN", "t");
    let launch = stage.launch(&["--host"]).env(token.0, token.1);
    let client = McpClient::connect(&launch, VERSION, serde_json::json!({})).await;
    let address = async |not: Option<SocketAddr>| {
        wait_for("the endpoint", async || {
            let text = fs::read_to_string(&running).ok()?;
            let told: serde_json::Value = serde_json::from_str(&text).ok()?;
            let address: SocketAddr = told["address"].as_str()?.parse().ok()?;
            let is_there = TcpStream::connect(address).await.is_ok();
            (is_there && Some(address) != not).then_some(address)
        })
        .await
    };
    let first = address(None).await;
    let page = Request::new(first, "GET", "/login").send().await;
    assert_eq!(page.status, 200, "{page:?}");
    // It is started again when it is killed, and ends with the host.
    let endpoint = || {
        let processes = stage.home.processes();
        let mut all = processes.into_iter();
        all.find(|one| one.command.contains("--no-link") && !one.command.contains("guard"))
    };
    let pid = endpoint().unwrap().pid;
    // It has the whole environment of the host, by which it finds that host.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains(&format!("{}={}\0", token.0, token.1)));
    signal(pid, Signal::SIGKILL);
    address(Some(first)).await;
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
    wait_for("all processes are gone", async || {
        stage.home.processes().is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_refusal_is_an_error_in_json() {
    let web = web().await;
    let long = "x".repeat(300 * 1024);
    let longer = "x".repeat(5 << 20);
    let text = web.browser("POST", "/sessions");
    for (request, expected) in [
        (web.browser("DELETE", "/api/work"), 405),
        (text.header("content-type", "text/plain"), 415),
        (
            web.browser("POST", "/sessions").form(&[("prompt", &long)]),
            413,
        ),
        (
            web.browser("POST", "/sessions")
                .form(&[("prompt", &longer)]),
            413,
        ),
        (web.browser("GET", "/sessions/x/events?after=-1"), 400),
        (web.browser("GET", "/sessions/%ff"), 400),
        (web.browser("GET", "/sessions/x/pictures/-1"), 400),
    ] {
        let refused = request.send().await;
        assert_eq!(refused.status, expected, "{request:?}: {refused:?}");
        assert!(refused.json()["error"].is_string(), "{refused:?}");
        let policy = refused.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        assert_eq!(refused.header("allow").is_some(), expected == 405);
    }
    web.finish().await;
}

#[tokio::test]
async fn refusal_of_mcp_stays_that_of_rmcp() {
    let web = web().await;
    let token = web.run(&["token", "a program"]).await;
    let wrong = web.request("POST", "/mcp").bearer(&token);
    let refused = wrong.header("accept", "text/plain").send().await;
    assert_eq!(refused.status, 406, "{refused:?}");
    assert!(refused.body.starts_with("Not Acceptable"), "{refused:?}");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    web.finish().await;
}
