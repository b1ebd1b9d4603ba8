//! Jobs and runs on the page.

use std::fs;

use scripted_model::{Gate, Patch, Reply, Script, Shell};
use serde_json::Value;
use testkit::http::Response;
use testkit::write_program;

use super::WebFixture;
use super::story::{between, decision};
use crate::jobs::wait_for;
use crate::real::{CodexFixture, login};

impl WebFixture {
    /// Submits a job at a shell; returns its address on the page.
    pub(super) async fn submit(&self, args: &[&str], prompt: &str) -> String {
        let args = [&["jobs", "submit"], args, &[prompt]].concat();
        format!("/jobs/{}", self.output(&args).await)
    }

    /// The job at an address, when it is in this state.
    pub(super) async fn job_in(&self, address: &str, state: &str) -> Value {
        wait_for(state, async || {
            let path = format!("/api{address}");
            let shown = self.browser("GET", &path).send().await.json();
            (shown["job"]["status"] == state).then_some(shown)
        })
        .await
    }

    /// Restarts the endpoint with a Codex that runs these commands of a shell to report its login.
    async fn restart_with_login(&mut self, commands: &str) {
        let release = testkit::codex::newest();
        let program = self.stage.home.root().join("codex-program");
        let text = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo 'codex-cli {release}'; exit ;;\n\
             login) {commands} ;;\nesac\nexec '{}' \"$@\"\n",
            testkit::codex::native_binary(release).display()
        );
        write_program(&program, &text);
        self.restart_with(&[("CODEX_MCP_CODEX_BIN", program.to_str().unwrap())])
            .await;
    }

    /// The page at an address, when it has these words.
    pub(super) async fn page_with(&self, address: &str, words: &str) -> String {
        wait_for(words, async || {
            let page = self.get(address).await;
            page.contains(words).then_some(page)
        })
        .await
    }
}

#[tokio::test]
async fn job_is_approved_on_the_page_and_submitted_again() {
    let touch = || Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch(), Reply::say("First.")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let program = web.stage.home.root().join("told");
    write_program(&program, "#!/bin/sh\n");
    let notifier = format!("command:{}", program.display());
    let args = ["--approval", "ask", "--notify", &notifier];
    let address = web.submit(&args, "make <b>it</b>").await;
    let mut news = web
        .browser("GET", &format!("{address}/events"))
        .events()
        .await;
    let page = web.page_with(&address, ">Allow once").await;
    let question = between(&page, "name=\"question\" value=\"", "\"").to_owned();
    let accept = decision(&page, ">Allow once");
    let fields = [("question", &*question), ("decision", &*accept)];
    let answered = web.post(&format!("{address}/answer"), &fields).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let done = news
        .until(|event| event.data["html"].to_string().contains("First."))
        .await;
    let html = done.data["html"].as_str().unwrap();
    // Its log, and its prompt as text.
    assert!(html.contains("exit code 0: touch made.txt"), "{html}");
    assert!(html.contains("make &lt;b&gt;it&lt;/b&gt;"), "{html}");
    web.job_in(&address, "completed").await;
    news.until(|event| event.kind == "end").await;
    assert!(news.next().await.is_none());
    let page = web.get(&address).await;
    assert!(page.contains("answered on the page: accept"), "{page}");
    assert!(web.stage.file("made.txt").exists());
    let late = web.post(&format!("{address}/answer"), &fields).await;
    assert_eq!(late.status, 409, "{late:?}");

    let cancelled = web.post(&format!("{address}/cancel"), &[]).await;
    assert_eq!(cancelled.status, 409, "{cancelled:?}");

    fs::remove_file(&program).unwrap();
    let again = web.post(&format!("{address}/retry"), &[]).await;
    assert_eq!(again.status, 200, "{again:?}");
    let warning = "Submitted, but notifiers that cannot work are left out";
    assert!(again.body.contains(warning), "{again:?}");
    let second = again.json()["address"].as_str().unwrap().to_owned();
    assert_ne!(second, address);
    let shown = web.job_in(&second, "running").await;
    assert_eq!(shown["job"]["prompt"], "make <b>it</b>");
    web.page_with(&second, "Allow once").await;
    let cancelled = web.post(&format!("{second}/cancel"), &[]).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    web.job_in(&second, "cancelled").await;
    web.finish().await;
}

#[tokio::test]
async fn job_is_steered_on_the_page() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("late").behind(&gate)]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let address = web.submit(&[], "work").await;
    gate.reached(1).await;
    web.page_with(&address, "added to the turn that runs").await;
    let steer = format!("{address}/steer");
    let steered = web.post(&steer, &[("text", "in German")]).await;
    assert_eq!(steered.status, 200, "{steered:?}");
    let running = web.post(&format!("{address}/retry"), &[]).await;
    assert_eq!(running.status, 409, "{running:?}");
    gate.release();
    web.job_in(&address, "completed").await;
    let last = web.stage.model.requests().pop().unwrap();
    assert!(last.user_messages().contains(&"in German"));
    let ended = web.post(&steer, &[("text", "more")]).await;
    assert_eq!(ended.status, 409, "{ended:?}");
    for path in ["/jobs/00000000-0000-4000-8000-000000000000", "/jobs/%2e%2e"] {
        let none = web.browser("GET", path).send().await;
        assert_eq!(none.status, 404, "{path}: {none:?}");
    }
    web.finish().await;
}

