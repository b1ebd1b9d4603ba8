//! Access to the endpoint: credentials and origins. Each attack has a control that shows what it
//! would do.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use nix::sys::signal::Signal;
use scripted_model::{Reply, Script};
use testkit::McpClient;
use testkit::process::signal;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{start, status, web};
use crate::jobs::wait_for;
use crate::real::{CodexFixture, VERSION};
use testkit::http::Request;

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
async fn wrong_secret_delays_only_its_sender() {
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
async fn cookie_set_over_tls_is_sent_only_over_tls() {
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
