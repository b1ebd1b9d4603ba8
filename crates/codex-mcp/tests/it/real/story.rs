//! The story of a user: everything that matters, one step after the other. `cargo xtask matrix` goes
//! through it with all releases of Codex, and writes the table in docs/codex-releases.md.

use std::fs::File;
use std::io::Write;

use scripted_model::{Gate, Reply, Request, Script, Shell};
use serde_json::{Value, json};

use super::pictures::request_picture;
use super::sessions::Poller;
use super::team::{inbox, make_team, send_mail};
use super::{CodexFixture, on_each_release};

on_each_release!(user_goes_through_the_whole_story);

/// The steps, in their order.
const STEPS: [&str; 15] = [
    "start",
    "watch",
    "approve",
    "decline",
    "ask",
    "steer",
    "interrupt",
    "reply",
    "fork",
    "cancel",
    "resume",
    "picture",
    "mail",
    "job",
    "run",
];

/// The variable with the file that gets the steps: one line with all, and one for each that is done.
const VARIABLE: &str = "CODEX_MCP_TEST_STEPS";

/// The steps that have been done.
struct Steps {
    next: usize,
    file: Option<File>,
}

impl Steps {
    fn new() -> Self {
        let mut file = std::env::var_os(VARIABLE).map(|path| File::create(path).unwrap());
        if let Some(file) = &mut file {
            writeln!(file, "{}", STEPS.join(" ")).unwrap();
        }
        Self { next: 0, file }
    }

    fn done(&mut self, step: &str) {
        self.end(step, "done");
    }

    /// The release cannot do it.
    fn absent(&mut self, step: &str) {
        self.end(step, "absent");
    }

    fn end(&mut self, step: &str, how: &str) {
        assert_eq!(STEPS.get(self.next), Some(&step), "the order of the steps");
        self.next += 1;
        if let Some(file) = &mut self.file {
            writeln!(file, "{step} {how}").unwrap();
        }
    }
}

/// A model that runs two commands, asks a question, and later takes long.
fn script(long: &Gate, longer: &Gate) -> Script {
    let touch = |file: &str| Reply::shell(Shell::escalated(format!("touch {file}"), "needed"));
    let questions = json!({"questions": [{"id": "colour", "header": "Colour",
        "question": "Which one?", "options": [
            {"label": "red", "description": "like a rose"},
            {"label": "blue", "description": "like the sky"}]}]});
    let answer = |request: &Request| {
        let output = request
            .tool_outputs()
            .last()
            .map(|output| output.text.clone());
        output.unwrap_or_default()
    };
    let with_answer = |what: &'static str| {
        Reply::with(move |request| Reply::say(format!("{what}: {}", answer(request))))
    };
    Script::new()
        .on(
            "begin",
            [
                touch("one.txt"),
                touch("two.txt"),
                Reply::call("request_user_input", questions),
                with_answer("chosen"),
            ],
        )
        .on("take your time", [Reply::say("so far").behind(long)])
        .on("steered", [Reply::say("as you like").behind(longer)])
        .on(
            "go on",
            [Reply::with(|request| {
                Reply::say(format!("heard: {}", request.user_messages().join(" | ")))
            })],
        )
        .on(
            "look at it",
            [
                Reply::with(|request| request_picture(request, "screen.png")),
                Reply::say("seen"),
            ],
        )
        .on("tell them", [Reply::with(send_mail), with_answer("told")])
        .on(
            "do the job",
            [Reply::shell("echo x > job.txt"), Reply::say("job done")],
        )
        .on(
            "make the file",
            [Reply::shell("echo x > run.txt"), Reply::say("run done")],
        )
        .otherwise([Reply::say("back")])
}

