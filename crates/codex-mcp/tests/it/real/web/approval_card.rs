//! The card on which a question is decided, in a real client that shows MCP Apps: the inspector.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::chromium::{Browser, Driver};
use testkit::conformance::InspectorPage;

use super::WebFixture;
use super::browser::DESK;

/// What is asked: its markup must be shown, and its hidden character, too.
const COMMAND: &str = "touch made.txt '<img src=x>' '\u{202e}'";

/// The card of a session in the inspector's page. A page connects to one server once.
struct Card {
    browser: Browser,
    _inspector: InspectorPage,
}

impl Card {
    /// Has the page poll the session, and goes into the card that it shows then.
    async fn open(driver: &Driver, web: &WebFixture, token: &str, session: &str) -> Self {
        let inspector = InspectorPage::start(web.address, token, &web.stage.home.home()).await;
        let browser = driver.browser(DESK, "light").await;
        let poll = json!({ "action": "poll", "sessionId": session });
        let link = format!(
            "http://{}/?serverUrl=http%3A%2F%2F127.0.0.1%3A{}%2Fmcp&transport=http&autoConnect={}\
             &openApp=codex_check&appArgs={}",
            inspector.address,
            web.address.port(),
            InspectorPage::SECRET,
            URL_SAFE_NO_PAD.encode(poll.to_string()),
        );
        browser.open(&link).await;
        let open = "const buttons = [...document.querySelectorAll('button')]; \
            buttons.find((one) => one.textContent === 'Open App').click()";
        browser.wait_for_text("button", "Open App").await;
        browser.run(open, json!([])).await;
        // The outer frame is of another origin, and has the card in one of its own.
        browser.enter("iframe").await;
        browser.enter("iframe").await;
        Self {
            browser,
            _inspector: inspector,
        }
    }

    /// The texts of its buttons.
    async fn buttons(&self) -> Value {
        let all = "return [...document.querySelectorAll('button')].map((one) => one.textContent)";
        self.browser.run(all, json!([])).await
    }

    async fn close(self) {
        self.browser.finish().await;
    }
}

/// Starts a session that asks at once. The question stays open longer than the usual minute, because
/// it may take that long to start the inspector and the browser on a busy machine.
async fn asking(web: &mut WebFixture, prompt: &str) -> String {
    let patient = json!({"advanced": {"approvalTimeoutMs": 600_000}});
    let session = web.client.start(prompt, patient).await;
    wait_until(web, &session, "waiting_approval").await;
    session
}

async fn wait_until(web: &mut WebFixture, session: &str, status: &str) {
    let wait = json!({ "action": "wait_any", "sessionIds": [session] });
    let seen = web.client.client.call_tool("codex_session", wait).await;
    assert_eq!(seen["structuredContent"]["status"], status, "{seen:#}");
}

#[tokio::test]
async fn question_is_decided_on_the_card_of_an_mcp_app() {
    let long = format!("true '{}'", "x".repeat(5000));
    let patch = Patch::new().add("patched.txt", "a line of the patch\n");
    let script = Script::new()
        .on(
            "short",
            [
                Reply::shell(Shell::escalated(COMMAND, "it is needed")),
                Reply::say("It is made."),
            ],
        )
        .on(
            "long",
            [Reply::shell(Shell::escalated(&long, "it is needed"))],
        )
        .on("patch", [Reply::patch(patch)])
        .otherwise([Reply::say("It is made.")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let token = web.run(&["token", "the inspector"]).await;
    let driver = Driver::start().await;

    let session = asking(&mut web, "short").await;
    let card = Card::open(&driver, &web, &token, &session).await;
    let shown = "touch made.txt '<img src=x>' '\\u{202e}'";
    card.browser.wait_for_text("pre", shown).await;
    assert!(card.browser.all("img").await.is_empty(), "markup is text");
    let refusals = ["Decline", "Decline and end the turn"];
    let all = [&["Allow once", "Allow in this thread"], &refusals[..]].concat();
    assert_eq!(card.buttons().await, json!(all));
    let violations = card.browser.axe().await;
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(!web.stage.file("made.txt").exists());
    let allow = card.browser.wait_for("button:enabled").await;
    allow.click().await.unwrap();
    let decided = "Your decision: Allow once";
    card.browser.wait_for_text("[role=status]", decided).await;
    assert_eq!(card.buttons().await, json!([]));
    wait_until(&mut web, &session, "idle").await;
    assert!(web.stage.file("made.txt").exists());
    card.close().await;

    // Nobody may allow what the card does not show.
    let session = asking(&mut web, "long").await;
    let card = Card::open(&driver, &web, &token, &session).await;
    card.browser
        .wait_for_text("p", "This is only a part.")
        .await;
    assert_eq!(card.buttons().await, json!(refusals));
    card.close().await;

    let session = asking(&mut web, "patch").await;
    let card = Card::open(&driver, &web, &token, &session).await;
    card.browser
        .wait_for_text("pre", "a line of the patch")
        .await;
    assert_eq!(card.buttons().await[0], "Allow once");
    card.close().await;
    web.finish().await;
}
