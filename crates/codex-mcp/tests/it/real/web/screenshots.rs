//! The pictures in docs/web.md: `cargo xtask screenshots` writes them, and each test run sees that
//! they can be taken.

use std::env;
use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::json;
use testkit::chromium::{Browser, Driver};

use super::WebFixture;
use super::browser::{DESK, PHONE, sign_in};

/// The variable with the directory for the pictures. Without it they are only looked at.
const DIRECTORY: &str = "SCREENSHOTS";

/// How each PNG begins. Source: PNG specification, 3rd edition, 5.2.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn model() -> Script {
    let patch = Patch::new().add("greeting.txt", "Hello, world\n");
    let push = Shell::escalated("git push origin main", "the change is to be published");
    Script::new().otherwise([
        Reply::patch(patch),
        Reply::shell(push),
        Reply::say("It is published."),
    ])
}

async fn take(browser: &Browser, name: &str) {
    let picture = STANDARD.decode(browser.screenshot().await).unwrap();
    assert!(picture.starts_with(PNG), "{name}");
    if let Some(directory) = env::var_os(DIRECTORY) {
        let directory: PathBuf = directory.into();
        fs::write(directory.join(name), picture).unwrap();
    }
}

#[tokio::test]
async fn pages_of_a_session_that_asks_are_photographed() {
    let mut web = WebFixture::new(testkit::codex::newest(), model()).await;
    // Its path is on the pictures.
    let project = tempfile::Builder::new().prefix("project-").tempdir();
    let project = project.unwrap();
    let options = json!({ "sandbox": "workspace-write", "cwd": project.path() });
    let prompt = "Add a greeting, and publish it.";
    let session = web.client.start(prompt, options).await;
    let driver = Driver::start().await;

    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".question", "git push").await;
    browser.wait_for_text("#diff", "Hello, world").await;
    take(&browser, "web-session.png").await;
    browser.finish().await;

    let browser = driver.browser(PHONE, "dark").await;
    sign_in(&web, &browser).await;
    browser.wait_for_text(".question", "git push").await;
    take(&browser, "web-list-phone.png").await;
    browser.finish().await;
    web.finish().await;
}
