use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

/// A home with a team of three.
struct Stage {
    home: tempfile::TempDir,
    mail_store: MailStore,
}

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mail_store = MailStore::new(home.path());
        let stage = Self { home, mail_store };
        stage.team("t", &["lead", "codex", "other"]);
        stage
    }

    fn team(&self, name: &str, members: &[&str]) {
        let directory = self.directory(name);
        fs::create_dir_all(&directory).unwrap();
        let members: Vec<Value> = members
            .iter()
            .map(|name| json!({"name": name, "x": 1}))
            .collect();
        let config = json!({"name": name, "members": members, "kept": [1.0]});
        let config = serde_json::to_string_pretty(&config).unwrap();
        fs::write(directory.join("config.json"), config).unwrap();
    }

    fn directory(&self, team: &str) -> PathBuf {
        self.home.path().join(".claude/teams").join(team)
    }

    fn inbox(&self, file: &str) -> PathBuf {
        self.directory("t").join("inboxes").join(file)
    }

    fn put(&self, file: &str, text: &str) {
        fs::create_dir_all(self.directory("t").join("inboxes")).unwrap();
        fs::write(self.inbox(file), text).unwrap();
    }

    fn send(&self, to: &str, text: &str) -> Result<MessageId, MailError> {
        self.mail_store
            .send(&codex(), &agent(to), &team("t"), &content(text))
    }

    fn unread(&self, agent_name: &str) -> Unread {
        let reading = ReadLimits {
            max_messages: 10,
            max_length: 4096,
        };
        self.mail_store
            .unread(&agent(agent_name), &team("t"), reading)
            .unwrap()
    }

    fn config(&self) -> String {
        fs::read_to_string(self.directory("t").join("config.json")).unwrap()
    }
}

fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

fn team(name: &str) -> TeamName {
    name.parse().unwrap()
}

fn codex() -> Sender {
    Sender {
        identity: agent("codex"),
        team: Some(team("t")),
    }
}

