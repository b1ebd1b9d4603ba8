//! The texts for Codex, and the names that both sides know.
//!
//! Source of the names and of the rules: the specification of Codex Eyes.

use common::text::one_line;

use super::path::{PicturePath, SHOWN_PATH};
use super::picture::BadPicture;
use super::requested::{MOST_PICTURES, RequestedPictures};

/// The marker that Codex prints when it waits for a picture.
pub const MARKER: &str = "<<WAITING_FOR_IMAGE>>";

/// The name of the tool.
pub const TOOL: &str = "request_image";

/// The name of the tool's MCP server.
pub const SERVER: &str = "image-request-mcp";

/// The file of requests, relative to Codex's working directory.
pub const QUEUE: &str = ".codex-eyes/requests.jsonl";

/// The text that comes with the picture.
pub const ATTACHED: &str = "Requested image attached";

/// The rule for a tool that answers with the picture, for Codex's developer instructions.
#[must_use]
pub fn instructions_for_answers() -> String {
    format!(
        "\
You can look at pictures in this repository: call the tool {TOOL} with the path of one, relative to \
your working directory or to the top of the repository, for example {TOOL}({{\"path\": \
\"./screens/error.png\"}}). It takes .png, .jpg, .jpeg and .webp files, and its answer is the \
picture. Do not guess what a picture shows.
"
    )
}

/// The rules for a tool whose pictures come later, for Codex's developer instructions.
#[must_use]
pub fn instructions() -> String {
    format!(
        "\
You can look at pictures in this repository.
1. When you need to see a local picture, call the tool {TOOL} with its path, relative to your \
working directory or to the top of the repository, for example {TOOL}({{\"path\": \"./screens/error.png\"}}). It takes .png, \
.jpg, .jpeg and .webp files. Ask for one picture at a time.
2. When the tool has taken the request, your next message is exactly this line and nothing else:
{MARKER}
3. Then stop: call no other tool, and do not guess what the picture shows.
4. The picture comes with the words \"{ATTACHED}\". Go on with your work then, and only then.
If the tool refuses, or you are told that the picture could not be attached, do not print that \
line: ask for another picture, or go on without one.
"
    )
}

/// The answer of the tool. It contains the marker, but never alone on a line: other words precede
/// it, or Codex's sign of a tool's result. So it is not mistaken for Codex's own message.
#[must_use]
pub fn acknowledgement(path: &PicturePath) -> String {
    let path = one_line(path.as_str(), SHOWN_PATH);
    format!(
        "{path} was requested. Now print exactly {MARKER} and nothing else, then stop and wait; \
         the picture will be attached. Do not guess what it shows."
    )
}

/// The text for the resumed Codex where a picture cannot be attached.
#[must_use]
pub fn not_attached(why: &BadPicture) -> String {
    let path = one_line(why.path.as_str(), SHOWN_PATH);
    format!(
        "The requested image {path} could not be attached: {why}. Ask for another one with {TOOL}, \
         or go on without it."
    )
}

/// The text for the resumed Codex: the attached pictures, the missing ones, and why they are
/// missing.
#[must_use]
pub fn resumed(requested: &RequestedPictures, bad: &[BadPicture]) -> String {
    let is_bad = |path: &&PicturePath| bad.iter().any(|bad| bad.path == **path);
    let good: Vec<&PicturePath> = requested
        .pictures
        .iter()
        .filter(|path| !is_bad(path))
        .collect();
    let mut told = match good.as_slice() {
        [] => Vec::new(),
        [_] => vec![ATTACHED.to_owned()],
        several => vec![format!("{ATTACHED}: {}, in this order.", names(several))],
    };
    if !bad.is_empty() || !requested.left_out.is_empty() {
        // Without further text it has no full stop, as in the specification.
        told.iter_mut()
            .filter(|told| *told == ATTACHED)
            .for_each(|told| told.push('.'));
    }
    told.extend(bad.iter().map(not_attached));
    if !requested.left_out.is_empty() {
        told.push(format!(
            "No more than {MOST_PICTURES} images are attached at once, so these were left out: \
             {}. Ask again for those that you need.",
            left_out(requested)
        ));
    }
    told.join(" ")
}

/// The text for the resumed Codex after too many restarts.
#[must_use]
pub fn over_limit(requested: &RequestedPictures, restarts: usize) -> String {
    format!(
        "Not attached: {}. You were given images {restarts} times in 5 minutes, and that is the \
         limit. Do not ask for more now: go on without, or say what you need to see.",
        all(requested)
    )
}

/// The names of the omitted pictures, within bounds.
#[must_use]
pub fn left_out(requested: &RequestedPictures) -> String {
    let paths: Vec<&PicturePath> = requested.left_out.iter().collect();
    let named = names(&paths);
    match requested.unnamed {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The names of all requested pictures, within bounds.
#[must_use]
pub fn all(requested: &RequestedPictures) -> String {
    let paths: Vec<&PicturePath> = requested.pictures.iter().collect();
    match requested.left_out.is_empty() {
        true => names(&paths),
        false => format!("{}, {}", names(&paths), left_out(requested)),
    }
}

fn names(paths: &[&PicturePath]) -> String {
    let names = paths.iter().map(|path| one_line(path.as_str(), SHOWN_PATH));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::picture::BadPictureReason;

    #[test]
    fn rules_and_answers_for_codex_are_stable() {
        let path: PicturePath = "screens/error.png".parse().unwrap();
        let gone = BadPicture {
            path: path.clone(),
            why: BadPictureReason::Missing {
                directory: "/home/me/parser".to_owned(),
            },
        };
        insta::assert_snapshot!(format!(
            "{}\n{}\n\n{}",
            instructions(),
            acknowledgement(&path),
            not_attached(&gone)
        ));
    }

    #[test]
    fn resume_text_names_attached_and_missing_pictures() {
        let path = |number: u32| format!("{number}.png").parse::<PicturePath>().unwrap();
        let gone = BadPicture {
            path: path(2),
            why: BadPictureReason::Unreadable("it is locked".to_owned()),
        };
        let mut requested = RequestedPictures::one(path(1));
        assert_eq!(resumed(&requested, &[]), ATTACHED);
        let mut told = Vec::new();
        requested.add(path(2));
        told.push(resumed(&requested, &[]));
        told.push(resumed(&requested, std::slice::from_ref(&gone)));
        for number in 3..=9 {
            requested.add(path(number));
        }
        told.push(resumed(&requested, &[]));
        told.push(over_limit(&requested, 5));
        told.push(instructions_for_answers());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn texts_for_codex_are_bounded_and_without_control_characters() {
        let path: PicturePath = format!("{}.png", "x".repeat(4000)).parse().unwrap();
        let because = |why| BadPicture {
            path: path.clone(),
            why,
        };
        let unreadable = because(BadPictureReason::Unreadable("y\n".repeat(4000)));
        let missing = because(BadPictureReason::Missing {
            directory: "z\n".repeat(4000),
        });
        for told in [
            acknowledgement(&path),
            not_attached(&unreadable),
            not_attached(&missing),
        ] {
            assert!(told.len() < 1200, "{}", told.len());
            assert!(!told.chars().any(char::is_control));
        }
    }
}
