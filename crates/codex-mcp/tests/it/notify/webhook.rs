//! `webhook:` and `ntfy:` with web servers on loopback.

use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use codex_engine::logic::action::ActionId;
use codex_engine::logic::session::Alert;
use goal_run::notify::{Alerts, Notice, NotifierContext};
use serde_json::json;

use super::fake_web::{Answer, WebServer};
use super::{LINE, notifier, result, tell, tell_text, teller_without_mail};

/// A path that nobody may see.
const PATH: &str = "services/T0/s3cret?key=k3y-0f-m1ne";

fn webhook(server: &WebServer) -> String {
    format!("webhook:{}", server.url("http", PATH))
}

fn ntfy(server: &WebServer) -> String {
    format!("ntfy:{}", server.url("http", "s3cret"))
}

/// A teller that waits for this long.
fn impatient(limit: Duration) -> NotifierContext {
    let mut teller = teller_without_mail();
    teller.timeouts.web = limit;
    teller
}

fn with_token(token: &str) -> NotifierContext {
    NotifierContext {
        env: vec![("CODEX_MCP_NTFY_TOKEN".into(), token.into())],
        ..teller_without_mail()
    }
}

async fn failure(notifier: &str, teller: &NotifierContext) -> String {
    let error = tell(notifier, teller).await.unwrap_err();
    for secret in ["s3cret", "k3y-0f"] {
        assert!(!error.contains(secret), "{error}");
    }
    error
}