fn content(text: &str) -> MessageContent {
    MessageContent {
        text: text.to_owned(),
        summary: None,
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn message_is_delivered_and_read_once() {
    let stage = Stage::new();
    let empty = stage.mail_store.fingerprint(&agent("lead"), &team("t"));
    let first = stage.send("lead", "one").unwrap();
    let sent = stage.mail_store.fingerprint(&agent("lead"), &team("t"));
    assert_ne!(empty, sent);
    stage.send("lead", "two").unwrap();

    let pending = stage
        .mail_store
        .pending(&agent("lead"), &team("t"))
        .unwrap();
    assert_eq!(pending.senders, [("codex".to_owned(), 2)]);
    let unread = stage.unread("lead");
    assert_eq!(unread.messages[0].message, "one");
    assert_eq!(unread.messages[0].from, "codex");
    assert_eq!(unread.messages[0].message_id, Some(first.to_string()));
    assert_eq!(unread.remaining, 0);

    let before = stage.mail_store.fingerprint(&agent("lead"), &team("t"));
    let mark = |receipts: &[Receipt]| {
        let marked = stage
            .mail_store
            .mark_read(&agent("lead"), &team("t"), receipts);
        marked.unwrap()
    };
    assert_eq!(mark(&unread.receipts[..1]), 1);
    assert_ne!(
        before,
        stage.mail_store.fingerprint(&agent("lead"), &team("t"))
    );
    assert_eq!(stage.unread("lead").messages[0].message, "two");
    assert_eq!(mark(&unread.receipts), 1);
    assert_eq!(stage.unread("lead").messages, []);

    let files = names(&stage.directory("t").join("inboxes"));
    assert_eq!(files, ["lead.json", "lead.lock"]);
    for (path, mode) in [(stage.inbox("lead.json"), 0o600), (stage.inbox(""), 0o700)] {
        let about = fs::metadata(path).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, mode);
    }
}

#[test]
fn unknown_team_or_agent_is_refused_without_creating_files() {
    let stage = Stage::new();
    let refused = stage.send("nobody", "x").unwrap_err().to_string();
    assert_eq!(
        refused,
        "team t has no member nobody; its members are: lead, codex, other"
    );
    let nowhere = stage.mail_store.members(&team("u")).unwrap_err();
    assert!(
        matches!(nowhere, MailError::UnknownTeam { .. }),
        "{nowhere}"
    );
    let membership = Membership {
        agent: &agent("codex"),
        model: "m",
        cwd: Path::new("/"),
    };
    let note = stage.home.path().join("note");
    stage
        .mail_store
        .join(&team("u"), &membership, &note, || true)
        .unwrap_err();
    assert_eq!(names(&stage.directory("")), ["t"]);
    assert_eq!(names(&stage.directory("t")), ["config.json"]);
    assert!(!note.exists());
    let home = tempfile::tempdir().unwrap();
    let mail_store = MailStore::new(home.path());
    let nowhere = mail_store.members(&team("t")).unwrap_err();
    assert!(
        matches!(nowhere, MailError::UnknownTeam { .. }),
        "{nowhere}"
    );
    assert_eq!(names(home.path()), [] as [String; 0]);
}

#[test]
fn broadcast_reaches_all_but_the_sender() {
    let stage = Stage::new();
    let mut sender = codex();
    let sent = stage
        .mail_store
        .broadcast(&sender, &team("t"), &content("x"))
        .unwrap();
    let to: Vec<&str> = sent.iter().map(|(to, _)| to.as_str()).collect();
    assert_eq!(to, ["lead", "other"]);
    assert!(sent.iter().all(|(_, sent)| sent.is_ok()));
    // A member of that name in another team is another agent.
    sender.team = Some(team("u"));
    let sent = stage
        .mail_store
        .broadcast(&sender, &team("t"), &content("x"))
        .unwrap();
    assert_eq!(sent.len(), 3);
    let written = fs::read_to_string(stage.inbox("codex.json")).unwrap();
    assert!(written.contains("\"source_team\":\"u\""));
}

#[test]
fn message_or_summary_over_the_limit_is_refused() {
    let stage = Stage::new();
    let long = "x".repeat(LONGEST_TEXT + 1);
    let refused = stage.send("lead", &long).unwrap_err();
    assert!(matches!(
        refused,
        MailError::TooLong {
            part: "message",
            ..
        }
    ));
    let content = MessageContent {
        text: String::new(),
        summary: Some("x".repeat(LONGEST_SUMMARY + 1)),
    };
    let refused = stage
        .mail_store
        .send(&codex(), &agent("lead"), &team("t"), &content);
    assert!(matches!(
        refused,
        Err(MailError::TooLong {
            part: "summary",
            ..
        })
    ));
    let file = fs::File::create(stage.directory("t").join("inboxes"));
    drop(file);
    fs::remove_file(stage.directory("t").join("inboxes")).unwrap();
    stage.put("lead.json", "[]");
    let inbox = fs::File::options()
        .write(true)
        .open(stage.inbox("lead.json"));
    inbox.unwrap().set_len(LARGEST_INBOX + 1).unwrap();
    let refused = stage.send("lead", "x").unwrap_err();
    assert!(matches!(refused, MailError::TooLarge { .. }), "{refused}");
}

#[test]
fn inboxes_of_a_member_are_bounded_together() {
    let stage = Stage::new();
    let files = ["codex.json", "codex.host.json"].map(str::to_owned);
    for file in &files {
        stage.put(file, "[]");
    }
    let found = stage.mail_store.team(&team("t")).unwrap();
    let codex = agent("codex");
    assert_eq!(read_all(&found, &codex, &files, 4).unwrap().len(), 2);
    let refused = read_all(&found, &codex, &files, 3).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the inboxes of codex have more than 3 bytes together; remove old messages from them"
    );
    let refused = read_all(&found, &codex, &files, 1).unwrap_err();
    assert!(matches!(refused, MailError::TooLarge { .. }), "{refused}");

    // Each of them alone has not too many elements.
    let many = format!("[{}0]", "0,".repeat(MOST_VALUES / 2));
    for file in &files {
        stage.put(file, &many);
    }
    let refused = stage.mail_store.pending(&codex, &team("t")).unwrap_err();
    let why = format!("have more than {MOST_VALUES} messages together");
    assert!(refused.to_string().contains(&why), "{refused}");
}

