//! A run that somebody wants done, and what of the client goes with it.

use std::time::Duration;

use agent_team::logic::TeamName;
use codex_config::profile::check_exists;
use codex_config::writable_roots;
use codex_engine::binary;
use codex_protocol::codex::SandboxMode;
use common::secrets::mask;
use common::text::one_line;
use goal_run::ReadOnlyCause;
use goal_run::order::{Approve, Order};
use safe_files::directory;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::bounds::OutOfBounds;

use crate::call_settings::ThreadMail;
use crate::order::{BadOrder, MOST_RETRIES, Reach, Submitter, in_a_word, is_name, millis};
use crate::store::Request;

/// The tool that runs are of.
pub const TOOL: &str = "codex_run";

/// What a run may take beyond its own limit (15 min): its repository is looked at
/// before the first turn and after the last one, with commands of 5 min each.
const LOOKING: Duration = Duration::from_secs(900);

/// The longest name that a task gets from its beginning, in bytes.
const NAME: usize = 80;

/// A run that somebody wants done as a job.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOrder {
    /// What is wanted. A relative directory is below ours.
    pub run: Order,
    /// The program that wants it, if it isn't the submitter's own.
    pub client: Option<String>,
    /// What the caller calls it; else it is called by how the task begins.
    pub task_name: Option<String>,
    /// How often it may run again when its worker is lost.
    pub retry: u32,
}

impl RunOrder {
    /// An order with nothing more to say.
    #[must_use]
    pub fn new(run: Order) -> Self {
        Self {
            run,
            client: None,
            task_name: None,
            retry: 0,
        }
    }
}

/// What is kept of an order, with what its worker can't know otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What is wanted.
    pub order: Order,
    /// Whether the threads may use the mail of who wants it.
    #[serde(default, skip_serializing_if = "ThreadMail::is_withheld")]
    pub mail: ThreadMail,
    /// The team of who wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// The home directory of teams, for telling others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atm_home: Option<String>,
    /// What makes the sandbox read-only, where the submitter knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<ReadOnlyCause>,
}

impl Kept {
    /// The one in a request, if that is for a run.
    ///
    /// # Errors
    ///
    /// If it can't be read: a newer program may have written it.
    pub fn of(request: &Request) -> Option<Result<Self, serde_json::Error>> {
        let kept = request.run.clone()?;
        Some(serde_json::from_value(kept))
    }
}

impl Submitter {
    /// A run as it is kept, checked as far as it can be here. It stays on this machine:
    /// its repository is here.
    pub(crate) fn run_request(&self, order: RunOrder) -> Result<Request, BadOrder> {
        let RunOrder {
            mut run,
            client,
            task_name,
            retry,
        } = order;
        run.check_repo_is_named()?;
        run.repo = self.bounds.repository(&directory::resolved(&run.repo))?;
        run.check()?;
        writable_roots::resolve(&mut run.settings.thread.config, &run.repo);
        self.bounds.check_config(&run.settings.thread.config)?;
        let approves_all = run.approve == Approve::Always;
        self.bounds
            .check_run(&run.criteria, &run.notify, approves_all)?;
        if retry > MOST_RETRIES {
            return Err(BadOrder::Retry);
        }
        if task_name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(BadOrder::Name);
        }
        if run.approve == Approve::Ask {
            // Nobody is there who could be asked.
            run.approve = Approve::Never;
        }
        if let Some(profile) = &run.settings.profile {
            check_exists(&self.codex_home, profile)?;
        }
        let read_only = self.read_only_cause(&run);
        self.fill_in(&mut run)?;
        let codex = binary::find(self.codex.clone())?.chosen;
        let cwd = run.repo.to_str().map(str::to_owned);
        let cwd = cwd.ok_or_else(|| BadOrder::DirectoryNotText(run.repo.clone()))?;
        let settings = &run.settings;
        Ok(Request {
            tool_name: TOOL.to_owned(),
            task_name: task_name.unwrap_or_else(|| beginning(&run.task)),
            agent_source: Some(client.unwrap_or_else(|| self.program.clone())),
            model_override: settings.thread.model.clone(),
            timeout_ms: millis("total_timeout_ms", run.limits.total() + LOOKING)?,
            resume_session_id: run.thread.as_ref().map(ToString::to_string),
            sandbox: settings.thread.sandbox.and_then(in_a_word),
            effort: settings.manner.effort.and_then(in_a_word),
            profile: settings.profile.as_ref().map(ToString::to_string),
            codex_home: self.codex_home.to_str().map(str::to_owned),
            codex_bin: codex.to_str().map(str::to_owned),
            host: Some(self.host.clone()),
            submitted_by: self.identity.as_ref().map(ToString::to_string),
            run_on: (self.reach == Reach::Anywhere).then(|| self.host.clone()),
            retry,
            run: Some(self.kept(&run, read_only)?),
            ..Request::new(run.task, cwd)
        })
    }

    /// Puts what the configuration says where the order says nothing.
    fn fill_in(&self, run: &mut Order) -> Result<(), OutOfBounds> {
        let set = &self.defaults;
        let thread = &mut run.settings.thread;
        if thread.model.is_none() {
            thread.model = set.model.as_ref().map(|set| set.value.clone());
        }
        let profile = run.settings.profile.as_ref();
        let sandbox = self.asked_or_configured(thread.sandbox)?;
        thread.sandbox = self.bounds.sandbox(sandbox, profile, &run.repo)?;
        let effort = set.reasoning_effort.as_ref().map(|set| set.value);
        let manner = &mut run.settings.manner;
        manner.effort = manner.effort.or(effort);
        Ok(())
    }

    /// What makes the sandbox of an order read-only, unless only Codex says so.
    fn read_only_cause(&self, run: &Order) -> Option<ReadOnlyCause> {
        if let Some(bound) = self.bounds.read_only_bound() {
            return Some(ReadOnlyCause::Bound(bound.to_string()));
        }
        let is_read_only = |mode: SandboxMode| mode == SandboxMode::ReadOnly;
        match (run.settings.thread.sandbox, &self.defaults.sandbox) {
            (Some(asked), _) if is_read_only(asked) => {
                Some(ReadOnlyCause::Setting("sandbox of the call".to_owned()))
            }
            (None, Some(set)) if is_read_only(set.value) => {
                Some(ReadOnlyCause::Setting(format!("sandbox ({})", set.source)))
            }
            _ => None,
        }
    }

    fn kept(&self, run: &Order, read_only: Option<ReadOnlyCause>) -> Result<Value, BadOrder> {
        let kept = Kept {
            order: run.clone(),
            mail: self.mail(),
            team: self.team.clone(),
            atm_home: self.atm_home.to_str().map(str::to_owned),
            read_only,
        };
        // Only a path can have no JSON.
        serde_json::to_value(kept).map_err(|_| BadOrder::DirectoryNotText(run.repo.clone()))
    }
}

