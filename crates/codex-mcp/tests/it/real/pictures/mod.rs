//! `request_image` where Codex works for us: the model gets the picture with its next
//! request.

mod handed_over;
mod refused;
mod threads;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codex_mcp_core::eyes::contract::{SERVER, TOOL};
use scripted_model::{Reply, Request, Script};
use serde_json::json;
use testkit::McpClient;

use super::{Stage, VERSION};

/// The prompt of a turn that looks at a picture, and what the turn ends with.
const LOOK: &str = "look at ";
const SEEN: &str = "Seen.";

/// The model asks for what comes after [`LOOK`].
fn looks() -> Script {
    Script::new()
        .on(
            LOOK,
            [
                Reply::with(|request| asks(wanted(request))),
                Reply::say(SEEN),
            ],
        )
        .otherwise([Reply::say("ok")])
}

fn asks(path: &str) -> Reply {
    Reply::mcp(SERVER, TOOL, json!({ "path": path }))
}

fn wanted(request: &Request) -> &str {
    let (_, rest) = request.prompt().split_once(LOOK).unwrap();
    rest.lines().next().unwrap()
}

fn look_at(path: &str) -> String {
    format!("{LOOK}{path}")
}

/// A PNG of 2 by 2 pixels with this text in it, as any program writes one.
fn png(text: &str) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut png, b"IHDR", &[0, 0, 0, 2, 0, 0, 0, 2, 8, 0, 0, 0, 0]);
    chunk(&mut png, b"tEXt", format!("Comment\0{text}").as_bytes());
    // Stored without compression: a line's filter and its pixels, twice.
    let pixels = [0x78, 0x01, 1, 6, 0, 0xf9, 0xff, 0, 0, 255, 0, 255, 0];
    let sum = adler(&[0, 0, 255, 0, 255, 0]);
    chunk(
        &mut png,
        b"IDAT",
        &[&pixels[..], &sum.to_be_bytes()].concat(),
    );
    chunk(&mut png, b"IEND", &[]);
    png
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    let checked = [&kind[..], data].concat();
    png.extend(&checked);
    png.extend(crc(&checked).to_be_bytes());
}

/// As PNG has it, 5.5.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            1 => sum >> 1 ^ 0xedb8_8320,
            _ => sum >> 1,
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// As RFC 1950 has it, 8.2.
fn adler(bytes: &[u8]) -> u32 {
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

impl Stage {
    /// Puts a picture into the work folder that is like no other one.
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
