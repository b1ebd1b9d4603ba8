//! The specification of a run as a job, and how its submitter completes and checks it.

use std::time::Duration;

use agent_team::logic::TeamName;
use codex_config::profile::check_exists;
use codex_config::writable_roots;
use codex_engine::binary;
use codex_protocol::codex::SandboxMode;
use common::json::as_word;
use common::secrets::mask;
use common::text::one_line;
use goal_run::spec::{Approve, RunSpec};
use goal_run::{Caller, NoWriteAccess, ReadOnlyCause};
use safe_files::directory;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::ExplicitSettings;
use settings::bounds::SubmitterBound;

use crate::call_settings::ThreadMail;
use crate::spec::{BadJobSpec, MOST_RETRIES, is_name, millis};
use crate::store::Request;
use crate::submitter::{StoreScope, Submitter};

/// The tool whose jobs are runs.
pub const TOOL: &str = "codex_run";

/// The time that a run may take beyond its own limit (15 min): its repository is inspected
/// before the first turn and after the last one, with commands of 5 min each.
const LOOKING: Duration = Duration::from_secs(900);

/// The limit of a name that is taken from the beginning of the task, in bytes.
const NAME: usize = 80;

/// The specification of a run as a job.
#[derive(Debug, Clone, PartialEq)]
pub struct RunJobSpec {
    /// The run. A relative directory starts at ours.
    pub run: RunSpec,
    /// The caller, for how messages name options.
    pub caller: Caller,
    /// The program that requests the run, if it is not the submitter's own.
    pub client: Option<String>,
    /// The caller's name of the run; else the beginning of the task.
    pub task_name: Option<String>,
    /// How often the run may start again when its worker is lost.
    pub retry: u32,
}

impl RunJobSpec {
    /// A specification with the defaults beside the run itself.
    #[must_use]
    pub fn new(run: RunSpec) -> Self {
        Self {
            run,
            caller: Caller::default(),
            client: None,
            task_name: None,
            retry: 0,
        }
    }
}

/// The stored specification of a run, with the submitter's settings that its worker needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The run.
    #[serde(rename = "order")]
    pub spec: RunSpec,
    /// The caller, for how messages name options.
    #[serde(default)]
    pub caller: Caller,
    /// Whether the threads may use the submitter's mail.
    #[serde(default, skip_serializing_if = "ThreadMail::is_withheld")]
    pub mail: ThreadMail,
    /// The submitter's team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// The home directory of teams, for notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atm_home: Option<String>,
    /// Why the sandbox is read-only, if the submitter knows the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<ReadOnlyCause>,
    /// The bound on the submitter's sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<SubmitterBound>,
}

impl StoredRun {
    /// Reads the run of a request; `None` if the request is for no run.
    ///
    /// # Errors
    ///
    /// If it cannot be parsed: a newer program may have written it.
    pub fn of(request: &Request) -> Option<Result<Self, serde_json::Error>> {
        let stored = request.run.clone()?;
        Some(serde_json::from_value(stored))
    }
}

