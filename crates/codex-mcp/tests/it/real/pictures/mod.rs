//! `request_image` where Codex works for us: the model gets the picture with its next
//! request.

mod handed_over;
mod refused;
mod scaled;
mod threads;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_request::logic::contract::{SERVER, TOOL};
use scripted_model::{Reply, Request, Script};
use serde_json::json;
use testkit::McpClient;

use super::{Stage, VERSION};
use crate::png::png;

/// The prompt of a turn that looks at a picture, and what the turn ends with.
const LOOK: &str = "look at ";
const SEEN: &str = "Seen.";

/// The model asks for what comes after [`LOOK`].
fn looks() -> Script {
    Script::new()
        .on(
            LOOK,
            [
                Reply::with(|request| asks(request, wanted(request))),
                Reply::say(SEEN),
            ],
        )
        .otherwise([Reply::say("ok")])
}

/// As the tool is offered: by the client, or by an MCP server where there is no client that
/// could offer any.
fn asks(request: &Request, path: &str) -> Reply {
    let arguments = json!({ "path": path });
    match request.tool(TOOL) {
        Some(_) => Reply::call(TOOL, arguments),
        None => Reply::mcp(SERVER, TOOL, arguments),
    }
}

fn wanted(request: &Request) -> &str {
    let (_, rest) = request.prompt().split_once(LOOK).unwrap();
    rest.lines().next().unwrap()
}

fn look_at(path: &str) -> String {
    format!("{LOOK}{path}")
}

impl Stage {
    /// Puts a picture into the work directory that is like no other one.
    fn picture(&self, name: &str) -> Vec<u8> {
        let bytes = png(name);
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &bytes).unwrap();
        bytes
    }

    /// The model has asked for a picture, and its next request has it as it is.
    #[track_caller]
    fn assert_shown(&self, bytes: &[u8]) {
        assert!(
            self.model.unanswered().is_empty(),
            "{:?}",
            self.model.unanswered()
        );
        let requests = self.model.requests();
        let last = requests.last().unwrap();
        assert_eq!(last.round(), 1);
        let shown = last.images();
        let url = format!("data:image/png;base64,{}", STANDARD.encode(bytes));
        let told = last.tool_outputs().pop();
        assert_eq!(shown.last(), Some(&url.as_str()), "{told:?}");
    }

    /// The tools that the model was offered last.
    fn offered(&self) -> String {
        let requests = self.model.requests();
        requests.last().unwrap().tool_names().join(" ")
    }
}

/// A client that takes no notice of what only a `codex mcp-server` sends.
async fn client(stage: &Stage, args: &[&str]) -> McpClient {
    let mut client = McpClient::start(&stage.launch(args));
    client.ignore("codex/event");
    client.ignore("notifications/tools/list_changed");
    client.initialize(VERSION, json!({})).await;
    client
}
