//! Actions of a user on the web page.

use std::time::{Duration, SystemTime};

use scripted_model::{Gate, Reply, Script, Shell, Usage};
use serde_json::{Value, json};
use testkit::http::{Event, Events};
use tokio::time::sleep;

use super::{WebFixture, start_session, work};
use crate::jobs::wait_for;
use crate::on_oldest_and_newest;
use crate::real::CodexFixture;
use crate::real::sessions::Poller;

on_oldest_and_newest!(question_is_answered_on_the_page, cost_of_a_session_is_shown);

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}";

/// The value of the button with this label.
pub(super) fn decision(page: &str, label: &str) -> String {
    let (before, _) = page
        .split_once(label)
        .unwrap_or_else(|| panic!("no {label:?} in {page}"));
    let (_, value) = before.rsplit_once("name=\"decision\" value=\"").unwrap();
    let (value, _) = value.split_once('"').unwrap();
    value.replace("&quot;", "\"")
}

pub(super) fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page
        .split_once(begin)
        .unwrap_or_else(|| panic!("no {begin:?} in {page}"));
    rest.split_once(end).unwrap().0
}

async fn question_is_answered_on_the_page(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say(format!("Done {HOSTILE} now."))]);
    let mut web = WebFixture::new(release, script).await;
    let mut list = web.browser("GET", "/events").events().await;
    let session = start_session(&mut web, &format!("make it {HOSTILE}")).await;
    let path = format!("/sessions/{session}");

    // The list learns that the session needs a person.
    let asking = html_with(&mut list, "touch made.txt").await;
    check_list(&web, &asking, &path).await;

    let page = web.get(&path).await;
    assert!(page.contains("touch made.txt"), "{page}");
    check_expiry(&page, Duration::from_secs(60));
    let question = between(&page, "name=\"question\" value=\"", "\"").to_owned();
    let accept = decision(&page, ">Allow once");
    let address = between(&page, "data-events=\"", "\"").to_owned();
    let mut news = web.browser("GET", &address).events().await;

    let fields = [
        ("question", question.as_str()),
        ("decision", accept.as_str()),
    ];
    assert!(!web.stage.file("made.txt").exists());
    let wrong = [("question", question.as_str()), ("decision", "foo")];
    let refused = web.post(&format!("{path}/answer"), &wrong).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let error = refused.json()["error"].as_str().unwrap().to_owned();
    let words = "does not offer \"foo\"; it offers \"accept\", ";
    assert!(error.contains(words), "{error}");
    let answered = web.post(&format!("{path}/answer"), &fields).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let closed = html_with(&mut news, ", on the page").await;
    assert!(closed.data["put"].as_str().unwrap().starts_with("step-"));
    let done = html_with(&mut news, "Done").await;
    let html = done.data["html"].as_str().unwrap();
    assert!(
        html.contains("&lt;img") && html.contains("\\u{202e}"),
        "{html}"
    );
    html_with(&mut news, "completed").await;
    assert!(web.stage.file("made.txt").exists());

    second_answer_is_refused(&web, &path, &fields).await;
    browser_catches_up(&web, &path, &address, &done.id.unwrap()).await;
    let page = web.get(&path).await;
    assert!(
        !page.contains("<img") && !page.contains('\u{202e}'),
        "{page}"
    );
    web.finish().await;
}

async fn cost_of_a_session_is_shown(release: &str) {
    let gate = Gate::new();
    let usage = Usage {
        input: 1000,
        cached_input: 400,
        output: 100,
        reasoning: 30,
    };
    let script = Script::new()
        .on("first", [Reply::say("done").using(usage).behind(&gate)])
        .otherwise([Reply::say("later")]);
    let stage = CodexFixture::new(release, script).await;
    stage.configure(
        "currency = \"EUR\"\n[plugins.codex-mcp.prices.mock-model]\n\
         input = 2\ncached_input = 0.5\noutput = 10",
    );
    let mut web = WebFixture::on(stage).await;
    let session = start_session(&mut web, "first").await;
    gate.reached(1).await;
    wait_for("the session on the page", async || {
        web.hosts_session(&session).await.then_some(())
    })
    .await;
    let page = web.get(&format!("/sessions/{session}")).await;
    assert!(!page.contains("EUR"), "{page}");
    let address = between(&page, "data-events=\"", "\"");
    let mut news = web.browser("GET", address).events().await;
    gate.release();
    let told = html_with(&mut news, "0.0024 EUR").await;
    assert_eq!(told.data["part"], "cost");
    let list = web.get("/").await;
    assert!(list.contains(" · 1100 tokens · 0.0024 EUR"), "{list}");

    let cost = json!({ "amount": 0.0024, "currency": "EUR" });
    let of_session = web.browser("GET", &format!("/api/sessions/{session}"));
    assert_eq!(of_session.send().await.json()["cost"], cost);
    let listed: Value = serde_json::from_str(&web.output(&["ps", "--json"]).await).unwrap();
    assert_eq!(listed["work"][0]["cost"], cost, "{listed:#}");

    // The tokens of the other model cannot be told from the earlier ones.
    web.client.until_idle(&session).await;
    let other = json!({ "model": "other" });
    web.client.reply(&session, "second", other).await;
    web.client.until_idle(&session).await;
    wait_for("tokens without a cost", async || {
        let all = work(&web).await;
        let one = all.first()?;
        (one["tokens"].is_u64() && one["cost"].is_null()).then_some(())
    })
    .await;
    web.finish().await;
}