impl Submitter {
    /// Checks the specification of a run, and completes it to the stored request. The run stays
    /// on this machine, which has its repository.
    pub(crate) fn run_request(&self, spec: RunJobSpec) -> Result<Request, BadJobSpec> {
        let RunJobSpec {
            mut run,
            caller,
            client,
            task_name,
            retry,
        } = spec;
        run.check_repo_is_named()?;
        run.repo = self
            .bounds
            .repository(&directory::resolved(&self.directory.join(&run.repo)))?;
        run.check()?;
        writable_roots::resolve(&mut run.settings.thread.config, &run.repo);
        self.bounds.check_config(&run.settings.thread.config)?;
        let approves_all = run.approve == Approve::Always;
        self.bounds
            .check_run(&run.criteria, &run.notify, approves_all)?;
        if retry > MOST_RETRIES {
            return Err(BadJobSpec::Retry);
        }
        if task_name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(BadJobSpec::Name);
        }
        if run.approve == Approve::Ask {
            // There is nobody to ask.
            run.approve = Approve::Never;
        }
        if let Some(profile) = &run.settings.profile {
            check_exists(&self.codex_home, profile)?;
        }
        let read_only = self.read_only_cause(&run, caller);
        self.fill_in(&mut run)?;
        if run.needs_to_write() && run.is_read_only() {
            let profile = run.settings.profile.as_ref();
            let of_codex = || ReadOnlyCause::of_codex(profile, &run.repo, &self.codex_home);
            let cause = read_only.unwrap_or_else(of_codex);
            return Err(NoWriteAccess { cause, caller }.into());
        }
        let codex = binary::find_for(self.codex.clone(), Some(&self.directory))?.chosen;
        let cwd = run.repo.to_str().map(str::to_owned);
        let cwd = cwd.ok_or_else(|| BadJobSpec::DirectoryNotText(run.repo.clone()))?;
        let settings = &run.settings;
        Ok(Request {
            tool_name: TOOL.to_owned(),
            task_name: task_name.unwrap_or_else(|| beginning(&run.task)),
            agent_source: Some(client.unwrap_or_else(|| self.program.clone())),
            model_override: settings.thread.model.clone(),
            timeout_ms: millis("total_timeout_ms", run.limits.total() + LOOKING)?,
            resume_session_id: run.thread.as_ref().map(ToString::to_string),
            sandbox: settings.thread.sandbox.and_then(as_word),
            effort: settings.model_options.effort.and_then(as_word),
            profile: settings.profile.as_ref().map(ToString::to_string),
            codex_home: self.codex_home.to_str().map(str::to_owned),
            codex_bin: codex.to_str().map(str::to_owned),
            host: Some(self.host.clone()),
            submitted_by: self.identity.as_ref().map(ToString::to_string),
            run_on: (self.scope == StoreScope::Anywhere).then(|| self.host.clone()),
            retry,
            run: Some(self.stored_run(&run, caller, read_only)?),
            ..Request::new(run.task, cwd)
        })
    }

    /// Fills in the configured settings where the specification sets none. The text of prompt files
    /// becomes part of the run, as its worker may have another configuration.
    fn fill_in(&self, run: &mut RunSpec) -> Result<(), BadJobSpec> {
        let settings = &run.settings;
        let explicit = ExplicitSettings::of(settings);
        let (model, effort) = (settings.thread.model.clone(), settings.model_options.effort);
        let (model, effort) = self.model_and_effort(model, effort, explicit);
        let sandbox = self.asked_or_configured(settings.thread.sandbox, explicit)?;
        let profile = settings.profile.as_ref();
        let sandbox = self.bounds.sandbox(sandbox, profile, &run.repo)?;
        let policy = explicit.default_unless_set("approval_policy", &self.defaults.approval_policy);
        let settings = &mut run.settings;
        settings.model_options.effort = effort;
        let thread = &mut settings.thread;
        thread.sandbox = sandbox;
        thread.model = model;
        thread.approval_policy = thread.approval_policy.or(policy.map(|set| set.value));
        let (base, before) = (&mut thread.base_instructions, &mut settings.added.before);
        // A run that is submitted again has the texts of its first submission.
        if base.is_none() {
            *base = self.defaults.base_instructions().map_err(Box::new)?;
        }
        if before.is_none() {
            *before = self.defaults.extra_instructions().map_err(Box::new)?;
        }
        Ok(())
    }

    /// Why the sandbox of a run is read-only, unless Codex's configuration is the reason.
    fn read_only_cause(&self, run: &RunSpec, caller: Caller) -> Option<ReadOnlyCause> {
        if let Some(bound) = self.bounds.read_only_bound() {
            return Some(ReadOnlyCause::Bound(bound.to_string()));
        }
        let is_read_only = |mode: SandboxMode| mode == SandboxMode::ReadOnly;
        let explicit = ExplicitSettings::of(&run.settings);
        let set = explicit.default_unless_set("sandbox_mode", &self.defaults.sandbox);
        match (run.settings.thread.sandbox, set) {
            (Some(asked), _) if is_read_only(asked) => Some(ReadOnlyCause::Setting(match caller {
                Caller::Shell => "`--sandbox read-only`".to_owned(),
                Caller::Client => "sandbox of the call".to_owned(),
                Caller::Page => "the sandbox of the run".to_owned(),
            })),
            (None, Some(set)) if is_read_only(set.value) => {
                Some(ReadOnlyCause::Setting(format!("sandbox ({})", set.source)))
            }
            _ => None,
        }
    }

    fn stored_run(
        &self,
        run: &RunSpec,
        caller: Caller,
        read_only: Option<ReadOnlyCause>,
    ) -> Result<Value, BadJobSpec> {
        let stored = StoredRun {
            spec: run.clone(),
            caller,
            mail: self.mail(),
            team: self.team.clone(),
            atm_home: self.atm_home.to_str().map(str::to_owned),
            read_only,
            bound: self.bounds.of_submitter(),
        };
        // Only a path that is not UTF-8 cannot be serialized.
        let stored = serde_json::to_value(stored)
            .map_err(|_| BadJobSpec::DirectoryNotText(run.repo.clone()))?;
        // The nesting that serde_json reads is limited, and the stored run has more than the call.
        match serde_json::from_str::<Value>(&stored.to_string()) {
            Ok(_) => Ok(stored),
            Err(_) => Err(BadJobSpec::Nesting),
        }
    }
}

