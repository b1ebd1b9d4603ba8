//! The first contents of a private git directory, and the directory of its settings.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::{fs, io};

use safe_files::state_directory::make_directory;

use super::refs::Refs;
use super::remove::remove_tree;
use super::{FILE_LIMIT, INDEX_LIMIT, PRIVATE, PrivateGit, copy_file, objects};
use crate::GitError;
use crate::setting::{self, Scope, Setting};
use crate::view::in_file;

/// Entries that git writes. In the common directory they are links into the private one.
const WRITTEN: [&str; 8] = [
    "objects",
    "refs",
    "logs",
    "packed-refs",
    "shallow",
    "modules",
    "worktrees",
    "lfs",
];

/// Settings of the repository that would change the nature of the directory, or make git work in
/// the background.
const LEFT_OUT: [&str; 7] = [
    "core.bare",
    "core.worktree",
    "extensions.refstorage",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
    "gc.auto",
    "maintenance.auto",
];

impl PrivateGit {
    pub(super) fn fill(&self, refs: &Refs) -> io::Result<()> {
        let path = self.path();
        for name in [
            "objects/info",
            "objects/pack",
            "refs/heads",
            "refs/tags",
            "info",
            "logs",
            "modules",
            "worktrees",
            "lfs",
        ] {
            make_directory(&path.join(name))?;
        }
        let layout = self.git.layout();
        fs::write(path.join("HEAD"), &refs.head)?;
        fs::write(path.join("packed-refs"), refs.packed())?;
        fs::write(
            path.join("objects/info/alternates"),
            objects::alternate(layout)?,
        )?;
        copy_file("index", &layout.git_dir, &path, INDEX_LIMIT)?;
        copy_file("info/sparse-checkout", &layout.git_dir, &path, FILE_LIMIT)?;
        copy_file("shallow", &layout.common_dir, &path, FILE_LIMIT)
    }

    /// Recreates the directory of the settings. A second attempt gets the settings of its own
    /// start.
    pub(super) async fn write_common(&self) -> Result<(), GitError> {
        self.fill_common().map_err(GitError::View)?;
        let conditional = self.conditional().await?;
        let config = self.common().join("config");
        fs::write(config, self.config(&conditional)).map_err(GitError::View)
    }

    fn fill_common(&self) -> io::Result<()> {
        let common = self.common();
        remove_tree(&common)?;
        make_directory(&common.join("info"))?;
        for name in WRITTEN {
            symlink(Path::new("..").join(PRIVATE).join(name), common.join(name))?;
        }
        fs::write(common.join("config"), self.config(&[]))?;
        for name in ["info/exclude", "info/attributes"] {
            copy_file(name, &self.git.layout().common_dir, &common, FILE_LIMIT)?;
        }
        Ok(())
    }

    /// The user's settings that git applies to the repository but would not apply to another git
    /// directory (`includeIf`).
    async fn conditional(&self) -> Result<Vec<Setting>, GitError> {
        // Codex may have written to the directory in an earlier attempt, and git would wait for a
        // pipe.
        let head = self.path().join("HEAD").symlink_metadata();
        if !head.is_ok_and(|head| head.is_file()) {
            return Ok(Vec::new());
        }
        let mut git = self.git.with_files_of_user();
        git.invocation.forget_repository();
        for (name, value) in self.variables() {
            git.set(name, value);
        }
        let there = setting::read(&git.output(setting::LIST, &[]).await?);
        let missing = self
            .git
            .settings
            .iter()
            .filter(|one| one.scope == Scope::User && !there.contains(one));
        let include = |one: &&Setting| one.key.as_bytes().starts_with(b"include");
        Ok(missing.filter(|one| !include(one)).cloned().collect())
    }

    /// The contents of the configuration: the user's settings that apply to the repository only by
    /// `includeIf`, followed by the repository's settings, which take precedence. The repository's
    /// hooks stay where they are.
    fn config(&self, conditional: &[Setting]) -> Vec<u8> {
        let has_hooks = |setting: &&Setting| setting.key == "core.hookspath";
        let own = self.git.settings.iter().filter(|one| {
            let key = one.key.as_bytes();
            let is_include = key.starts_with(b"include.") || key.starts_with(b"includeif.");
            let is_left_out = LEFT_OUT.iter().any(|left| key == left.as_bytes());
            one.scope == Scope::Repository && !is_include && !is_left_out
        });
        let own: Vec<&Setting> = own.collect();
        let hooks = self.git.layout().common_dir.join("hooks").into_os_string();
        let hooks = match self.git.settings.iter().any(|one| has_hooks(&one)) {
            true => None,
            false => Some(ours("core.hookspath", hooks)),
        };
        let plain = [
            // Enabled, these would make git write into the directory of the settings.
            ("branch.autosetupmerge", "false"),
            ("rerere.enabled", "false"),
            ("core.bare", "false"),
            ("core.logallrefupdates", "true"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
        ];
        let plain: Vec<Setting> = plain
            .into_iter()
            .map(|(key, value)| ours(key, value.into()))
            .chain(hooks)
            .collect();
        in_file(conditional.iter().chain(own).chain(&plain))
    }
}

fn ours(key: &str, value: OsString) -> Setting {
    Setting {
        scope: Scope::Repository,
        is_of_environment: false,
        key: key.into(),
        value: Some(value),
    }
}