/// The next message whose HTML contains these words.
async fn html_with(events: &mut Events, words: &str) -> Event {
    let html = |event: &Event| {
        event.data["html"]
            .as_str()
            .is_some_and(|html| html.contains(words))
    };
    events.until(html).await
}

/// The list names the session by its first prompt, and has its question.
async fn check_list(web: &WebFixture, asking: &Event, path: &str) {
    let work = web.browser("GET", "/api/work").send().await.json();
    let listed = &work["work"][0];
    let title = listed["task"].as_str().unwrap();
    assert!(title.starts_with("make it "), "{work:#}");
    assert!(!title.contains('\u{202e}'), "{work:#}");
    assert!(listed["created_at"].is_string(), "{work:#}");
    let question = &listed["questions"][0]["question"];
    assert!(question["details"]["command"].is_string(), "{work:#}");
    let html = asking.data["html"].as_str().unwrap();
    assert!(
        html.contains("Allow once") && html.contains(path) && html.contains("make it"),
        "{html}"
    );
}

/// The page of a question has its command, and says when it is declined.
fn check_expiry(page: &str, after: Duration) {
    assert!(page.contains("touch made.txt"), "{page}");
    assert!(!page.contains("Command, in full"), "{page}");
    let expires = between(page, "Declined at <time datetime=\"", "\"");
    let expires = humantime::parse_rfc3339(expires).unwrap();
    let left = expires.duration_since(SystemTime::now()).unwrap();
    assert!(left > after, "{left:?}");
}

/// Starts a session on the page; returns its address.
async fn begin_on_page(web: &WebFixture, prompt: &str) -> String {
    let directory = web.stage.home.work().to_string_lossy().into_owned();
    let fields = [
        ("prompt", prompt),
        ("directory", &*directory),
        ("sandbox", "read-only"),
        ("approvals", "on-request"),
    ];
    let begun = web.post("/sessions", &fields).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    begun.json()["address"].as_str().unwrap().to_owned()
}

/// Nobody looks at the page all the time.
#[tokio::test]
async fn question_of_a_session_of_the_page_stays_open_for_a_day() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("done")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let address = begin_on_page(&web, "make it").await;
    let page = wait_for("the question", async || {
        let page = web.get(&address).await;
        page.contains("Declined at").then_some(page)
    })
    .await;
    check_expiry(&page, Duration::from_secs(23 * 60 * 60));
    web.post(&format!("{address}/cancel"), &[]).await;
    web.finish().await;
}

/// Whoever comes second learns who has decided.
async fn second_answer_is_refused(web: &WebFixture, path: &str, fields: &[(&str, &str)]) {
    let late = web.post(&format!("{path}/answer"), fields).await;
    assert_eq!(late.status, 409, "{late:?}");
    assert!(late.body.contains("accept (page)"), "{late:?}");
}

/// A browser that connects again gets what it has missed, and one that has missed too much is told
/// to load the page again.
async fn browser_catches_up(web: &WebFixture, path: &str, address: &str, id: &str) {
    let again = web.browser("GET", address).header("last-event-id", id);
    let mut again = again.events().await;
    let missed = again.until(|event| event.id.is_some()).await;
    assert!(missed.id.unwrap().parse::<u64>().unwrap() > id.parse::<u64>().unwrap());
    let stranger = web.browser("GET", &format!("{path}/events?after=1"));
    let reload = stranger.events().await.next().await.unwrap();
    assert_eq!(reload.kind, "reload");
}

