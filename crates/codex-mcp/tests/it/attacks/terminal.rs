//! Escape sequences of a repository, a model or a database that reach the terminal (M3).
//!
//! Each verb runs in a home whose foreign texts are full of escape sequences: on a terminal and in
//! a pipe, as text and as JSON.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use agent_team::logic::registry::{Change, Entry};
use agent_team::registry::{Mode, Registry};
use agent_team::summary::Summaries;
use common::text::is_hidden;
use common::timestamp::timestamp;
use job_queue::logic::Ending;
use job_queue::store::{
    FinishedJob, JobStore, NewEvent, NewJob, NewQuestion, Request, WriteOutcome, new_worker_id,
};
use job_queue::worker::lock::{LockGuard, WorkerLock};
use scripted_model::{Reply, Script, ScriptedModel, Shell};
use serde_json::{Value, json};
use settings::store_access::Access;
use settings::store_location::Location;
use testkit::Home;

use crate::terminal::Terminal;

/// Clears the screen, sets the title, writes to the clipboard, hides text, rings, and reverses the
/// direction of text; also with C1 controls.
const HOSTILE: &str = "evil\u{1b}[2J\u{1b}]0;t\u{7}\u{1b}]52;c;eA==\u{1b}\\\u{1b}[8m\u{9b}31m\
                       \u{9d}0;t\u{9c}\u{8}\u{7f}\u{202e}\u{2066}\u{200b}\u{2028}end";

/// The part of `HOSTILE` that the name of a ref may have: no ASCII control characters.
const HOSTILE_REF: &str = "evil\u{9b}31m\u{9d}0;t\u{9c}\u{202e}\u{200b}end";

const SESSION: &str = "01a200a4-af16-7971-bdb2-fa12438e61e4";

/// Longer than any test takes.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// Verbs that print no text for a person, each with the reason.
const NO_TEXT: [(&str, &str); 9] = [
    (
        "serve",
        "stdout is the MCP protocol; the log is looked at with `worker`",
    ),
    ("eyes-mcp", "stdout is the MCP protocol"),
    (
        "host run",
        "stdout is one word; the log is looked at with `worker`",
    ),
    (
        "host status",
        "prints what a host says of itself: numbers and a version",
    ),
    (
        "top",
        "draws on a terminal until somebody quits; `real::top` looks at what it draws",
    ),
    ("host stop", "prints a number"),
    ("host restart", "prints a number"),
    ("team-tools", "stdout is the MCP protocol"),
    (
        "guard",
        "passes a program's streams on; whoever started it prints them",
    ),
];

/// A home in which all foreign texts are hostile.
struct HostileHome {
    home: Home,
    model: ScriptedModel,
    /// A completed job, a failed, a queued, and one with an open question.
    jobs: Vec<String>,
    _worker: LockGuard,
}

