//! How much memory requests may take, and how many of them are served at a time.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use futures::future::join_all;
use job_queue::logic::JobId;
use job_queue::store::{JobStore, NewEvent, NewJob, Request as JobRequest, new_worker_id};
use scripted_model::{Gate, Reply, Script};
use serde_json::json;
use settings::store_access::Access;
use testkit::process::{cpu_time, peak_kib, pss_kib};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::conductor::{Conductor, bearer};
use super::story::between;
use super::{WebFixture, start_session, status, web};
use crate::jobs::wait_for;
use crate::real::team::{make_team, put_mail};

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

/// By how much the memory of the server may grow for the events of jobs, in KiB.
const MOST_FOR_EVENTS: u64 = 64 * 1024;

/// Stores a running job with this many commands, each with an output of 1 MiB.
async fn job_with_outputs(web: &WebFixture, commands: usize) -> JobId {
    let state = web.stage.home.state_home().join("codex-mcp");
    let location = state.join("jobs.db").to_str().unwrap().parse().unwrap();
    let store = JobStore::open(&location, &Access::of(state)).await.unwrap();
    let job = NewJob::new(JobRequest::new("p", "/repo"));
    store.submit(&job).await.unwrap();
    let (worker, lease) = (new_worker_id(), Duration::from_secs(600));
    let claimed = store.claim(&worker, "here", lease).await.unwrap().unwrap();
    let item = json!({ "type": "command_execution", "id": "1", "command": "true",
        "aggregated_output": "x".repeat(1 << 20), "exit_code": 0, "status": "completed" });
    let event = NewEvent {
        kind: "item.completed".to_owned(),
        data: json!({ "type": "item.completed", "item": item }).to_string(),
    };
    for events in vec![event; commands].chunks(10) {
        store.append(&claimed.claim, events).await.unwrap();
    }
    job.id
}

/// The page shows none of the outputs.
#[tokio::test]
async fn memory_is_bounded_under_long_outputs_of_a_job() {
    let web = web().await;
    let pid = web.server.id().unwrap();
    let before = peak_kib(pid).unwrap();
    let job = job_with_outputs(&web, 150).await;
    let page = web.get(&format!("/jobs/{job}")).await;
    assert!(page.contains("exit code 0: true"), "{page}");
    let grown = peak_kib(pid).unwrap() - before;
    assert!(grown < MOST_FOR_EVENTS, "{grown}");
    web.finish().await;
}

/// How many watches a conductor begins at once. Each reads 3 MiB of events at a time.
const WATCHES: usize = 50;

#[tokio::test]
async fn memory_is_bounded_under_many_watches_of_a_conductor() {
    let web = web().await;
    let job = job_with_outputs(&web, 10).await;
    let token = bearer(&web.run(&["token", "conductor"]).await);
    let headers = [("authorization", &*token)];
    let mut conductor = Conductor::connect(&web, &headers).await.ok().unwrap();
    let pid = web.server.id().unwrap();
    let before = peak_kib(pid).unwrap();
    for id in 0..WATCHES {
        let watch = json!({ "type": "watch", "id": id, "job_id": job });
        conductor.send(&watch).await;
    }
    // A watch whose event has arrived has read its first events.
    let mut heard = HashSet::new();
    while heard.len() < WATCHES {
        let event = conductor.next().await.unwrap();
        assert_eq!(event["type"], "event", "{event:#}");
        heard.insert(event["id"].as_u64());
    }
    let grown = peak_kib(pid).unwrap() - before;
    assert!(grown < MOST_FOR_EVENTS, "{grown}");
    drop(conductor);
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
