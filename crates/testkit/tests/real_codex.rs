//! The real releases are installed and answer.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and a test starts its own processes"
)]

use std::process::{Command, Stdio};

use serde_json::json;
use testkit::client::TIME_LIMIT;
use testkit::process::wait_until_gone;
use testkit::{AppServer, Home, codex};

#[tokio::test]
async fn each_release_starts_a_thread_and_ends_with_its_handle() {
    for version in codex::releases() {
        let home = Home::new("");
        let server = AppServer::real(version, &home).await;
        let thread = server.start_thread(json!({})).await;
        let started = server.notifications(&thread).recv().await.unwrap();
        assert_eq!(started["method"], "thread/started", "{version}");
        let pid = server.pid();
        drop(server);
        assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
        let left: Vec<u32> = home.processes().iter().map(|p| p.pid).collect();
        assert_eq!(wait_until_gone(&left, TIME_LIMIT).await, [], "{version}");
    }
}

#[test]
fn binary_and_shim_belong_to_the_release() {
    for version in codex::releases() {
        let home = Home::new("");
        for program in [codex::native_binary(version), codex::npm_shim(version)] {
            let output = Command::new(&program)
                .arg("--version")
                .envs(home.env())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                format!("codex-cli {version}\n"),
                "{}",
                program.display()
            );
        }
    }
}
