//! Modules of a crate that import each other in a circle.
//!
//! A module depends on the module that defines what it names: an item that a `lib.rs` or
//! `mod.rs` only re-exports counts for the module below that has it. A module may use what
//! the modules around it define, as they are one subject; but the root of the crate is
//! around all of them, so it counts as any other module. Methods are not seen, since a call
//! does not name the module of its `impl`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::{fs, slice};

use anyhow::Context;

use crate::source::{Names, Source, collect};
use crate::workspace::Workspace;

/// The crates whose modules import each other in a circle, a line for each circle.
///
/// # Errors
/// When a source file cannot be read.
pub(crate) fn violations(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let mut crates = vec![workspace.root().join("xtask")];
    let directory = workspace.root().join("crates");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        crates.push(entry?.path());
    }
    crates.sort();
    let mut violations = Vec::new();
    for path in crates.iter().filter(|path| path.join("src").is_dir()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let modules = Modules::read(&path.join("src"))?;
        let lines = modules.circles().into_iter();
        violations.extend(lines.map(|circle| format!("{name}: a circle of modules: {circle}")));
    }
    Ok(violations)
}

/// The modules of a crate by their paths from its root, without modules of tests.
#[derive(Default)]
struct Modules(BTreeMap<Names, Source>);

impl Modules {
    fn read(src: &Path) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        collect(src, &mut files)?;
        if src.join("lib.rs").is_file() {
            // A program beside a library only uses it.
            files.retain(|file| *file != src.join("main.rs"));
        }
        let mut modules = Self::default();
        for file in files {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let below = file.strip_prefix(src).unwrap_or(&file);
            if let Some(module) = module_of(below) {
                modules.0.insert(module, Source::read(&text));
            }
        }
        Ok(modules)
    }

    /// The circles of the crate, each as a path of uses from a module back to itself. Of circles
    /// that touch, one is shown.
    fn circles(&self) -> Vec<String> {
        let paths = |module| (module, self.paths_from(module));
        let paths: BTreeMap<&Names, _> = self.0.keys().map(paths).collect();
        let leads =
            |from: &Names, to: &Names| paths.get(from).is_some_and(|it| it.contains_key(to));
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, paths) in &paths {
            let Some(circle) = paths.get(*module).filter(|_| !seen.contains(*module)) else {
                continue;
            };
            let names: Vec<String> = circle.iter().map(|names| shown(names)).collect();
            circles.push(names.join(" → "));
            let reached = paths.keys();
            seen.extend(reached.filter(|other| leads(other, module)).cloned());
        }
        circles
    }

    /// A shortest path to each module that uses lead to, perhaps back to this one.
    fn paths_from(&self, module: &Names) -> BTreeMap<Names, Vec<Names>> {
        let mut paths = BTreeMap::new();
        let mut queue = VecDeque::from([vec![module.clone()]]);
        while let Some(path) = queue.pop_front() {
            let Some(last) = path.last() else { continue };
            for target in self.targets(last) {
                let longer = [path.as_slice(), slice::from_ref(&target)].concat();
                if let Entry::Vacant(entry) = paths.entry(target) {
                    entry.insert(longer.clone());
                    queue.push_back(longer);
                }
            }
        }
        paths
    }

    /// The modules whose items a module names, but for those around it.
    fn targets(&self, module: &Names) -> BTreeSet<Names> {
        let Some(source) = self.0.get(module) else {
            return BTreeSet::new();
        };
        let imported = source.imports.values().filter_map(|path| {
            let place = self.resolve(module, path)?;
            // A path through an imported module is counted where the path names the item.
            (!place.is_module).then_some(place.module)
        });
        let named = source
            .paths
            .iter()
            .filter_map(|path| self.resolve(module, path));
        let globs = source
            .globs
            .iter()
            .filter_map(|path| self.resolve(module, path));
        let all = imported.chain(named.chain(globs).map(|place| place.module));
        let is_around = |target: &Names| !target.is_empty() && module.starts_with(target);
        all.filter(|target| target != module && !is_around(target))
            .collect()
    }

    /// Resolves a path in a module; `None` if it leads to another crate.
    fn resolve(&self, module: &Names, path: &[String]) -> Option<PathTarget> {
        self.resolve_within(module, path, &mut BTreeSet::new())
    }

    fn resolve_within(
        &self,
        module: &Names,
        path: &[String],
        seen: &mut BTreeSet<(Names, String)>,
    ) -> Option<PathTarget> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Names::new(),
            "self" => module.clone(),
            "super" => {
                let mut above = parent(module)?;
                while let Some((_, more)) = rest.split_first().filter(|(it, _)| *it == "super") {
                    above = parent(&above)?;
                    rest = more;
                }
                above
            }
            name => {
                let child = child(module, name);
                match self.0.contains_key(&child) {
                    true => child,
                    false => return self.through_import(module, name, rest, seen),
                }
            }
        };
        while let Some((name, more)) = rest.split_first() {
            let below = child(&at, name);
            if !self.0.contains_key(&below) {
                return self
                    .through_import(&at, name, more, seen)
                    .or(Some(PathTarget {
                        module: at,
                        is_module: false,
                    }));
            }
            at = below;
            rest = more;
        }
        Some(PathTarget {
            module: at,
            is_module: true,
        })
    }

    /// Follows a name that a module has imported, perhaps to pass it on.
    fn through_import(
        &self,
        module: &Names,
        name: &str,
        rest: &[String],
        seen: &mut BTreeSet<(Names, String)>,
    ) -> Option<PathTarget> {
        let import = self.0.get(module)?.imports.get(name)?;
        if !seen.insert((module.clone(), name.to_owned())) {
            return None;
        }
        let path = [import.as_slice(), rest].concat();
        self.resolve_within(module, &path, seen)
    }
}

