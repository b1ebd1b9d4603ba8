//! Answers by mail to Codex's questions.

use std::fs;
use std::path::{Path, PathBuf};

use agent_team::logic::AgentName;
use agent_team::mail::{MailStore, MessageContent, Sender};
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;
use testkit::wait::wait_for;

use super::super::sessions::Poller;
use super::super::{CodexFixture, structured};
use super::{identity_directory, inbox, make_team, team_directory};

const ARGS: [&str; 4] = ["--identity", "arch", "--team", "builders"];

/// The user allows answers of `lead` and `rust-1`. `arch` is the server itself.
const SETTINGS: &str = "notify = [\"mail:lead\", \"mail:rust-1@builders\", \"mail:arch\"]\n\
    worker_idle_secs = 1\nsandbox = \"read-only\"";

/// A stage with the team, on which Codex asks for a command.
async fn asking_stage(settings: &str) -> CodexFixture {
    stage_that_asks_for("touch made.txt", settings).await
}

async fn stage_that_asks_for(command: &str, settings: &str) -> CodexFixture {
    stage_with(command, Reply::say("Done."), settings).await
}

async fn stage_with(command: &str, end: Reply, settings: &str) -> CodexFixture {
    let touch = Reply::shell(Shell::escalated(command, "it is needed"));
    let script = Script::new().otherwise([touch, end]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    make_team(&stage, &["lead", "rust-1"]);
    stage.configure(settings);
    stage
}

/// Waits for the notice of a question.
async fn notice_for(stage: &CodexFixture, agent: &str) -> String {
    wait_for("the notice of a question", async || {
        let mail = inbox(stage, agent);
        let text = mail.first()?["text"].as_str().unwrap();
        Some(text.to_owned())
    })
    .await
}

/// The code in a notice.
fn code_in(notice: &str) -> Option<&str> {
    let mut lines = notice.lines();
    lines.find_map(|line| line.strip_prefix("decline "))
}

async fn code_for(stage: &CodexFixture, agent: &str) -> String {
    let notice = notice_for(stage, agent).await;
    code_in(&notice).unwrap().to_owned()
}

/// Writes mail to the server, as a team mate does.
fn write_to_server(stage: &CodexFixture, from: &str, text: &str) {
    let sender = Sender {
        identity: from.parse().unwrap(),
        team: Some("builders".parse().unwrap()),
    };
    let content = MessageContent {
        text: text.to_owned(),
        summary: None,
    };
    let server: AgentName = "arch".parse().unwrap();
    MailStore::new(&stage.home.atm_home())
        .send(&sender, &server, &"builders".parse().unwrap(), &content)
        .unwrap();
}

/// Waits until the server has refused an answer of this agent; returns the server's words.
async fn refusal_for(stage: &CodexFixture, agent: &str) -> String {
    wait_for("the refusal of an answer", async || {
        let mail = inbox(stage, agent);
        let mut texts = mail.iter().filter_map(|one| one["text"].as_str());
        let refusal = texts.find(|text| text.starts_with("Your answer was not taken: "))?;
        Some(refusal.to_owned())
    })
    .await
}

/// Waits until an agent hears that a question is closed; returns the words.
async fn closing_for(stage: &CodexFixture, agent: &str) -> String {
    wait_for("the message that a question is closed", async || {
        let mail = inbox(stage, agent);
        let mut texts = mail.iter().filter_map(|one| one["text"].as_str());
        let closed = texts.find(|text| text.starts_with("The question is closed: "))?;
        Some(closed.to_owned())
    })
    .await
}

/// The files below a directory that contain a text.
fn files_with(directory: &Path, text: &str, found: &mut Vec<PathBuf>) {
    // Temporary files and directories may be gone.
    let entries = fs::read_dir(directory).into_iter().flatten();
    for entry in entries.flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_with(&entry.path(), text, found);
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            if String::from_utf8_lossy(&bytes).contains(text) {
                found.push(entry.path());
            }
        }
    }
}

