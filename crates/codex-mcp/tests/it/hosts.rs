//! `codex-mcp ps`, `codex-mcp host` and the verbs of sessions with hosts that the test plays.

use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Output;
use std::time::SystemTime;

use host_process::endpoint::{HostEndpoint, HostLock};
use host_process::logic::handshake::{Answer, SessionAnswer, SessionSummary};
use serde_json::{Value, json};
use supervise::private_socket;
use testkit::Home;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::Command;

/// The key of the host that a test plays.
const KEY: &str = "0123456789abcdef01234567";

/// The file that each client has to make first.
const PROOF: &str = "00112233445566778899aabbccddeeff.proof";

/// The session of a host that a test plays.
const SESSION: &str = "sess_0123456789ab";

/// Our program with these arguments.
fn program(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::from(home.command(env!("CARGO_BIN_EXE_codex-mcp")));
    command.args(args).kill_on_drop(true);
    command
}

/// The output of our program.
async fn output(home: &Home, args: &[&str]) -> Output {
    program(home, args).output().await.unwrap()
}

fn endpoint(home: &Home) -> HostEndpoint {
    HostEndpoint::new(&home.state_home().join("codex-mcp"), KEY.to_owned())
}

/// The guard of an app-server whose host is killed.
fn guard_of_a_killed_host(home: &Home) -> UnixListener {
    let lock = endpoint(home).take().unwrap().unwrap();
    drop(lock.listen().unwrap());
    let guard = private_socket::bind(&endpoint(home).new_adoption_socket()).unwrap();
    guard.set_nonblocking(true).unwrap();
    UnixListener::from_std(guard).unwrap()
}

/// The summary of an idle session.
fn summary(session: &str) -> SessionSummary {
    SessionSummary {
        session: session.to_owned(),
        thread: "t".to_owned(),
        title: None,
        state: "idle".to_owned(),
        created: SystemTime::UNIX_EPOCH,
        step: None,
        tokens: None,
        usage: None,
        questions: Vec::new(),
        expiries: Vec::new(),
        directory: None,
        bounds: String::new(),
    }
}

/// A host that runs, and says the same to each client.
struct PlayedHost {
    home: Home,
    listener: UnixListener,
    _lock: HostLock,
}

impl PlayedHost {
    fn new() -> Self {
        Self::of(Home::new(""))
    }

    fn of(home: Home) -> Self {
        let lock = loop {
            // A client may be looking at the lock.
            if let Some(lock) = endpoint(&home).take().unwrap() {
                break lock;
            }
        };
        let listener = lock.listen().unwrap();
        Self {
            home,
            listener,
            _lock: lock,
        }
    }

    fn proof(&self) -> PathBuf {
        self.home.state_home().join("codex-mcp/hosts").join(PROOF)
    }

    /// Answers one client after the other.
    async fn answer(&self, answer: &str) {
        loop {
            self.answer_one(answer).await;
        }
    }

