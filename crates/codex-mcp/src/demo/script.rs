//! The script of the model.

use scripted_model::{Reply, Request, Script, Shell};

/// The file that Codex creates on a call, and what it then holds.
pub(super) const FILE: &str = "hello.txt";
pub(super) const CONTENT: &str = "Hello from Codex.\n";

/// The file that Codex creates in a run, and what it then holds.
pub(super) const SECOND_FILE: &str = "bonjour.txt";
pub(super) const SECOND_CONTENT: &str = "Bonjour de Codex.\n";

/// The prompt of the call.
pub(super) const CALL: &str = "Create hello.txt with one line in it: Hello from Codex.";

/// The prompt of the call in the same thread.
pub(super) const FOLLOW_UP: &str = "What did I ask you for before, and how did it go?";

/// The task of the run.
pub(super) const TASK: &str = "Put hello.txt into French as bonjour.txt; commit both.";

/// The command prints the text that it writes, so that the model's final message reports a
/// checked fact.
const WRITE: &str = "echo Hello from Codex. | tee hello.txt";

const WRITE_REASON: &str = "May I write hello.txt? The sandbox is read-only.";

/// The model's first answer to the task: a promise without work.
const PROMISE: &str =
    "Understood. I will translate the greeting and commit both files when it is ready.";

const SUBJECT: &str = "Say hello in French";

/// git prints the subject of the commit.
const COMMIT: &str = "echo Bonjour de Codex. > bonjour.txt && \
                      git add hello.txt bonjour.txt && \
                      git commit --message 'Say hello in French'";

const COMMIT_REASON: &str = "The sandbox of this machine does not let me commit. May I without it?";

/// The whole script. The final message of each turn is built from Codex's requests, so that it is
/// true.
pub(super) fn script() -> Script {
    Script::new()
        .on(
            CALL,
            [
                Reply::shell(Shell::escalated(WRITE, WRITE_REASON)),
                Reply::with(|request| Reply::say(report(request))),
            ],
        )
        .on(
            FOLLOW_UP,
            [Reply::with(|request| Reply::say(recollection(request)))],
        )
        .when(
            |request| is_about_the_task(request) && request.assistant_messages().is_empty(),
            [Reply::say(PROMISE)],
        )
        .when(
            is_about_the_task,
            [
                Reply::shell(COMMIT),
                Reply::with(|request| match has_committed(request) {
                    true => Reply::say(committed()),
                    // On some machines Codex cannot set up its sandbox.
                    false => Reply::shell(Shell::escalated(COMMIT, COMMIT_REASON)),
                }),
                Reply::with(|request| match has_committed(request) {
                    true => Reply::say(committed()),
                    false => Reply::say(failed(request)),
                }),
            ],
        )
}

/// Each prompt of a run contains the task.
fn is_about_the_task(request: &Request) -> bool {
    request.prompt().contains(TASK)
}

fn report(request: &Request) -> String {
    let outputs = request.tool_outputs();
    match outputs.last() {
        Some(output) if output.text.contains(CONTENT.trim()) => {
            format!("Done. {FILE} now says: {}", CONTENT.trim())
        }
        _ => failed(request),
    }
}

/// Quotes the previous turn from the conversation in the request.
fn recollection(request: &Request) -> String {
    let prompts = request.user_messages();
    let asked = prompts.iter().find(|prompt| prompt.contains(FILE));
    let answers = request.assistant_messages();
    match (asked, answers.last()) {
        (Some(asked), Some(answered)) => {
            format!("You asked: \"{asked}\" I answered: \"{answered}\"")
        }
        _ => "I know of no earlier turn.".to_owned(),
    }
}

/// Whether an answer quotes the previous turn.
pub(super) fn remembers(answer: &str) -> bool {
    answer.contains(CALL)
}

fn has_committed(request: &Request) -> bool {
    let outputs = request.tool_outputs();
    outputs
        .last()
        .is_some_and(|output| output.text.contains(SUBJECT))
}

fn committed() -> String {
    format!("Done. I translated the greeting, and committed {FILE} and {SECOND_FILE}.")
}

fn failed(request: &Request) -> String {
    match request.tool_outputs().last() {
        Some(output) => format!("The command did not work. {}", output.text),
        None => "The command was not run.".to_owned(),
    }
}