#[tokio::test]
async fn reply_to_the_notice_decides_a_question_of_a_session() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    poller.question(&session).await;
    let notice = notice_for(&stage, "lead").await;
    for words in [
        "APPROVAL :: session ",
        "Codex wants to run a command.",
        "\naccept ",
        "\naccept for session ",
    ] {
        assert!(notice.contains(words), "{words:?} is missing: {notice}");
    }
    let code = code_in(&notice).unwrap();
    let text = format!("\n ACCEPT {code} \n\nGo on, please.\n> decline {code}");
    write_to_server(&stage, "lead", "Other mail.");
    write_to_server(&stage, "lead", &text);
    let (_, events) = poller.until_idle(&session).await;
    assert!(stage.file("made.txt").exists());
    let events = json!(events).to_string();
    for words in [r#""decidedBy":"mail""#, r#""denyMessage":"lead@builders""#] {
        assert!(events.contains(words), "{words} is missing: {events}");
    }
    // Only the reply is marked as read.
    wait_for("the reply is read", async || {
        let read: Vec<bool> = inbox(&stage, "arch")
            .iter()
            .filter(|one| one["from"] == "lead")
            .map(|one| one["read"] == true)
            .collect();
        (read == [false, true]).then_some(())
    })
    .await;

    // The code is in the mail alone.
    let mut found = Vec::new();
    files_with(stage.home.root(), code, &mut found);
    let inboxes = team_directory(&stage).join("inboxes");
    assert!(found.contains(&inboxes.join("lead.json")), "{found:?}");
    found.retain(|file| !file.starts_with(&inboxes));
    assert!(found.is_empty(), "{found:?}");
    assert!(!events.contains(code), "{events}");
    let audit = fs::read_to_string(identity_directory(&stage, "arch").join("audit.jsonl")).unwrap();
    let words = r#""decided_by":"mail","decided_agent":"lead@builders""#;
    assert!(audit.contains(words), "{audit}");
    stage.finish(poller.client).await;
}