#[test]
fn malformed_inbox_is_left_unchanged() {
    let stage = Stage::new();
    for text in ["{}", "[{\"from\":", "\u{0}"] {
        stage.put("lead.json", text);
        let refused = stage.send("lead", "x").unwrap_err();
        assert!(matches!(refused, MailError::BadInbox { .. }), "{refused}");
        let kept = fs::read_to_string(stage.inbox("lead.json")).unwrap();
        assert_eq!(kept, text);
    }
    stage.put("lead.json", "");
    stage.send("lead", "x").unwrap();
    assert_eq!(stage.unread("lead").messages.len(), 1);
}

/// A writer was killed between the exchange and the merge: only its draft has the other message.
#[test]
fn message_in_the_draft_of_a_killed_writer_is_kept() {
    for draft in [".lead.json.new", ".lead.json.newer"] {
        let stage = Stage::new();
        stage.send("lead", "ours").unwrap();
        let theirs = json!([{"from": "other", "text": "theirs"}]).to_string();
        stage.put(draft, &theirs);
        stage.send("lead", "next").unwrap();
        let kept = format!("{draft}.broken-1");
        assert_eq!(fs::read_to_string(stage.inbox(&kept)).unwrap(), theirs);
        stage.send("lead", "last").unwrap();
        let files = names(&stage.directory("t").join("inboxes"));
        assert_eq!(files, [kept.as_str(), "lead.json", "lead.lock"]);
        assert_eq!(stage.unread("lead").messages.len(), 3);
    }
}

#[test]
fn draft_of_a_message_that_was_not_sent_is_removed() {
    let stage = Stage::new();
    let text = || fs::read_to_string(stage.inbox("lead.json")).unwrap();
    stage.send("lead", "ours").unwrap();
    let before = text();
    stage.send("lead", "unsent").unwrap();
    let unsent = text();
    let marked = before.replace("\"read\":false", "\"read\":true");
    assert_ne!(marked, before);
    let half = &unsent[..unsent.len() - 1];
    for draft in [unsent.as_str(), &marked, half] {
        stage.put("lead.json", &before);
        stage.put(".lead.json.new", draft);
        stage.send("lead", "next").unwrap();
        let files = names(&stage.directory("t").join("inboxes"));
        assert_eq!(files, ["lead.json", "lead.lock"]);
        assert_eq!(stage.unread("lead").messages.len(), 2);
    }
}

/// Marking messages changes no element but its mark.
#[test]
fn message_in_the_draft_of_a_killed_reader_is_kept() {
    let stage = Stage::new();
    stage.send("lead", "read").unwrap();
    let path = stage.inbox("lead.json");
    let before = fs::read_to_string(&path).unwrap();
    stage.send("lead", "theirs").unwrap();
    let found = fs::read_to_string(&path).unwrap();
    let ours = before.replace("\"read\":false", "\"read\":true");
    stage.put("lead.json", &ours);
    stage.put(".lead.json.new", &found);
    stage.send("lead", "next").unwrap();
    let kept = stage.inbox(".lead.json.new.broken-1");
    assert_eq!(fs::read_to_string(kept).unwrap(), found);
}