#[tokio::test]
async fn session_is_started_steered_and_ended_on_the_page() {
    let gate = Gate::new();
    let waits = Reply::say("late").behind(&gate);
    let script = Script::new()
        .on("first", [waits])
        .otherwise([Reply::say("later")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    incomplete_forms_are_refused(&web).await;
    let path = begin_on_page(&web, "first").await;
    gate.reached(1).await;
    wait_for("the session on the page", async || {
        let all = work(&web).await;
        all.iter()
            .any(|one| path.ends_with(one["id"].as_str().unwrap()))
            .then_some(())
    })
    .await;
    prompt_on_page(&web, &path, "in German").await;
    gate.release();
    let shown = until_state(&web, &path, "idle").await;
    let texts = shown["steps"].to_string();
    for words in ["first", "in German", "late"] {
        assert!(texts.contains(words), "{words}: {texts}");
    }
    let last = web.stage.model.requests().pop().unwrap();
    assert!(last.user_messages().contains(&"in German"));

    prompt_on_page(&web, &path, "second").await;
    wait_for("the second turn", async || {
        let page = web.get(&path).await;
        page.contains("later").then_some(())
    })
    .await;
    until_state(&web, &path, "idle").await;
    let forked = web.post(&format!("{path}/fork"), &[]).await;
    assert_eq!(forked.status, 200, "{forked:?}");
    assert_ne!(forked.json()["address"], path.as_str());
    let ended = web.post(&format!("{path}/cancel"), &[]).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    until_state(&web, &path, "cancelled").await;
    check_no_summary(&web);
    web.finish().await;
}

/// A session needs a prompt, and a directory that exists.
async fn incomplete_forms_are_refused(web: &WebFixture) {
    let directory = web.stage.home.work();
    let directory = directory.to_str().unwrap();
    let missing = web
        .post("/sessions", &[("prompt", " "), ("directory", directory)])
        .await;
    assert_eq!(missing.status, 400, "{missing:?}");
    let fields = [
        ("prompt", "first"),
        ("directory", "/no/such"),
        ("sandbox", "read-only"),
        ("approvals", "on-request"),
    ];
    let nowhere = web.post("/sessions", &fields).await;
    assert_eq!(nowhere.status, 400, "{nowhere:?}");
    assert!(nowhere.body.contains("/no/such"), "{nowhere:?}");
}

/// Sends a message to a session on the page.
async fn prompt_on_page(web: &WebFixture, path: &str, text: &str) {
    let sent = web.post(&format!("{path}/prompt"), &[("text", text)]).await;
    assert_eq!(sent.status, 200, "{text}: {sent:?}");
}

/// Waits until the page knows that a session is in this state; returns what it then has of it.
async fn until_state(web: &WebFixture, path: &str, state: &str) -> Value {
    wait_for(state, async || {
        let shown = web.browser("GET", &format!("/api{path}"));
        let shown = shown.send().await.json();
        (shown["work"]["state"] == state).then_some(shown)
    })
    .await
}

/// The connections by which the page began work have ended, and no summary was asked of the model.
fn check_no_summary(web: &WebFixture) {
    let requests = web.stage.model.requests();
    let said = requests.iter().flat_map(|one| one.user_messages());
    let asked: Vec<&str> = said
        .filter(|said| said.contains("The session ends now"))
        .collect();
    assert!(asked.is_empty(), "{asked:?}");
}

/// A client that its user gives wider bounds than the configuration has shares the host with the page.
/// The control is a session within the bounds of the page.
#[tokio::test]
async fn session_beyond_the_bounds_gets_no_yes_and_no_message() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new()
        .on("more", [Reply::say("more is done")])
        .otherwise([touch, Reply::say("done")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.configure("max_sandbox = \"workspace-write\"");
    let mut web = WebFixture::on(stage).await;
    web.stage.codex_is_ready(&mut web.client.client).await;
    let wider = ["--host", "--max-sandbox", "danger-full-access"];
    let mut wide = Poller::new(&web.stage, &wider).await;
    let beyond = wide.start("beyond", json!({})).await;
    wide.question(&beyond).await;
    let within = start_session(&mut web, "within").await;
    web.client.question(&within).await;

    let question = question_of(&web, &beyond).await;
    let yes = [("question", question.as_str()), ("decision", "\"accept\"")];
    for (act, fields) in [("answer", &yes[..]), ("prompt", &[("text", "more")][..])] {
        let refused = web.post(&format!("/sessions/{beyond}/{act}"), fields).await;
        assert_eq!(refused.status, 409, "{act}: {refused:?}");
        assert!(
            refused.body.contains("exceed the configured bounds"),
            "{refused:?}"
        );
    }
    assert!(!web.stage.file("made.txt").exists());
    assert!(web.shell(&["approve", &beyond]).await);
    wide.until_idle(&beyond).await;
    assert!(web.stage.file("made.txt").exists());

    let question = question_of(&web, &within).await;
    let no = [("question", question.as_str()), ("decision", "decline")];
    let path = format!("/sessions/{within}");
    let answered = web.post(&format!("{path}/answer"), &no).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    web.client.until_idle(&within).await;
    let sent = web
        .post(&format!("{path}/prompt"), &[("text", "more")])
        .await;
    assert_eq!(sent.status, 200, "{sent:?}");
    web.client.until_idle(&within).await;
    assert!(wide.client.finish().await.success());
    web.finish().await;
}

/// There is no MCP client that would start the next host.
#[tokio::test]
#[cfg(not(portable))]
async fn session_of_the_page_outlives_its_host() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("answered later").behind(&gate)]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let without_host = Poller::new(&web.stage, &[]).await;
    let client = std::mem::replace(&mut web.client, without_host);
    assert!(client.client.finish().await.success());
    let address = begin_on_page(&web, "work").await;
    gate.reached(1).await;
    let of_session = web.browser("GET", &format!("/api{address}"));
    wait_for("the session on the page", async || {
        (of_session.send().await.status == 200).then_some(())
    })
    .await;
    super::kill_hosts(&web).await;
    // Neither has ended.
    let listed = work(&web).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["state"], "running", "{listed:?}");
    assert_eq!(of_session.send().await.status, 200);
    gate.release();
    wait_for("the answer on the page", async || {
        let request = web.browser("GET", &address).header("accept", "text/html");
        let page = request.send().await;
        (page.status == 200 && page.body.contains("answered later")).then_some(())
    })
    .await;
    assert_eq!(web.stage.model.request_count(), 1);
    web.finish().await;
}

