use serde_json::json;
use settings::Setting;
use settings::bounds::Bounds;

use super::*;

fn submitter(reach: Reach) -> Submitter {
    Submitter {
        program: "a client".to_owned(),
        identity: Some("arch".parse().unwrap()),
        team: None,
        atm_home: "/home/me".into(),
        mail: ThreadMail::Given,
        host: "here".to_owned(),
        codex: Some(("/bin/sh".into(), Source::FlagOrVariable)),
        codex_home: "/home/me/.codex".into(),
        defaults: ThreadDefaults::default(),
        bounds: Bounds::default(),
        reach,
    }
}

fn order() -> (tempfile::TempDir, Order) {
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().canonicalize().unwrap();
    (directory, Order::new("do it", cwd))
}

#[test]
fn an_order_has_the_defaults_of_the_contract() {
    let (_directory, order) = order();
    let cwd = order.cwd.to_str().unwrap().to_owned();
    let request = submitter(Reach::Here).request(order, None).unwrap();
    let expected = Request {
        agent_source: Some("a client".to_owned()),
        submitted_by: Some("arch".to_owned()),
        host: Some("here".to_owned()),
        codex_home: Some("/home/me/.codex".to_owned()),
        codex_bin: Some("/bin/sh".to_owned()),
        ..Request::new("do it", cwd)
    };
    assert_eq!(request, expected);
    assert_eq!(
        (request.timeout_ms, request.tool_timeout_ms),
        (60_000, 300_000)
    );
}

#[test]
fn what_an_order_says_goes_before_what_is_set() {
    let setting = |value| Some(Setting::new(value, settings::Source::Default));
    let submitter = Submitter {
        defaults: ThreadDefaults {
            model: Some(Setting::new("set".to_owned(), settings::Source::Default)),
            sandbox: setting(SandboxMode::ReadOnly),
            ..ThreadDefaults::default()
        },
        ..submitter(Reach::Here)
    };
    let (_directory, plain) = order();
    let request = submitter.request(plain.clone(), None).unwrap();
    assert_eq!(request.model_override.as_deref(), Some("set"));
    assert_eq!(request.sandbox.as_deref(), Some("read-only"));
    assert_eq!(request.effort, None);
    let order = Order {
        model: Some("asked".to_owned()),
        sandbox: Some(SandboxMode::WorkspaceWrite),
        effort: Some(Effort::Xhigh),
        ..plain
    };
    let request = submitter.request(order, None).unwrap();
    assert_eq!(request.model_override.as_deref(), Some("asked"));
    assert_eq!(request.sandbox.as_deref(), Some("workspace-write"));
    assert_eq!(request.effort.as_deref(), Some("xhigh"));
}

/// Only where several machines share a store does it matter which has what is named.
#[test]
fn a_job_runs_where_its_session_and_its_pictures_are() {
    let (directory, plain) = order();
    std::fs::write(directory.path().join("a.png"), b"\x89PNG\r\n\x1a\n....").unwrap();
    let with_picture = Order {
        images: vec!["a.png".to_owned()],
        ..plain.clone()
    };
    let past = || {
        Some(Thread {
            session: "s".to_owned(),
            host: "there".to_owned(),
        })
    };
    let run_on = |reach, order: &Order, past| {
        let request = submitter(reach).request(order.clone(), past).unwrap();
        request.run_on
    };
    assert_eq!(run_on(Reach::Anywhere, &plain, None), None);
    assert_eq!(
        run_on(Reach::Anywhere, &with_picture, None).as_deref(),
        Some("here")
    );
    assert_eq!(
        run_on(Reach::Anywhere, &with_picture, past()).as_deref(),
        Some("there")
    );
    assert_eq!(run_on(Reach::Here, &with_picture, past()), None);
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let (directory, good) = order();
    let refused = |reach, order: Order| {
        let refused = submitter(reach).request(order, None);
        refused.unwrap_err().to_string()
    };
    let with = |change: fn(&mut Order)| {
        let mut order = good.clone();
        change(&mut order);
        refused(Reach::Here, order)
    };
    assert_eq!(
        with(|order| order.prompt = " \n".to_owned()),
        "prompt must not be empty"
    );
    assert_eq!(with(|order| order.cwd = "".into()), "cwd must not be empty");
    assert!(
        with(|order| order.cwd = "/not/there".into()).starts_with("cwd: there is no directory")
    );
    assert!(with(|order| order.task_name = Some("a\nb".to_owned())).contains("control character"));
    assert!(with(|order| order.task_name = Some("ß".repeat(201))).contains("200"));
    assert!(with(|order| order.retry = 11).contains("at most 10"));
    assert!(with(|order| order.timeout = Duration::ZERO).starts_with("timeout_ms must be"));
    assert!(
        with(|order| order.tool_timeout = Some(Duration::MAX)).starts_with("tool_timeout_ms must")
    );
    assert!(with(|order| order.images = vec!["absent.png".to_owned()]).starts_with("images: "));
    assert!(with(|order| order.images = vec![String::new(); 21]).contains("20 at most"));
    std::fs::write(directory.path().join("not.png"), "text").unwrap();
    assert!(with(|order| order.images = vec!["not.png".to_owned()]).contains("is not a PNG"));

    // Another machine may have the directory.
    let mut elsewhere = good.clone();
    elsewhere.cwd = "/not/there".into();
    let request = submitter(Reach::Anywhere).request(elsewhere, None).unwrap();
    assert_eq!(request.cwd, "/not/there");
}

#[test]
fn a_directory_has_one_name() {
    let (directory, plain) = order();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&plain.cwd, &link).unwrap();
    let linked = Order {
        cwd: link,
        output_schema: json!({ "type": "object" }).as_object().cloned(),
        ..plain.clone()
    };
    let request = submitter(Reach::Here).request(linked, None).unwrap();
    assert_eq!(Path::new(&request.cwd), plain.cwd);
    assert_eq!(request.output_schema, Some(json!({ "type": "object" })));
}

#[test]
fn a_codex_that_is_not_there_is_told_before_anything_waits_for_it() {
    let (_directory, plain) = order();
    let with = |reach, codex: Option<&str>| Submitter {
        codex: codex.map(|path| (path.into(), Source::FlagOrVariable)),
        ..submitter(reach)
    };
    for reach in [Reach::Here, Reach::Anywhere] {
        let refused = with(reach, Some("/not/there")).request(plain.clone(), None);
        let why = refused.unwrap_err().to_string();
        assert!(
            why.contains("/not/there") && why.contains("npm install"),
            "{why}"
        );
    }
}

#[test]
fn time_of_a_question_goes_with_questions() {
    let refused = |approval, time| {
        let (_directory, order) = order();
        let order = Order {
            approval,
            approval_timeout: Some(time),
            ..order
        };
        let request = submitter(Reach::Here).request(order, None);
        request
            .map(|request| request.settings)
            .map_err(|error| error.to_string())
    };
    let second = Duration::from_secs(1);
    let kept = json!({ "approval": "ask", "approval_timeout_ms": 1000 });
    assert_eq!(refused(Approval::Ask, second), Ok(Some(kept)));
    let why = refused(Approval::Never, second).unwrap_err();
    assert!(why.contains("goes with approval \"ask\""), "{why}");
    for time in [Duration::ZERO, Duration::from_secs(100_000)] {
        let why = refused(Approval::Ask, time).unwrap_err();
        assert!(why.contains("from 1000 to 86400000"), "{why}");
    }
}
