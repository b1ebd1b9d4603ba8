//! Codex's settings that the wrapper extends.
//!
//! Developer instructions on the command line replace those of the configuration, so the wrapper
//! passes both. An approval policy in the configuration stays in force.

use std::path::Path;

use codex_config::layers::{CodexConfig, UserConfig};
use codex_config::profile::ProfileName;
use codex_config::trust::codex_trust;
use toml::Table;

use super::ImageRoot;
use crate::logic::arguments::{Approval, Arguments};

const INSTRUCTIONS: &str = "developer_instructions";

/// The configuration of a Codex with these arguments in this directory. Codex reads it itself,
/// so a repository's settings count only if Codex's own configuration trusts it.
#[must_use]
pub fn config_for(arguments: &Arguments, codex_home: &Path, image_root: &ImageRoot) -> CodexConfig {
    let user = UserConfig::read(codex_home);
    let profile = arguments.profile().map(str::to_owned);
    let profile = profile.and_then(|name| ProfileName::try_from(name).ok());
    let trust = codex_trust(image_root.directory(), &user).ok();
    user.layers(profile.as_ref(), trust.as_ref())
}

/// All developer instructions: the user's, from the source that Codex would use, and our
/// rules.
#[must_use]
pub fn instructions(config: &CodexConfig, arguments: &Arguments, rules: &str) -> String {
    let given = arguments.instructions().map(in_toml);
    match given.or_else(|| config.value_of(INSTRUCTIONS)) {
        Some(theirs) => format!("{theirs}\n\n{rules}"),
        None => rules.to_owned(),
    }
}

/// Whether the configuration has an approval policy.
#[must_use]
pub fn approval(config: &CodexConfig) -> Approval {
    match config.get("approval_policy") {
        Some(_) => Approval::Configured,
        None => Approval::Never,
    }
}

/// Parses the text after `-c KEY=` as Codex does: as TOML, or literally if it is not valid TOML.
fn in_toml(text: &str) -> String {
    let table: Option<Table> = toml::from_str(&format!("{INSTRUCTIONS} = {text}")).ok();
    let value = table
        .as_ref()
        .and_then(|table| table.get(INSTRUCTIONS)?.as_str());
    value.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use crate::logic::contract;
    use crate::logic::picture::SizeLimit;

    use super::*;

    const TOP: &str = "developer_instructions = \"top\"\n";

    /// The user's instructions and policy, with these files in CODEX_HOME, or in the
    /// repository's `.codex` if their names begin so.
    fn told(args: &[&str], files: &[(&str, &str)]) -> (String, Approval) {
        told_in("work/sub", args, files)
    }

    /// The same in this directory: `tree` is a linked working tree of the repository `main`,
    /// and `work` a repository of its own.
    fn told_in(directory: &str, args: &[&str], files: &[(&str, &str)]) -> (String, Approval) {
        let top = directory.split('/').next().unwrap();
        let made = tempfile::tempdir().unwrap();
        let root = made.path().canonicalize().unwrap();
        let (home, work) = (root.join("home"), root.join(top));
        for directory in ["home", "main/.git/worktrees/tree", "work/.git"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::create_dir_all(work.join("sub")).unwrap();
        fs::create_dir_all(work.join(".codex")).unwrap();
        for repository in ["main", "work"] {
            let head = root.join(repository).join(".git/HEAD");
            fs::write(head, "ref: refs/heads/main\n").unwrap();
        }
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
        let image_root = ImageRoot::around(&root.join(directory), SizeLimit::default()).unwrap();
        let config = config_for(&arguments, &home, &image_root);
        let ours = contract::instructions();
        let all = instructions(&config, &arguments, &ours);
        let theirs = all.strip_suffix(&ours).unwrap().trim_end().to_owned();
        (theirs, approval(&config))
    }

    fn told_words(args: &[&str], files: &[(&str, &str)]) -> String {
        told(args, files).0
    }

    fn policy(args: &[&str], files: &[(&str, &str)]) -> Approval {
        told(args, files).1
    }

    #[test]
    fn instructions_of_the_user_stay() {
        let top = ("config.toml", TOP);
        let file = ("p.config.toml", "developer_instructions = \"file\"\n");
        assert_eq!(told_words(&[], &[]), "");
        assert_eq!(told_words(&[], &[top]), "top");
        assert_eq!(told_words(&["-p", "p"], &[top, file]), "file");
        assert_eq!(told_words(&["--profile=none"], &[top, file]), "top");
        let given = ["-c", "developer_instructions='a \"b\"'"];
        assert_eq!(told_words(&given, &[top]), "a \"b\"");
        let bare = ["-c", "developer_instructions=be kind", "-c", "model=x"];
        assert_eq!(told_words(&bare, &[top]), "be kind");
        assert_eq!(told_words(&[], &[("config.toml", "= broken")]), "");
    }

    #[test]
    fn repository_settings_count_only_if_trusted() {
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
    fn approval_policy_is_found_in_every_layer() {
        let text = "approval_policy = \"untrusted\"\n";
        assert_eq!(policy(&[], &[("config.toml", text)]), Approval::Configured);
        let profile = ("p.config.toml", text);
        assert_eq!(policy(&["-p", "p"], &[profile]), Approval::Configured);
        assert_eq!(policy(&[], &[profile]), Approval::Never);
        let table = format!("profile = \"p\"\n[profiles.p]\n{text}");
        assert_eq!(
            policy(&[], &[("config.toml", &table)]),
            Approval::Configured
        );
    }
}
