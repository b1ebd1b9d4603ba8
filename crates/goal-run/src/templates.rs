//! Prompts that a project replaces by files in its repository.

use std::fs;
use std::path::{Path, PathBuf};

use codex_config::layers::UserConfig;
use codex_config::logic::prompt_kind::PromptKind;
use codex_config::trust::{Trust, directory_trust};
use codex_engine::confinement::left_out;
use common::text::shell_word;
use safe_files::untrusted_file::{self, Links};

use super::error::RunError;
use crate::logic::prompts::{TEMPLATE_LIMIT, Templates};

/// The directory of the prompts, relative to the top of the repository. They are named
/// `initial.md`, `nudge.md`, `recovery.md` and `continuation.md`.
const DIRECTORY: &str = ".codex-mcp/prompts";

/// The longest prompt, in bytes.
const LIMIT: u64 = TEMPLATE_LIMIT as u64;

/// Prompts for work in a repository.
#[derive(Debug)]
pub struct ChosenTemplates {
    /// The prompts.
    pub templates: Templates,
    /// Warnings of files in the repository that are not used, as the user does not trust it.
    pub warnings: Vec<String>,
}

/// The prompts for work in the repository at `top`: its own if it has some and the user
/// trusts it, and the default ones otherwise.
///
/// # Errors
///
/// [`RunError::Template`] for a prompt that cannot be used, [`RunError::Trust`].
pub fn templates_for(top: &Path, codex_home: &Path) -> Result<ChosenTemplates, RunError> {
    let trust = directory_trust(top, &UserConfig::read(codex_home))?;
    if trust.trust == Trust::Trusted {
        return Ok(ChosenTemplates {
            templates: repository_templates(top)?,
            warnings: Vec::new(),
        });
    }
    if trust.changes.is_some() {
        return Ok(ChosenTemplates {
            templates: default_templates(top)?,
            warnings: left_out(&trust).into_iter().collect(),
        });
    }
    let exists = |kind: &PromptKind| fs::symlink_metadata(path_of(top, *kind)).is_ok();
    let has_own = PromptKind::ALL.iter().any(exists);
    let own = has_own.then(|| {
        let (quoted, top) = (shell_word(top), top.display());
        format!(
            "{top} is not trusted, so its prompts in {DIRECTORY} are left out. To use them, read \
             them and then run `codex-mcp trust {quoted}`."
        )
    });
    Ok(ChosenTemplates {
        templates: default_templates(top)?,
        warnings: own.into_iter().chain(left_out(&trust)).collect(),
    })
}

fn default_templates(top: &Path) -> Result<Templates, RunError> {
    Templates::new(|_| None).map_err(|(kind, why)| unusable(path_of(top, kind), &why))
}

/// The prompts of a trusted repository.
fn repository_templates(top: &Path) -> Result<Templates, RunError> {
    let mut theirs = Vec::new();
    for kind in PromptKind::ALL {
        let path = path_of(top, kind);
        match untrusted_file::read_text(&path, LIMIT, Links::Refused) {
            Ok(text) => theirs.push((kind, text)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(unusable(path, &error)),
        }
    }
    let replaced = |kind| {
        let of_kind = |(one, _): &&(PromptKind, String)| *one == kind;
        theirs.iter().find(of_kind).map(|(_, text)| text.clone())
    };
    Templates::new(replaced).map_err(|(kind, why)| unusable(path_of(top, kind), &why))
}

fn path_of(top: &Path, kind: PromptKind) -> PathBuf {
    top.join(DIRECTORY).join(format!("{kind}.md"))
}

fn unusable(path: PathBuf, why: &impl ToString) -> RunError {
    RunError::Template {
        path,
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::logic::prompts::Inserts;
    use codex_config::logic::prompt_kind::PromptKind;

    use super::*;

    fn nudge(templates: &Templates) -> String {
        templates.get(PromptKind::Nudge).fill(&Inserts {
            task: "T",
            repo: "R",
            criteria: &[],
            missing: &[],
            errors: &[],
            turn: 2,
            max_turns: 3,
        })
    }

    #[test]
    fn repository_prompt_replaces_the_default() {
        let top = tempfile::tempdir().unwrap();
        let default_templates = nudge(&repository_templates(top.path()).unwrap());
        assert!(
            default_templates.contains("words only"),
            "{default_templates}"
        );
        let directory = top.path().join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("nudge.md"), "Turn {turn}: {task}!").unwrap();
        assert_eq!(
            nudge(&repository_templates(top.path()).unwrap()),
            "Turn 2: T!"
        );
    }

    #[test]
    fn prompts_of_an_untrusted_repository_are_left_out() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let home = top.join("codex");
        let chosen = || templates_for(&top, &home).unwrap();
        assert!(chosen().warnings.is_empty());
        let directory = top.join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("nudge.md"), "Turn {turn}: {task}!").unwrap();
        let without = chosen();
        assert!(without.warnings[0].contains("codex-mcp trust"));
        assert!(nudge(&without.templates).contains("words only"));
        fs::create_dir(&home).unwrap();
        let trust = format!("[projects.{top:?}]\ntrust_level = \"trusted\"\n");
        fs::write(home.join("config.toml"), trust).unwrap();
        let with = chosen();
        assert!(with.warnings.is_empty());
        assert_eq!(nudge(&with.templates), "Turn 2: T!");
    }

    #[test]
    fn unusable_prompt_is_refused_by_its_path() {
        let refused = |make: &dyn Fn(&Path)| {
            let top = tempfile::tempdir().unwrap();
            let directory = top.path().join(DIRECTORY);
            fs::create_dir_all(&directory).unwrap();
            make(&directory);
            let refusal = repository_templates(top.path()).unwrap_err().to_string();
            assert!(refusal.contains(".codex-mcp/prompts/"), "{refusal}");
            refusal
        };
        let text = |text: String| {
            refused(&move |directory| fs::write(directory.join("initial.md"), &text).unwrap())
        };
        assert!(text("no place for it".to_owned()).contains("{task}"));
        assert!(text("{task} {tusk}".to_owned()).contains("tusk"));
        assert!(text("{task}".repeat(TEMPLATE_LIMIT)).contains("16384"));
        let link = |directory: &Path| {
            std::os::unix::fs::symlink("/etc/hostname", directory.join("nudge.md")).unwrap();
        };
        refused(&link);
        let directory = |directory: &Path| fs::create_dir(directory.join("recovery.md")).unwrap();
        assert!(refused(&directory).contains("not a regular file"));
    }
}