/// How a task begins, as a name: without credentials, as it stays when the job ends.
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
    use settings::Setting;
    use settings::Source as SetBy;
    use settings::ThreadDefaults;
    use settings::bounds::Bounds;

    fn submitter(reach: Reach) -> Submitter {
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
            reach,
        }
    }

    fn request(reach: Reach, order: RunOrder) -> Result<Request, String> {
        let request = submitter(reach).run_request(order);
        request.map_err(|error| error.to_string())
    }

    #[test]
    fn a_run_is_kept_with_all_that_its_worker_needs() {
        let directory = tempfile::tempdir().unwrap();
        let mut order = RunOrder::new(Order::new("\n Do\u{7} it.\nNow.", directory.path()));
        order.run.approve = Approve::Ask;
        let here = request(Reach::Here, order.clone()).unwrap();
        assert_eq!(
            (here.tool_name.as_str(), here.run_on.as_ref()),
            (TOOL, None)
        );
        assert_eq!(here.task_name, "Do\\u{7} it.");
        assert_eq!(here.timeout_ms, 1_500_000);
        assert_eq!(here.sandbox.as_deref(), Some("workspace-write"));
        let kept = Kept::of(&here).unwrap().unwrap();
        assert_eq!(kept.order.approve, Approve::Never);
        assert_eq!(kept.order.task, order.run.task);
        let sandbox = kept.order.settings.thread.sandbox;
        assert_eq!(sandbox, Some(SandboxMode::WorkspaceWrite));
        assert_eq!(kept.team, Some("builders".parse().unwrap()));
        let anywhere = request(Reach::Anywhere, order).unwrap();
        assert_eq!(anywhere.run_on.as_deref(), Some("here"));
    }

    #[test]
    fn what_can_not_be_begun_is_refused_where_it_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let order = |task: &str| RunOrder::new(Order::new(task, directory.path()));
        let refused = |order| request(Reach::Anywhere, order).unwrap_err();
        assert!(refused(order(" ")).contains("the task is empty"));
        let mut nowhere = order("x");
        nowhere.run.repo = "/not/there".into();
        assert!(refused(nowhere).contains("/not/there"));
        let mut unnamed = order("x");
        unnamed.run.repo = "".into();
        assert!(refused(unnamed).contains("repo must not be empty"));
        let mut named = order("x");
        named.task_name = Some("a\nb".to_owned());
        assert!(refused(named).contains("task_name"));
        let mut again = order("x");
        again.retry = MOST_RETRIES + 1;
        assert!(refused(again).contains("retry"));
        let without = Submitter {
            codex: Some(("/not/there".into(), Source::FlagOrVariable)),
            ..submitter(Reach::Anywhere)
        };
        let error = without.run_request(order("x")).unwrap_err().to_string();
        assert!(error.contains("npm install"), "{error}");
    }
}