/// The beginning of a task as a name. Credentials are masked, as the name is kept when the job
/// ends.
fn beginning(task: &str) -> String {
    let task = mask(task);
    let first = task.lines().map(|line| one_line(line, NAME));
    let mut first = first.filter(|line| !line.is_empty());
    first.next().unwrap_or_else(|| TOOL.to_owned())
}

#[cfg(test)]
mod tests {

    use super::*;
    use codex_engine::binary::Source;
    use codex_protocol::codex::{ApprovalPolicy, Effort};
    use goal_run::logic::criteria::Criteria;
    use settings::Setting;
    use settings::Source as SetBy;
    use settings::ThreadDefaults;
    use settings::bounds::Bounds;

    fn submitter(scope: StoreScope) -> Submitter {
        let mut defaults = ThreadDefaults::default();
        let sandbox = SandboxMode::WorkspaceWrite;
        defaults.sandbox = Some(Setting::new(sandbox, SetBy::Default));
        Submitter {
            program: "a client".to_owned(),
            identity: None,
            team: Some("builders".parse().unwrap()),
            atm_home: "/home/me".into(),
            mail: ThreadMail::Given,
            host: "here".to_owned(),
            codex: Some(("/bin/sh".into(), Source::FlagOrVariable)),
            codex_home: "/home/me/.codex".into(),
            defaults,
            bounds: Bounds::default(),
            directory: "".into(),
            scope,
        }
    }

    fn request(scope: StoreScope, spec: RunJobSpec) -> Result<Request, String> {
        let request = submitter(scope).run_request(spec);
        request.map_err(|error| error.to_string())
    }

    #[test]
    fn run_is_stored_with_what_its_worker_needs() {
        let directory = tempfile::tempdir().unwrap();
        let mut spec = RunJobSpec::new(RunSpec::new("\n Do\u{7} it.\nNow.", directory.path()));
        spec.run.approve = Approve::Ask;
        let here = request(StoreScope::Here, spec.clone()).unwrap();
        assert_eq!(
            (here.tool_name.as_str(), here.run_on.as_ref()),
            (TOOL, None)
        );
        assert_eq!(here.task_name, "Do\\u{7} it.");
        assert_eq!(here.timeout_ms, 1_500_000);
        assert_eq!(here.sandbox.as_deref(), Some("workspace-write"));
        let stored = StoredRun::of(&here).unwrap().unwrap();
        assert_eq!(stored.spec.approve, Approve::Never);
        assert_eq!(stored.spec.task, spec.run.task);
        let sandbox = stored.spec.settings.thread.sandbox;
        assert_eq!(sandbox, Some(SandboxMode::WorkspaceWrite));
        assert_eq!(stored.team, Some("builders".parse().unwrap()));
        let anywhere = request(StoreScope::Anywhere, spec).unwrap();
        assert_eq!(anywhere.run_on.as_deref(), Some("here"));
    }