/// An open page gets no further parts when the job starts.
#[tokio::test]
async fn job_that_waits_has_the_form_for_messages() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("done").behind(&gate)]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.configure("worker_concurrency = 1");
    let web = WebFixture::on(stage).await;
    web.submit(&[], "first").await;
    gate.reached(1).await;
    let waiting = web.submit(&[], "second").await;
    let page = web.get(&waiting).await;
    assert!(page.contains(">queued<"), "{page}");
    assert!(page.contains("added to the turn that runs"), "{page}");
    let steer = format!("{waiting}/steer");
    let early = web.post(&steer, &[("text", "more")]).await;
    assert_eq!(early.status, 409, "{early:?}");
    gate.release();
    web.job_in(&waiting, "completed").await;
    let page = web.get(&waiting).await;
    assert!(!page.contains("added to the turn that runs"), "{page}");
    web.finish().await;
}

#[tokio::test]
async fn run_is_started_on_the_page_and_its_criteria_are_a_check_list() {
    let patch = Patch::new().add("made.txt", "here");
    let script = Script::new().otherwise([Reply::patch(patch), Reply::say("It is there.")]);
    let web = WebFixture::new(testkit::codex::newest(), script).await;
    let directory = web.stage.home.work();
    let directory = directory.to_str().unwrap();
    let fields = [
        ("task", "Write made.txt"),
        ("directory", directory),
        ("sandbox", "workspace-write"),
        ("files", "made.txt\n"),
        ("diff_within", "made.txt\nfile\n"),
        ("commits", ""),
        ("command", "test -s made.txt"),
    ];
    let file = web.stage.file("file");
    fs::write(&file, "").unwrap();
    for (directory, sandbox, why) in [
        (
            "/no/such",
            "read-only",
            "there is no directory /no/such; `directory` names",
        ),
        (file.to_str().unwrap(), "read-only", "there is no directory"),
        (directory, "x", "sandbox"),
    ] {
        let wrong = [
            ("task", "t"),
            ("directory", directory),
            ("sandbox", sandbox),
        ];
        let refused = web.post("/runs", &wrong).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains(why), "{refused:?}");
    }
    let negative = [&fields[..3], &[("commits", "-1")][..]].concat();
    let refused = web.post("/runs", &negative).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let error = refused.json()["error"].as_str().unwrap().to_owned();
    let words = "commits: \"-1\" is not a number of commits";
    assert!(error.starts_with(words), "{error}");
    let misspelt = [&fields[..], &[("reviw", "on")][..]].concat();
    let refused = web.post("/runs", &misspelt).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.body.contains("did you mean `review`?"),
        "{refused:?}"
    );
    let started = web.post("/runs", &fields).await;
    assert_eq!(started.status, 200, "{started:?}");
    let address = started.json()["address"].as_str().unwrap().to_owned();
    let shown = web.job_in(&address, "completed").await;
    assert_eq!(shown["job"]["result"]["ok"], true, "{shown:#}");
    let page = web.get(&address).await;
    let list = between(&page, "class=\"criteria\"", "</ul>");
    for met in [
        "files=made.txt",
        "diff_within=file,made.txt",
        "command=test -s made.txt",
    ] {
        let item = format!(">met</span> <code>{met}<");
        assert!(list.contains(&item), "{list}");
    }
    web.finish().await;
}

#[tokio::test]
async fn read_only_run_of_the_page_names_the_field_of_its_form() {
    let web = WebFixture::new(testkit::codex::newest(), Script::new()).await;
    let directory = web.stage.home.work();
    let fields = [
        ("task", "t"),
        ("directory", directory.to_str().unwrap()),
        ("sandbox", "read-only"),
        ("commits", "1"),
    ];
    let refused = web.post("/runs", &fields).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let why = refused.json()["error"].as_str().unwrap().to_owned();
    let advice = "use the sandbox \"may write in the directory\"";
    assert!(why.contains(advice), "{why}");
    web.finish().await;
}

async fn start_run(web: &WebFixture) -> Response {
    let directory = web.stage.home.work();
    let fields = [
        ("task", "t"),
        ("directory", directory.to_str().unwrap()),
        ("sandbox", "read-only"),
    ];
    web.post("/runs", &fields).await
}

/// A shell reports the login at once. The hint is left out if that takes longer than 2 s.
#[tokio::test]
async fn run_without_a_login_is_submitted_with_a_hint() {
    let mut web = WebFixture::on(login::stage(testkit::codex::newest()).await).await;
    web.restart_with_login("echo 'Not logged in' >&2; exit 1")
        .await;
    let started = start_run(&web).await;
    assert_eq!(started.status, 200, "{started:?}");
    for words in ["Codex has no login", " login`"] {
        assert!(started.body.contains(words), "{started:?}");
    }
    let address = started.json()["address"].as_str().unwrap().to_owned();
    web.job_in(&address, "failed").await;
    assert_eq!(web.stage.model.request_count(), 0);
    web.finish().await;
}

/// Codex reports its login within 20 ms, but it can be a program that hangs. It is ended after 2 s,
/// however long the submission takes; other callers give it 5 s.
#[tokio::test]
async fn submitted_run_does_not_wait_for_a_codex_that_hangs() {
    let mut web = WebFixture::on(login::stage(testkit::codex::newest()).await).await;
    let waited = web.stage.home.root().join("waited");
    let hanging = format!("sleep 4 && : > '{}'; exec sleep 600", waited.display());
    web.restart_with_login(&hanging).await;
    let started = start_run(&web).await;
    assert!(!waited.exists());
    assert_eq!(started.status, 200, "{started:?}");
    assert!(!started.body.contains("no login"), "{started:?}");
    let address = started.json()["address"].as_str().unwrap().to_owned();
    web.job_in(&address, "failed").await;
    web.finish().await;
}
