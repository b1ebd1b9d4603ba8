//! A picture of 1 MB: from the model's call of the tool to its next request, beside a client that
//! only reads the file and answers with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, RgbImage};
use image_request::logic::contract::TOOL;
use scripted_model::{Reply, Request, Script};
use serde_json::{Value, json};
use testkit::AppServer;

use crate::fixture::{Fixture, ServeClient};
use crate::model::ANSWER;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const TARGET: f64 = 1.05;

const PICTURE: &str = "picture.png";

/// Pixels that no compression makes smaller: three bytes each, a megabyte in all. No
/// Codex scales that down.
const WIDTH: u32 = 720;
const HEIGHT: u32 = 463;

/// Rounds before the measured ones.
const WARM_UP: u16 = 2;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    let times = Times::default();
    let fixture = Fixture::with_script(Script::by({
        let times = times.clone();
        move |request| times.answer(request)
    }));
    let picture = fixture.work().join(PICTURE);
    fs::write(&picture, noise()).unwrap();
    let mut client = fixture.ours().await;
    let server = AppServer::start(&fixture.direct_launch(), answering(picture.clone()));
    server.initialize().await;
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        for turn in 0..2 {
            let side = if (round + turn) % 2 == 0 {
                fixture.look_ours(&mut client).await;
                &mut ours
            } else {
                fixture.look_direct(&server).await;
                &mut direct
            };
            let took = times.take();
            if round >= WARM_UP {
                side.push(took);
            }
        }
    }
    client.finish().await;
    vec![Row {
        figure: "a picture of 1 MB, until the model has it",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::RatioAtMost(TARGET),
        notes: vec!["ours checks that it is a picture that can be decoded".to_owned()],
    }]
}

/// When the model has called the tool, and how long it took until its next request.
#[derive(Debug, Default, Clone)]
struct Times(Arc<Mutex<Clock>>);

#[derive(Debug, Default)]
struct Clock {
    called: Option<Instant>,
    took: Option<f64>,
}

impl Times {
    fn answer(&self, request: &Request) -> Reply {
        let now = Instant::now();
        let mut clock = self.0.lock().unwrap();
        if request.prompt() != LOOK {
            return Reply::say(ANSWER);
        }
        if let Some(called) = clock.called.take() {
            assert_eq!(request.images().len(), 1, "{:?}", request.tool_outputs());
            clock.took = Some((now - called).as_secs_f64());
            return Reply::say(ANSWER);
        }
        clock.called = Some(now);
        Reply::call(TOOL, json!({"path": PICTURE}))
    }

    fn take(&self) -> f64 {
        self.0.lock().unwrap().took.take().unwrap()
    }
}

const LOOK: &str = "Look at it.";

impl Fixture {
    async fn look_ours(&self, client: &mut ServeClient) {
        let arguments = json!({"prompt": LOOK, "cwd": self.work()});
        let said = client.call("codex", arguments).await;
        assert_eq!(said["content"], ANSWER, "{said:#}");
    }

    async fn look_direct(&self, server: &AppServer) {
        let tool = json!({"name": TOOL, "description": "Shows a picture.",
            "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}});
        let settings = json!({"cwd": self.work(), "dynamicTools": [tool]});
        let thread = server.start_thread(settings).await;
        let mut notifications = server.notifications(&thread);
        let said = server.turn(&thread, &mut notifications, LOOK).await;
        assert_eq!(said, ANSWER);
    }
}

/// Answers each call of a tool with this picture.
fn answering(picture: PathBuf) -> impl Fn(&Value) -> Option<Value> + Send + Sync + 'static {
    move |request| {
        (request["method"] == "item/tool/call").then(|| {
            let url = format!("data:image/png;base64,{}", encoded(&picture));
            json!({"success": true, "contentItems": [{"type": "inputImage", "imageUrl": url}]})
        })
    }
}

fn encoded(picture: &Path) -> String {
    STANDARD.encode(fs::read(picture).unwrap())
}

fn noise() -> Vec<u8> {
    let mut state = 1_u32;
    let image = RgbImage::from_fn(WIDTH, HEIGHT, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [red, green, blue, _] = state.to_be_bytes();
        image::Rgb([red, green, blue])
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}
