//! The manual pages and completions, which the program itself prints.

use std::path::Path;

use anyhow::{Context, bail};

use super::entries::Entry;
use super::release::NAME;
use crate::tool::Tool;

/// The most pages that a manual may have, so that a wrong page cannot lead round in a circle.
const MOST_PAGES: usize = 500;

/// The pages, each with its file name as path.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The manual, beginning with that of the program.
    pub(crate) manual: Vec<Entry>,
    pub(crate) bash: Entry,
    pub(crate) zsh: Entry,
    pub(crate) fish: Entry,
}

impl Pages {
    /// Has `program`, which must run on this machine, print all pages.
    ///
    /// # Errors
    /// When it cannot be run or fails.
    pub(crate) fn print(program: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            manual: manual(program)?,
            bash: completions(program, "bash", "codex-mcp.bash")?,
            zsh: completions(program, "zsh", "_codex-mcp")?,
            fish: completions(program, "fish", "codex-mcp.fish")?,
        })
    }

    /// The scripts for all shells.
    pub(crate) fn completions(&self) -> impl Iterator<Item = &Entry> {
        [&self.bash, &self.zsh, &self.fish].into_iter()
    }
}

impl Entry {
    /// The same file in another directory.
    pub(crate) fn below(&self, directory: &str) -> Self {
        Self {
            path: format!("{directory}{}", self.path),
            ..self.clone()
        }
    }
}

/// Prints the page of the program and follows the names of its verbs' pages.
fn manual(program: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut pages = Vec::new();
    let mut waiting = vec![Vec::new()];
    while let Some(verbs) = waiting.pop() {
        let text = run(program, "man", &verbs)?;
        let name = page_name(&verbs);
        for verb in verbs_of(&text, &name).into_iter().rev() {
            waiting.push([verbs.as_slice(), &[verb]].concat());
        }
        pages.push(Entry::file(format!("{name}.1"), text));
        if pages.len() > MOST_PAGES {
            bail!("the manual has more than {MOST_PAGES} pages");
        }
    }
    Ok(pages)
}

/// The name of the page of a verb, as clap_mangen makes it.
fn page_name(verbs: &[String]) -> String {
    let words = std::iter::once(NAME).chain(verbs.iter().map(String::as_str));
    words.collect::<Vec<_>>().join("-")
}

/// The verbs whose pages a page lists: lines such as `codex\-mcp\-jobs\-submit(1)`.
fn verbs_of(page: &str, name: &str) -> Vec<String> {
    let beginning = format!("{name}-");
    let verb = |line: &str| {
        let line = line.replace('\\', "");
        let verb = line.strip_suffix("(1)")?.strip_prefix(&beginning)?;
        let is_word = !verb.is_empty() && verb.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        is_word.then(|| verb.to_owned())
    };
    page.lines().filter_map(verb).collect()
}

fn completions(program: &Path, shell: &str, file: &str) -> anyhow::Result<Entry> {
    let script = run(program, "completions", &[shell.to_owned()])?;
    Ok(Entry::file(file, script))
}

fn run(program: &Path, verb: &str, args: &[String]) -> anyhow::Result<String> {
    let program = program.to_str().context("the path is not UTF-8")?;
    let args = args.iter().cloned();
    Tool::new(program, [verb])
        .args(args)
        .capture(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_verbs_are_found() {
        let page = ".SH SUBCOMMANDS\n.TP\ncodex\\-mcp\\-jobs\\-submit(1)\nSubmit\n.TP\n\
                    codex\\-mcp\\-jobs\\-eyes\\-mcp(1)\nsee codex\\-mcp(1)\n";
        assert_eq!(verbs_of(page, "codex-mcp-jobs"), ["submit", "eyes-mcp"]);
        assert_eq!(verbs_of(page, "codex-mcp-run"), [""; 0]);
    }
}
