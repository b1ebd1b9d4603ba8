//! Programs that do not start, or are not Codex.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use testkit::fake::{Action, HELLO, Plan};
use testkit::{Signal, write_program};

use super::serve::{HANDSHAKE, Serve, code, completed, message};

/// Serves with this program as Codex and checks that a call fails with this error, and nothing
/// else fails.
async fn fails(program: PathBuf, expected: &str, words: &str) {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch.args(["--codex-bin".into(), program.clone().into_os_string()])
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    serve.client.call("tools/list", json!({})).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), expected, "{}: {result:#}", program.display());
    assert!(message(&result).contains(words), "{result:#}");
    serve.finish().await;
}

#[tokio::test]
async fn path_that_is_no_program_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "text").unwrap();
    for (program, words) in [
        (directory.path().join("no-such"), "no-such"),
        (directory.path().to_owned(), "not an executable file"),
        (plain, "not an executable file"),
        ("no-such-program-on-path".into(), "no-such-program-on-path"),
    ] {
        fails(program, "CODEX_NOT_FOUND", words).await;
    }
}

#[tokio::test]
async fn program_that_is_not_codex_fails_the_call_with_its_output() {
    let directory = tempfile::tempdir().unwrap();
    for (contents, words) in [
        ("\u{7f}ELFgarbage", "garbage"),
        ("#!/no/such/interpreter\n", "code 127"),
        (
            "#!/bin/sh\necho babble\necho 'wrong program' >&2\nexit 3\n",
            "wrong program",
        ),
        ("#!/bin/sh\nexit 3\n", "exited with code 3"),
        ("#!/bin/sh\nkill -PIPE $$\n", "signal 13 (SIGPIPE)"),
        // The program echoes its input.
        ("#!/bin/sh\nexec cat\n", "cannot answer initialize"),
    ] {
        let program = directory.path().join("program");
        write_program(&program, contents);
        fails(program, "APP_SERVER_START_FAILED", words).await;
    }
    fails("true".into(), "APP_SERVER_START_FAILED", "code 0").await;
    fails("false".into(), "APP_SERVER_START_FAILED", "code 1").await;
}

#[tokio::test]
async fn missing_codex_error_says_how_to_install_it() {
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch
            .env("PATH", "/no/such/directory")
            .env("CODEX_MCP_CODEX_BIN", "codex")
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "CODEX_NOT_FOUND");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("npm install -g @openai/codex"), "{text}");
    serve.finish().await;
}

/// Codex does this at the start of each of the first `launches`.
fn plan_of_starts(actions: &[Action], launches: u32) -> Plan {
    (1..=launches).fold(Plan::new(), |plan, launch| {
        plan.at_start(actions.to_vec()).in_launch(launch)
    })
}

/// Checks that calls fail with these words while Codex does this at its start, and that the
/// next one has Codex started again.
async fn start_fails(actions: Vec<Action>, words: &str) {
    // Each attempt starts it three times: the server's own at its start, and a call's that
    // comes when the first has failed.
    let mut serve = Serve::plain(&plan_of_starts(&actions, 6)).await;
    loop {
        let result = serve.codex().await;
        assert_eq!(code(&result), "APP_SERVER_START_FAILED", "{result:#}");
        assert!(message(&result).contains(words), "{words}: {result:#}");
        if serve.fake.started().len() == 6 {
            break;
        }
    }
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert_eq!(serve.fake.started().len(), 7);
    serve.finish().await;
}

#[tokio::test]
async fn start_that_fails_says_how_and_the_next_call_starts_again() {
    let read_only = "Error: failed to write to CODEX_HOME: Read-only file system (os error 30)";
    let text = read_only.to_owned();
    let stderr = Action::WriteStderr { text };
    let kill = |signal: Signal| Action::Kill {
        signal: signal as i32,
    };
    tokio::join!(
        start_fails(vec![Action::Exit { code: 0 }], "exited with code 0"),
        start_fails(vec![stderr, Action::Exit { code: 1 }], read_only),
        start_fails(vec![kill(Signal::SIGKILL)], "signal 9 (SIGKILL)"),
        start_fails(vec![kill(Signal::SIGSEGV)], "signal 11 (SIGSEGV)"),
        start_fails(
            vec![Action::garbage(), Action::Exit { code: 5 }],
            "exited with code 5"
        ),
    );
}

#[tokio::test]
async fn codex_that_ends_before_it_tells_its_account_is_started_again() {
    let plan = Plan::new().on("account/read", [Action::Exit { code: 1 }]);
    let mut serve = Serve::plain(&plan.in_launch(1)).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert_eq!(serve.fake.started().len(), 2);
    serve.finish().await;
}

/// As 0.153.4 does when another one makes the files of a new CODEX_HOME at the same time.
#[tokio::test]
async fn codex_that_ends_at_its_first_two_starts_costs_no_call_and_no_warning() {
    let mut serve = Serve::plain(&plan_of_starts(&[Action::Exit { code: 1 }], 2)).await;
    let result = serve.codex().await;
    assert_eq!(completed(&result), HELLO);
    assert_eq!(
        result["structuredContent"].get("warnings"),
        None,
        "{result:#}"
    );
    assert_eq!(serve.fake.started().len(), 3);
    serve.finish().await;
}

#[tokio::test]
async fn codex_that_refuses_or_garbles_initialize_is_no_app_server() {
    let error = Action::Error {
        code: -32600,
        message: "not today".to_owned(),
    };
    let nonsense = Action::Write {
        bytes: b"{\"id\":1,\"result\":[7]}\n".to_vec(),
    };
    for (actions, words) in [
        (vec![error], "not today"),
        (vec![nonsense], "not understood"),
        (
            vec![Action::HalfAnswer, Action::Exit { code: 9 }],
            "exited with code 9",
        ),
    ] {
        let mut serve = Serve::plain(&Plan::new().on("initialize", actions)).await;
        let result = serve.codex().await;
        assert_eq!(code(&result), "APP_SERVER_START_FAILED", "{result:#}");
        assert!(message(&result).contains(words), "{result:#}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn codex_flood_before_initialize_is_tolerated() {
    let plan = Plan::new().at_start([
        Action::garbage(),
        Action::Flood {
            notifications: 50_000,
        },
        Action::GiantLine { bytes: 20_000_000 },
        Action::Write {
            bytes: b"\n\n{}\n[]\nhello\n".to_vec(),
        },
    ]);
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert_eq!(serve.fake.started().len(), 1);
    serve.finish().await;
}

#[tokio::test]
async fn codex_that_hangs_at_initialize_times_out_the_call() {
    let plan = Plan::new().on("initialize", [Action::Hang]);
    let mut serve = Serve::plain_with(&plan, &["--timeout", "1"]).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "TIMEOUT", "{result:#}");
    assert_eq!(result["structuredContent"]["error"]["retryable"], true);
    serve.finish().await;
}