impl HostileHome {
    async fn new() -> Self {
        let command = format!("printf x > \"$(printf '%b' '{}')\"", octal(HOSTILE));
        let script = Script::new().otherwise([
            Reply::shell(Shell::escalated(format!("true {HOSTILE}"), HOSTILE)),
            Reply::shell(command),
            Reply::say(HOSTILE),
        ]);
        let model = ScriptedModel::start(script).await.unwrap();
        let quoted = toml_quoted(HOSTILE);
        let home = Home::new(&format!(
            "{}\nfeatures.plugins = false\nservice_tier = {quoted}\n",
            model.codex_config()
        ));
        settings(&home);
        client(&home);
        repository(&home);
        threads(&home);
        let location = Location::Sqlite(home.state_home().join("codex-mcp/jobs.db"));
        let place = WorkerLock::of(&location, &home.state_home().join("codex-mcp"));
        let worker = place.take().await.unwrap().unwrap();
        let jobs = jobs(&home, &location).await;
        Self {
            home,
            model,
            jobs,
            _worker: worker,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        let codex = testkit::codex::native_binary(testkit::codex::newest());
        command
            .args(args)
            .env("CODEX_MCP_CODEX_BIN", codex)
            .env("CODEX_MCP_LOG", "debug")
            .stdin(Stdio::null());
        command
    }
}

/// Encodes each byte for printf's `%b`.
fn octal(text: &str) -> String {
    text.bytes().map(|byte| format!("\\0{byte:03o}")).collect()
}

/// A TOML string. ASCII control characters must be escaped in TOML, others need not be.
fn toml_quoted(text: &str) -> String {
    let escaped = |one: char| match one {
        '\\' | '"' => format!("\\{one}"),
        one if one.is_ascii_control() => format!("\\u{:04x}", u32::from(one)),
        one => one.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn settings(home: &Home) {
    let quoted = toml_quoted(HOSTILE);
    let file = format!(
        "[plugins.codex-mcp]\nmodel = {quoted}\n{quoted} = 1\n[{quoted}]\nx = 1\n\
         [plugins.codex-mcp.roles.r]\nmodel = {quoted}\n{quoted} = {quoted}\n"
    );
    fs::write(home.work().join(".atm.toml"), &file).unwrap();
    let user = home.atm_home().join(".config/atm");
    fs::create_dir_all(&user).unwrap();
    let file = format!("[plugins.codex-mcp]\n{quoted} = 1\n");
    fs::write(user.join("config.toml"), file).unwrap();
}

/// The configuration of a client that names our server, with hostile texts.
fn client(home: &Home) {
    let server = json!({ "command": "codex-mcp", "args": ["serve", HOSTILE], HOSTILE: 1 });
    let file = json!({ HOSTILE: 1, "mcpServers": { HOSTILE: server } });
    let directory = home.home().join(".cursor");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("mcp.json"), format!("{file:#}")).unwrap();
}

fn repository(home: &Home) {
    let work = home.work();
    let file = HOSTILE.replace('/', "");
    fs::write(work.join(&file), "x").unwrap();
    let git = |args: &[&str]| {
        let git = Command::new("git")
            .args(["-c", "user.name=evil\u{9b}31m", "-c", "user.email=e@x"])
            .args(args)
            .env_clear()
            .envs(home.env())
            .current_dir(&work)
            .output()
            .unwrap();
        assert!(git.status.success(), "{git:?}");
    };
    git(&["checkout", "-q", "-b", HOSTILE_REF]);
    git(&["add", &file]);
    git(&["commit", "-q", "-m", HOSTILE]);
}

fn threads(home: &Home) {
    let at = timestamp(SystemTime::now() - Duration::from_secs(10 * 24 * 3600));
    let identity = "codex".parse().unwrap();
    let entry: Entry = serde_json::from_value(json!({
        "thread_id": SESSION, "identity": "codex", "status": HOSTILE, "repo_name": HOSTILE,
        "branch": HOSTILE, "repo_path": HOSTILE, "tag": HOSTILE,
        "started_at": at, "last_active": at, "turns": 3,
    }))
    .unwrap();
    let mut registry = Registry::open(&home.atm_home(), &identity, Mode::Document).unwrap();
    let entry = Box::new(entry);
    registry.apply(&Change::Begin { entry }).unwrap();
    let summaries = Summaries::of(&home.atm_home(), &identity);
    summaries.write(&SESSION.parse().unwrap(), HOSTILE).unwrap();
}

fn access(home: &Home) -> Access {
    Access::of(home.state_home().join("codex-mcp"))
}

/// Submits the jobs; returns their IDs: completed, failed, queued, with an open question.
async fn jobs(home: &Home, location: &Location) -> Vec<String> {
    let access = access(home);
    let store = JobStore::open(location, &access).await.unwrap();
    let request = || Request {
        task_name: HOSTILE.to_owned(),
        agent_source: Some(HOSTILE.to_owned()),
        ..Request::new(HOSTILE, home.work().to_str().unwrap())
    };
    let mut ids = Vec::new();
    for ending in [Ending::Completed, Ending::Failed] {
        let job = NewJob::new(request());
        ids.push(store.submit(&job).await.unwrap().to_string());
        let claimed = store
            .claim(&new_worker_id(), HOSTILE, LONG_LEASE)
            .await
            .unwrap();
        let claim = claimed.unwrap().claim;
        let item = |kind: &str, item: Value| json!({"type": kind, "item": item});
        let command = json!({"id": "1", "type": "command_execution", "command": HOSTILE,
            "aggregated_output": HOSTILE, "exit_code": 1, "status": "failed"});
        let message = json!({"id": "2", "type": "agent_message", "text": HOSTILE});
        let events = [
            item("item.completed", command),
            item("item.completed", message),
        ];
        let event = |event: &Value| NewEvent {
            kind: HOSTILE.to_owned(),
            data: event.to_string(),
        };
        let events: Vec<NewEvent> = events.iter().map(event).collect();
        store.append(&claim, &events).await.unwrap();
        let report = json!({
            "response": HOSTILE, "usage": {}, "evidence": {"commands": 1},
            "commands": [{"command": HOSTILE, "exit_code": 3, "status": "failed", "output": HOSTILE}],
            "changed_files": [{"path": HOSTILE, "kind": "added", "seen_by": "git"}],
            "warnings": [HOSTILE], "stderr": HOSTILE, "stdout": HOSTILE,
        });
        let how = FinishedJob {
            ending,
            error: (ending == Ending::Failed).then(|| HOSTILE.to_owned()),
            session_id: Some(SESSION.to_owned()),
            exchange_id: None,
            result: Some(report),
        };
        assert_eq!(
            store.finish(&claim, &how).await.unwrap(),
            WriteOutcome::Done
        );
    }
    let asking = submit_asking_job(&store, request()).await;
    ids.push(
        store
            .submit(&NewJob::new(request()))
            .await
            .unwrap()
            .to_string(),
    );
    ids.push(asking);
    ids
}

/// Submits a running job with an open question, signed with the key of this machine.
async fn submit_asking_job(store: &JobStore, request: Request) -> String {
    let job = NewJob::new(request);
    store.submit(&job).await.unwrap();
    let worker = new_worker_id();
    let claimed = store
        .claim(&worker, HOSTILE, LONG_LEASE)
        .await
        .unwrap()
        .unwrap();
    // The mark of a text that is shortened, so that the details are printed.
    let text = format!("{HOSTILE}\n… 9 more lines left out …");
    let change = json!({ "path": HOSTILE, "kind": { "type": HOSTILE, "move_path": HOSTILE },
        "diff": HOSTILE });
    let question = json!({
        "kind": "command", "text": text, "decisions": ["decline"], "fields": [HOSTILE],
        "expires_at": HOSTILE, "details": { "command": HOSTILE, "changes": [change] },
        "shortened": [{ "label": HOSTILE, "text": HOSTILE }],
    });
    let question = NewQuestion {
        id: HOSTILE.to_owned(),
        question: question.to_string(),
    };
    store
        .set_questions(&claimed.claim, &[question])
        .await
        .unwrap();
    job.id.to_string()
}

/// A verb with arguments, and the kind of its output.
struct Case<'a> {
    verb: &'static str,
    args: Vec<&'a str>,
    expected: ExpectedText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedText {
    /// The output contains parts of [`HOSTILE`], made visible.
    Hostile,
    /// The output contains no foreign text.
    Own,
    /// The output is the model's answer: byte for byte in a pipe.
    Answer,
}

fn case<'a>(verb: &'static str, args: &[&'a str], expected: ExpectedText) -> Case<'a> {
    Case {
        verb,
        args: args.to_vec(),
        expected,
    }
}

fn cases(jobs: &[String]) -> Vec<Case<'_>> {
    use ExpectedText::{Answer, Hostile, Own};
    let [done, failed, queued, asking] = [&*jobs[0], &*jobs[1], &*jobs[2], &*jobs[3]];
    let run = [
        "--sandbox",
        "workspace-write",
        "--max-turns",
        "1",
        "--approve",
        "never",
    ];
    let run =
        |more: &[&'static str]| [&["x", "--until", "files=README.md"], &run[..], more].concat();
    vec![
        case("config", &[], Hostile),
        case("config", &["--json"], Hostile),
        case("doctor", &[], Own),
        case("doctor", &["--json"], Own),
        case("doctor", &["--codex-bin", HOSTILE_ARGUMENT], Hostile),
        case("threads", &[], Hostile),
        case("threads", &["--json"], Hostile),
        case("summary", &[SESSION], Hostile),
        case("trust", &["--list"], Own),
        case("trust", &["--list", "--json"], Own),
        case("trust", &["--revoke", HOSTILE_ARGUMENT], Hostile),
        case("setup", &["cursor", "--dry-run"], Hostile),
        case("setup", &["cursor", "--dry-run", "--json"], Hostile),
        case("setup", &["cursor", "--yes"], Hostile),
        case("setup", &["cursor", "--remove", "--dry-run"], Hostile),
        case("demo", &["--codex-bin", HOSTILE_ARGUMENT], Hostile),
        case("run", &run(&[]), Hostile),
        case("run", &run(&["--json"]), Hostile),
        case("run", &["--detach", "--name", HOSTILE_ARGUMENT, "x"], Own),
        case("run", &["--detach", "--json", HOSTILE_ARGUMENT], Own),
        case("review", &[], Answer),
        case("review", &["--json"], Hostile),
        case("review", &["--base", HOSTILE_ARGUMENT], Hostile),
        case("ps", &[], Hostile),
        case("ps", &["--json"], Hostile),
        case("logs", &[done], Hostile),
        case("logs", &[HOSTILE_SESSION], Hostile),
        case("approve", &[asking, HOSTILE_ARGUMENT], Hostile),
        case("decline", &[HOSTILE_SESSION], Hostile),
        case("steer", &[HOSTILE_SESSION, HOSTILE_ARGUMENT], Hostile),
        case("cancel", &[HOSTILE_SESSION], Hostile),
        case("attach", &[HOSTILE_SESSION], Hostile),
        case("web link", &[], Own),
        case("web token", &[HOSTILE_ARGUMENT], Hostile),
        case("web tokens", &[], Own),
        case("web tokens", &["--json"], Own),
        case("web revoke", &[HOSTILE_ARGUMENT], Hostile),
        case("jobs list", &[], Hostile),
        case("jobs list", &["--json"], Hostile),
        case("jobs show", &[done], Hostile),
        case("jobs show", &[failed, "--full"], Hostile),
        case("jobs show", &[failed, "--json"], Hostile),
        case("jobs show", &[asking], Hostile),
        case("jobs show", &[asking, "--json"], Hostile),
        case("jobs approve", &[asking], Hostile),
        case("jobs approve", &[asking, HOSTILE_ARGUMENT], Hostile),
        case("jobs approve", &[asking, "--rule"], Hostile),
        case("jobs decline", &[asking, HOSTILE_ARGUMENT], Hostile),
        case("jobs steer", &[done, HOSTILE_ARGUMENT], Own),
        case("jobs logs", &[done], Hostile),
        case("jobs logs", &[done, "--json"], Hostile),
        case("jobs wait", &[done], Answer),
        case("jobs wait", &[done, "--json"], Hostile),
        case("jobs wait", &[failed], Hostile),
        case("jobs cancel", &[done], Own),
        case("jobs cancel", &[queued], Own),
        case("jobs retry", &[failed], Own),
        case("jobs resume", &[done, HOSTILE_ARGUMENT], Own),
        case(
            "jobs submit",
            &["--name", HOSTILE_ARGUMENT, HOSTILE_ARGUMENT],
            Own,
        ),
        case(
            "jobs submit",
            &["--json", "--cwd", HOSTILE_ARGUMENT, "x"],
            Hostile,
        ),
        case("jobs prune", &["--older-than", "0s", "--dry-run"], Own),
        case("jobs schema", &["--role", HOSTILE_ARGUMENT], Hostile),
        case(
            "worker",
            &["--idle", "1s", "--store", "evil\u{1b}[2J\u{9b}end/jobs.db"],
            Hostile,
        ),
        case("eyes", &["--print-contract"], Own),
        case("completions", &["bash"], Own),
        case("man", &[HOSTILE_ARGUMENT], Hostile),
    ]
}

/// An argument as a script might pass it on.
const HOSTILE_ARGUMENT: &str = "/evil\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\u{202e}end";

const HOSTILE_SESSION: &str = "sess_evil\u{1b}[2J\u{9b}end";

/// All verbs, with subverbs such as `jobs list`.
fn leaves(command: &clap::Command, before: &str) -> Vec<String> {
    let verbs: Vec<&clap::Command> = command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
        .collect();
    match verbs.is_empty() {
        true => vec![before.to_owned()],
        false => verbs
            .iter()
            .flat_map(|verb| leaves(verb, format!("{before} {}", verb.get_name()).trim()))
            .collect(),
    }
}

/// The first character that a terminal would act on, with its surroundings. Our own sequences do
/// not count.
fn hidden(text: &str) -> Option<String> {
    // A terminal's own line ends, our styles, and the drawing of one line.
    let mut rest = text.replace("\r\n", "\n");
    for own in ["\r\u{1b}[K", "\u{1b}[?7l", "\u{1b}[?7h"] {
        rest = rest.replace(own, "");
    }
    for style in ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"] {
        rest = rest.replace(&format!("\u{1b}[{style}m"), "");
    }
    let allowed = |one| matches!(one, '\n' | '\t');
    let (at, character) = rest
        .char_indices()
        .find(|(_, one)| is_hidden(*one) && !allowed(*one))?;
    let from = rest.floor_char_boundary(at.saturating_sub(200));
    let to = rest.ceil_char_boundary((at + 100).min(rest.len()));
    Some(format!("{character:?} in {:?}", &rest[from..to]))
}

/// Whether the text contains a control character made visible.
fn shows_hostile(text: &str) -> bool {
    ["\\u{9b}", "\\u009b", "\\u{1b}", "\\u001b", "\\x1b"]
        .iter()
        .any(|shown| text.contains(shown))
}

/// The fault in a verb's output in pipes, if any.
fn piped_fault(case: &Case<'_>, output: &Output) -> Option<String> {
    let stdout = str::from_utf8(&output.stdout).unwrap();
    let stderr = str::from_utf8(&output.stderr).unwrap();
    let is_json = case.args.contains(&"--json");
    let as_answered = format!("{HOSTILE}\n");
    let ours = match (case.expected, case.verb, is_json) {
        (ExpectedText::Answer, ..) if stdout == as_answered => "",
        (ExpectedText::Answer, ..) => return Some(format!("no answer: {stdout:?} {stderr}")),
        // The report contains the answer.
        (_, "run", false) => &stdout.replacen(&as_answered, "", 1),
        _ => stdout,
    };
    if stderr.contains("panicked") || stderr.contains('\u{1b}') || ours.contains('\u{1b}') {
        return Some(format!("{stdout:?} {stderr:?}"));
    }
    let json = match case.verb {
        "jobs logs" => stdout.lines().collect(),
        _ => vec![stdout],
    };
    let unread = |text: &&str| serde_json::from_str::<Value>(text).is_err();
    if let (true, Some(text)) = (is_json && !stdout.is_empty(), json.into_iter().find(unread)) {
        return Some(format!("no JSON: {text}"));
    }
    if case.expected == ExpectedText::Hostile && !shows_hostile(&format!("{stdout}{stderr}")) {
        return Some(format!("nothing hostile: {stdout} {stderr}"));
    }
    hidden(ours).or_else(|| hidden(stderr))
}

#[tokio::test]
async fn verbs_print_no_foreign_escape_sequences() {
    let hostile = HostileHome::new().await;
    let cases = cases(&hostile.jobs);
    let covered: BTreeSet<String> = cases
        .iter()
        .map(|case| case.verb.to_owned())
        .chain(NO_TEXT.map(|(verb, _)| verb.to_owned()))
        .collect();
    let verbs = leaves(&codex_mcp::cli::command_tree(), "");
    let verbs: BTreeSet<String> = verbs.into_iter().collect();
    assert_eq!(covered, verbs, "each is covered, or listed with a reason");

    let mut faults = Vec::new();
    for case in &cases {
        let verb: Vec<&str> = case.verb.split(' ').collect();
        let args = [&verb[..], &case.args[..]].concat();
        // The command must not block the thread, on which the model answers.
        let mut piped = tokio::process::Command::from(hostile.command(&args));
        let output = piped.output().await.unwrap();
        if let Some(fault) = piped_fault(case, &output) {
            faults.push(format!("{args:?} piped: {fault}"));
        }
        let (seen, _) = Terminal::runs(hostile.command(&args)).ends().await;
        if let Some(fault) = hidden(&seen) {
            faults.push(format!("{args:?} on a terminal: {fault}"));
        }
        if case.expected != ExpectedText::Own && !shows_hostile(&seen) {
            faults.push(format!("{args:?} on a terminal: nothing hostile: {seen}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(!hostile.model.requests().is_empty());
}

/// A name that a stranger has chosen must not look like the next entry.
#[tokio::test]
async fn broken_line_of_trust_does_not_look_like_two_entries() {
    let home = Home::new("");
    let file = home.work().join(".codex/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let forged = format!("/{}/hooks.json:", "x".repeat(40));
    let servers = format!("[mcp_servers.a]\n[mcp_servers.\"b {forged} none\"]\n");
    fs::write(&file, servers).unwrap();
    let mut command = home.command(env!("CARGO_BIN_EXE_codex-mcp"));
    command.args(["trust", "--show"]);
    let (seen, _) = Terminal::with_columns(72, command).ends().await;
    let mut lines = seen.lines();
    assert!(
        lines.any(|line| line.trim_start().starts_with(&forged)),
        "{seen}"
    );
    let entries = seen.lines().filter(|line| line.starts_with("  /"));
    assert_eq!(entries.count(), 1, "{seen}");
}

/// The control: the sequences are in the inputs, and reach a terminal through other programs.
#[tokio::test]
async fn input_of_the_verbs_contains_escape_sequences() {
    let hostile = HostileHome::new().await;
    let home = &hostile.home;
    let shown = |program: &str, args: &[&str]| {
        let mut command = home.command(program);
        command.args(args).stdin(Stdio::null());
        Terminal::runs(command).ends()
    };
    let (settings, _) = shown("cat", &[".atm.toml"]).await;
    assert!(
        settings.contains('\u{9b}') && settings.contains('\u{202e}'),
        "{settings:?}"
    );
    let (commit, _) = shown("git", &["--no-pager", "log", "-1", "--format=%B %D"]).await;
    assert!(
        commit.contains("\u{1b}]0;t\u{7}") && commit.contains('\u{9d}'),
        "{commit:?}"
    );
    let (names, _) = shown("find", &[".", "-maxdepth", "1", "-printf", "%p\\n"]).await;
    let names_raw: Vec<_> = fs::read_dir(home.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names_raw.iter().any(|name| name.contains('\u{1b}')),
        "{names} {names_raw:?}"
    );
    let summary = home.atm_home().join(".config/atm/codex-sessions/codex");
    assert!(
        any_file_has(&summary, HOSTILE.as_bytes()),
        "{}",
        summary.display()
    );
    let location = Location::Sqlite(home.state_home().join("codex-mcp/jobs.db"));
    let store = JobStore::open(&location, &access(home)).await.unwrap();
    let job = store
        .get(&hostile.jobs[1].parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(job.request.prompt, HOSTILE);
    assert_eq!(job.summary.error.as_deref(), Some(HOSTILE));
}

fn any_file_has(directory: &std::path::Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => any_file_has(&path, bytes),
            false => {
                let content = fs::read(&path).unwrap_or_default();
                content.windows(bytes.len()).any(|part| part == bytes)
            }
        }
    })
}