    async fn answer_one(&self, answer: &str) {
        let (stream, _) = self.listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let challenge = format!("{{\"file\":\"{PROOF}\"}}\n");
        writer.write_all(challenge.as_bytes()).await.unwrap();
        let mut request = String::new();
        BufReader::new(reader)
            .read_line(&mut request)
            .await
            .unwrap();
        // A client that cannot make the file has gone.
        if !request.is_empty() {
            fs::remove_file(self.proof()).unwrap();
            writer.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// The output of our program while the host answers.
    async fn output(&self, answer: &str, args: &[&str]) -> Output {
        tokio::select! {
            output = output(&self.home, args) => output,
            () = self.answer(answer) => panic!("the host answers for ever"),
        }
    }

    /// Checks that no verb takes the host for a missing one, and that each reports this error.
    async fn is_reported(&self, answer: &str, error: &str) {
        for (args, listed) in [
            (&["host", "status"][..], None),
            (&["host", "status", "--json"], Some(json!([]))),
            (&["host", "stop"], None),
            (&["ps"], None),
            (&["ps", "--json"], Some(json!({ "work": [] }))),
        ] {
            let output = self.output(answer, args).await;
            assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(errors.contains(error), "{args:?}: {errors}");
            match listed {
                Some(listed) => {
                    let mut printed: Value = serde_json::from_slice(&output.stdout).unwrap();
                    if let Some(listing) = printed.as_object_mut() {
                        let failures = listing.remove("failures").unwrap();
                        let failure = format!("error: {}", failures[0].as_str().unwrap());
                        assert_eq!(errors.trim_end(), failure);
                    }
                    assert_eq!(printed, listed, "{args:?}");
                }
                None => assert_eq!(output.stdout, b"", "{args:?}"),
            }
        }
    }
}

#[tokio::test]
async fn host_that_refuses_to_answer_is_reported() {
    let host = PlayedHost::new();
    let refusal = format!("{}\n", json!({ "refused": { "why": "no room" } }));
    let error = "error: the host process refuses to answer: no room";
    host.is_reported(&refusal, error).await;
}

#[tokio::test]
async fn answer_that_cannot_be_read_is_reported() {
    let host = PlayedHost::new();
    let error = "error: cannot ask the host process: ";
    host.is_reported("{\"of_a_newer_host\":{}}\n", error).await;
}

#[tokio::test]
async fn host_that_does_not_restart_is_reported() {
    let older = json!({ "refused": { "why": "unknown variant `restart`" } });
    let busy = json!({ "busy": { "pid": 7, "turns": 2 } });
    for (answer, error) in [
        (
            older,
            "error: the host process refuses to answer: unknown variant `restart`; ",
        ),
        (busy, "error: the host process 7 is not restarted: "),
    ] {
        let host = PlayedHost::new();
        let answer = format!("{answer}\n");
        let output = host.output(&answer, &["host", "restart"]).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(output.stdout, b"", "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(error), "{errors}");
        assert!(errors.contains("`codex-mcp host stop`"), "{errors}");
    }
}

#[tokio::test]
async fn restart_warns_of_sessions_that_the_next_host_does_not_have() {
    let host = PlayedHost::new();
    let cancelled = SessionSummary {
        state: "cancelled".to_owned(),
        ..summary("sess_3")
    };
    let before = vec![summary(SESSION), summary("sess_2"), cancelled];
    let status = json!({ "status": {
        "pid": 7,
        "version": "1.0.0",
        "uptime": { "secs": 0, "nanos": 0 },
        "clients": 0,
    } });
    let answers = [
        json!(Answer::Sessions(before)),
        json!("handing_over"),
        status,
        json!(Answer::Sessions(vec![summary(SESSION)])),
    ];
    let answering = async {
        for answer in answers {
            host.answer_one(&format!("{answer}\n")).await;
        }
    };
    let (output, ()) = tokio::join!(output(&host.home, &["host", "restart"]), answering);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"the host process has restarted\n");
    let errors = String::from_utf8(output.stderr).unwrap();
    let warning = "warning: the next host process has not taken over 1 session: ";
    assert!(errors.starts_with(warning), "{errors}");
    assert!(errors.contains(&format!("{KEY}.log")), "{errors}");
}

#[tokio::test]
async fn restart_names_the_host_that_it_cannot_restart_and_the_way_out() {
    let home = Home::new("");
    let guard = guard_of_a_killed_host(&home);
    let told = async || {
        let output = output(&home, &["host", "restart"]).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(&format!("{KEY}.log")), "{errors}");
        errors
    };
    let killed = told().await;
    let way_out = "run `codex-mcp host restart` in the environment of its clients";
    assert!(killed.contains(way_out), "{killed}");
    let lock = endpoint(&home).take().unwrap().unwrap();
    let starting = told().await;
    assert!(starting.contains("is starting or ending"), "{starting}");
    drop((lock, guard));
}

/// As in a directory that is full or read-only. (For root, no directory is read-only by its mode.)
#[tokio::test]
async fn proof_that_cannot_be_made_is_reported() {
    let host = PlayedHost::new();
    fs::write(host.proof(), "in the way").unwrap();
    let error = "error: cannot ask the host process: cannot make a file in ";
    host.is_reported("", error).await;
}

#[tokio::test]
async fn sessions_are_listed_where_the_job_store_fails() {
    let host = PlayedHost::new();
    let store = host.home.state_home().join("codex-mcp/jobs.db");
    fs::write(store, "no database ".repeat(1000)).unwrap();
    let answer = format!("{}\n", json!(Answer::Sessions(vec![summary(SESSION)])));
    let output = host.output(&answer, &["ps", "--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["work"][0]["id"], SESSION, "{printed}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("jobs.db"), "{errors}");
}

#[tokio::test]
async fn work_of_a_killed_host_has_not_ended() {
    let home = Home::new("");
    let guard = guard_of_a_killed_host(&home);
    let listed = output(&home, &["ps"]).await;
    assert_eq!(listed.status.code(), Some(1), "{listed:?}");
    assert_eq!(listed.stdout, b"", "{listed:?}");
    let errors = String::from_utf8(listed.stderr).unwrap();
    let between = "it was killed and the next one can continue its sessions";
    assert!(errors.contains(between), "{errors}");
    let listed = output(&home, &["ps", "--json"]).await;
    let printed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let failure = printed["failures"][0].as_str().unwrap();
    assert!(failure.contains(between), "{printed}");
    // Codex has ended, and its sessions with it.
    drop(guard);
    let listed = output(&home, &["ps", "--json"]).await;
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let printed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(printed, json!({ "work": [] }));
}

#[tokio::test]
async fn session_of_a_killed_host_is_sought_on_the_next_one() {
    let home = Home::new("");
    let guard = guard_of_a_killed_host(&home);
    let mut approve = program(&home, &["approve", SESSION]);
    let mut approving = pin!(approve.output());
    tokio::select! {
        output = &mut approving => panic!("it does not wait: {output:?}"),
        looked = guard.accept() => drop(looked.unwrap()),
    }
    let host = PlayedHost::of(home);
    let found = Answer::Session(SessionAnswer::Found {
        session: SESSION.to_owned(),
        questions: Vec::new(),
    });
    let found = format!("{}\n", json!(found));
    let output = tokio::select! {
        output = approving => output.unwrap(),
        () = host.answer(&found) => panic!("the host answers for ever"),
    };
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("has no such open question"), "{errors}");
}

#[tokio::test]
async fn session_whose_codex_has_ended_is_missing() {
    let home = Home::new("");
    drop(guard_of_a_killed_host(&home));
    let output = output(&home, &["approve", SESSION]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("there is no session"), "{errors}");
}

/// As in a container that shares the home directory.
#[cfg(all(target_os = "linux", not(portable)))]
#[tokio::test]
async fn host_of_another_pid_namespace_is_not_a_missing_one() {
    let host = PlayedHost::new();
    let mut command = Command::from(host.home.command("unshare"));
    command
        .args(["--user", "--map-root-user", "--pid", "--fork"])
        .args([env!("CARGO_BIN_EXE_codex-mcp"), "host", "status"])
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("in another PID namespace"), "{errors}");
}