/// The target of a path.
struct PathTarget {
    module: Names,
    /// Whether it leads to the module itself instead of to an item in it.
    is_module: bool,
}

fn child(module: &[String], name: &str) -> Names {
    [module, &[name.to_owned()]].concat()
}

fn parent(module: &[String]) -> Option<Names> {
    module.split_last().map(|(_, above)| above.to_vec())
}

fn shown(module: &[String]) -> String {
    match module {
        [] => "the root".to_owned(),
        names => names.join("::"),
    }
}

/// The module of a file, by its path below `src`; `None` for tests and for programs, which
/// only use the library.
fn module_of(file: &Path) -> Option<Names> {
    let mut names: Names = file
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let is_program = file.starts_with("bin");
    if is_program || names.iter().any(|name| name == "tests") {
        return None;
    }
    match names.last().map(String::as_str) {
        Some("mod") => drop(names.pop()),
        Some("lib" | "main") if names.len() == 1 => drop(names.pop()),
        _ => {}
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().filter_map(|(file, text)| {
            let module = module_of(Path::new(file))?;
            Some((module, Source::read(text)))
        });
        Modules(modules.collect()).circles()
    }

    #[test]
    fn circle_is_found_through_every_kind_of_path() {
        for (a, b) in [
            ("use crate::b::B; struct A;", "use super::a::A; struct B;"),
            (
                "use crate::b; fn f() { b::g() }",
                "fn g() { crate::a::f() }",
            ),
            ("use super::{b::B};", "use {crate::a::*};"),
            ("use crate::B;", "use crate::A as Other;"),
        ] {
            let lib = "mod a; mod b; pub use a::A; pub use b::B;";
            let found = circles(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b)]);
            assert_eq!(found, ["a → b → a"], "{a} {b}");
        }
    }

    #[test]
    fn circle_of_three_in_directories_is_one() {
        let found = circles(&[
            ("lib.rs", "pub mod a; mod d;"),
            ("a/mod.rs", "mod b; mod c; pub use self::b::B;"),
            ("a/b.rs", "use super::c::C; struct B;"),
            ("a/c.rs", "use crate::d::D; struct C;"),
            ("d.rs", "use crate::a::B; struct D;"),
        ]);
        assert_eq!(found, ["a::b → a::c → d → a::b"]);
    }

    #[test]
    fn root_counts_only_for_items_it_defines() {
        let lib = "mod a; use a::A; pub struct Own;";
        let circle = circles(&[("lib.rs", lib), ("a.rs", "use crate::Own; struct A;")]);
        assert_eq!(circle, ["the root → a → the root"]);
        let modules = [
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "mod b; mod c; use self::b::B; pub struct Own; pub use c::C;",
            ),
            ("a/b.rs", "use super::{Own, C}; struct B;"),
            ("a/c.rs", "struct C;"),
        ];
        assert_eq!(circles(&modules), Vec::<String>::new());
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "use crate::B; struct A;"),
            ("b.rs", "struct B;"),
        ];
        assert_eq!(circles(&files), Vec::<String>::new());
    }

    #[test]
    fn tree_without_a_circle_has_none() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub fn run() { a::f() }"),
            ("a.rs", "use crate::{b::B, c}; pub fn f() { c::g(B) }"),
            ("b.rs", "use std::fmt; use crate::c::C; struct B;"),
            (
                "c.rs",
                "struct C; #[cfg(test)] mod tests { use crate::a::A; }",
            ),
            ("c/tests.rs", "use crate::a::A;"),
        ];
        assert_eq!(circles(&files), Vec::<String>::new());
    }
}
