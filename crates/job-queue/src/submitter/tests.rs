use std::time::Duration;

use serde_json::json;
use settings::Setting;
use settings::bounds::Bounds;

use super::*;
use crate::call_settings::Approval;

pub(crate) fn submitter(scope: StoreScope) -> Submitter {
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
        directory: "".into(),
        scope,
    }
}

fn spec() -> (tempfile::TempDir, JobSpec) {
    let directory = tempfile::tempdir().unwrap();
    let cwd = directory.path().canonicalize().unwrap();
    (directory, JobSpec::new("do it", cwd))
}

#[test]
fn spec_has_the_defaults_of_the_contract() {
    let (_directory, spec) = spec();
    let cwd = spec.cwd.to_str().unwrap().to_owned();
    let request = submitter(StoreScope::Here).request(spec, None).unwrap();
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
fn spec_takes_precedence_over_settings() {
    let setting = |value| Some(Setting::new(value, settings::Source::Default));
    let submitter = Submitter {
        defaults: ThreadDefaults {
            model: Some(Setting::new("set".to_owned(), settings::Source::Default)),
            sandbox: setting(SandboxMode::ReadOnly),
            ..ThreadDefaults::default()
        },
        ..submitter(StoreScope::Here)
    };
    let (_directory, plain) = spec();
    let request = submitter.request(plain.clone(), None).unwrap();
    assert_eq!(request.model_override.as_deref(), Some("set"));
    assert_eq!(request.sandbox.as_deref(), Some("read-only"));
    assert_eq!(request.effort, None);
    let spec = JobSpec {
        model: Some("asked".to_owned()),
        sandbox: Some(SandboxMode::WorkspaceWrite),
        effort: Some(Effort::Xhigh),
        ..plain
    };
    let request = submitter.request(spec, None).unwrap();
    assert_eq!(request.model_override.as_deref(), Some("asked"));
    assert_eq!(request.sandbox.as_deref(), Some("workspace-write"));
    assert_eq!(request.effort.as_deref(), Some("xhigh"));
}

#[test]
fn notifier_that_cannot_work_is_refused_where_the_job_runs_here() {
    let (_directory, plain) = spec();
    let of = |scope, notifier: &str| {
        let spec = JobSpec {
            notify: vec![notifier.parse().unwrap()],
            ..plain.clone()
        };
        submitter(scope).request(spec, None)
    };
    assert!(of(StoreScope::Here, "command:true").is_ok());
    let refused = of(StoreScope::Here, "command:/nope/x").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "notify: command:/nope/x cannot work: there is no program /nope/x; install it, or write \
         its path"
    );
    // Another machine may have the program.
    assert!(of(StoreScope::Anywhere, "command:/nope/x").is_ok());
}

/// A profile that is narrower than our own configuration stays in force.
#[test]
fn profile_and_config_of_a_job_take_precedence_over_settings() {
    let submitter = Submitter {
        defaults: ThreadDefaults {
            model: Some(Setting::new("set".to_owned(), settings::Source::Default)),
            reasoning_effort: Some(Setting::new(Effort::High, settings::Source::Default)),
            sandbox: Some(Setting::new(
                SandboxMode::WorkspaceWrite,
                settings::Source::Default,
            )),
            ..ThreadDefaults::default()
        },
        ..submitter(StoreScope::Anywhere)
    };
    let sent = |spec: JobSpec| {
        let request = submitter.request(spec, None).unwrap();
        (request.model_override, request.effort, request.sandbox)
    };
    let text = |text: &str| Some(text.to_owned());
    let (_directory, plain) = spec();
    let configured = (text("set"), text("high"), text("workspace-write"));
    assert_eq!(sent(plain.clone()), configured);
    let with_profile = JobSpec {
        profile: Some("careful".to_owned().try_into().unwrap()),
        ..plain.clone()
    };
    assert_eq!(sent(with_profile.clone()), (None, None, None));
    let with_both = JobSpec {
        model: text("asked"),
        sandbox: Some(SandboxMode::ReadOnly),
        ..with_profile
    };
    assert_eq!(sent(with_both), (text("asked"), None, text("read-only")));
    let config = json!({ "model": "m", "model_reasoning_effort": "low" });
    let with_config = JobSpec {
        config: config.as_object().cloned().unwrap(),
        ..plain
    };
    assert_eq!(sent(with_config), (None, None, text("workspace-write")));
}

/// The default of jobs may write.
#[test]
fn profile_without_a_sandbox_keeps_our_own_read_only() {
    let home = tempfile::tempdir().unwrap();
    let submitter = Submitter {
        defaults: ThreadDefaults {
            sandbox: Some(Setting::new(
                SandboxMode::ReadOnly,
                settings::Source::Default,
            )),
            ..ThreadDefaults::default()
        },
        codex_home: home.path().to_owned(),
        ..submitter(StoreScope::Here)
    };
    let (_directory, plain) = spec();
    let with_profile = JobSpec {
        profile: Some("quick".to_owned().try_into().unwrap()),
        ..plain
    };
    for (profile, sandbox) in [
        ("model = \"m\"\n", Some("read-only")),
        ("sandbox_mode = \"workspace-write\"\n", None),
    ] {
        std::fs::write(home.path().join("quick.config.toml"), profile).unwrap();
        let request = submitter.request(with_profile.clone(), None).unwrap();
        assert_eq!(request.sandbox.as_deref(), sandbox, "{profile}");
    }
}

