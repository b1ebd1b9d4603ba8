//! The MCP bundle, started as its manifest says.

use std::fs::File;
use std::path::Path;

use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::{Home, Launch, McpClient};
use zip::ZipArchive;

use super::VERSION;
use super::npm::Packages;

/// The words of a manifest with what a client puts in: the place of the bundle, and what the user
/// chose.
fn put_in(word: &Value, bundle: &Path, home: &Home) -> String {
    let codex = testkit::codex::native_binary(testkit::codex::newest());
    let word = word.as_str().unwrap();
    word.replace("${__dirname}", bundle.to_str().unwrap())
        .replace("${user_config.directory}", home.work().to_str().unwrap())
        .replace("${user_config.codex}", codex.to_str().unwrap())
}

#[tokio::test]
async fn bundle_serves_as_its_manifest_says() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let model = ScriptedModel::start(script).await.unwrap();
    let home = Home::new(&model.codex_config());
    let packages = Packages::make(&home, Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    packages.dist("mcpb");
    let bundle = home.root().join("bundle");
    let packed = packages.path(&format!("codex-mcp-{VERSION}.mcpb"));
    let mut archive = ZipArchive::new(File::open(packed).unwrap()).unwrap();
    archive.extract(&bundle).unwrap();

    let manifest = File::open(bundle.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_reader(manifest).unwrap();
    let server = &manifest["server"]["mcp_config"];
    let args = server["args"].as_array().unwrap().iter();
    let codex = &server["env"]["CODEX_MCP_CODEX_BIN"];
    let launch = Launch::new(put_in(&server["command"], &bundle, &home))
        .args(args.map(|arg| put_in(arg, &bundle, &home)))
        .envs(home.env())
        .env("CODEX_MCP_HOST", "false")
        .env("CODEX_MCP_CODEX_BIN", put_in(codex, &bundle, &home))
        .current_dir("/");
    let mut client = McpClient::connect(&launch, crate::VERSION, json!({})).await;
    let answer = client.call_tool("codex", json!({ "prompt": "hi" })).await;
    let content = &answer["structuredContent"]["content"];
    assert_eq!(content, "hello", "{answer:#}");
    assert!(client.finish().await.success());
}
