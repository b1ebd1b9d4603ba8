//! Prompts that a project replaces: files in its repository.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use codex_mcp_core::run::prompts::{PromptKind, TEMPLATE_LIMIT, Templates};
use nix::fcntl::OFlag;

use super::error::RunError;

/// The folder of the prompts, from the top of the repository on. They are named
/// `initial.md`, `nudge.md`, `recovery.md` and `continuation.md`.
const FOLDER: &str = ".codex-mcp/prompts";

/// The prompts for work in a repository: its own where it has some, else ours.
///
/// # Errors
///
/// [`RunError::Template`] for one that can't be used.
pub fn templates_of(top: &Path) -> Result<Templates, RunError> {
    let mut theirs = Vec::new();
    for kind in PromptKind::ALL {
        let path = path_of(top, kind);
        match read(&path) {
            Ok(text) => theirs.push((kind, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
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
    top.join(FOLDER).join(format!("{kind}.md"))
}

fn unusable(path: PathBuf, why: &impl ToString) -> RunError {
    RunError::Template {
        path,
        why: why.to_string(),
    }
}

/// What is longer than a template may be is read a little too far, and refused then.
fn read(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let most = u64::try_from(TEMPLATE_LIMIT).unwrap_or(u64::MAX);
    let mut text = String::new();
    file.take(most.saturating_add(1))
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use codex_mcp_core::run::prompts::Inserts;

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
    fn a_repository_has_prompts_of_its_own() {
        let top = tempfile::tempdir().unwrap();
        let ours = nudge(&templates_of(top.path()).unwrap());
        assert!(ours.contains("words only"), "{ours}");
        let folder = top.path().join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("nudge.md"), "Turn {turn}: {task}!").unwrap();
        assert_eq!(nudge(&templates_of(top.path()).unwrap()), "Turn 2: T!");
    }

    #[test]
    fn one_that_can_not_be_used_is_named() {
        let refused = |make: &dyn Fn(&Path)| {
            let top = tempfile::tempdir().unwrap();
            let folder = top.path().join(FOLDER);
            fs::create_dir_all(&folder).unwrap();
            make(&folder);
            let refusal = templates_of(top.path()).unwrap_err().to_string();
            assert!(refusal.contains(".codex-mcp/prompts/"), "{refusal}");
            refusal
        };
        let text = |text: String| {
            refused(&move |folder| fs::write(folder.join("initial.md"), &text).unwrap())
        };
        assert!(text("no place for it".to_owned()).contains("{task}"));
        assert!(text("{task} {tusk}".to_owned()).contains("tusk"));
        assert!(text("{task}".repeat(TEMPLATE_LIMIT)).contains("16384"));
        let link = |folder: &Path| {
            std::os::unix::fs::symlink("/etc/hostname", folder.join("nudge.md")).unwrap();
        };
        refused(&link);
        let folder = |folder: &Path| fs::create_dir(folder.join("recovery.md")).unwrap();
        assert!(refused(&folder).contains("not a file"));
    }
}
