//! What Codex's configuration says about what the wrapper adds for its run.
//!
//! Developer instructions that are given for one run take the place of those of the
//! configuration, so these are a part of what is given. An approval policy of the
//! configuration stays.
//!
//! The configuration is looked at as Codex reads it: `.codex/config.toml` in the folders
//! from the working one up to the top of the repository, if the user trusts them
//! (see `trust`); the profile, a file of its own or in older releases
//! a table; `config.toml`; and `/etc/codex/config.toml`. Source: Codex 0.104.0, 0.153.4
//! and 0.169.0. A file that can't be read is left to Codex, which says what is wrong with
//! it.

use std::path::Path;

use codex_mcp_core::eyes::arguments::{Approval, Arguments};
use codex_mcp_core::eyes::contract;
use toml::{Table, Value};

use super::Place;
use crate::trust::{Trust, codex_trust};
use crate::untrusted_file::{self, Links};

/// The longest file that is read, in bytes.
const LIMIT: u64 = 4 * 1024 * 1024;

const INSTRUCTIONS: &str = "developer_instructions";

/// What all users of a machine have.
const OF_ALL: &str = "/etc/codex/config.toml";

/// The configuration of a run, the part that counts most first.
#[derive(Debug)]
pub struct CodexConfig(Vec<Table>);

impl CodexConfig {
    /// Reads it for a Codex with these arguments that works in this place.
    #[must_use]
    pub fn read(arguments: &Arguments, codex_home: &Path, place: &Place) -> Self {
        let user = table(&codex_home.join("config.toml")).unwrap_or_default();
        let mut layers = match codex_trust(&user, place.folder(), place.top()) {
            Trust::Trusted => folders(place)
                .filter_map(|folder| table(&folder.join(".codex/config.toml")))
                .collect(),
            Trust::Untrusted => Vec::new(),
        };
        let chosen = arguments.profile();
        let profile = chosen.or_else(|| user.get("profile")?.as_str());
        if let Some(name) = profile {
            layers.extend(table(&codex_home.join(format!("{name}.config.toml"))));
            let of_old = || user.get("profiles")?.get(name)?.as_table().cloned();
            layers.extend(of_old());
        }
        layers.push(user);
        layers.extend(table(Path::new(OF_ALL)));
        Self(layers)
    }

    /// All developer instructions for the run: the user's, from where Codex would take
    /// them, and ours.
    #[must_use]
    pub fn instructions(&self, arguments: &Arguments) -> String {
        let given = arguments.instructions().map(in_toml);
        let configured = || self.get(INSTRUCTIONS)?.as_str().map(str::to_owned);
        match given.or_else(configured) {
            Some(theirs) => format!("{theirs}\n\n{}", contract::instructions()),
            None => contract::instructions(),
        }
    }

