//! What Codex is told, and the words that both sides know.
//!
//! Source of the names and of the rules: the specification of Codex Eyes.

use common::text::one_line;

use super::path::{PicturePath, SHOWN_PATH};
use super::picture::BadPicture;
use super::wanted::{MOST_PICTURES, Wanted};

/// What Codex prints when it waits for a picture.
pub const MARKER: &str = "<<WAITING_FOR_IMAGE>>";

/// The tool that asks for one.
pub const TOOL: &str = "request_image";

/// The MCP server that has the tool.
pub const SERVER: &str = "image-request-mcp";

/// Where requests are written, from the directory that Codex works in on.
pub const QUEUE: &str = ".codex-eyes/requests.jsonl";

/// The words that come with the picture.
pub const ATTACHED: &str = "Requested image attached";

/// The rule for a tool that answers with the picture, for Codex's developer instructions.
#[must_use]
pub fn instructions_for_answers() -> String {
    format!(
        "\
You can look at pictures in this repository: call the tool {TOOL} with the path of one from your \
working directory or the root of the repository on, for example {TOOL}({{\"path\": \
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
1. When you need to see a local picture, call the tool {TOOL} with its path from your working \
directory or the root of the repository on, for example {TOOL}({{\"path\": \"./screens/error.png\"}}). It takes .png, \
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

/// What the tool answers. It has the marker in it, so wherever this is drawn there are
/// other words on the same line or Codex's sign of a tool's result before it.
#[must_use]
pub fn acknowledgement(path: &PicturePath) -> String {
    let path = one_line(path.as_str(), SHOWN_PATH);
    format!(
        "{path} was requested. Now print exactly {MARKER} and nothing else, then stop and wait; \
         the picture will be attached. Do not guess what it shows."
    )
}

/// What the resumed Codex is told where there is no picture any more.
#[must_use]
pub fn not_attached(why: &BadPicture) -> String {
    let path = one_line(why.path.as_str(), SHOWN_PATH);
    format!(
        "The requested image {path} could not be attached: {why}. Ask for another one with {TOOL}, \
         or go on without it."
    )
}

/// What the resumed Codex is told: which pictures it has, which of those that it asked for
/// it has not, and why.
#[must_use]
pub fn resumed(wanted: &Wanted, bad: &[BadPicture]) -> String {
    let is_bad = |path: &&PicturePath| bad.iter().any(|bad| bad.path == **path);
    let good: Vec<&PicturePath> = wanted
        .pictures
        .iter()
        .filter(|path| !is_bad(path))
        .collect();
    let mut told = match good.as_slice() {
        [] => Vec::new(),
        [_] => vec![ATTACHED.to_owned()],
        several => vec![format!("{ATTACHED}: {}, in this order.", names(several))],
    };
    if !bad.is_empty() || !wanted.left_out.is_empty() {
        // It stands alone otherwise, as the specification has it.
        told.iter_mut()
            .filter(|told| *told == ATTACHED)
            .for_each(|told| told.push('.'));
    }
    told.extend(bad.iter().map(not_attached));
    if !wanted.left_out.is_empty() {
        told.push(format!(
            "No more than {MOST_PICTURES} images are attached at once, so these were left out: \
             {}. Ask again for those that you need.",
            left_out(wanted)
        ));
    }
    told.join(" ")
}

/// What the resumed Codex is told where it was restarted too often.
#[must_use]
pub fn over_limit(wanted: &Wanted, restarts: usize) -> String {
    format!(
        "Not attached: {}. You were given images {restarts} times in 5 minutes, and that is the \
         limit. Do not ask for more now: go on without, or say what you need to see.",
        all(wanted)
    )
}

/// The pictures that are left out, as many as are named.
#[must_use]
pub fn left_out(wanted: &Wanted) -> String {
    let paths: Vec<&PicturePath> = wanted.left_out.iter().collect();
    let named = names(&paths);
    match wanted.unnamed {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// All that is wanted, as many as are named.
#[must_use]
pub fn all(wanted: &Wanted) -> String {
    let paths: Vec<&PicturePath> = wanted.pictures.iter().collect();
    match wanted.left_out.is_empty() {
        true => names(&paths),
        false => format!("{}, {}", names(&paths), left_out(wanted)),
    }
}

fn names(paths: &[&PicturePath]) -> String {
    let names = paths.iter().map(|path| one_line(path.as_str(), SHOWN_PATH));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::picture::Why;

    #[test]
    fn what_codex_is_told() {
        let path: PicturePath = "screens/error.png".parse().unwrap();
        let gone = BadPicture {
            path: path.clone(),
            why: Why::Missing {
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
    fn resumed_codex_is_told_what_it_has_and_what_it_has_not() {
        let path = |number: u32| format!("{number}.png").parse::<PicturePath>().unwrap();
        let gone = BadPicture {
            path: path(2),
            why: Why::Unreadable("it is locked".to_owned()),
        };
        let mut wanted = Wanted::one(path(1));
        assert_eq!(resumed(&wanted, &[]), ATTACHED);
        let mut told = Vec::new();
        wanted.add(path(2));
        told.push(resumed(&wanted, &[]));
        told.push(resumed(&wanted, std::slice::from_ref(&gone)));
        for number in 3..=9 {
            wanted.add(path(number));
        }
        told.push(resumed(&wanted, &[]));
        told.push(over_limit(&wanted, 5));
        told.push(instructions_for_answers());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn what_codex_is_told_is_bounded_and_without_control_characters() {
        let path: PicturePath = format!("{}.png", "x".repeat(4000)).parse().unwrap();
        let because = |why| BadPicture {
            path: path.clone(),
            why,
        };
        let unreadable = because(Why::Unreadable("y\n".repeat(4000)));
        let missing = because(Why::Missing {
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