async fn user_goes_through_the_whole_story(release: &str) {
    let (long, longer) = (Gate::new(), Gate::new());
    let config = "features.default_mode_request_user_input = true";
    let stage = CodexFixture::with_config(release, script(&long, &longer), config).await;
    stage.configure("worker_idle_secs = 1");
    make_team(&stage, &["lead"]);
    let mut steps = Steps::new();
    let mut poller = Poller::new(&stage, &["--identity", "arch", "--team", "builders"]).await;

    let session = poller.start("begin", json!({})).await;
    steps.done("start");
    approve_one_command_and_decline_the_next(&mut steps, &mut poller, &session).await;
    answer_the_question(&mut steps, &mut poller, &session, release).await;
    assert!(stage.file("one.txt").exists());
    assert!(!stage.file("two.txt").exists());
    steer_and_interrupt(&mut steps, &mut poller, &session, &long, &longer).await;
    reply(&mut poller, &session).await;
    steps.done("reply");
    let forked = fork(&mut poller, &session).await;
    steps.done("fork");
    cancel(&mut poller, &session).await;
    check_list(&mut poller, &session, &forked).await;
    steps.done("cancel");
    resume(&mut poller, &session).await;
    steps.done("resume");
    look_at_a_picture(&stage, &mut poller, &forked).await;
    steps.done("picture");
    send_mail_from_within(&stage, &mut poller, &forked).await;
    steps.done("mail");
    job(&stage, &mut poller).await;
    steps.done("job");
    run(&mut poller).await;
    steps.done("run");
    assert_eq!(steps.next, STEPS.len());
    stage.finish_with_worker(poller.client).await;
}

async fn approve_one_command_and_decline_the_next(
    steps: &mut Steps,
    poller: &mut Poller,
    session: &str,
) {
    let first = poller.question(session).await;
    assert_eq!(first["kind"], "command");
    steps.done("watch");
    assert!(
        first["params"]["command"]
            .as_str()
            .unwrap()
            .contains("one.txt")
    );
    poller.decide(session, &first, "accept").await;
    let (look, _) = poller
        .until(session, |look| {
            look["actions"][0]["command"]
                .as_str()
                .is_some_and(|command| command.contains("two.txt"))
        })
        .await;
    steps.done("approve");
    poller.decide(session, &look["actions"][0], "decline").await;
}

/// Before 0.106.0 the model cannot ask.
async fn answer_the_question(steps: &mut Steps, poller: &mut Poller, session: &str, release: &str) {
    if !testkit::codex::is_since(release, [0, 106, 0]) {
        let (done, _) = poller.until_idle(session).await;
        assert_eq!(done["result"]["status"], "completed");
        steps.done("decline");
        steps.absent("ask");
    } else {
        let (look, _) = poller
            .until(session, |look| look["actions"][0]["type"] == "user_input")
            .await;
        steps.done("decline");
        let question = &look["actions"][0];
        assert_eq!(question["questions"][0]["id"], "colour");
        let arguments = json!({"action": "respond_user_input", "sessionId": session,
            "requestId": question["requestId"], "answers": {"colour": {"answers": ["blue"]}}});
        poller.call("codex_check", arguments).await;
        let (done, _) = poller.until_idle(session).await;
        let output = done["result"]["output"].as_str().unwrap();
        assert!(
            output.starts_with("chosen: ") && output.contains("blue"),
            "{output}"
        );
        steps.done("ask");
    }
}

async fn steer_and_interrupt(
    steps: &mut Steps,
    poller: &mut Poller,
    session: &str,
    long: &Gate,
    longer: &Gate,
) {
    let replied = poller.reply(session, "take your time", json!({})).await;
    assert_eq!(replied["status"], "running");
    long.reached(1).await;
    let steer = json!({"action": "steer", "sessionId": session, "prompt": "steered"});
    poller.call("codex_session", steer).await;
    long.release();
    longer.reached(1).await;
    steps.done("steer");
    poller.session("interrupt", session).await;
    let (interrupted, _) = poller.until_idle(session).await;
    assert_eq!(interrupted["result"]["status"], "interrupted");
    steps.done("interrupt");
}

async fn reply(poller: &mut Poller, session: &str) {
    poller.reply(session, "go on", json!({})).await;
    let (done, events) = poller.until_idle(session).await;
    let heard = done["result"]["output"].as_str().unwrap().to_owned();
    for part in ["begin", "take your time", "steered", "go on"] {
        assert!(heard.contains(part), "{heard}");
    }
    let results: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "result")
        .collect();
    assert_eq!(results.len(), 1, "{events:#?}");
}