    /// Whether it says when Codex asks.
    #[must_use]
    pub fn approval(&self) -> Approval {
        match self.get("approval_policy") {
            Some(_) => Approval::Configured,
            None => Approval::Never,
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find_map(|layer| layer.get(key))
    }
}

/// From the working folder up to the top of the repository.
fn folders(place: &Place) -> impl Iterator<Item = &Path> {
    let within = |folder: &&Path| folder.starts_with(place.top());
    place.folder().ancestors().take_while(within)
}

/// As Codex reads what stands after `-c KEY=`: as TOML, or else as it is.
fn in_toml(text: &str) -> String {
    let table: Option<Table> = toml::from_str(&format!("{INSTRUCTIONS} = {text}")).ok();
    let value = table
        .as_ref()
        .and_then(|table| table.get(INSTRUCTIONS)?.as_str());
    value.unwrap_or(text).to_owned()
}

fn table(path: &Path) -> Option<Table> {
    let text = untrusted_file::read_text(path, LIMIT, Links::Followed).ok()?;
    toml::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use codex_mcp_core::eyes::picture::SizeLimit;

    use super::*;

    const TOP: &str = "developer_instructions = \"top\"\n";

    /// What is told of the user's, with these files in CODEX_HOME, the last one of them
    /// in the repository's `.codex` if it begins so.
    fn told(args: &[&str], files: &[(&str, &str)]) -> (String, Approval) {
        told_in("work/sub", args, files)
    }

    /// The same in this folder: `tree` is a linked working tree of the repository `main`,
    /// and `work` one that is no other's.
    fn told_in(folder: &str, args: &[&str], files: &[(&str, &str)]) -> (String, Approval) {
        let top = folder.split('/').next().unwrap();
        let made = tempfile::tempdir().unwrap();
        let root = made.path().canonicalize().unwrap();
        let (home, work) = (root.join("home"), root.join(top));
        for folder in ["home", "main/.git/worktrees/tree", "work/.git"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::create_dir_all(work.join("sub")).unwrap();
        fs::create_dir_all(work.join(".codex")).unwrap();
        fs::write(root.join("work/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        if top == "tree" {
            fs::write(work.join(".git"), "gitdir: ../main/.git/worktrees/tree\n").unwrap();
            let own = root.join("main/.git/worktrees/tree");
            fs::write(own.join("commondir"), "../..\n").unwrap();
            let dot_git = work.join(".git");
            fs::write(own.join("gitdir"), format!("{}\n", dot_git.display())).unwrap();
        }
        for (name, text) in files {
            let text = text.replace("ROOT", root.to_str().unwrap());
            let base = if name.starts_with(".codex/") {
                &work
            } else {
                &home
            };
            fs::write(base.join(name), text).unwrap();
        }
        let args = args.iter().map(OsString::from).collect();
        let arguments = Arguments::read(args).unwrap();
        let place = Place::around(&root.join(folder), SizeLimit::default()).unwrap();
        let config = CodexConfig::read(&arguments, &home, &place);
        let all = config.instructions(&arguments);
        let ours = contract::instructions();
        let theirs = all.strip_suffix(&ours).unwrap().trim_end().to_owned();
        (theirs, config.approval())
    }

    fn instructions(args: &[&str], files: &[(&str, &str)]) -> String {
        told(args, files).0
    }

    fn policy(args: &[&str], files: &[(&str, &str)]) -> Approval {
        told(args, files).1
    }

    #[test]
    fn the_users_own_instructions_stay() {
        let top = ("config.toml", TOP);
        let both = (
            "config.toml",
            "developer_instructions = \"top\"\nprofile = \"q\"\n\
             [profiles.p]\ndeveloper_instructions = \"table\"\n\
             [profiles.q]\ndeveloper_instructions = \"selected\"\n",
        );
        let file = ("p.config.toml", "developer_instructions = \"file\"\n");
        assert_eq!(instructions(&[], &[]), "");
        assert_eq!(instructions(&[], &[top]), "top");
        assert_eq!(instructions(&["-p", "p"], &[top, file]), "file");
        assert_eq!(instructions(&["--profile=p"], &[both]), "table");
        assert_eq!(instructions(&["-p", "none"], &[both]), "top");
        assert_eq!(instructions(&[], &[both]), "selected");
        let given = ["-c", "developer_instructions='a \"b\"'"];
        assert_eq!(instructions(&given, &[top]), "a \"b\"");
        let bare = ["-c", "developer_instructions=be kind", "-c", "model=x"];
        assert_eq!(instructions(&bare, &[top]), "be kind");
        assert_eq!(instructions(&[], &[("config.toml", "= broken")]), "");
    }

    #[test]
    fn a_repository_is_heard_only_if_it_is_trusted() {
        let project = (
            ".codex/config.toml",
            "developer_instructions = \"project\"\napproval_policy = \"on-request\"\n",
        );
        let stranger = ("config.toml", TOP);
        let trust =
            |name: &str| format!("{TOP}[projects.\"ROOT/{name}\"]\ntrust_level = \"trusted\"\n");
        let (work, main) = (trust("work"), trust("main"));
        let trusted = ("config.toml", work.as_str());
        let main = ("config.toml", main.as_str());
        let no = |text: &str| (text.to_owned(), Approval::Never);
        assert_eq!(told(&[], &[stranger, project]), no("top"));
        let heard = ("project".to_owned(), Approval::Configured);
        assert_eq!(told(&[], &[trusted, project]), heard);
        assert_eq!(told(&[], &[main, project]), no("top"));
        assert_eq!(told_in("tree/sub", &[], &[main, project]), heard);
        assert_eq!(told_in("tree", &[], &[trusted, project]), no("top"));
    }

    #[test]
    fn a_policy_is_found_wherever_it_stands() {
        let text = "approval_policy = \"untrusted\"\n";
        assert_eq!(policy(&[], &[("config.toml", text)]), Approval::Configured);
        let profile = ("p.config.toml", text);
        assert_eq!(policy(&["-p", "p"], &[profile]), Approval::Configured);
        assert_eq!(policy(&[], &[profile]), Approval::Never);
    }
}