/// The ID of the open question of a session, once the page knows it.
async fn question_of(web: &WebFixture, session: &str) -> String {
    wait_for("the question on the page", async || {
        let all = work(web).await;
        let one = all.into_iter().find(|one| one["id"] == session)?;
        Some(one["questions"][0]["id"].as_str()?.to_owned())
    })
    .await
}

/// The page learns of the end of a turn a moment later than the host.
#[tokio::test]
async fn message_at_the_end_of_a_turn_is_taken() {
    let gate = Gate::new();
    let script = Script::new()
        .on("turn", [Reply::say("late").behind(&gate)])
        .otherwise([Reply::say("later")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let session = start_session(&mut web, "turn").await;
    let path = format!("/sessions/{session}/prompt");
    for turn in 1..=10 {
        gate.reached(turn).await;
        wait_for("the turn on the page", async || {
            let all = work(&web).await;
            let one = all.iter().find(|one| one["id"] == session.as_str())?;
            one["step"].is_object().then_some(())
        })
        .await;
        gate.release_one();
        sleep(Duration::from_millis(10) * u32::try_from(turn).unwrap()).await;
        let at_the_end = web.post(&path, &[("text", "more")]).await;
        assert_eq!(at_the_end.status, 200, "{turn}: {at_the_end:?}");
        until_idle(&mut web, &session).await;
        let after_it = web.post(&path, &[("text", "turn")]).await;
        assert_eq!(after_it.status, 200, "{turn}: {after_it:?}");
    }
    gate.release();
    until_idle(&mut web, &session).await;
    web.finish().await;
}

/// The page learns of the start of a turn a moment later than the host.
#[tokio::test]
async fn message_just_after_one_that_began_a_turn_is_taken() {
    let gate = Gate::new();
    let script = Script::new()
        .on("turn", [Reply::say("late").behind(&gate)])
        .otherwise([Reply::say("later")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let session = start_session(&mut web, "begin").await;
    until_idle(&mut web, &session).await;
    let path = format!("/sessions/{session}/prompt");
    for text in ["turn", "more"] {
        let sent = web.post(&path, &[("text", text)]).await;
        assert_eq!(sent.status, 200, "{text}: {sent:?}");
    }
    gate.release();
    until_idle(&mut web, &session).await;
    web.finish().await;
}

/// Waits for the end of a session's turns, of which the latter ones drop the events of the former.
async fn until_idle(web: &mut WebFixture, session: &str) {
    wait_for("the end of the turn", async || {
        let state = web.client.get(session).await;
        (state["status"] == "idle").then_some(())
    })
    .await;
}

#[tokio::test]
async fn changed_files_are_shown_as_a_diff() {
    let patch = "*** Begin Patch\n*** Add File: made.txt\n+<b>new</b>\n*** End Patch\n";
    let script = Script::new().otherwise([Reply::patch(patch), Reply::say("done")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let write = json!({ "sandbox": "workspace-write" });
    let session = web.client.start("make it", write).await;
    web.client.until_idle(&session).await;
    let page = wait_for("the diff on the page", async || {
        let response = web.browser("GET", &format!("/sessions/{session}"));
        let page = response.header("accept", "text/html").send().await.body;
        page.contains("Changes of the turn").then_some(page)
    })
    .await;
    assert!(page.contains("added\">+&lt;b&gt;new&lt;/b&gt;"), "{page}");
    assert!(page.contains("make it"), "{page}");
    web.finish().await;
}