#[tokio::test]
async fn only_the_recipient_of_a_code_decides_with_it() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    poller.question(&session).await;
    let of_lead = code_for(&stage, "lead").await;
    let of_rust = code_for(&stage, "rust-1").await;
    assert_ne!(of_lead, of_rust);
    // The server itself is notified, and could otherwise approve its own work.
    let own = notice_for(&stage, "arch").await;
    assert_eq!(code_in(&own), None, "{own}");
    for (from, text) in [
        ("rust-1", format!("accept {of_lead}")),
        ("lead", format!("accept {of_rust}")),
        ("arch", format!("accept {of_lead}")),
        ("lead", format!("> accept {of_lead}")),
        ("lead", format!("Please accept {of_lead}")),
        ("lead", format!("<p>accept {of_lead}</p>")),
        (
            "lead",
            format!("accept {of_lead} {}", "x".repeat(1_000_000)),
        ),
        ("lead", format!("accept \u{1b}[0m{of_lead}")),
    ] {
        write_to_server(&stage, from, &text);
    }
    // The control, and a second reply that comes too late.
    write_to_server(&stage, "lead", &format!("decline {of_lead}"));
    write_to_server(&stage, "lead", &format!("accept {of_lead}"));
    let (_, events) = poller.until_idle(&session).await;
    let events = json!(events).to_string();
    assert!(events.contains(r#""decidedBy":"mail""#), "{events}");
    assert!(!stage.file("made.txt").exists());
    let refusal = refusal_for(&stage, "lead").await;
    assert!(
        refusal.contains("closed: decline (mail: lead@builders)"),
        "{refusal}"
    );
    let closed = closing_for(&stage, "rust-1").await;
    assert!(
        closed.contains("closed: decline (mail: lead@builders)"),
        "{closed}"
    );
    assert!(closed.contains("\n\nAPPROVAL :: session "), "{closed}");
    assert!(!stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

#[tokio::test]
async fn reply_after_another_answer_is_refused() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    let question = poller.question(&session).await;
    let code = code_for(&stage, "lead").await;
    poller.decide(&session, &question, "decline").await;
    poller.until_idle(&session).await;
    write_to_server(&stage, "lead", &format!("accept {code}"));
    let refusal = refusal_for(&stage, "lead").await;
    assert!(refusal.contains("closed: decline (client)"), "{refusal}");
    assert!(!refusal.contains(&code), "{refusal}");
    assert!(!stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

#[tokio::test]
async fn approval_by_mail_stays_within_the_bound() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let args = [ARGS.as_slice(), &["--max-sandbox", "workspace-write"]].concat();
    let mut poller = Poller::new(&stage, &args).await;
    let session = poller.start("ask", json!({})).await;
    poller.question(&session).await;
    let notice = notice_for(&stage, "lead").await;
    assert_only_decline_counts(&stage, &notice).await;
    poller.until_idle(&session).await;
    assert!(!stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

/// Tries to approve by a reply to this notice for `lead`, and then declines.
async fn assert_only_decline_counts(stage: &CodexFixture, notice: &str) {
    assert!(!notice.contains("\naccept "), "{notice}");
    let code = code_in(notice).unwrap();
    write_to_server(stage, "lead", &format!("accept {code}"));
    let refusal = refusal_for(stage, "lead").await;
    assert!(refusal.ends_with("it offers decline"), "{refusal}");
    write_to_server(stage, "lead", &format!("decline {code}"));
}

/// The page, and jobs that are submitted at a shell, could send the code in the name of `lead`.
#[tokio::test]
async fn configured_identity_gets_no_code_for_a_session() {
    let settings = format!("{SETTINGS}\nanswer_by_mail = true\nidentity = \"lead\"");
    let stage = asking_stage(&settings).await;
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    let question = poller.question(&session).await;
    let notice = notice_for(&stage, "lead").await;
    assert!(notice.starts_with("APPROVAL :: session "), "{notice}");
    assert_eq!(code_in(&notice), None, "{notice}");
    let status = poller.client.call_tool("codex_status", json!({})).await;
    let warnings = structured(&status)["warnings"].to_string();
    for words in [
        "mail:lead cannot answer: it is the identity of your own configuration",
        "mail:arch cannot answer: it is the identity of the asking server",
    ] {
        assert!(warnings.contains(words), "{words} is missing: {warnings}");
    }
    assert!(!warnings.contains("mail:rust-1"), "{warnings}");
    // Another recipient still gets one.
    code_for(&stage, "rust-1").await;
    poller.decide(&session, &question, "decline").await;
    poller.until_idle(&session).await;
    stage.finish(poller.client).await;
}

/// The model chooses the words of its command, and so what is masked in the notice.
#[tokio::test]
async fn command_that_the_notice_hides_cannot_be_approved_by_mail() {
    let settings = format!("{SETTINGS}\nanswer_by_mail = true");
    let command = "true # -----BEGIN PRIVATE KEY-----\ntouch made.txt";
    let stage = stage_that_asks_for(command, &settings).await;
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    poller.question(&session).await;
    let notice = notice_for(&stage, "lead").await;
    assert!(!notice.contains("made.txt"), "{notice}");
    assert!(notice.contains("Mail cannot approve"), "{notice}");
    assert_only_decline_counts(&stage, &notice).await;
    poller.until_idle(&session).await;
    assert!(!stage.file("made.txt").exists());
    stage.finish(poller.client).await;
}

/// Neither a repository nor the default allows answers.
#[tokio::test]
async fn notice_has_no_code_unless_the_user_wants_it() {
    let stage = asking_stage(SETTINGS).await;
    let repository = "[plugins.codex-mcp]\nanswer_by_mail = true\n";
    fs::write(stage.file(".atm.toml"), repository).unwrap();
    let mut poller = Poller::new(&stage, &ARGS).await;
    let session = poller.start("ask", json!({})).await;
    let question = poller.question(&session).await;
    let notice = notice_for(&stage, "lead").await;
    assert!(notice.starts_with("APPROVAL :: session "), "{notice}");
    assert_eq!(code_in(&notice), None, "{notice}");
    let status = poller.client.call_tool("codex_status", json!({})).await;
    let warnings = structured(&status)["warnings"].to_string();
    assert!(warnings.contains("answer_by_mail"), "{status:#}");
    poller.decide(&session, &question, "decline").await;
    poller.until_idle(&session).await;
    stage.finish(poller.client).await;
}

async fn submit(client: &mut McpClient, stage: &CodexFixture, more: Value) -> String {
    let mut call = json!({ "prompt": "ask", "cwd": stage.home.work(), "approval": "ask" });
    let more = more.as_object().unwrap().clone();
    call.as_object_mut().unwrap().extend(more);
    let queued = client.call_tool("call_codex", call).await;
    let job = structured(&queued)["job_id"].as_str();
    job.unwrap_or_else(|| panic!("{queued:#}")).to_owned()
}

async fn until_completed(client: &mut McpClient, job: &str) {
    let status = json!({ "job_id": job, "wait_ms": 600_000 });
    wait_for("the end of the job", async || {
        let done = client.call_tool("call_status", status.clone()).await;
        (structured(&done)["status"] == "completed").then_some(())
    })
    .await;
}

#[tokio::test]
async fn reply_to_the_notice_decides_a_question_of_a_job() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let mut client = stage.client(&ARGS).await;
    let job = submit(&mut client, &stage, json!({})).await;
    let code = code_for(&stage, "lead").await;
    let own = notice_for(&stage, "arch").await;
    assert_eq!(code_in(&own), None, "{own}");
    write_to_server(&stage, "rust-1", &format!("decline {code}"));
    write_to_server(&stage, "lead", &format!("accept {code}"));
    until_completed(&mut client, &job).await;
    assert!(stage.file("made.txt").exists());
    let log = stage.jobs(&["logs", &job]).await;
    assert!(
        log.contains("answered by mail: accept (lead@builders)"),
        "{log}"
    );
    assert!(!log.contains(&code), "{log}");
    let audit = identity_directory(&stage, "arch").join("audit.jsonl");
    wait_for("the decision in the audit log", async || {
        let text = fs::read_to_string(&audit).unwrap();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_decision =
            |line: &Value| line["event"] == "call_respond" && line["decided_by"] == "mail";
        lines.any(|line| is_decision(&line)).then_some(())
    })
    .await;
    stage.finish_with_worker(client).await;
}

/// A stage whose turn does not end before the gate is open.
async fn gated_stage(gate: &Gate) -> CodexFixture {
    let end = Reply::say("Done.").behind(gate);
    let settings = format!("{SETTINGS}\nanswer_by_mail = true");
    stage_with("touch made.txt", end, &settings).await
}

/// Declines the question of a job at a shell. Its mail can come a moment before it is in the store.
async fn decline(stage: &CodexFixture, job: &str) {
    wait_for("the question of the job", async || {
        let declined = stage.jobs_command(&["decline", job]).output().await;
        declined.unwrap().status.success().then_some(())
    })
    .await;
}

#[tokio::test]
async fn refusal_of_a_late_reply_to_a_job_names_the_decider() {
    let gate = Gate::new();
    let stage = gated_stage(&gate).await;
    let mut client = stage.client(&ARGS).await;
    let job = submit(&mut client, &stage, json!({})).await;
    let code = code_for(&stage, "lead").await;
    decline(&stage, &job).await;
    gate.reached(1).await;
    for agent in ["lead", "rust-1"] {
        let closed = closing_for(&stage, agent).await;
        let begins = "The question is closed: decline (terminal)\n";
        assert!(closed.starts_with(begins), "{closed}");
    }
    write_to_server(&stage, "lead", &format!("accept {code}"));
    let refusal = refusal_for(&stage, "lead").await;
    let words = "was answered already: decline (terminal)";
    assert!(refusal.ends_with(words), "{refusal}");
    gate.release();
    until_completed(&mut client, &job).await;
    assert!(!stage.file("made.txt").exists());
    stage.finish_with_worker(client).await;
}

#[tokio::test]
async fn late_answer_at_a_terminal_finds_the_one_by_mail() {
    let gate = Gate::new();
    let stage = gated_stage(&gate).await;
    let mut client = stage.client(&ARGS).await;
    let job = submit(&mut client, &stage, json!({})).await;
    let code = code_for(&stage, "lead").await;
    write_to_server(&stage, "lead", &format!("accept {code}"));
    gate.reached(1).await;
    // The answer is in the events of the job a moment after the question has left the store.
    wait_for("the decider in the refusal", async || {
        let late = stage.jobs_command(&["decline", &job, "req_"]).output();
        let late = String::from_utf8(late.await.unwrap().stderr).unwrap();
        let words = "was answered already: accept (mail: lead@builders)";
        late.contains(words).then_some(())
    })
    .await;
    gate.release();
    until_completed(&mut client, &job).await;
    assert!(stage.file("made.txt").exists());
    stage.finish_with_worker(client).await;
}

/// Notifiers that a client names get no code, though the user allows answers of others.
#[tokio::test]
async fn notifier_that_a_job_names_gets_no_code() {
    let stage = asking_stage(&format!("{SETTINGS}\nanswer_by_mail = true")).await;
    let mut client = stage.client(&ARGS).await;
    let named = json!({ "notify": ["mail:lead@builders"] });
    let job = submit(&mut client, &stage, named).await;
    let notice = notice_for(&stage, "lead").await;
    assert!(notice.starts_with("APPROVAL :: job "), "{notice}");
    assert_eq!(code_in(&notice), None, "{notice}");
    decline(&stage, &job).await;
    until_completed(&mut client, &job).await;
    stage.finish_with_worker(client).await;
}

#[tokio::test]
async fn configured_identity_gets_no_code_for_a_job() {
    let settings = format!("{SETTINGS}\nanswer_by_mail = true\nidentity = \"lead\"");
    let stage = asking_stage(&settings).await;
    let mut client = stage.client(&ARGS).await;
    let job = submit(&mut client, &stage, json!({})).await;
    let notice = notice_for(&stage, "lead").await;
    assert!(notice.starts_with("APPROVAL :: job "), "{notice}");
    assert_eq!(code_in(&notice), None, "{notice}");
    // Another recipient still gets one.
    code_for(&stage, "rust-1").await;
    decline(&stage, &job).await;
    until_completed(&mut client, &job).await;
    stage.finish_with_worker(client).await;
}
