//! Delivery to the desktop, with the system's own program for notifications. No shell reads the
//! line.

use std::path::Path;

use serde_json::Value;
use supervise::spawn::Program;

use super::NotifierContext;
use super::command::{self, CommandError};
use crate::logic::headline::Headline;

/// The program that notifies.
pub(super) const PROGRAM: &str = match cfg!(target_os = "macos") {
    true => "osascript",
    false => "notify-send",
};

/// The package that has the program.
pub(super) const PACKAGE: &str = match cfg!(target_os = "macos") {
    true => "macOS again, which it is a part of",
    false => {
        "libnotify-bin (Debian, Ubuntu), libnotify (Fedora, Arch) or libnotify-tools (openSUSE)"
    }
};

/// The script of `osascript`, in lines. The texts are its arguments.
const SCRIPT: [&str; 3] = [
    "on run texts",
    "display notification (item 2 of texts) with title (item 1 of texts)",
    "end run",
];

pub(super) async fn send(line: &str, context: &NotifierContext) -> Result<(), CommandError> {
    let arguments = match cfg!(target_os = "macos") {
        true => of_osascript(line),
        false => of_notify_send(line),
    };
    let program = Program::new(Path::new(PROGRAM), arguments);
    command::deliver(program, &Value::Null, context).await
}

/// Source: notify-send(1) of libnotify 0.8.
fn of_notify_send(line: &str) -> Vec<String> {
    let title = Headline::of(line).title.to_owned();
    let options = ["--app-name=codex-mcp", "--"].map(str::to_owned);
    options.into_iter().chain([title, escaped(line)]).collect()
}

/// Source: osascript(1). A title begins with a letter, so neither text is taken for an option.
fn of_osascript(line: &str) -> Vec<String> {
    let title = Headline::of(line).title;
    let script = SCRIPT.iter().flat_map(|line| ["-e", line]);
    let arguments = script.chain([title, line]);
    arguments.map(str::to_owned).collect()
}

/// The line as the body for `notify-send`. Many servers take it for markup; `notify-send` itself
/// decodes the escapes of C.
fn escaped(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' => escaped.push_str(r"\\"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_one_argument_and_no_markup() {
        let line = r#"-APPROVAL <a href="x">&lt; \u{1b} $(touch x)"#;
        assert_eq!(
            of_notify_send(line),
            [
                "--app-name=codex-mcp",
                "--",
                "A turn of Codex has ended",
                r#"-APPROVAL &lt;a href="x"&gt;&amp;lt; \\u{1b} $(touch x)"#,
            ]
        );
    }

    #[test]
    fn script_of_macos_holds_no_text() {
        let line = r#"APPROVAL :: " & (do shell script "touch x") & ""#;
        let arguments = of_osascript(line);
        assert_eq!(arguments.len(), 2 * SCRIPT.len() + 2);
        let (texts, script): (Vec<&String>, Vec<&String>) = arguments
            .iter()
            .partition(|argument| argument.contains("touch"));
        assert_eq!(texts, [line]);
        assert!(
            script
                .iter()
                .any(|argument| *argument == "Codex waits for an answer")
        );
    }
}
