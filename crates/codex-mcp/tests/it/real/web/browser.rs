//! The page in the real Chromium.

use std::time::Duration;

use nix::sys::signal::Signal;
use scripted_model::{Gate, Patch, Reply, Script, Shell};
use serde_json::json;
use testkit::chromium::{Browser, Driver, ENTER};
use testkit::process::signal;

use super::story::between;
use super::{WebFixture, start_session};
use crate::jobs::wait_for;
use crate::real::team::{make_team, put_mail};

/// The size of a window of a desk, and that of a phone, in pixels.
pub(super) const DESK: (u32, u32) = (1280, 900);
pub(super) const PHONE: (u32, u32) = (390, 844);

/// The buttons of a question, when they can be pressed.
const ALLOW: &str = "body:not(.moved) .question button.primary";
const DECLINE: &str = "body:not(.moved) .question button.danger";

fn asking() -> Script {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().otherwise([touch, Reply::say("It is made.")])
}

/// A text of others, and a file name: markup, and a character that is not seen.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}.md";

/// The end of the same as the page has to show it.
const SHOWN: &str = "onerror=alert(1)>\\u{202e}.md";

/// Opens a browser by a one-time link.
pub(super) async fn sign_in(web: &WebFixture, browser: &Browser) {
    let link = web.run(&["link"]).await;
    browser.open(&link).await;
    browser
        .wait_for("#sign-in button")
        .await
        .click()
        .await
        .unwrap();
    browser.wait_for_text("h2", "Needs you").await;
}

async fn assert_accessible(browser: &Browser, what: &str) {
    let violations = browser.axe().await;
    assert!(violations.is_empty(), "{what}: {violations:#?}");
    assert!(
        !browser.overflows().await,
        "{what} is wider than its window"
    );
}

/// What others have written has become no element of the page.
async fn assert_no_markup(browser: &Browser) {
    let images = browser.all("img").await;
    assert!(images.is_empty(), "{HOSTILE} is markup");
}

/// Presses Enter on an element.
async fn press(browser: &Browser, css: &str) {
    browser.wait_for(css).await.type_text(ENTER).await;
}

