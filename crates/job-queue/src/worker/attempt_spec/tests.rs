use std::sync::Arc;
use std::time::UNIX_EPOCH;

use codex_engine::binary;
use codex_engine::thread_tools::NoTools;
use codex_protocol::codex::{Effort, SandboxMode};
use goal_run::spec::{Approve, RunSpec as RunOrder};
use settings::CONCURRENCY;
use settings::bounds::Bounds;
use settings::store_access::OthersJobs;
use settings::store_location::Location;
use tempfile::TempDir;
use testkit::write_program;

use super::*;
use crate::logic::{Cancellation, JobId, JobState, WaitHistory};
use crate::run::spec::StoredRun;
use crate::store::{JobSummary, Owner, Ownership, PromptText};
use crate::worker::{GRACE, JobTools, Timing, UsualNotifiers};

const FIRST: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f1";
const SECOND: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f2";

/// A directory with two Codex programs.
pub(in crate::worker) struct TestHost(TempDir);

impl TestHost {
    pub(in crate::worker) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["ours", "theirs"] {
            let path = place.path(name);
            write_program(&path, "#!/bin/sh\necho codex-cli 0.169.0\n");
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(in crate::worker) fn options(&self) -> Options {
        Options {
            bounds: Bounds::default().into(),
            location: Location::Sqlite(self.path("jobs.db")),
            host: "here".to_owned(),
            codex: Some((self.path("ours"), Source::FlagOrVariable)),
            codex_home: self.path("our-home"),
            tools: JobTools::new(|_| Arc::new(NoTools)),
            state: self.path("state"),
            concurrency: CONCURRENCY,
            idle: None,
            grace: GRACE,
            others: OthersJobs::Leave,
            stall: std::time::Duration::from_secs(300),
            keep_jobs: std::time::Duration::MAX,
            notifiers: UsualNotifiers {
                notify: Vec::new(),
                kinds: Vec::new(),
                answer_by_mail: false,
                user_identity: None,
                atm_home: PathBuf::new(),
                audit_limit: 10 << 20,
            },
            timing: Timing::default(),
        }
    }

    fn asked(&self) -> Request {
        let cwd = self.0.path().to_str().unwrap();
        Request::new("p", cwd)
    }

    fn session(&self, attempts: u32, earlier: Option<&str>, asked: Option<&str>) -> Job {
        let mut request = self.asked();
        request.resume_session_id = asked.map(str::to_owned);
        let summary = JobSummary {
            id: JobId::from_random(0),
            state: JobState::Running,
            tool_name: String::new(),
            task_name: String::new(),
            cwd: String::new(),
            created_at: UNIX_EPOCH,
            started_at: None,
            completed_at: None,
            session_id: earlier.map(str::to_owned),
            error: None,
            cancellation: Cancellation::NotRequested,
            wait: None,
            owner: Owner {
                name: Some("ana@there".to_owned()),
                role: None,
                ownership: Ownership::Ours,
            },
        };
        Job {
            summary,
            request,
            origin: Origin::ThisMachine,
            session_origin: Origin::ThisMachine,
            prompt: PromptText::Whole,
            attempts,
            waits: 0,
            wait_history: WaitHistory::default(),
            worker: None,
            worker_host: None,
            exchange_id: None,
            result: None,
        }
    }
}

#[test]
fn codex_of_a_job_is_used_on_its_own_host_only() {
    let place = TestHost::new();
    let file = place.options();
    let server = Options {
        location: "postgres://localhost/jobs".parse().unwrap(),
        ..place.options()
    };
    let mut job = place.session(1, None, None);
    job.request.codex_bin = Some(place.path("theirs").to_str().unwrap().to_owned());
    job.request.codex_home = Some("/their-home".to_owned());
    let theirs = ("theirs", PathBuf::from("/their-home"));
    let ours = ("ours", place.path("our-home"));
    for (options, origin, host, (binary, home)) in [
        (&server, Origin::ThisMachine, Some("here"), &theirs),
        (&server, Origin::ThisMachine, Some("there"), &ours),
        (&server, Origin::ThisMachine, None, &ours),
        (&file, Origin::ThisMachine, Some("renamed"), &theirs),
        (&server, Origin::Unproven, Some("here"), &ours),
        (&file, Origin::Unproven, Some("here"), &ours),
    ] {
        job.origin = origin;
        job.request.host = host.map(str::to_owned);
        let codex = binary::find(chosen(&job, options)).unwrap();
        assert_eq!(codex.native, place.path(binary));
        assert_eq!(codex_home(&job, options), *home);
    }
    job.origin = Origin::ThisMachine;
    job.request.codex_bin = Some("/absent".to_owned());
    let error = binary::find(chosen(&job, &file)).unwrap_err().to_string();
    assert!(error.contains("/absent (from the job)"), "{error}");
}

#[test]
fn job_of_others_is_refused_unless_this_host_runs_them() {
    let place = TestHost::new();
    let mut options = place.options();
    let mut job = place.session(1, None, None);
    job.origin = Origin::Unproven;
    let refused = |job: &Job, options: &Options| admission::check(job, options).err();
    let not_signed = refused(&job, &options).unwrap().to_string();
    assert!(not_signed.contains("state/host.key"), "{not_signed}");
    assert!(
        not_signed.contains("jobs_of_others = \"run\""),
        "{not_signed}"
    );
    options.others = OthersJobs::Run;
    assert_eq!(refused(&job, &options), None);
    job.request.sandbox = Some("workspace-write".to_owned());
    assert_eq!(refused(&job, &options), None);
    job.request.sandbox = Some("danger-full-access".to_owned());
    job.request.profile = Some("wild".to_owned());
    let parts = refused(&job, &options).unwrap().to_string();
    assert!(parts.contains("job of ana@there"), "{parts}");
    assert!(
        parts.contains("the sandbox danger-full-access, the profile \"wild\", which"),
        "{parts}"
    );
    job.origin = Origin::ThisMachine;
    assert_eq!(refused(&job, &options), None);
}

/// A change that makes a run name a program.
type Change = fn(&mut RunOrder);

#[test]
fn parts_of_a_run_that_name_programs_are_taken_from_this_host_only() {
    let place = TestHost::new();
    let options = Options {
        others: OthersJobs::Run,
        ..place.options()
    };
    let cwd = place.0.path().to_str().unwrap();
    let refused = |change: Change| {
        let mut spec = RunOrder::new("t", cwd);
        change(&mut spec);
        let mut job = place.session(1, None, None);
        job.request.run = Some(serde_json::json!({ "order": spec }));
        let stored = StoredRun::of(&job.request).unwrap().unwrap();
        assert_eq!(stored.spec, spec);
        assert_eq!(admission::check(&job, &options), Ok(()));
        job.origin = Origin::Unproven;
        let refusal = admission::check(&job, &options).err();
        refusal.map(|refusal| refusal.to_string())
    };
    assert_eq!(
        refused(|spec| spec.criteria = serde_json::from_str(r#"{"clean": true}"#).unwrap()),
        None
    );
    let changes: [(Change, &str); 7] = [
        (
            |spec| spec.criteria = serde_json::from_str(r#"{"command": "make x"}"#).unwrap(),
            "the exit criterion \"command=make x\"",
        ),
        (
            |spec| spec.notify = vec!["command:/tmp/evil -x".parse().unwrap()],
            "the notifier \"command:/tmp/evil -x\"",
        ),
        (
            |spec| spec.notify = vec!["mail:lead".parse().unwrap()],
            "the notifier \"mail:lead\"",
        ),
        (|spec| spec.approve = Approve::Always, "approve = always"),
        (
            |spec| spec.settings.profile = Some("wild".to_owned().try_into().unwrap()),
            "a profile",
        ),
        (
            |spec| {
                let config = &mut spec.settings.thread.config;
                config.insert("notify".to_owned(), "x".into());
            },
            "config.toml",
        ),
        (
            |spec| spec.settings.thread.sandbox = Some(SandboxMode::DangerFullAccess),
            "the sandbox danger-full-access",
        ),
    ];
    for (change, part) in changes {
        let said = refused(change).unwrap();
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn later_attempt_resumes_the_earlier_session() {
    let place = TestHost::new();
    let id = |id: &str| ThreadId::parse(id).unwrap();
    let resumed = |attempts, earlier, asked| {
        let job = place.session(attempts, earlier, asked);
        session(&job).unwrap()
    };
    assert_eq!(resumed(1, None, None), (None, IfUnknown::Fail));
    assert_eq!(
        resumed(1, None, Some(FIRST)),
        (Some(id(FIRST)), IfUnknown::Fail)
    );
    assert_eq!(resumed(2, None, None), (None, IfUnknown::Fail));
    assert_eq!(
        resumed(2, Some(FIRST), None),
        (Some(id(FIRST)), IfUnknown::Begin(None))
    );
    assert_eq!(
        resumed(2, Some(FIRST), Some(FIRST)),
        (Some(id(FIRST)), IfUnknown::Fail)
    );
    assert_eq!(
        resumed(2, Some(FIRST), Some(SECOND)),
        (Some(id(FIRST)), IfUnknown::Begin(Some(id(SECOND))))
    );
    session(&place.session(1, None, Some("latest"))).unwrap_err();
}

#[test]
fn later_attempt_does_not_resume_a_session_that_is_not_signed() {
    let place = TestHost::new();
    for (asked, resumed) in [
        (None, None),
        (Some(SECOND), Some(ThreadId::parse(SECOND).unwrap())),
    ] {
        let mut job = place.session(2, Some(FIRST), asked);
        job.session_origin = Origin::Unproven;
        assert_eq!(session(&job).unwrap(), (resumed, IfUnknown::Fail));
    }
}

#[tokio::test]
async fn settings_are_parsed_from_codex_names() {
    assert_eq!(
        word("sandbox", Some("workspace-write")).unwrap(),
        Some(SandboxMode::WorkspaceWrite)
    );
    assert_eq!(word("effort", Some("xhigh")).unwrap(), Some(Effort::Xhigh));
    assert_eq!(word::<Effort>("effort", None).unwrap(), None);
    let error = word::<SandboxMode>("sandbox", Some("beach")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"beach\" is not a sandbox that Codex knows"
    );
    profile(Some("../x")).unwrap_err();
    schema(Some(&Value::from(7))).unwrap_err();
    let absent = images(&["absent.png".to_owned()], Path::new("/")).await;
    absent.unwrap_err();
}

#[test]
fn mail_is_given_to_jobs_that_this_host_has_signed() {
    let mut job = TestHost::new().session(1, None, None);
    job.request.submitted_by = Some("arch".to_owned());
    let team: TeamName = "builders".parse().unwrap();
    let home = Path::new("/home/me");
    let of = |job: &Job, given| mail(job, given, Some(&team), Some(home));
    let given = of(&job, ThreadMail::Given).unwrap();
    assert_eq!(given.member.identity.to_string(), "arch");
    assert_eq!(
        (given.member.team.as_ref(), &*given.atm_home),
        (Some(&team), home)
    );
    assert_eq!(of(&job, ThreadMail::Withheld), None);
    assert_eq!(mail(&job, ThreadMail::Given, None, Some(home)), None);
    job.origin = Origin::Unproven;
    assert_eq!(of(&job, ThreadMail::Given), None);
    assert_eq!(member(&job, None), None);
}

/// As a control, a job of this machine gets the user's default.
#[tokio::test]
async fn job_of_others_is_not_given_a_default_without_a_sandbox() {
    let place = TestHost::new();
    let home = place.path("our-home");
    std::fs::create_dir(&home).unwrap();
    let config = "sandbox_mode = \"danger-full-access\"\n";
    std::fs::write(home.join("config.toml"), config).unwrap();
    let options = Options {
        others: OthersJobs::Run,
        ..place.options()
    };
    for (origin, sandbox) in [
        (Origin::ThisMachine, None),
        (Origin::Unproven, Some(SandboxMode::WorkspaceWrite)),
    ] {
        let mut job = place.session(1, None, None);
        job.origin = origin;
        let spec = attempt_spec(&job, &options).await.unwrap();
        assert_eq!(spec.request.sandbox, sandbox);
    }
}
