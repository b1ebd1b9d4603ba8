//! The paths that a source file of Rust names, read without a compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use anyhow::Context;

/// Adds the source files below a directory.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The segments of a path: `crate::lines::Line` is `["crate", "lines", "Line"]`.
pub(crate) type Names = Vec<String>;

/// The names that one file uses. A module of tests at its end is not read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// Each imported name, with its path.
    pub(crate) imports: BTreeMap<String, Names>,
    /// The modules of `use module::*`.
    pub(crate) globs: BTreeSet<Names>,
    /// Every path of two segments or more outside of `use`.
    pub(crate) paths: BTreeSet<Names>,
}

impl Source {
    /// Reads the text of a file that compiles.
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = Reader {
            tokens: tokens(text),
            at: 0,
            depth: 0,
            inline: Vec::new(),
            source: Self::default(),
        };
        reader.read();
        reader.source
    }
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    /// How many braces are open.
    depth: usize,
    /// The depths at which modules begin that are written out in the file.
    inline: Vec<usize>,
    source: Source,
}

/// A module of tests that is written out: clippy's `items_after_test_module` sees to it that
/// nothing comes after it.
const TESTS: [&str; 10] = ["#", "[", "cfg", "(", "test", ")", "]", "mod", "tests", "{"];

impl Reader {
    fn read(&mut self) {
        while let Some(token) = self.token(0) {
            let is_statement = self
                .token(1)
                .is_some_and(|next| is_name(next) || next == "{");
            match token {
                "#" if (0..)
                    .zip(TESTS)
                    .all(|(at, word)| self.token(at) == Some(word)) =>
                {
                    return;
                }
                "use" if is_statement => {
                    self.at += 1;
                    self.tree(&Names::new());
                }
                "mod" if self.token(2) == Some("{") => {
                    self.inline.push(self.depth);
                    self.at += 2;
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inline.retain(|depth| *depth < self.depth);
                    self.at += 1;
                }
                token if is_name(token) => self.path(),
                _ => self.at += 1,
            }
        }
    }

