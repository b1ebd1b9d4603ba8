//! What the stand-in for the model says and does.

use scripted_model::{Reply, Request, Script, Shell};

/// The file that Codex creates, in the repository.
pub(super) const FILE: &str = "hello.txt";

/// What the file then holds.
pub(super) const CONTENT: &str = "Hello from Codex.\n";

/// The first prompt.
pub(super) const TASK: &str = "Create hello.txt with one line in it: Hello from Codex.";

/// The second prompt, in the same thread.
pub(super) const FOLLOW_UP: &str = "What did I ask you for before, and how did it go?";

/// It shows what it writes, so that the model's last words can be checked ones.
const COMMAND: &str = "echo Hello from Codex. | tee hello.txt";

const REASON: &str = "May I write hello.txt? The sandbox is read-only.";

/// The whole script. What is said at the end of a turn is made from what Codex
/// sends, so that it is true.
pub(super) fn script() -> Script {
    Script::new()
        .on(
            TASK,
            [
                Reply::shell(Shell::escalated(COMMAND, REASON)),
                Reply::with(|request| Reply::say(report(request))),
            ],
        )
        .on(
            FOLLOW_UP,
            [Reply::with(|request| Reply::say(recollection(request)))],
        )
}

fn report(request: &Request) -> String {
    let outputs = request.tool_outputs();
    match outputs.last() {
        Some(output) if output.text.contains(CONTENT.trim()) => {
            format!("Done. {FILE} now says: {}", CONTENT.trim())
        }
        Some(output) => format!("The command did not work. {}", output.text),
        None => "The command was not run.".to_owned(),
    }
}

/// Quotes the turn before from the conversation that came with the request.
fn recollection(request: &Request) -> String {
    let prompts = request.user_messages();
    let asked = prompts.iter().find(|prompt| prompt.contains(FILE));
    let answers = request.assistant_messages();
    match (asked, answers.last()) {
        (Some(asked), Some(answered)) => {
            let commands = match request.tool_outputs().len() {
                1 => "one command".to_owned(),
                count => format!("{count} commands"),
            };
            format!("You asked: \"{asked}\" I ran {commands} and answered: \"{answered}\"")
        }
        _ => "I know of no earlier turn.".to_owned(),
    }
}

/// Whether an answer shows that the turn before was known.
pub(super) fn remembers(answer: &str) -> bool {
    answer.contains(TASK)
}
