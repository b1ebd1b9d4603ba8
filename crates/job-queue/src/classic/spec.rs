//! The specification of a job that answers a classic tool.

use std::time::Duration;

use codex_engine::command::LONGEST_WAIT;
use codex_engine::tool_limit::LimitOrigin;
use codex_protocol::codex::ThreadId;

use super::call::ClassicCall;
use crate::call_settings::{Approval, CallSettings, ThreadMail};
use crate::spec::{BadJobSpec, Reach, Submitter, is_name, millis, wire_name};
use crate::store::{Job, PromptText, Request};

/// The specification of a job that answers a classic tool. The submitter has checked the settings
/// of its call, as it does for a call that it answers itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassicSpec {
    /// The name of the tool.
    pub tool: String,
    /// The program that calls the tool, if it is not the submitter's own.
    pub client: Option<String>,
    /// The caller's name of the work.
    pub task_name: Option<String>,
    /// The prompt.
    pub prompt: String,
    /// The thread to continue; a new one otherwise.
    pub thread: Option<ThreadId>,
    /// The call. Its settings name the working directory.
    pub call: ClassicCall,
    /// The time limit of the turn, without the time that a question is open.
    pub timeout: Duration,
}

impl ClassicSpec {
    /// The specification by which a job is submitted again; `None` if it answers no classic tool.
    ///
    /// # Errors
    ///
    /// If the settings of the job cannot be read.
    pub fn of(job: &Job) -> Result<Option<Self>, serde_json::Error> {
        let Request {
            tool_name,
            task_name,
            prompt,
            resume_session_id,
            timeout_ms,
            ..
        } = &job.request;
        let Some(call) = CallSettings::of(&job.request)?.classic else {
            return Ok(None);
        };
        let thread = resume_session_id.as_deref();
        Ok(Some(Self {
            tool: tool_name.clone(),
            client: None,
            task_name: Some(task_name.clone()),
            prompt: prompt.clone(),
            thread: thread.and_then(|thread| ThreadId::parse(thread).ok()),
            call: match job.prompt {
                PromptText::Whole => *call,
                PromptText::Masked => call.unmasked(),
            },
            timeout: Duration::from_millis((*timeout_ms).into()),
        }))
    }
}

impl Submitter {
    /// Completes a specification to the stored request. The thread stays on this host, where the
    /// submitter can continue it.
    pub(crate) fn classic_request(&self, spec: ClassicSpec) -> Result<Request, BadJobSpec> {
        let mut call = spec.call;
        let thread = &call.settings.thread;
        let cwd = thread.cwd.clone().ok_or(BadJobSpec::NoDirectory)?;
        let text = cwd.to_str().map(str::to_owned);
        let text = text.ok_or_else(|| BadJobSpec::DirectoryNotText(cwd.clone()))?;
        call.resolve_directories(&cwd);
        let codex = self.codex()?;
        let settings = &call.settings;
        let name = spec.task_name.filter(|name| is_name(name));
        let longest = Duration::from_millis(u32::MAX.into());
        Ok(Request {
            task_name: name.unwrap_or_else(|| spec.tool.clone()),
            tool_name: spec.tool,
            agent_source: Some(spec.client.unwrap_or_else(|| self.program.clone())),
            model_override: settings.thread.model.clone(),
            timeout_ms: millis("the time limit", spec.timeout.min(longest))?,
            resume_session_id: spec.thread.map(|thread| thread.to_string()),
            sandbox: settings.thread.sandbox.and_then(wire_name),
            effort: settings.model_options.effort.and_then(wire_name),
            profile: settings.profile.as_ref().map(ToString::to_string),
            codex_home: self.codex_home.to_str().map(str::to_owned),
            codex_bin: codex
                .as_deref()
                .and_then(|codex| codex.to_str().map(str::to_owned)),
            host: Some(self.host.clone()),
            submitted_by: self.identity.as_ref().map(ToString::to_string),
            run_on: (self.reach == Reach::Anywhere).then(|| self.host.clone()),
            settings: self.classic_settings(call)?,
            ..Request::new(spec.prompt, text)
        })
    }

    /// The stored settings of a call. Codex's questions stay open for a day, as clients do not look
    /// at a task while they show its dialog.
    fn classic_settings(&self, call: ClassicCall) -> Result<Option<serde_json::Value>, BadJobSpec> {
        let mail = self.mail();
        let names_team = mail == ThreadMail::Given;
        let settings = CallSettings {
            classic: Some(Box::new(call)),
            tool_timeout: LimitOrigin::Default,
            approval: Approval::Ask,
            approval_timeout_ms: Some(millis("approval_timeout_ms", LONGEST_WAIT)?),
            mail,
            team: self.team.clone().filter(|_| names_team),
            atm_home: names_team.then(|| self.atm_home.clone()),
            bound: self.bounds.of_submitter(),
            ..CallSettings::default()
        };
        settings.to_json().map_err(BadJobSpec::Settings)
    }
}