    fn token(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead).map(String::as_str)
    }

    fn path_goes_on(&self) -> bool {
        self.token(0) == Some("::")
    }

    /// A path in an expression or a type. The rest of one that an angle bracket interrupts
    /// is no path of its own.
    fn path(&mut self) {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        let is_rest = before.is_some_and(|before| before == "::" || before == ".");
        let mut names = self.names();
        if !is_rest && names.len() > 1 {
            self.rebase(&mut names);
            self.source.paths.insert(names);
        }
    }

    fn names(&mut self) -> Names {
        let mut names = Names::new();
        while let Some(name) = self.token(0).filter(|token| is_name(token)) {
            names.push(name.to_owned());
            self.at += 1;
            let goes_on = self.path_goes_on() && self.token(1).is_some_and(is_name);
            if !goes_on {
                break;
            }
            self.at += 1;
        }
        names
    }

    /// The tree of a `use`, below `above`.
    fn tree(&mut self, above: &[String]) {
        let names = [above, &self.names()].concat();
        if self.path_goes_on() {
            self.at += 1;
        }
        match self.token(0) {
            Some("{") => {
                self.at += 1;
                while self.token(0).is_some_and(|token| token != "}") {
                    self.tree(&names);
                    if self.token(0) == Some(",") {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            Some("*") => {
                self.at += 1;
                let mut module = names;
                self.rebase(&mut module);
                self.source.globs.insert(module);
            }
            _ => self.import(names),
        }
    }

    fn import(&mut self, mut names: Names) {
        if names.len() > 1 && names.last().is_some_and(|last| last == "self") {
            names.pop();
        }
        let alias = names.iter().position(|name| name == "as");
        let Some(mut name) = names.last().cloned() else {
            // No tree of a `use` begins like this.
            self.at += 1;
            return;
        };
        if alias.is_none() && self.token(0) == Some("as") {
            name = self.token(1).unwrap_or_default().to_owned();
            self.at += 2;
        }
        self.rebase(&mut names);
        self.source.imports.insert(name, names);
    }

    /// Turns a path in an inline module into a path from the file's own module.
    fn rebase(&self, names: &mut Names) {
        let supers = names.iter().take_while(|name| *name == "super").count();
        if supers > 0 && !self.inline.is_empty() {
            let within = supers.min(self.inline.len());
            names.splice(..within, ["self".to_owned()]);
            if supers > within {
                names.remove(0);
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token != "as" && token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single characters; no white space, comments, literals or lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => drop(chars.find(|c| *c == '\n')),
            '/' if chars.peek() == Some(&'*') => skip_comment(&mut chars),
            '"' => skip_string(&mut chars),
            '\'' => skip_quote(&mut chars),
            ':' if chars.next_if_eq(&':').is_some() => tokens.push("::".to_owned()),
            c if c.is_alphanumeric() || c == '_' => {
                let mut name = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                match (name.as_str(), chars.peek()) {
                    ("r" | "br" | "cr", Some('"' | '#')) => skip_raw(&mut chars),
                    _ => tokens.push(name),
                }
            }
            c if c.is_whitespace() => {}
            c => tokens.push(c.to_string()),
        }
    }
    tokens
}

fn skip_comment(chars: &mut Peekable<Chars<'_>>) {
    let mut open = 0_u32;
    let mut before = '/';
    for c in chars {
        match (before, c) {
            ('/', '*') => open += 1,
            ('*', '/') if open <= 1 => return,
            ('*', '/') => open -= 1,
            _ => {
                before = c;
                continue;
            }
        }
        before = ' ';
    }
}

fn skip_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}

/// Skips a raw string, or the mark of a raw name such as `r#type`.
fn skip_raw(chars: &mut Peekable<Chars<'_>>) {
    let mut marks = 0_usize;
    while chars.next_if_eq(&'#').is_some() {
        marks += 1;
    }
    if chars.next_if_eq(&'"').is_none() {
        return;
    }
    let mut seen = None;
    for c in chars {
        seen = match (c, seen) {
            ('"', _) => Some(0),
            ('#', Some(seen)) => Some(seen + 1),
            _ => None,
        };
        if seen == Some(marks) {
            return;
        }
    }
}

/// Skips a character or a lifetime, whose quote has been read.
fn skip_quote(chars: &mut Peekable<Chars<'_>>) {
    let first = chars.next();
    let is_escape = first == Some('\\');
    if is_escape {
        chars.next();
    }
    if is_escape || chars.peek() == Some(&'\'') {
        chars.find(|c| *c == '\'');
    } else {
        while chars
            .next_if(|c| c.is_alphanumeric() || *c == '_')
            .is_some()
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Names {
        path.split("::").map(str::to_owned).collect()
    }

    fn imports(text: &str) -> Vec<(String, String)> {
        let imports = Source::read(text).imports.into_iter();
        imports
            .map(|(name, path)| (name, path.join("::")))
            .collect()
    }

    fn paths(text: &str) -> Vec<String> {
        let paths = Source::read(text).paths.into_iter();
        paths.map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_read_from_every_form_of_use() {
        let text = "pub(crate) use crate::a::{self, B as C, d::{E, F}};\nuse super::g;";
        let expected = [
            ("C", "crate::a::B"),
            ("E", "crate::a::d::E"),
            ("F", "crate::a::d::F"),
            ("a", "crate::a"),
            ("g", "super::g"),
        ];
        assert_eq!(
            imports(text),
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        let globs = Source::read("use super::*; use {crate::x::*, y::Z};").globs;
        assert_eq!(globs, BTreeSet::from([names("super"), names("crate::x")]));
    }

    #[test]
    fn paths_are_read_from_code_and_not_from_text() {
        let text = r##"
            // crate::comment::A
            /* crate::block::B /* nested */ crate::block::C */
            fn f<'a>(x: &'a crate::d::E) -> impl Iterator + use<'a> {
                let quote = ('"', '\'', b'x', "crate::f::G \" crate::h::I");
                let raw = r#"crate::j::K " crate::l::M"#;
                super::n::o(x.p(), Vec::<u8>::new())
            }
        "##;
        assert_eq!(paths(text), ["crate::d::E", "super::n::o"]);
    }

    #[test]
    fn super_in_an_inline_module_is_the_file() {
        let text = "mod inner { use super::A; fn f() { super::super::b::c() } }\nuse super::D;";
        let expected = [("A", "self::A"), ("D", "super::D")];
        assert_eq!(
            imports(text),
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        assert_eq!(paths(text), ["super::b::c"]);
    }

    #[test]
    fn tests_at_the_end_are_not_read() {
        let text = "use crate::a;\n#[cfg(test)]\nmod tests { use crate::b; }";
        assert_eq!(imports(text), [("a".to_owned(), "crate::a".to_owned())]);
    }
}
