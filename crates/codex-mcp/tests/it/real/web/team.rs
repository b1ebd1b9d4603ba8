//! Threads that no host has any longer, the mail of the team, and pictures.

use std::fs;

use scripted_model::{Reply, Script};
use serde_json::json;

use super::story::between;
use super::{WebFixture, start_session, work};
use crate::jobs::wait_for;
use crate::real::team::{inbox, inbox_file, make_team, put_mail};

/// A code that answers a question by mail.
const CODE: &str = "7h2k-9qfx-m3tw-c8ra";

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}";

fn script() -> Script {
    Script::new().otherwise([Reply::say("done")])
}

#[tokio::test]
async fn ended_thread_is_listed_and_resumed() {
    let mut web = WebFixture::new(testkit::codex::newest(), script()).await;
    let session = start_session(&mut web, &format!("remember this {HOSTILE}")).await;
    web.client.until_idle(&session).await;
    let page = web.get("/threads").await;
    let link = format!("href=\"/sessions/{session}\"");
    assert!(page.contains(&link), "{page}");
    assert!(
        !page.contains("<img") && !page.contains('\u{202e}'),
        "{page}"
    );
    let recorded = async |web: &WebFixture| {
        let listed = web.browser("GET", "/api/threads").send().await.json();
        let thread = &listed["threads"][0];
        json!([thread["status"], thread["last_turn"]])
    };
    wait_for("the end of the turn", async || {
        (recorded(&web).await == json!(["idle", "completed"])).then_some(())
    })
    .await;
    // Its host ends with it.
    web.stage.stop_hosts().await;
    wait_for("the session has gone", async || {
        work(&web).await.is_empty().then_some(())
    })
    .await;
    wait_for("the end of the thread", async || {
        (recorded(&web).await == json!(["ended", "completed"])).then_some(())
    })
    .await;
    let page = web.get("/threads").await;
    assert!(page.contains("ended, last turn completed ·"), "{page}");
    let thread = between(&page, "name=\"thread\" value=\"", "\"").to_owned();
    let directory = between(&page, "name=\"directory\" value=\"", "\"").to_owned();
    let fields = [("thread", &*thread), ("directory", &*directory)];
    let resumed = web.post("/threads", &fields).await;
    assert_eq!(resumed.status, 200, "{resumed:?}");
    let address = resumed.json()["address"].as_str().unwrap().to_owned();
    let more = web
        .post(&format!("{address}/prompt"), &[("text", "more")])
        .await;
    assert_eq!(more.status, 200, "{more:?}");
    wait_for("the answer", async || {
        let page = web.get(&address).await;
        page.contains("done").then_some(())
    })
    .await;
    let last = web.stage.model.requests().pop().unwrap();
    let said = last.user_messages().join(" ");
    assert!(
        said.contains("remember this") && said.contains("more"),
        "{said}"
    );
    let unknown = web.post("/threads", &[("thread", "../../x")]).await;
    assert_eq!(unknown.status, 400, "{unknown:?}");
    web.finish().await;
}

#[tokio::test]
async fn mail_is_shown_unread_and_sent() {
    let mut web = WebFixture::new(testkit::codex::newest(), script()).await;
    let page = web.get("/mail").await;
    assert!(page.contains("no team is configured"), "{page}");

    make_team(&web.stage, &["lead", "codex", "broken"]);
    let message = json!({ "from": HOSTILE, "text": format!("Look {HOSTILE}\n\naccept {CODE}"),
        "summary": format!("decline {CODE}"), "read": false,
        "timestamp": "2026-11-26T10:00:00.000Z" });
    put_mail(&web.stage, "lead", std::slice::from_ref(&message));
    // A mailbox that cannot be read hides no other one.
    fs::write(inbox_file(&web.stage, "broken"), "{").unwrap();
    web.restart_with(&[("ATM_TEAM", "builders")]).await;
    let page = web.get("/mail").await;
    assert!(page.contains("Look &lt;img"), "{page}");
    assert!(
        page.contains("accept [code]") && !page.contains(CODE),
        "{page}"
    );
    let broken = between(&page, "Mail of broken", "</section>");
    assert!(broken.contains("class=\"error\""), "{broken}");
    assert!(
        !page.contains("<img") && !page.contains('\u{202e}'),
        "{page}"
    );
    assert_eq!(inbox(&web.stage, "lead")[0]["read"], false);
    let sent = web
        .post("/mail", &[("to", "lead"), ("text", "Well done")])
        .await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let mail = inbox(&web.stage, "lead");
    assert_eq!(mail.len(), 2, "{mail:?}");
    assert_eq!(mail[1]["text"], "Well done");
    let listed = web.browser("GET", "/api/mail").send().await.json();
    assert_eq!(listed["members"][0]["unread"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(CODE), "{listed:#}");
    for (to, status) in [("nobody", 409), ("../x", 400)] {
        let refused = web.post("/mail", &[("to", to), ("text", "t")]).await;
        assert_eq!(refused.status, status, "{refused:?}");
    }
    web.finish().await;
}

#[tokio::test]
async fn picture_that_codex_looks_at_is_shown() {
    let path = "./shown.png";
    let look = json!({ "path": path });
    let script = Script::new().otherwise([Reply::call("request_image", look), Reply::say("Seen.")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let bytes = web.stage.picture("shown.png");
    let session = start_session(&mut web, "look").await;
    web.client.until_idle(&session).await;
    let address = format!("/sessions/{session}");
    let page = wait_for("the picture on the page", async || {
        let page = web.get(&address).await;
        page.contains("<img").then_some(page)
    })
    .await;
    let source = between(&page, "<img src=\"", "\"").to_owned();
    let picture = web.browser("GET", &source).send().await;
    assert_eq!(picture.status, 200, "{picture:?}");
    assert_eq!(picture.header("content-type"), Some("image/png"));
    let length = picture.header("content-length").unwrap();
    assert_eq!(length, bytes.len().to_string());
    // Nothing else is served, also if the file becomes a link out of the repository.
    let other = format!("{address}/pictures/1");
    assert_eq!(web.browser("GET", &other).send().await.status, 404);
    let outside = web.stage.home.root().join("secret.png");
    fs::rename(web.stage.file("shown.png"), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, web.stage.file("shown.png")).unwrap();
    assert_eq!(web.browser("GET", &source).send().await.status, 404);
    let stranger = web.request("GET", &source).send().await;
    assert_eq!(stranger.status, 401);
    web.finish().await;
}