    /// A profile that is narrower than our own configuration stays in force.
    #[test]
    fn profile_of_a_run_takes_precedence_over_settings() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("careful.config.toml"), "").unwrap();
        let mut submitter = submitter(StoreScope::Here);
        submitter.codex_home = directory.path().into();
        let defaults = &mut submitter.defaults;
        defaults.model = Some(Setting::new("set".to_owned(), SetBy::Default));
        defaults.reasoning_effort = Some(Setting::new(Effort::High, SetBy::Default));
        defaults.sandbox = Some(Setting::new(SandboxMode::ReadOnly, SetBy::Default));
        let stored = |profile: Option<&str>| {
            let mut spec = RunJobSpec::new(RunSpec::new("x", directory.path()));
            spec.run.settings.profile = profile.map(|name| name.to_owned().try_into().unwrap());
            let request = submitter.run_request(spec).unwrap();
            let stored = StoredRun::of(&request).unwrap().unwrap();
            let settings = stored.spec.settings;
            assert_eq!(stored.read_only.is_some(), profile.is_none());
            assert_eq!(settings.thread.model, request.model_override);
            (request.model_override, request.effort, request.sandbox)
        };
        let text = |text: &str| Some(text.to_owned());
        let configured = (text("set"), text("high"), text("read-only"));
        assert_eq!(stored(None), configured);
        assert_eq!(stored(Some("careful")), (None, None, None));
    }

    #[test]
    fn caller_is_stored_and_runs_without_one_are_of_clients() {
        let directory = tempfile::tempdir().unwrap();
        let mut spec = RunJobSpec::new(RunSpec::new("x", directory.path()));
        spec.caller = Caller::Shell;
        spec.run.settings.thread.sandbox = Some(SandboxMode::ReadOnly);
        let mut stored = request(StoreScope::Here, spec).unwrap().run.unwrap();
        let read = |stored: &Value| serde_json::from_value::<StoredRun>(stored.clone()).unwrap();
        assert_eq!(read(&stored).caller, Caller::Shell);
        let cause = ReadOnlyCause::Setting("`--sandbox read-only`".to_owned());
        assert_eq!(read(&stored).read_only, Some(cause));
        stored.as_object_mut().unwrap().remove("caller").unwrap();
        assert_eq!(read(&stored).caller, Caller::Client);
    }

    #[test]
    fn run_keeps_the_configured_policy_and_the_text_of_prompt_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(Setting::new(path, SetBy::Default))
        };
        let mut submitter = submitter(StoreScope::Here);
        let defaults = &mut submitter.defaults;
        defaults.approval_policy = Some(Setting::new(ApprovalPolicy::Never, SetBy::Default));
        defaults.base_prompt_file = file("base.md", "Base.\n");
        defaults.extra_instructions_file = file("extra.md", "Extra.\n");
        let stored = |run: RunSpec| {
            let request = submitter.run_request(RunJobSpec::new(run)).unwrap();
            StoredRun::of(&request).unwrap().unwrap().spec
        };
        let first = stored(RunSpec::new("x", directory.path()));
        let thread = &first.settings.thread;
        assert_eq!(thread.approval_policy, Some(ApprovalPolicy::Never));
        assert_eq!(thread.base_instructions.as_deref(), Some("Base."));
        assert_eq!(first.settings.added.before.as_deref(), Some("Extra."));

        file("base.md", "Other.");
        std::fs::remove_file(directory.path().join("extra.md")).unwrap();
        assert_eq!(stored(first.clone()).settings, first.settings);
        let new = RunJobSpec::new(RunSpec::new("x", directory.path()));
        let refused = submitter.run_request(new).unwrap_err().to_string();
        assert!(refused.contains("extra_instructions_file"), "{refused}");
    }

    /// serde_json reads 127 levels: the configuration is in four others.
    #[test]
    fn config_that_is_nested_too_deeply_to_be_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let submitted = |levels: u32| {
            let mut spec = RunJobSpec::new(RunSpec::new("x", directory.path()));
            let inner = (1..levels).fold(Value::Null, |inner, _| serde_json::json!({ "a": inner }));
            spec.run
                .settings
                .thread
                .config
                .insert("a".to_owned(), inner);
            request(StoreScope::Here, spec)
        };
        let stored = submitted(123).unwrap().run.unwrap().to_string();
        serde_json::from_str::<Value>(&stored).unwrap();
        let refused = submitted(124).unwrap_err();
        assert!(refused.contains("nested too deeply"), "{refused}");
    }

    /// The worker would refuse it later. A command can succeed without a change.
    #[test]
    fn read_only_run_whose_criteria_need_new_work_is_refused_at_submission() {
        let directory = tempfile::tempdir().unwrap();
        let spec = |caller, criterion: &str, sandbox| {
            let mut run = RunSpec::new("x", directory.path());
            run.criteria = Criteria::new([criterion.parse().unwrap()]).unwrap();
            run.settings.thread.sandbox = sandbox;
            RunJobSpec {
                caller,
                ..RunJobSpec::new(run)
            }
        };
        let read_only = Some(SandboxMode::ReadOnly);
        for (caller, advice) in [
            (
                Caller::Shell,
                "`--sandbox read-only` says so; use --sandbox workspace-write",
            ),
            (
                Caller::Client,
                "sandbox of the call says so; use `sandbox: \"workspace-write\"`",
            ),
            (
                Caller::Page,
                "the sandbox of the run says so; use the sandbox \"may write in the directory\"",
            ),
        ] {
            let run = spec(caller, "commits=1", read_only);
            let refused = request(StoreScope::Here, run).unwrap_err();
            assert!(refused.contains("read-only here"), "{refused}");
            assert!(refused.ends_with(advice), "{refused}");
        }
        for (criterion, sandbox) in [
            ("command=true", read_only),
            ("commits=1", Some(SandboxMode::WorkspaceWrite)),
            ("commits=1", None),
        ] {
            request(StoreScope::Here, spec(Caller::Shell, criterion, sandbox)).unwrap();
        }
        let mut submitter = submitter(StoreScope::Here);
        submitter.defaults.sandbox = Some(Setting::new(SandboxMode::ReadOnly, SetBy::Default));
        let set = submitter.run_request(spec(Caller::Shell, "commits=1", None));
        let refused = set.unwrap_err().to_string();
        assert!(refused.contains("sandbox (default) says so"), "{refused}");
    }

    #[test]
    fn invalid_run_is_refused_at_submission() {
        let directory = tempfile::tempdir().unwrap();
        let spec = |task: &str| RunJobSpec::new(RunSpec::new(task, directory.path()));
        let refused = |spec| request(StoreScope::Anywhere, spec).unwrap_err();
        assert!(refused(spec(" ")).contains("the task is empty"));
        let mut nowhere = spec("x");
        nowhere.run.repo = "/not/there".into();
        assert!(refused(nowhere).contains("/not/there"));
        let mut unnamed = spec("x");
        unnamed.run.repo = "".into();
        assert!(refused(unnamed).contains("repo must not be empty"));
        let mut named = spec("x");
        named.task_name = Some("a\nb".to_owned());
        assert!(refused(named).contains("task_name"));
        let mut again = spec("x");
        again.retry = MOST_RETRIES + 1;
        assert!(refused(again).contains("retry"));
        let without = Submitter {
            codex: Some(("/not/there".into(), Source::FlagOrVariable)),
            ..submitter(StoreScope::Anywhere)
        };
        let error = without.run_request(spec("x")).unwrap_err().to_string();
        assert!(error.contains("npm install"), "{error}");
    }
}