#[test]
fn links_out_of_the_teams_directory_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim.json");
    fs::write(&victim, "[]").unwrap();

    let stage = Stage::new();
    stage.put("x.json", "[]");
    symlink(&victim, stage.inbox("lead.json")).unwrap();
    let refused = stage.send("lead", "x").unwrap_err();
    assert!(matches!(refused, MailError::Outside { .. }), "{refused}");

    let stage = Stage::new();
    symlink(outside.path(), stage.directory("t").join("inboxes")).unwrap();
    let refused = stage.send("lead", "x").unwrap_err();
    assert!(matches!(refused, MailError::Outside { .. }), "{refused}");

    let stage = Stage::new();
    fs::write(outside.path().join("config.json"), stage.config()).unwrap();
    symlink(outside.path(), stage.directory("u")).unwrap();
    let refused = stage.mail_store.members(&team("u")).unwrap_err();
    assert!(matches!(refused, MailError::Outside { .. }), "{refused}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "[]");
    assert_eq!(names(outside.path()), ["config.json", "victim.json"]);
}

#[test]
fn pipe_in_place_of_an_inbox_is_refused() {
    let stage = Stage::new();
    stage.put("x.json", "[]");
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&stage.inbox("lead.json"), mode).unwrap();
    let refused = stage.send("lead", "x").unwrap_err();
    assert!(matches!(refused, MailError::NoFile { .. }), "{refused}");
}

