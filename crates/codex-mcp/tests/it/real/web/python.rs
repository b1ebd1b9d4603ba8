//! A client on the official Python library of MCP, over HTTP.

use super::WebFixture;
use crate::real::python::{LEGACY, MODERN, assert_works, model};

async fn assert_works_over_http(era: (&str, &str)) {
    let web = WebFixture::new(testkit::codex::newest(), model()).await;
    let token = web.run(&["token", "python"]).await;
    let url = format!("http://{}/mcp", web.address);
    assert_works(&web.stage, era, &["http", &url, &token]).await;
    web.finish().await;
}

#[tokio::test]
#[ignore = "needs the Python library of MCP; run `cargo xtask peers`"]
async fn python_library_works_over_http_with_a_handshake() {
    assert_works_over_http(LEGACY).await;
}

#[tokio::test]
#[ignore = "needs the Python library of MCP; run `cargo xtask peers`"]
async fn python_library_works_over_http_without_a_handshake() {
    assert_works_over_http(MODERN).await;
}