/// The fork has the whole conversation, and the original thread stays as it was.
async fn fork(poller: &mut Poller, session: &str) -> String {
    let thread = poller.get(session).await["threadId"].clone();
    let fork = poller.session("fork", session).await;
    assert_eq!(fork["status"], "idle");
    assert_eq!(fork["pollInterval"], 120_000);
    let forked = fork["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(fork["threadId"], thread);
    assert_eq!(poller.get(session).await["threadId"], thread);
    for one in [session, forked.as_str()] {
        poller.reply(one, "go on", json!({})).await;
        let (done, _) = poller.until_idle(one).await;
        let heard = done["result"]["output"].as_str().unwrap();
        assert!(heard.contains("steered"), "{heard}");
    }
    forked
}

async fn cancel(poller: &mut Poller, session: &str) {
    poller.session("cancel", session).await;
    let reply = json!({"sessionId": session, "prompt": "go on"});
    assert_eq!(poller.refused("codex_reply", reply).await, "CANCELLED");
    let over = poller
        .call(
            "codex_check",
            json!({"action": "poll", "sessionId": session}),
        )
        .await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["result"]["reason"], "Cancelled by user");
}

/// A fork counts only its own turns.
async fn check_list(poller: &mut Poller, session: &str, forked: &str) {
    let list = poller
        .call("codex_session", json!({"action": "list"}))
        .await;
    let told = |one: &Value, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| one[name].clone()).collect()
    };
    let names = [
        "sessionId",
        "status",
        "turns",
        "pendingRequestCount",
        "sandbox",
        "approvalPolicy",
    ];
    let listed: Vec<Vec<Value>> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| told(one, &names))
        .collect();
    let expected = |session: &str, status: &str, turns: u64| {
        let expected = json!([session, status, turns, 0, "read-only", "on-request"]);
        expected.as_array().unwrap().clone()
    };
    assert_eq!(
        listed,
        [
            expected(session, "cancelled", 4),
            expected(forked, "idle", 1)
        ]
    );
    for (one, listed) in [(session, &listed[0]), (forked, &listed[1])] {
        assert_eq!(told(&poller.get(one).await, &names), *listed);
    }
}

/// The thread of a session that was cancelled.
async fn resume(poller: &mut Poller, session: &str) {
    let thread = poller.get(session).await["threadId"].clone();
    let resume = json!({"action": "resume", "threadId": thread, "prompt": "go on"});
    let resumed = poller.call("codex_session", resume).await;
    let resumed = resumed["sessionId"].as_str().unwrap();
    let (done, _) = poller.until_idle(resumed).await;
    let heard = done["result"]["output"].as_str().unwrap();
    assert!(heard.contains("begin"), "{heard}");
}

async fn look_at_a_picture(stage: &CodexFixture, poller: &mut Poller, session: &str) {
    let bytes = stage.picture("screen.png");
    poller.reply(session, "look at it", json!({})).await;
    let (done, _) = poller.until_idle(session).await;
    assert_eq!(done["result"]["output"], "seen");
    stage.assert_shown(&bytes);
}

async fn send_mail_from_within(stage: &CodexFixture, poller: &mut Poller, session: &str) {
    poller.reply(session, "tell them", json!({})).await;
    let (done, _) = poller.until_idle(session).await;
    let told = done["result"]["output"].as_str().unwrap();
    assert!(told.contains("message_id"), "{told}");
    let mail = inbox(stage, "lead");
    assert_eq!(mail.len(), 1);
    assert_eq!(
        (&mail[0]["from"], &mail[0]["text"]),
        (&json!("arch"), &json!("from within"))
    );
}

async fn job(stage: &CodexFixture, poller: &mut Poller) {
    let arguments = json!({ "prompt": "do the job", "cwd": stage.home.work(),
        "sandbox": "workspace-write" });
    let queued = poller.call("call_codex", arguments).await;
    let arguments = json!({ "job_id": queued["job_id"], "wait_ms": 60_000 });
    let job = poller.call("call_status", arguments).await;
    assert_eq!(
        (&job["status"], &job["response"]),
        (&json!("completed"), &json!("job done"))
    );
    assert!(stage.file("job.txt").exists());
}

async fn run(poller: &mut Poller) {
    let arguments = json!({ "task": "make the file", "sandbox": "workspace-write",
        "exit_criteria": { "files": ["run.txt"] } });
    let done = poller.call("codex_run", arguments).await;
    assert_eq!(
        (&done["ok"], &done["turns"]),
        (&json!(true), &json!(1)),
        "{done:#}"
    );
}
