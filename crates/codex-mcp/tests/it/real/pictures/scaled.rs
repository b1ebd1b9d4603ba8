//! Pictures that are larger than Codex accepts.

use std::fs;
use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageFormat, RgbImage};
use serde_json::json;

use super::super::{CodexFixture, assert_completed, on_oldest_and_newest, thread_of};
use super::{SEEN, look_at, looking_model};

on_oldest_and_newest!(large_pictures_are_scaled_down);

/// A picture of noise, which does not compress.
fn noise(width: u32, height: u32) -> Vec<u8> {
    let mut state = 1_u32;
    let image = RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [red, green, blue, _] = state.to_be_bytes();
        image::Rgb([red, green, blue])
    });
    let mut bytes = Vec::new();
    DynamicImage::ImageRgb8(image)
        .write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)
        .unwrap();
    bytes
}

/// The length of the base64 text in a data URL, and the decoded picture.
fn decoded(url: &str) -> (usize, DynamicImage) {
    let (_, base64) = url.split_once("base64,").unwrap();
    let bytes = STANDARD.decode(base64).unwrap();
    (base64.len(), image::load_from_memory(&bytes).unwrap())
}

/// Before 0.105, Codex counts a larger picture as text that fills the context: it compacts the
/// conversation without the picture, and the model requests it again, for ever.
async fn large_pictures_are_scaled_down(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    for number in 0..3 {
        fs::write(stage.file(&format!("{number}.png")), noise(2100, 700)).unwrap();
    }
    let mut client = stage.quiet_client(&[]).await;
    let mut thread = json!({});
    for number in 0..3 {
        let mut arguments = json!({ "prompt": look_at(&format!("{number}.png")) });
        let tool = match number {
            0 => "codex",
            _ => {
                arguments["threadId"] = thread.clone();
                "codex-reply"
            }
        };
        let result = client.call_tool(tool, arguments).await;
        assert_completed(&result, SEEN);
        thread = thread_of(&result).into();
        let requests = stage.model.requests();
        let shown = requests.last().unwrap().images();
        assert_eq!(shown.len(), number + 1);
        let (length, image) = decoded(shown.last().unwrap());
        match release {
            "0.104.0" => assert!(length <= 200_000, "{length}"),
            _ => assert_eq!((image.width(), image.height()), (2048, 683)),
        }
    }
    assert!(
        !client.stderr().contains("over the limit"),
        "{}",
        client.stderr()
    );
    stage.finish(client).await;
}
