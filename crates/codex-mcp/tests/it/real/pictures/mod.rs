//! `request_image` in threads, runs and jobs: the model gets the picture with its next request.

mod refused;
mod runs_and_jobs;
mod scaled;
mod threads;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_request::logic::contract::{SERVER, TOOL};
use scripted_model::{Reply, Request, Script};
use serde_json::json;

use super::CodexFixture;
use crate::png::png;

/// The prompt of a turn that looks at a picture, and the answer of that turn.
const LOOK: &str = "look at ";
const SEEN: &str = "Seen.";

/// A model that requests the picture whose path follows [`LOOK`].
fn looking_model() -> Script {
    Script::new()
        .on(
            LOOK,
            [
                Reply::with(|request| request_picture(request, requested_path(request))),
                Reply::say(SEEN),
            ],
        )
        .otherwise([Reply::say("ok")])
}

/// A model's request for a picture by the tool that it is offered: our own, or that of an MCP
/// server where threads have no tools of ours.
pub(super) fn request_picture(request: &Request, path: &str) -> Reply {
    let arguments = json!({ "path": path });
    match request.tool(TOOL) {
        Some(_) => Reply::call(TOOL, arguments),
        None => Reply::mcp(SERVER, TOOL, arguments),
    }
}

fn requested_path(request: &Request) -> &str {
    let (_, rest) = request.prompt().split_once(LOOK).unwrap();
    rest.lines().next().unwrap()
}

fn look_at(path: &str) -> String {
    format!("{LOOK}{path}")
}

impl CodexFixture {
    /// Writes a picture to the work directory that differs from all others.
    pub(super) fn picture(&self, name: &str) -> Vec<u8> {
        let bytes = png(name);
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &bytes).unwrap();
        bytes
    }

    /// Checks that the model has requested a picture and that its next request has these bytes.
    #[track_caller]
    pub(super) fn assert_shown(&self, bytes: &[u8]) {
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
    fn offered_tools(&self) -> String {
        let requests = self.model.requests();
        requests.last().unwrap().tool_names().join(" ")
    }
}
