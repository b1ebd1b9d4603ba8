//! The user's credentials, with a repository that tries to redirect them.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::write_program;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Scene, beginnings};

const UNAUTHORIZED: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\
     Content-Length: 0\r\nConnection: close\r\n\r\n";

/// The user's own credential helper, which prints `me:secret`.
const HELPER: &str = "!f() { echo username=me; echo password=secret; }; f";
const AUTHORIZATION: &str = "Authorization: Basic bWU6c2VjcmV0";

/// An HTTP server that refuses every request and records it.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::default();
        let notes = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, &notes).await;
            }
        });
        Self { port, asked }
    }

    fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

async fn answer(mut stream: TcpStream, notes: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    notes.lock().unwrap().push(head);
    let _ = stream.write_all(UNAUTHORIZED.as_bytes()).await;
}

#[tokio::test]
async fn credentials_go_only_to_the_users_remote() {
    let mut scene = Scene::new();
    scene.with_remote();
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ] {
        scene.set(name, "");
    }
    scene.means.network_timeout = Duration::from_secs(60);
    let (server, proxy) = (Server::start().await, Server::start().await);
    let (trap, caught) = (
        scene.home.root().join("trap"),
        scene.home.root().join("caught"),
    );
    write_program(
        &trap,
        &format!("#!/bin/sh\necho \"$*\" >> {}\n", caught.display()),
    );
    let (trap, url) = (trap.to_str().unwrap(), server.address("/o/x.git"));
    let helper = format!("!{trap}");
    for (key, value) in [
        ("remote.origin.url".to_owned(), url.as_str()),
        ("core.askPass".to_owned(), trap),
        ("credential.helper".to_owned(), &helper),
        (format!("credential.{}.helper", server.address("")), &helper),
        ("http.proxy".to_owned(), &proxy.address("")),
        (format!("http.{url}.proxy"), &proxy.address("")),
        ("remote.origin.proxy".to_owned(), &proxy.address("")),
        ("http.extraHeader".to_owned(), "X-Theirs: 1"),
        (
            format!("http.{}.extraHeader", server.address("/o")),
            "X-Theirs: 2",
        ),
    ] {
        scene.git(&["config", &key, value]);
    }
    scene.refuses_to_begin(&["pushed"]).await;
    let asked = server.asked().concat();
    assert!(asked.contains("GET /o/x.git/info/refs"), "{asked}");
    assert!(
        !asked.contains("Authorization") && !asked.contains("X-Theirs"),
        "{asked}"
    );

    scene.git(&["config", "--global", "credential.helper", HELPER]);
    scene.git(&["config", "--global", "http.extraHeader", "X-Ours: 1"]);
    scene.refuses_to_begin(&["pushed"]).await;
    let asked = server.asked().concat();
    assert!(
        asked.contains(AUTHORIZATION) && asked.contains("X-Ours: 1"),
        "{asked}"
    );
    assert!(!asked.contains("X-Theirs"), "{asked}");
    assert_eq!(proxy.asked(), [] as [&str; 0]);
    assert_eq!(fs::read_to_string(&caught).unwrap_or_default(), "");

    // The user's own proxy is used, also if it is set for this repository alone.
    let included = scene.home.home().join("included");
    fs::write(
        &included,
        format!("[http]\n\tproxy = {}\n", proxy.address("")),
    )
    .unwrap();
    let condition = format!("includeIf.gitdir:{}/.path", scene.work().display());
    scene.git(&["config", "--global", &condition, included.to_str().unwrap()]);
    scene.refuses_to_begin(&["pushed"]).await;
    assert_eq!(server.asked(), [] as [&str; 0]);
    assert!(!proxy.asked().is_empty());
}

/// Git resolves the path from the top directory of the working tree.
#[tokio::test]
async fn remote_may_be_a_path_relative_to_the_top() {
    let scene = Scene::new();
    scene.with_remote();
    scene.git(&["config", "remote.origin.url", "../remote.git"]);
    let below = scene.work().join("below");
    fs::create_dir(&below).unwrap();
    let run = scene.run_in(&below, &["pushed"]).await;
    scene.commit("a");
    scene.git(&["push", "--quiet"]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}