#[test]
fn inbox_keeps_its_file_mode() {
    let stage = Stage::new();
    stage.put("lead.json", "[]");
    let path = stage.inbox("lead.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    stage.send("lead", "x").unwrap();
    assert_eq!(
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn mail_from_other_hosts_is_read_and_marked_in_its_own_file() {
    let stage = Stage::new();
    stage.team("t", &["lead", "codex", "lead.two"]);
    let from = |name: &str| json!([{"from": name, "text": name, "timestamp": "t"}]).to_string();
    for file in [
        "lead.json",
        "lead.host.json",
        "lead.two.json",
        "lead.two.host.json",
    ] {
        stage.put(file, &from(file));
    }
    stage.put("leader.json", &from("leader"));
    let unread = stage.unread("lead");
    let texts: Vec<&str> = unread
        .messages
        .iter()
        .map(|one| one.message.as_str())
        .collect();
    assert_eq!(texts, ["lead.json", "lead.host.json"]);
    let marked = stage
        .mail_store
        .mark_read(&agent("lead"), &team("t"), &unread.receipts);
    assert_eq!(marked.unwrap(), 2);
    assert_eq!(stage.unread("lead").messages, []);
    assert_eq!(stage.unread("lead.two").messages.len(), 2);
}

/// A server has left the team, so that the roster no longer shows whose mail is waiting.
#[test]
fn mail_of_an_identity_that_has_left_is_not_that_of_a_shorter_name() {
    let stage = Stage::new();
    let mail = json!([{"from": "x", "text": "for another"}]).to_string();
    for file in ["lead.two.json", "lead.two.host.json", "lead.json"] {
        stage.put(file, &mail);
    }
    // The control: without such an identity, it is mail from other hosts.
    assert_eq!(stage.unread("lead").messages.len(), 3);
    let sessions = stage.home.path().join(".config/atm/codex-sessions");
    fs::create_dir_all(sessions.join("lead.two")).unwrap();
    let unread = stage.unread("lead");
    assert_eq!(unread.messages.len(), 1);
    assert_eq!(unread.receipts[0].file, "lead.json");
    // The name itself is no longer one.
    fs::create_dir_all(sessions.join("lead")).unwrap();
    assert_eq!(stage.unread("lead").messages.len(), 1);
}

fn join(stage: &Stage, name: &str) -> JoinOutcome {
    join_team(stage, "t", name)
}

fn join_team(stage: &Stage, team_name: &str, name: &str) -> JoinOutcome {
    let agent = agent(name);
    let membership = Membership {
        agent: &agent,
        model: "gpt",
        cwd: Path::new("/work"),
    };
    let note = stage.home.path().join("note");
    stage
        .mail_store
        .join(&team(team_name), &membership, &note, || true)
        .unwrap()
}

fn leave(stage: &Stage) -> LeaveOutcome {
    stage
        .mail_store
        .leave(&stage.home.path().join("note"))
        .unwrap()
}

#[test]
fn new_member_joins_and_leaves_without_a_trace() {
    let stage = Stage::new();
    let before = stage.config();
    assert_eq!(join(&stage, "new"), JoinOutcome::Added);
    let config: Value = serde_json::from_str(&stage.config()).unwrap();
    let entry = &config["members"][3];
    assert_eq!(entry["agentId"], "new@t");
    assert_eq!(entry["agentType"], "codex-mcp");
    assert_eq!(entry["isActive"], true);
    assert_eq!(entry["cwd"], "/work");
    assert!(entry["joinedAt"].is_u64());
    // As after a crash.
    assert_eq!(join(&stage, "new"), JoinOutcome::Present);
    assert_eq!(leave(&stage), LeaveOutcome::Removed);
    assert_eq!(stage.config(), before);
    assert_eq!(leave(&stage), LeaveOutcome::Nothing);
    assert_eq!(names(&stage.directory("t")), ["config.json", "config.lock"]);
}

#[test]
fn former_member_entry_is_restored_also_after_crashes() {
    let stage = Stage::new();
    let plain = stage.config();
    for active in [None, Some("false"), Some("true"), Some("null")] {
        let entry = "\"name\": \"codex\"";
        let with = active.map(|active| format!("{entry}, \"isActive\": {active}"));
        let before = plain.replace(entry, with.as_deref().unwrap_or(entry));
        fs::write(stage.directory("t").join("config.json"), &before).unwrap();
        for round in 0..3 {
            // From then on the note says that we set the flag ourselves.
            let expected = match (round, active) {
                (0, Some("true")) => JoinOutcome::Active,
                _ => JoinOutcome::Present,
            };
            assert_eq!(join(&stage, "codex"), expected);
            let config: Value = serde_json::from_str(&stage.config()).unwrap();
            assert_eq!(config["members"][1]["isActive"], true);
        }
        assert_eq!(leave(&stage), LeaveOutcome::Restored);
        let values =
            [&before, &stage.config()].map(|text| -> Value { serde_json::from_str(text).unwrap() });
        assert_eq!(values[0], values[1]);
    }
}

#[test]
fn team_that_cannot_be_left_keeps_nobody_out_of_another_one() {
    let stage = Stage::new();
    stage.team("u", &["lead"]);
    let config = stage.directory("t").join("config.json");
    let before = stage.config();
    join(&stage, "new");
    let joined = stage.config();
    fs::write(&config, "[]").unwrap();
    assert_eq!(join_team(&stage, "u", "new"), JoinOutcome::Added);
    // The note about the former team is used when it is joined again.
    fs::write(&config, joined).unwrap();
    assert_eq!(join(&stage, "new"), JoinOutcome::Present);
    assert_eq!(leave(&stage), LeaveOutcome::Removed);
    assert_eq!(stage.config(), before);
}

#[test]
fn entry_that_another_process_replaced_is_kept() {
    let stage = Stage::new();
    join(&stage, "new");
    let other = stage.config().replace("\"joinedAt\":", "\"joinedAt\":1");
    fs::write(stage.directory("t").join("config.json"), &other).unwrap();
    assert_eq!(leave(&stage), LeaveOutcome::Nothing);
    assert_eq!(stage.config(), other);
    // A join under another name or in another team first leaves the former team.
    join(&stage, "first");
    assert_eq!(join(&stage, "second"), JoinOutcome::Added);
    assert!(!stage.config().contains("first"));
    fs::remove_dir_all(stage.directory("t")).unwrap();
    assert_eq!(leave(&stage), LeaveOutcome::Nothing);
}