/// What a person does, by the keyboard alone.
async fn turn_is_watched_and_decided(size: (u32, u32), scheme: &str) {
    let script = Script::new().otherwise([
        Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
        Reply::patch(Patch::new().add(HOSTILE, "a line\n")),
        Reply::say(format!("It is made: {HOSTILE}")),
    ]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(size, scheme).await;
    browser.open(&format!("http://{}/", web.address)).await;
    browser.wait_for_text("pre", "codex-mcp web link").await;
    assert_accessible(&browser, "the page for strangers").await;
    sign_in(&web, &browser).await;
    assert_accessible(&browser, "the page without work").await;

    let write = json!({ "sandbox": "workspace-write" });
    let session = web.client.start(HOSTILE, write).await;
    browser.wait_for_text(".question", "touch made.txt").await;
    browser.wait_for_text(".name", SHOWN).await;
    assert_no_markup(&browser).await;
    assert_accessible(&browser, "the page with a question").await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".question", "touch made.txt").await;
    browser.wait_for_text(".step.prompt", SHOWN).await;
    assert_accessible(&browser, "the session with a question").await;
    assert!(!web.stage.file("made.txt").exists());
    press(&browser, ALLOW).await;
    browser.wait_for_text(".step.files summary", SHOWN).await;
    browser.wait_for_text(".step.message", SHOWN).await;
    browser
        .wait_for_text(".step.asked", "accept, on the page")
        .await;
    browser.wait_for_text(".state", "idle").await;
    assert!(web.stage.file("made.txt").exists());
    assert!(web.stage.file(HOSTILE).exists());
    assert_no_markup(&browser).await;
    assert_accessible(&browser, "the session that has ended").await;
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
async fn turn_is_watched_and_decided_at_a_desk() {
    turn_is_watched_and_decided(DESK, "light").await;
}

#[tokio::test]
async fn turn_is_watched_and_decided_on_a_phone() {
    turn_is_watched_and_decided(PHONE, "dark").await;
}

#[tokio::test]
async fn two_browsers_and_a_terminal_have_one_winner() {
    let mut web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let (one, other) = (
        driver.browser(DESK, "light").await,
        driver.browser(PHONE, "light").await,
    );
    let session = start_session(&mut web, "make it").await;
    let path = format!("/sessions/{session}");
    for browser in [&one, &other] {
        sign_in(&web, browser).await;
        browser.open(&path).await;
        browser.wait_for(DECLINE).await;
    }
    let allow = one.wait_for(ALLOW).await;
    let decline = other.wait_for(DECLINE).await;
    let approve = ["approve", session.as_str()];
    let approving = web.shell(&approve);
    // The card of a browser goes as soon as somebody else has decided.
    let (_, _, approved) = tokio::join!(allow.click(), decline.click(), approving);
    let shown = "Question: command";
    for browser in [&one, &other] {
        browser.wait_for_text(".step.asked", shown).await;
        browser.wait_for_text(".state", "idle").await;
        let open = browser.all(".question").await;
        assert!(open.is_empty(), "the card is gone");
    }
    let closed = one.wait_for(".step.asked .facts").await.text().await;
    let same = other.wait_for(".step.asked .facts").await.text().await;
    assert_eq!(closed, same, "both show the same winner");
    let by_terminal = closed == "accept, at a terminal";
    assert!(
        by_terminal || ["accept, on the page", "decline, on the page"].contains(&&*closed),
        "{closed}"
    );
    assert_eq!(approved, by_terminal, "{closed}");
    assert_eq!(
        web.stage.file("made.txt").exists(),
        closed.starts_with("accept"),
        "{closed}"
    );
    one.finish().await;
    other.finish().await;
    web.finish().await;
}

#[cfg(not(portable))]
async fn page_has_no_gap_after_the_host_was_killed(size: (u32, u32)) {
    let gate = Gate::new();
    let script = Script::new()
        .on("first", [Reply::say("before")])
        .otherwise([Reply::say("after").behind(&gate)]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(size, "light").await;
    sign_in(&web, &browser).await;
    let session = start_session(&mut web, "first").await;
    wait_for("the session on the page", async || {
        web.hosts_session(&session).await.then_some(())
    })
    .await;
    browser.open(&format!("/sessions/{session}")).await;
    browser.wait_for_text(".step.message", "before").await;
    browser.wait_for_text(".state", "idle").await;
    let text = browser.wait_for("textarea[name=text]").await;
    text.type_text("second").await;
    press(&browser, "form.send button").await;
    gate.reached(1).await;

    let hosts: serde_json::Value =
        serde_json::from_str(&web.output(&["host", "status", "--json"]).await).unwrap();
    let host = hosts[0]["pid"].as_u64().unwrap();
    signal(u32::try_from(host).unwrap(), Signal::SIGKILL);
    // The next call of a client starts the next host, which takes the session over.
    let look = json!({ "action": "get", "sessionId": session });
    wait_for("the next host", async || {
        let looked = web
            .client
            .client
            .call_tool("codex_session", look.clone())
            .await;
        (looked["isError"] == false).then_some(())
    })
    .await;
    gate.release();
    browser.wait_for_text(".step.message", "after").await;
    browser.wait_for_text(".state", "idle").await;
    let steps = browser.all(".step.message").await;
    assert_eq!(steps.len(), 2);
    let gaps = browser.all(".step.gap").await;
    assert!(gaps.is_empty(), "a gap");
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
#[cfg(not(portable))]
async fn page_has_no_gap_after_the_host_was_killed_at_a_desk() {
    page_has_no_gap_after_the_host_was_killed(DESK).await;
}

#[tokio::test]
#[cfg(not(portable))]
async fn page_has_no_gap_after_the_host_was_killed_on_a_phone() {
    page_has_no_gap_after_the_host_was_killed(PHONE).await;
}

async fn click(browser: &Browser, css: &str) {
    browser.wait_for(css).await.click().await.unwrap();
}

/// Writes a message to a session, and sends it by a click.
async fn send(browser: &Browser, text: &str) {
    let field = browser.wait_for("form.send textarea").await;
    field.type_text(text).await;
    click(browser, "form.send button").await;
}

#[tokio::test]
async fn turn_is_started_steered_watched_and_interrupted_by_clicks() {
    let gate = Gate::new();
    let pause = Duration::from_millis(100);
    let script = Script::new()
        .on("first", [Reply::say("early").behind(&gate)])
        .on("in German", [Reply::say("late")])
        .otherwise([Reply::deltas(1000, "more ").paced(pause)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(PHONE, "light").await;
    sign_in(&web, &browser).await;
    let directory = web.stage.home.work();
    for (field, text) in [
        ("textarea[name=prompt]", "first"),
        ("input[name=directory]", directory.to_str().unwrap()),
    ] {
        let css = format!("form[action='/sessions'] {field}");
        browser.wait_for(&css).await.type_text(text).await;
    }
    click(&browser, "form[action='/sessions'] button").await;
    gate.reached(1).await;
    browser.wait_for_text(".step.prompt", "first").await;
    send(&browser, "in German").await;
    browser.wait_for_text("#status", "Added to the turn").await;
    gate.release();
    browser.wait_for_text(".step.message", "late").await;
    let last = web.stage.model.requests().pop().unwrap();
    assert!(last.user_messages().contains(&"in German"));
    browser.wait_for_text(".state", "idle").await;

    send(&browser, "second").await;
    for shown in ["more ", "more more more more more "] {
        browser.wait_for_text(".step.message", shown).await;
    }
    click(&browser, "button[id$='/interrupt']").await;
    browser.wait_for_text(".step.end", "interrupted").await;
    browser.wait_for_text(".state", "idle").await;
    click(&browser, "button[id$='/cancel']").await;
    browser.wait_for_text(".state", "cancelled").await;
    browser.wait_for_text("button", "Resume the thread").await;
    assert_accessible(&browser, "a session that was ended").await;
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
async fn pages_of_jobs_threads_and_mail_are_accessible() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let patch = Patch::new().add("made.txt", "here");
    let script = Script::new()
        .on("ask", [touch, Reply::say("It is made.")])
        .on("look at it", [Reply::say("It is fine.")])
        .otherwise([Reply::patch(patch), Reply::say("It is there.")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    make_team(&web.stage, &["lead", "codex"]);
    let message = json!({ "from": "lead", "text": "Look", "read": false,
        "timestamp": "2026-11-26T10:00:00.000Z" });
    put_mail(&web.stage, "codex", std::slice::from_ref(&message));
    web.restart_with(&[("ATM_TEAM", "builders")]).await;
    let session = start_session(&mut web, "look at it").await;
    web.client.until_idle(&session).await;
    let asking = web.submit(&["--approval", "ask"], "ask").await;
    let directory = web.stage.home.work();
    let run = [
        ("task", "Write made.txt"),
        ("directory", directory.to_str().unwrap()),
        ("sandbox", "workspace-write"),
        ("files", "made.txt"),
    ];
    let started = web.post("/runs", &run).await;
    let run = started.json()["address"].as_str().unwrap().to_owned();
    web.page_with(&asking, ">Allow once").await;
    web.job_in(&run, "completed").await;

    let driver = Driver::start().await;
    for (size, scheme) in [(DESK, "dark"), (PHONE, "light")] {
        let browser = driver.browser(size, scheme).await;
        sign_in(&web, &browser).await;
        for (path, css, words) in [
            ("/", ".question", "touch made.txt"),
            (&asking, ".question", "touch made.txt"),
            (&run, ".criteria", "files=made.txt"),
            ("/threads", "main", "look at it"),
            ("/mail", "main", "Look"),
            ("/jobs/none", "main", "no such job"),
        ] {
            browser.open(path).await;
            browser.wait_for_text(css, words).await;
            assert_accessible(&browser, path).await;
        }
        browser.finish().await;
    }
    web.post(&format!("{asking}/cancel"), &[]).await;
    web.job_in(&asking, "cancelled").await;
    web.finish().await;
}

/// A change of the question is about to bring the preset back. The control is a text in a field without one.
#[tokio::test]
async fn preset_that_was_cleared_stays_empty() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const part = (mark) => `<div id='work' data-mark='${mark}'> \
            <input id='count' value='1'><input id='name'></div>`; \
        const field = (id) => document.getElementById(id); \
        take({ part: 'work', html: part('before') }); \
        field('count').value = ''; \
        field('name').value = 'me'; \
        take({ part: 'work', html: part('after') }); \
        return [field('work').dataset.mark, field('count').value, field('name').value]";
    let kept = browser.run(script, json!([])).await;
    assert_eq!(kept, json!(["after", "", "me"]));
    browser.finish().await;
    web.finish().await;
}

/// Another question takes the place of the one whose button is about to be clicked, or the first question
/// appears where something else is about to be clicked.
#[tokio::test]
async fn button_that_has_just_moved_is_not_pressed() {
    let mut web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let session = start_session(&mut web, "make it").await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const part = document.getElementById('work'); \
        const question = part.querySelector('input[name=question]'); \
        const html = part.outerHTML.replaceAll(question.value, 'another'); \
        if (arguments[0]) question.closest('.question').remove(); \
        say(''); \
        take({ part: 'work', html }); \
        document.querySelector('.question button.primary').click()";
    for is_first in [false, true] {
        browser.wait_for(ALLOW).await;
        browser.run(script, json!([is_first])).await;
        browser.wait_for_text("#status", "have just changed").await;
    }
    assert!(!web.stage.file("made.txt").exists());
    let asked = web.get(&format!("/sessions/{session}")).await;
    assert!(asked.contains("Allow once"), "{asked}");
    assert!(web.shell(&["decline", &session]).await);
    browser.wait_for_text("main", "Nothing waits").await;
    browser.finish().await;
    web.finish().await;
}

/// A browser has few connections to a server. No tab of a driven browser is hidden for sure, so the page is
/// told that it is.
#[tokio::test]
async fn tab_that_is_opened_in_the_background_gives_its_connection_back() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    let script = "window.isHidden = true; \
        Object.defineProperty(document, 'hidden', { get: () => window.isHidden }); \
        const original = EventSource.prototype.close; \
        EventSource.prototype.close = function () { \
          document.documentElement.dataset.closed = 'yes'; \
          original.call(this); \
        }";
    browser.run_on_each_page(script).await;
    sign_in(&web, &browser).await;
    browser.wait_for("html[data-closed]").await;
    // Whoever looks at it gets the present state.
    let look = "window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))";
    browser.run(look, json!([])).await;
    browser.wait_for("html:not([data-closed])").await;
    browser.finish().await;
    web.finish().await;
}

/// What somebody has begun to write is not lost by loading the page again.
#[tokio::test]
async fn page_with_a_changed_field_is_not_loaded_again() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const [html, change] = arguments; \
        const show = (html) => take({ part: 'work', html: `<div id='work'>${html}</div>` }); \
        show(''); \
        show(html); \
        say(''); \
        const before = isWritten(); \
        Object.assign(document.getElementById('field'), change); \
        reload(); \
        const said = document.getElementById('status').textContent; \
        return [before, isWritten(), said.includes('out of date')]";
    for (html, change) in [
        ("<textarea id='field'>a</textarea>", json!({ "value": "b" })),
        ("<input id='field' value='a'>", json!({ "value": "" })),
        ("<input id='field' type='number'>", json!({ "value": "1" })),
        (
            "<input id='field' type='number' value='ten'>",
            json!({ "value": "1" }),
        ),
        ("<input id='field' value='a\nb'>", json!({ "value": "b" })),
        (
            "<input id='field' type='password'>",
            json!({ "value": "b" }),
        ),
        (
            "<input type='hidden' value='a'><input id='field' type='checkbox' checked>",
            json!({ "checked": false }),
        ),
        (
            "<select id='field'><option>a</option><option>b</option></select>",
            json!({ "value": "b" }),
        ),
        (
            "<select id='field'><option>a</option><option selected>b</option></select>",
            json!({ "value": "a" }),
        ),
    ] {
        let written = browser.run(script, json!([html, change])).await;
        assert_eq!(written, json!([false, true, true]), "{html}");
    }
    browser.finish().await;
    web.finish().await;
}

/// The address of an idle session that the page knows.
async fn idle_session(web: &mut WebFixture) -> String {
    let session = start_session(web, "say it").await;
    web.client.until_idle(&session).await;
    wait_for("the session on the page", async || {
        web.hosts_session(&session).await.then_some(())
    })
    .await;
    format!("/sessions/{session}")
}

/// Other pages with the same credential watch as many sessions as they may.
#[tokio::test]
async fn page_that_may_not_watch_says_why_until_it_may() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    browser.open(&format!("http://{}/", web.address)).await;
    let share = "document.cookie = arguments[0]";
    browser.run(share, json!([web.cookie])).await;
    let mut watching = Vec::new();
    for _ in 0..8 {
        let path = idle_session(&mut web).await;
        let page = web.get(&path).await;
        let address = between(&page, "data-events=\"", "\"");
        watching.push(web.browser("GET", address).events().await);
    }
    let path = idle_session(&mut web).await;
    browser.open(&path).await;
    let why = "8 sessions are watched with this credential";
    browser.wait_for_text("#status", why).await;
    drop(watching.pop());
    browser.wait_for("#status:empty").await;
    browser.wait_for_text(".step.message", "done").await;
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
async fn click_is_not_lost_when_the_list_changes_in_between() {
    let mut web = WebFixture::new(testkit::codex::newest(), asking()).await;
    start_session(&mut web, "make it").await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    browser.wait_for(ALLOW).await.press_button().await;
    let script = "const part = document.getElementById('work'); \
        take({ part: 'work', html: part.outerHTML.replace('Under way', 'Running now') }); \
        return part.isConnected";
    assert_eq!(browser.run(script, json!([])).await, true);
    browser.release_button().await;
    browser.wait_for_text(".state", "idle").await;
    assert!(web.stage.file("made.txt").exists());
    browser.finish().await;
    web.finish().await;
}

/// A script cannot open the list as a person at the keyboard does, so the answer of the browser is
/// replaced.
#[tokio::test]
async fn list_of_options_stays_open_when_the_page_changes() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const before = isChoosing(); \
        window.chooses = true; \
        window.isChoosing = () => window.chooses; \
        take({ append: 'status', text: 'later' }); \
        return [OPEN, before, document.getElementById('status').textContent.includes('later')]";
    let shown = browser.run(script, json!([])).await;
    assert_eq!(shown, json!(["select:open", false, false]));
    browser.run("window.chooses = false", json!([])).await;
    browser.wait_for_text("#status", "later").await;
    browser.finish().await;
    web.finish().await;
}

/// Whoever writes is not disturbed by the steps of other sessions.
#[tokio::test]
async fn caret_stays_when_the_list_changes() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const part = (mark) => `<div id='work' data-mark='${mark}'> \
            <input id='name'><input id='count' type='number'></div>`; \
        const field = (id) => document.getElementById(id); \
        take({ part: 'work', html: part('before') }); \
        field('name').value = 'a name'; \
        field('name').focus(); \
        field('name').setSelectionRange(1, 3); \
        take({ part: 'work', html: part('between') }); \
        const { selectionStart, selectionEnd } = field('name'); \
        field('count').focus(); \
        take({ part: 'work', html: part('after') }); \
        return [selectionStart, selectionEnd, document.activeElement.id, field('work').dataset.mark]";
    let kept = browser.run(script, json!([])).await;
    assert_eq!(kept, json!([1, 3, "count", "after"]));
    browser.finish().await;
    web.finish().await;
}

/// The server answers to one message while the next one is written. The control is a form that stays as
/// it was sent.
#[tokio::test]
async fn message_that_is_written_while_one_is_sent_is_kept() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const form = document.querySelector(\"form[action='/sessions']\"); \
        const { prompt, directory } = form.elements; \
        say(''); \
        prompt.value = 'first'; \
        directory.value = '/'; \
        let answer; \
        window.fetch = () => new Promise((resolve) => { answer = resolve; }); \
        form.requestSubmit(); \
        prompt.value = arguments[0]; \
        answer(new Response('{\"done\": \"It is sent.\"}'))";
    for (written, kept) in [("first", ""), ("second", "second")] {
        browser.run(script, json!([written])).await;
        browser.wait_for_text("#status", "It is sent.").await;
        let field = "return document.querySelector('textarea[name=prompt]').value";
        assert_eq!(browser.run(field, json!([])).await, kept);
    }
    browser.finish().await;
    web.finish().await;
}

#[tokio::test]
async fn page_that_is_out_of_date_is_loaded_again_once_its_form_is_sent() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const form = document.querySelector(\"form[action='/sessions']\"); \
        document.documentElement.dataset.mark = 'old'; \
        form.elements.prompt.value = 'half'; \
        form.elements.directory.value = '/'; \
        reload(); \
        window.fetch = async () => new Response('{\"done\": \"It is sent.\"}'); \
        form.requestSubmit()";
    browser.run(script, json!([])).await;
    browser.wait_for("html:not([data-mark]) #work").await;
    browser.finish().await;
    web.finish().await;
}

/// What is written there could be copied.
#[tokio::test]
async fn page_of_a_session_that_is_gone_says_so_and_keeps_what_is_written() {
    let script = Script::new().otherwise([Reply::say("done")]);
    let mut web = WebFixture::new(testkit::codex::newest(), script).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let refused = "window.EventSource = class { \
          static CLOSED = 2; \
          readyState = 2; \
          constructor() { setTimeout(() => this.onerror()); } \
          addEventListener() {} \
          close() {} \
        }; \
        window.fetch = async (address) => address === '/endpoint' \
          ? new Response(document.body.dataset.endpoint) \
          : new Response('{\"error\": \"there is no such session\"}', { status: 404 }); \
        addEventListener('DOMContentLoaded', () => { \
          document.querySelector('textarea').value = 'half'; \
        })";
    let session = idle_session(&mut web).await;
    browser.run_on_each_page(refused).await;
    browser.open(&session).await;
    browser
        .wait_for_text("#status", "there is no such session")
        .await;
    let field = "return document.querySelector('textarea').value";
    assert_eq!(browser.run(field, json!([])).await, "half");
    browser.finish().await;
    web.finish().await;
}

/// A box that is read stays where it is, and one that is shown to its end shows what is new.
#[tokio::test]
async fn boxes_stay_where_they_are_scrolled_to_or_follow_their_end() {
    let web = WebFixture::new(testkit::codex::newest(), asking()).await;
    let driver = Driver::start().await;
    let browser = driver.browser(DESK, "light").await;
    sign_in(&web, &browser).await;
    let script = "const box = (id) => document.getElementById(id); \
        const isDown = (id) => box(id).scrollTop > 0 \
          && box(id).scrollTop + box(id).clientHeight >= box(id).scrollHeight - 2; \
        const show = (count) => { \
          const text = 'line\\n'.repeat(count); \
          take({ part: 'work', html: `<div id='work'><pre class='output' id='read'>${text}</pre> \
            <pre class='output' id='followed'>${text}</pre><pre class='diff' id='change'>${text}</pre> \
            <ol class='log' id='log'>${'<li>line</li>'.repeat(count)}</ol></div>` }); \
        }; \
        show(1); \
        show(100); \
        const first = [isDown('followed'), isDown('log'), box('change').scrollTop]; \
        box('read').scrollTop = 50; \
        box('change').scrollTop = 60; \
        show(200); \
        const later = [box('read').scrollTop, box('change').scrollTop, isDown('followed'), isDown('log')]; \
        for (const append of ['read', 'followed']) take({ append, text: 'line\\n'.repeat(9) }); \
        return [first, later, box('read').scrollTop, isDown('followed')]";
    let scrolled = browser.run(script, json!([])).await;
    let expected = json!([[true, true, 0], [50, 60, true, true], 50, true]);
    assert_eq!(scrolled, expected);
    browser.finish().await;
    web.finish().await;
}