/// Only where several machines share a store does it matter which machine has the named files.
#[test]
fn job_runs_where_its_session_and_pictures_are() {
    let (directory, plain) = spec();
    std::fs::write(directory.path().join("a.png"), b"\x89PNG\r\n\x1a\n....").unwrap();
    let with_picture = JobSpec {
        images: vec!["a.png".to_owned()],
        ..plain.clone()
    };
    let continuation = || {
        Some(SessionLocation {
            session: "s".to_owned(),
            host: "there".to_owned(),
        })
    };
    let run_on = |scope, spec: &JobSpec, continuation| {
        let request = submitter(scope)
            .request(spec.clone(), continuation)
            .unwrap();
        request.run_on
    };
    assert_eq!(run_on(StoreScope::Anywhere, &plain, None), None);
    assert_eq!(
        run_on(StoreScope::Anywhere, &with_picture, None).as_deref(),
        Some("here")
    );
    assert_eq!(
        run_on(StoreScope::Anywhere, &with_picture, continuation()).as_deref(),
        Some("there")
    );
    assert_eq!(
        run_on(StoreScope::Here, &with_picture, continuation()),
        None
    );
}

#[test]
fn invalid_spec_is_refused_with_the_reason() {
    let (directory, good) = spec();
    let refused = |scope, spec: JobSpec| {
        let refused = submitter(scope).request(spec, None);
        refused.unwrap_err().to_string()
    };
    let with = |change: fn(&mut JobSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        refused(StoreScope::Here, spec)
    };
    assert_eq!(
        with(|spec| spec.prompt = " \n".to_owned()),
        "prompt must not be empty"
    );
    assert_eq!(with(|spec| spec.cwd = "".into()), "cwd must not be empty");
    assert!(with(|spec| spec.cwd = "/not/there".into()).starts_with("cwd: there is no directory"));
    assert!(with(|spec| spec.task_name = Some("a\nb".to_owned())).contains("control character"));
    assert!(with(|spec| spec.task_name = Some("ß".repeat(201))).contains("200"));
    assert!(with(|spec| spec.retry = 11).contains("at most 10"));
    assert!(with(|spec| spec.timeout = Duration::ZERO).starts_with("timeout_ms must be"));
    assert!(
        with(|spec| spec.tool_timeout = Some(Duration::MAX)).starts_with("tool_timeout_ms must")
    );
    assert!(with(|spec| spec.images = vec!["absent.png".to_owned()]).starts_with("images: "));
    assert!(with(|spec| spec.images = vec![String::new(); 21]).contains("20 at most"));
    std::fs::write(directory.path().join("not.png"), "text").unwrap();
    assert!(with(|spec| spec.images = vec!["not.png".to_owned()]).contains("is not a PNG"));

    // Another machine may have the directory.
    let mut elsewhere = good.clone();
    elsewhere.cwd = "/not/there".into();
    let request = submitter(StoreScope::Anywhere)
        .request(elsewhere, None)
        .unwrap();
    assert_eq!(request.cwd, "/not/there");
}

#[test]
fn directory_is_stored_without_links() {
    let (directory, plain) = spec();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&plain.cwd, &link).unwrap();
    let linked = JobSpec {
        cwd: link,
        output_schema: json!({ "type": "object" }).as_object().cloned(),
        ..plain.clone()
    };
    let request = submitter(StoreScope::Here).request(linked, None).unwrap();
    assert_eq!(Path::new(&request.cwd), plain.cwd);
    assert_eq!(request.output_schema, Some(json!({ "type": "object" })));
}

#[test]
fn missing_codex_is_refused_at_submission() {
    let (_directory, plain) = spec();
    let with = |scope, codex: Option<&str>| Submitter {
        codex: codex.map(|path| (path.into(), Source::FlagOrVariable)),
        ..submitter(scope)
    };
    for scope in [StoreScope::Here, StoreScope::Anywhere] {
        let refused = with(scope, Some("/not/there")).request(plain.clone(), None);
        let why = refused.unwrap_err().to_string();
        assert!(
            why.contains("/not/there") && why.contains("npm install"),
            "{why}"
        );
    }
}

#[test]
fn approval_timeout_requires_approval_ask() {
    let refused = |approval, time| {
        let (_directory, spec) = spec();
        let spec = JobSpec {
            approval,
            approval_timeout: Some(time),
            ..spec
        };
        let request = submitter(StoreScope::Here).request(spec, None);
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
