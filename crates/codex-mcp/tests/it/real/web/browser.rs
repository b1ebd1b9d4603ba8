//! The page in the real Chromium.

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::json;
use testkit::chromium::{Browser, Driver, ENTER};
use testkit::process::signal;

use super::{WebFixture, start_session};
use crate::jobs::wait_for;

/// The size of a window of a desk, and that of a phone, in pixels.
pub(super) const DESK: (u32, u32) = (1280, 900);
pub(super) const PHONE: (u32, u32) = (390, 844);

fn asking() -> Script {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().otherwise([touch, Reply::say("It is made.")])
}

/// Opens a browser by a one-time link.
pub(super) async fn sign_in(web: &WebFixture, browser: &Browser) {
    let link = web.run(&["link"]).await;
    browser.open(&link).await;
    browser
        .wait_for("#sign-in button")
        .await
        .click()
        .await
        .unwrap();
    browser.wait_for_text("h2", "Needs you").await;
}

async fn assert_accessible(browser: &Browser, what: &str) {
    let violations = browser.axe().await;
    assert!(violations.is_empty(), "{what}: {violations:#?}");
    assert!(
        !browser.overflows().await,
        "{what} is wider than its window"
    );
}

/// Presses Enter on an element.
async fn press(browser: &Browser, css: &str) {
    browser.wait_for(css).await.type_text(ENTER).await;
}

/// What a person does, by the keyboard alone.
async fn turn_is_watched_and_decided(size: (u32, u32), scheme: &str) {
    let mut web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(size, scheme).await;
    browser.open(&format!("http://{}/", web.address)).await;
    browser.wait_for_text("pre", "codex-mcp web link").await;
    assert_accessible(&browser, "the page for strangers").await;
    sign_in(&web, &browser).await;
    assert_accessible(&browser, "the page without work").await;

    let session = start_session(&mut web, "make it").await;
    browser.wait_for_text(".question", "touch made.txt").await;
    assert_accessible(&browser, "the page with a question").await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".question", "touch made.txt").await;
    assert_accessible(&browser, "the session with a question").await;
    assert!(!web.stage.file("made.txt").exists());
    press(&browser, ".question button.primary").await;
    browser.wait_for_text(".step.message", "It is made.").await;
    browser.wait_for_text(".step.asked", "accept, page").await;
    browser.wait_for_text(".state", "idle").await;
    assert!(web.stage.file("made.txt").exists());
    assert_accessible(&browser, "the session that has ended").await;
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
async fn turn_is_watched_and_decided_at_a_desk() {
    turn_is_watched_and_decided(DESK, "light").await;
}

#[tokio::test]
async fn turn_is_watched_and_decided_on_a_phone() {
    turn_is_watched_and_decided(PHONE, "dark").await;
}

#[tokio::test]
async fn two_browsers_and_a_terminal_have_one_winner() {
    let mut web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let (one, other) = (
        driver.browser(DESK, "light").await,
        driver.browser(PHONE, "light").await,
    );
    let session = start_session(&mut web, "make it").await;
    let path = format!("/sessions/{session}");
    for browser in [&one, &other] {
        sign_in(&web, browser).await;
        browser.open(&path).await;
        browser.wait_for(".question button.danger").await;
    }
    let allow = one.wait_for(".question button.primary").await;
    let decline = other.wait_for(".question button.danger").await;
    let approve = ["approve", session.as_str()];
    let approving = web.shell(&approve);
    // The card of a browser goes as soon as somebody else has decided.
    let (_, _, approved) = tokio::join!(allow.click(), decline.click(), approving);
    let shown = "Question: command";
    for browser in [&one, &other] {
        browser.wait_for_text(".step.asked", shown).await;
        browser.wait_for_text(".state", "idle").await;
        let open = browser.all(".question").await;
        assert!(open.is_empty(), "the card is gone");
    }
    let closed = one.wait_for(".step.asked .facts").await.text().await;
    let same = other.wait_for(".step.asked .facts").await.text().await;
    assert_eq!(closed, same, "both show the same winner");
    let by_terminal = closed == "accept, terminal";
    assert!(
        by_terminal || ["accept, page", "decline, page"].contains(&&*closed),
        "{closed}"
    );
    assert_eq!(approved, by_terminal, "{closed}");
    assert_eq!(
        web.stage.file("made.txt").exists(),
        closed.starts_with("accept"),
        "{closed}"
    );
    one.finish().await;
    other.finish().await;
    web.finish().await;
}

#[tokio::test]
#[cfg(not(portable))]
async fn page_has_no_gap_after_the_host_was_killed() {
    let gate = Gate::new();
    let script = Script::new()
        .on("first", [Reply::say("before")])
        .otherwise([Reply::say("after").behind(&gate)]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let session = start_session(&mut web, "first").await;
    wait_for("the session on the page", async || {
        web.hosts_session(&session).await.then_some(())
    })
    .await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".step.message", "before").await;
    browser.wait_for_text(".state", "idle").await;
    let text = browser.wait_for("textarea[name=text]").await;
    text.type_text("second").await;
    press(&browser, "form.send button").await;
    gate.reached(1).await;

    let hosts: serde_json::Value =
        serde_json::from_str(&web.output(&["host", "status", "--json"]).await).unwrap();
    let host = hosts[0]["pid"].as_u64().unwrap();
    signal(u32::try_from(host).unwrap(), Signal::SIGKILL);
    // The next call of a client starts the next host, which takes the session over.
    let look = json!({ "action": "get", "sessionId": session });
    wait_for("the next host", async || {
        let looked = web
            .client
            .client
            .call_tool("codex_session", look.clone())
            .await;
        (looked["isError"] == false).then_some(())
    })
    .await;
    gate.release();
    browser.wait_for_text(".step.message", "after").await;
    browser.wait_for_text(".state", "idle").await;
    let steps = browser.all(".step.message").await;
    assert_eq!(steps.len(), 2);
    let gaps = browser.all(".step.gap").await;
    assert!(gaps.is_empty(), "a gap");
    browser.finish().await;
    web.finish().await;
}