#[tokio::test]
async fn webhook_gets_the_object_with_the_line() {
    let server = WebServer::start(Answer::ok()).await;
    let teller = with_token("tk_0");
    let line = "DONE #7 :: it's \"a\" & <b> é";
    tell_text(&webhook(&server), line, &teller).await.unwrap();
    let [request] = &server.requests()[..] else {
        panic!("one request");
    };
    assert_eq!(request.line, format!("POST /{PATH} HTTP/1.1"));
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(header("content-type"), Some("application/json"));
    let agent = format!("codex-mcp/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(header("user-agent"), Some(agent.as_str()));
    let host = format!("127.0.0.1:{}", server.port());
    assert_eq!(header("host"), Some(host.as_str()));
    assert_eq!(header("authorization"), None);
    let mut expected = result();
    expected["text"] = json!(line);
    assert_eq!(request.json(), expected);
}

#[tokio::test]
async fn topic_gets_the_line_with_title_priority_and_token() {
    let server = WebServer::start(Answer::ok()).await;
    let host = format!("127.0.0.1:{}", server.port());
    let teller = with_token(&format!("{host}=tk_0"));
    let asks = "APPROVAL :: session 1: waiting for approval to run é";
    tell_text(&ntfy(&server), asks, &teller).await.unwrap();
    tell(&ntfy(&server), &teller_without_mail()).await.unwrap();
    let [asked, done] = &server.requests()[..] else {
        panic!("two requests");
    };
    assert_eq!(asked.line, "POST /s3cret HTTP/1.1");
    assert_eq!(asked.body, asks);
    assert_eq!(asked.headers["title"], "Codex waits for an answer");
    assert_eq!(asked.headers["priority"], "high");
    assert_eq!(asked.headers["tags"], "question");
    assert_eq!(asked.headers["authorization"], "Bearer tk_0");
    assert_eq!(done.body, LINE);
    assert_eq!(done.headers["priority"], "default");
    assert!(!done.headers.contains_key("authorization"));

    let teller = with_token(&format!("{host}=s3cret\r\nx: y"));
    let error = failure(&ntfy(&server), &teller).await;
    assert!(error.contains("CODEX_MCP_NTFY_TOKEN"), "{error}");
}

/// A client can name any server.
#[tokio::test]
async fn token_is_sent_only_to_its_server() {
    let server = WebServer::start(Answer::ok()).await;
    for token in ["tk_0", "ntfy.example=tk_0", "127.0.0.1=tk_0", "=tk_0", ""] {
        tell(&ntfy(&server), &with_token(token)).await.unwrap();
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 5);
    assert!(!format!("{requests:?}").contains("tk_0"), "{requests:?}");
}

#[tokio::test]
async fn credential_in_a_question_is_masked() {
    let credential = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let server = WebServer::start(Answer::ok()).await;
    let notifiers = vec![notifier(&webhook(&server)), notifier(&ntfy(&server))];
    let alerts = Alerts::start(notifiers, teller_without_mail());
    let question = Alert::Question {
        id: ActionId("req_1".to_owned()),
        summary: format!("waiting for approval to run curl -u x:{credential} h"),
        text: format!("Command: curl -u x:{credential} h"),
        expires: UNIX_EPOCH,
    };
    alerts.give(Notice::of("session 1", &json!({}), &question));
    for request in server.wait_for_requests(2).await {
        assert!(request.body.contains("curl -u x:[masked] h"), "{request:?}");
        assert!(!format!("{request:?}").contains(credential), "{request:?}");
    }

    // Nor is one in the result of a run.
    let told = goal_run::notify::Notification {
        line: &format!("DONE #1 :: {credential}"),
        result: &json!({ "artifacts": [{ "path": credential }] }),
    };
    let webhook = [notifier(&webhook(&server))];
    goal_run::notify::notify_all(&webhook, told, &teller_without_mail()).await;
    let last = server.requests().pop().unwrap();
    let expected = json!({
        "artifacts": [{ "path": "[masked]" }], "text": "DONE #1 :: [masked]",
    });
    assert_eq!(last.json(), expected);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let inner = WebServer::start(Answer::ok()).await;
    tell(&webhook(&inner), &teller_without_mail())
        .await
        .unwrap();
    assert_eq!(inner.requests().len(), 1, "the control reaches it");
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 x",
    ] {
        let head = format!("{status}\r\nLocation: {}", inner.url("http", "s3cret"));
        let server = WebServer::start(Answer::with(&head, "")).await;
        let error = failure(&webhook(&server), &teller_without_mail()).await;
        assert!(error.contains("redirects are not followed"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(inner.requests().len(), 1);
}

#[tokio::test]
async fn refusal_is_reported_without_the_address() {
    let words = "{\"code\":40301,\"error\":\"forbidden\"}";
    let server = WebServer::start(Answer::with("403 Forbidden", words)).await;
    let error = failure(&ntfy(&server), &teller_without_mail()).await;
    assert_eq!(error, format!("127.0.0.1 answered 403 Forbidden: {words}"));

    let page = format!("<p>There is no /{PATH} here.");
    let server = WebServer::start(Answer::with("404 Not Found", &page)).await;
    let error = failure(&webhook(&server), &teller_without_mail()).await;
    assert!(
        error.starts_with("127.0.0.1 answered 404 Not Found; "),
        "{error}"
    );
}

#[tokio::test]
async fn silent_server_is_given_up() {
    let server = WebServer::start(Answer::Silence).await;
    let error = failure(&webhook(&server), &impatient(Duration::from_secs(1))).await;
    assert_eq!(error, "127.0.0.1 did not answer within 1 s");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn endless_answer_is_not_read() {
    let began = Instant::now();
    let body = "HTTP/1.1 500 x\r\nContent-Length: 1000000000000\r\n\r\n";
    let server = WebServer::start(Answer::Endless(body.to_owned(), "noise ")).await;
    let error = failure(&webhook(&server), &teller_without_mail()).await;
    assert!(error.starts_with("127.0.0.1 answered 500 "), "{error}");
    assert!(error.len() < 300, "{error}");

    let head = "HTTP/1.1 200 OK\r\nX: ";
    let server = WebServer::start(Answer::Endless(head.to_owned(), "noise ")).await;
    let error = failure(&webhook(&server), &teller_without_mail()).await;
    assert!(
        error.contains("did not answer as a web server does"),
        "{error}"
    );
    assert!(began.elapsed() < super::SHORT);
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let hook = format!("webhook:http://127.0.0.1:{port}/s3cret");
    let error = failure(&hook, &teller_without_mail()).await;
    let begins = format!("127.0.0.1, port {port}, cannot be reached: ");
    assert!(error.starts_with(&begins), "{error}");
}

#[tokio::test]
async fn server_without_trusted_certificate_gets_nothing() {
    let server = WebServer::with_tls(Answer::ok()).await;
    let hook = format!("webhook:{}", server.url("https", PATH));
    let error = failure(&hook, &teller_without_mail()).await;
    let begins = format!(
        "no encrypted connection to 127.0.0.1, port {}: ",
        server.port()
    );
    assert!(error.starts_with(&begins), "{error}");
    assert!(error.contains("SSL_CERT_FILE"), "{error}");
    assert_eq!(server.requests().len(), 0);

    let plain = WebServer::start(Answer::ok()).await;
    let hook = format!("webhook:{}", plain.url("https", PATH));
    let error = failure(&hook, &teller_without_mail()).await;
    assert!(error.contains("does not speak TLS"), "{error}");
    assert_eq!(plain.requests().len(), 0);
}

/// The JSON of a delivery, as it is shown and stored with a job.
#[tokio::test]
async fn delivery_is_shown_without_the_address() {
    let server = WebServer::start(Answer::ok()).await;
    let teller = NotifierContext {
        directory: PathBuf::from("/"),
        ..teller_without_mail()
    };
    let told = super::tell_line(&[notifier(&webhook(&server))], LINE, &teller).await;
    let shown = json!([{ "to": format!("webhook:http://127.0.0.1:{}/…", server.port()) }]);
    assert_eq!(json!(told), shown);
}
