//! The session context for Codex: its directory, its repository, and the member for whom it works.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use git_probe::repository::{self, Head, Repository};
use serde::Serialize;

use crate::logic::{AgentName, TeamName};

/// The identity and the team of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Member {
    /// Its identity.
    pub identity: AgentName,
    /// Its team, if it has one.
    pub team: Option<TeamName>,
}

/// The directory, the repository and the member of a thread, at the time of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    member: Member,
    repository: Option<Repository>,
    /// The directory that Codex works in: the caller's, or else the repository's top
    /// directory, or else our own.
    pub cwd: PathBuf,
}

impl Context {
    /// Collects the context of the requested directory, or of `here`. A relative path is resolved
    /// from `here`.
    #[must_use]
    pub fn gather(member: &Member, here: &Path, requested: Option<&Path>) -> Self {
        let directory = requested.map_or_else(|| here.to_owned(), |requested| here.join(requested));
        // Git's own directories are absolute, and a directory that doesn't exist is in no
        // repository.
        let resolved = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.clone());
        let repository = Repository::around(&resolved, &repository::ceilings());
        let cwd = match (requested, &repository) {
            (None, Some(repository)) => repository.root.clone(),
            _ => directory,
        };
        Self {
            member: member.clone(),
            repository,
            cwd,
        }
    }

    /// The git repository around the directory.
    #[must_use]
    pub fn repository(&self) -> Option<&Repository> {
        self.repository.as_ref()
    }

    /// The context as instructions for Codex.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            member: Member { identity, team },
            repository,
            cwd,
        } = self;
        let mut lines = vec![("identity", identity.to_string())];
        lines.extend(team.as_ref().map(|team| ("team", team.to_string())));
        if let Some(Repository {
            root, name, head, ..
        }) = repository
        {
            lines.push(("repo_root", root.display().to_string()));
            lines.push(("repo_name", name.clone()));
            lines.extend(head.as_ref().map(|head| match head {
                Head::Branch(branch) => ("branch", branch.clone()),
                Head::Detached(commit) => ("branch", format!("none (detached at {commit})")),
            }));
        }
        lines.push(("cwd", cwd.display().to_string()));
        let mut text = "Session context, as it was when this thread began:".to_owned();
        for (name, value) in lines {
            // The name of a directory must not look like another line.
            let value = match value.contains(char::is_control) {
                true => format!("{value:?}"),
                false => value,
            };
            // Writing to a text can't fail.
            let _ = write!(text, "\n- {name}: {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_has_a_line_for_each_known_part() {
        let mut context = Context {
            member: Member {
                identity: "codex".parse().unwrap(),
                team: Some("builders".parse().unwrap()),
            },
            repository: Some(Repository {
                root: "/r".into(),
                name: "r".into(),
                head: Some(Head::Branch("main".into())),
                main: None,
            }),
            cwd: "/r/a".into(),
        };
        assert_eq!(
            context.text(),
            "Session context, as it was when this thread began:\n- identity: codex\n\
             - team: builders\n- repo_root: /r\n- repo_name: r\n- branch: main\n- cwd: /r/a"
        );
        context.member.team = None;
        context.repository = None;
        context.cwd = "/x\n- identity: root".into();
        assert_eq!(
            context.text(),
            "Session context, as it was when this thread began:\n- identity: codex\n\
             - cwd: \"/x\\n- identity: root\""
        );
    }
}