/// The control.
#[tokio::test]
async fn host_of_a_newer_version_is_listed() {
    let host = PlayedHost::new();
    let status = json!({ "status": {
        "pid": 7,
        "version": "9.0.0",
        "uptime": { "secs": 10, "nanos": 0 },
        "clients": 2,
        "new": true,
    } });
    let answer = format!("{status}\n");
    let output = host.output(&answer, &["host", "status"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    let expected = "process 7, version 9.0.0: 2 clients, up 10s";
    assert_eq!(listed.trim_end(), expected);
}

#[tokio::test]
async fn host_removes_files_of_old_hosts_when_it_starts() {
    let home = Home::new("");
    let directory = home.state_home().join("codex-mcp/hosts");
    let old = endpoint(&home);
    drop(old.take().unwrap().unwrap());
    fs::write(old.log(), "from long ago").unwrap();
    for file in fs::read_dir(&directory).unwrap() {
        let file = fs::File::open(file.unwrap().path()).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let host = output(&home, &["host", "run", "--idle", "1s"]).await;
    assert!(host.status.success(), "{host:?}");
    assert_eq!(host.stdout, b"ready\n");
    let left = fs::read_dir(&directory).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    // The lock of the new one.
    assert_eq!(left.len(), 1, "{left:?}");
    let name = left[0].to_str().unwrap();
    assert!(name.ends_with(".lock") && !name.starts_with(KEY), "{name}");
}
