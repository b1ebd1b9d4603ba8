//! The instructions of the server for its client, which describe the tools that are served.

use crate::tool_sets::{Api, Group, Groups};

const CLASSIC: &str = "`codex` begins a thread with a prompt and waits for the final message; \
`codex-reply` continues a thread, even one from before a restart. If a call returns early, \
continue it with `codex_check`.";

const SESSIONS: &str = "Agents work while you do something else: `codex` starts one, `codex_check` \
polls it and answers its questions, `codex_reply` gives it more to do, `codex_session` lists, \
interrupts, forks and waits.";

const JOBS: &str = "`call_codex` hands over a task that continues after this client exits, and \
`call_status` reports its result.";

const RUNS: &str = "`codex_run` has Codex work until the commits, files or other results that you \
ask for exist.";

pub(super) fn instructions(api: Api, groups: &Groups) -> String {
    let of_sessions = match api {
        Api::Classic => CLASSIC,
        Api::Sessions => SESSIONS,
    };
    let parts = [
        (Group::Sessions, of_sessions),
        (Group::Jobs, JOBS),
        (Group::Runs, RUNS),
    ];
    let served = parts.into_iter().filter(|(group, _)| groups.has(*group));
    served.fold(
        "Delegates coding tasks to the OpenAI Codex CLI.".to_owned(),
        |text, (_, part)| format!("{text} {part}"),
    )
}
