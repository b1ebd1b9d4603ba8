//! Warnings about a trusted repository whose commands run without a sandbox.

use std::path::Path;

use codex_config::layers::{UserConfig, read_layer};
use codex_config::trust::covered_files::CODEX_CONFIG_FILE;
use codex_config::trust::{Trust, directory_trust_with, top_of};
use codex_protocol::codex::SandboxMode;

use crate::file::{File, Scope};
use crate::lookup::Lookup;
use crate::source::{Setting, Source, Warning};
use crate::threads::ThreadDefaults;

/// The remedy for a trusted repository that widens the sandbox.
const OTHER_SANDBOX: &str = "It counts since you trust the repository. For another sandbox, set \
    CODEX_MCP_SANDBOX or name one in the call; `codex-mcp trust --revoke DIR` ends the trust.";

/// Warns about a trusted repository's file that sets full access: the user may have intended it,
/// but should know.
pub(super) fn warn_about_repository_without_sandbox(
    threads: &ThreadDefaults,
    files: &[File],
    warnings: &mut Vec<Warning>,
) {
    let Some(Setting {
        value: SandboxMode::DangerFullAccess,
        source: Source::File(_, path) | Source::Role(_, path),
    }) = &threads.sandbox
    else {
        return;
    };
    let is_theirs = |file: &File| file.scope == Scope::Repository && file.path == *path;
    if files.iter().any(is_theirs) {
        warnings.push(Warning {
            message: format!(
                "{} lets Codex's commands touch everything (sandbox)",
                path.display()
            ),
            hint: OTHER_SANDBOX.to_owned(),
        });
    }
}

impl Lookup<'_> {
    /// Warns about Codex's own configuration file in the repository. The file counts if the user
    /// trusts the repository and no other setting names a sandbox.
    pub(super) fn warn_about_codex_without_sandbox(
        &self,
        threads: &ThreadDefaults,
        codex_home: &Path,
    ) -> Option<Warning> {
        let here = self.here.canonicalize().ok()?;
        let top = top_of(&here);
        let within = here.ancestors().take_while(|above| above.starts_with(&top));
        let (path, mode) = within
            .map(|above| above.join(CODEX_CONFIG_FILE))
            .find_map(|path| {
                let mode = read_layer(&path)?.get("sandbox_mode")?.clone();
                Some((path, mode))
            })
            .filter(|_| threads.sandbox.is_none())?;
        let user = UserConfig::read(codex_home);
        let trusted = || directory_trust_with(&here, &user, self.variables);
        let is_full = mode.as_str() == Some("danger-full-access");
        let counts = is_full && trusted().is_ok_and(|trust| trust.trust == Trust::Trusted);
        counts.then(|| Warning {
            message: format!(
                "{} lets Codex's commands touch everything (sandbox_mode)",
                path.display()
            ),
            hint: OTHER_SANDBOX.to_owned(),
        })
    }
}
