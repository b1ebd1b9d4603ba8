//! The settings of new threads.

use std::path::PathBuf;

use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use safe_files::untrusted_file::{self, Links};

use crate::error::ConfigError;
use crate::flags::Flags;
use crate::key::{APPROVAL_POLICY, EFFORT, Key, MODEL, SANDBOX};
use crate::lookup::Lookup;
use crate::policy::{PolicyName, REPLACED};
use crate::presets::Presets;
use crate::source::{Setting, Source, Warning};

/// The longest prompt that is read from a file, in bytes. Codex reads its own instructions from
/// files of up to 32 KiB (`project_doc_max_bytes`).
const LONGEST_PROMPT: u64 = 256 * 1024;

/// The settings of new threads, unless a call sets others. Settings that are `None` are left to
/// Codex's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadDefaults {
    /// The model, as Codex names it.
    pub model: Option<Setting<String>>,
    /// The effort of the model's reasoning.
    pub reasoning_effort: Option<Setting<Effort>>,
    /// The sandbox of commands.
    pub sandbox: Option<Setting<SandboxMode>>,
    /// When Codex asks for approval.
    pub approval_policy: Option<Setting<ApprovalPolicy>>,
    /// A file that replaces Codex's own instructions.
    pub base_prompt_file: Option<Setting<PathBuf>>,
    /// A file that is added as a developer message.
    pub extra_instructions_file: Option<Setting<PathBuf>>,
}

impl ThreadDefaults {
    /// The text of the file that replaces Codex's own instructions.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read or is too long.
    pub fn base_instructions(&self) -> Result<Option<String>, ConfigError> {
        prompt("base_prompt_file", self.base_prompt_file.as_ref())
    }

    /// The text of the file that is added as a developer message.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read or is too long.
    pub fn extra_instructions(&self) -> Result<Option<String>, ConfigError> {
        prompt(
            "extra_instructions_file",
            self.extra_instructions_file.as_ref(),
        )
    }
}

/// The text of a prompt file; `None` if there is no file or no text.
fn prompt(
    key: &'static str,
    file: Option<&Setting<PathBuf>>,
) -> Result<Option<String>, ConfigError> {
    let Some(Setting {
        value: path,
        source,
    }) = file
    else {
        return Ok(None);
    };
    let text = untrusted_file::read_text(path, LONGEST_PROMPT, Links::Followed);
    let text = text.map_err(|error| ConfigError::Invalid {
        key,
        from: source.clone(),
        why: error.to_string(),
    })?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

impl Lookup<'_> {
    pub(super) fn threads(
        &self,
        presets: &Presets<'_>,
        flags: &Flags,
        warnings: &mut Vec<Warning>,
    ) -> Result<ThreadDefaults, ConfigError> {
        let model = self.flag_or_variable(MODEL, flags.model.clone())?;
        let effort = self.flag_or_variable(EFFORT, flags.effort)?;
        let sandbox = self.flag_or_variable(SANDBOX, flags.sandbox)?;
        let policy = self.policy(flags.approval_policy, warnings)?;
        let base = self.prompt_file("base_prompt_file", "CODEX_MCP_BASE_PROMPT_FILE")?;
        let extra = "CODEX_MCP_EXTRA_INSTRUCTIONS_FILE";
        let extra = self.prompt_file("extra_instructions_file", extra)?;
        Ok(ThreadDefaults {
            model: model.or_else(|| presets.first(|preset| preset.model.clone())),
            reasoning_effort: effort.or_else(|| presets.first(|preset| preset.reasoning_effort)),
            sandbox: sandbox.or_else(|| presets.first(|preset| preset.sandbox)),
            approval_policy: policy.or_else(|| presets.first(|preset| preset.approval_policy)),
            base_prompt_file: match base {
                Some(file) => Some(file),
                None => presets.prompt_file("base_prompt_file", |preset| {
                    preset.base_prompt_file.as_deref()
                })?,
            },
            extra_instructions_file: match extra {
                Some(file) => Some(file),
                None => presets.prompt_file("extra_instructions_file", |preset| {
                    preset.extra_instructions_file.as_deref()
                })?,
            },
        })
    }

    /// The approval policy of the flag or the variable.
    fn policy(
        &self,
        flag: Option<ApprovalPolicy>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Setting<ApprovalPolicy>>, ConfigError> {
        if let Some(policy) = flag {
            let from = Source::Flag(APPROVAL_POLICY.flag);
            return Ok(Some(Setting::new(policy, from)));
        }
        let Key { name, variable, .. } = APPROVAL_POLICY;
        let named = self.in_variable::<PolicyName>(name, variable)?;
        let Some(Setting { value, source }) = named else {
            return Ok(None);
        };
        if value == PolicyName::OnFailure {
            warnings.push(Warning {
                message: format!("{source}: {REPLACED}"),
                hint: "Set it to on-request.".to_owned(),
            });
        }
        Ok(Some(Setting::new(value.today(), source)))
    }

    /// A prompt file that a variable names. A relative path starts at the working directory.
    fn prompt_file(
        &self,
        key: &'static str,
        variable: &'static str,
    ) -> Result<Option<Setting<PathBuf>>, ConfigError> {
        let Some(value) = self.variable(variable) else {
            return Ok(None);
        };
        let path = self.here.join(value);
        let from = Source::Variable(variable);
        match path.canonicalize() {
            Ok(path) => Ok(Some(Setting::new(path, from))),
            Err(error) => Err(ConfigError::Invalid {
                key,
                from,
                why: format!("{}: {error}", path.display()),
            }),
        }
    }
}
