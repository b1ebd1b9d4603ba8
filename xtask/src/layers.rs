//! The rules for dependencies between crates. ARCHITECTURE.md gives the reasons.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::circles;
use crate::deny::Config;
use crate::metadata::{Edge, Metadata, Package};
use crate::purity;
use crate::workspace::{Workspace, verdict};

/// A forbidden dependency, direct or through others.
struct Rule {
    subject: Subject,
    via: Via,
    forbidden: Forbidden,
    because: &'static str,
}

enum Subject {
    Crate(&'static str),
    /// Every crate of the workspace.
    Any,
}

/// Which of the subject's own dependencies count. Those of its dependencies never
/// include tests.
#[derive(Clone, Copy)]
enum Via {
    /// What is built into the crate.
    Shipped,
    /// Also what its tests use.
    Tests,
}

enum Forbidden {
    Crates(&'static [&'static str]),
    /// Any crate of the workspace.
    Ours,
}

/// Crates that do I/O, start threads or read a clock, as far as they might be used here.
const OUTSIDE: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "fs4",
    "hyper",
    "jiff",
    "libc",
    "mio",
    "nix",
    "notify",
    "reqwest",
    "rmcp",
    "rusqlite",
    "rustls-native-certs",
    "rustix",
    "smol",
    "socket2",
    "sqlx",
    "tempfile",
    "time",
    "tokio",
    "tokio-rustls",
    "ureq",
];

const RULES: &[Rule] = &[
    Rule {
        subject: Subject::Crate("common"),
        via: Via::Shipped,
        forbidden: Forbidden::Crates(&["nix", "rmcp", "sqlx", "tempfile", "tokio"]),
        because: "all parts use it, also those that do no I/O",
    },
    Rule {
        subject: Subject::Crate("codex-protocol"),
        via: Via::Shipped,
        forbidden: Forbidden::Crates(OUTSIDE),
        because: "the wire types do no I/O and read no clock",
    },
    Rule {
        subject: Subject::Crate("scripted-model"),
        via: Via::Tests,
        forbidden: Forbidden::Ours,
        because: "it stands in for a server that knows nothing of us",
    },
    Rule {
        subject: Subject::Crate("testkit"),
        via: Via::Tests,
        forbidden: Forbidden::Crates(&["codex-mcp"]),
        because: "it drives the program from outside",
    },
    Rule {
        subject: Subject::Crate("codex-mcp"),
        via: Via::Shipped,
        forbidden: Forbidden::Crates(&["testkit"]),
        because: "test support is not shipped",
    },
    Rule {
        subject: Subject::Any,
        via: Via::Tests,
        forbidden: Forbidden::Crates(&["xtask"]),
        because: "chores are no library",
    },
    Rule {
        subject: Subject::Any,
        via: Via::Tests,
        forbidden: Forbidden::Crates(&["fuzz-targets"]),
        because: "it tests the other crates",
    },
];

/// Checks the rules on the dependency graph, then the source of the pure crates and the
/// imports between the modules of each crate.
///
/// # Errors
/// When a rule is broken, or the graph or a file cannot be read.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let config = Config::load(workspace)?;
    let metadata = Metadata::load(workspace, &config.graph.targets)?;
    let mut findings = violations(&metadata);
    findings.extend(purity::violations(workspace)?);
    findings.extend(circles::violations(workspace)?);
    verdict("the layers do not hold", &findings)?;
    println!("{} rules hold", RULES.len());
    Ok(())
}

fn violations(metadata: &Metadata) -> Vec<String> {
    let graph = Graph::new(metadata);
    RULES.iter().flat_map(|rule| graph.check(rule)).collect()
}

struct Graph<'a> {
    packages: BTreeMap<&'a str, &'a Package>,
    edges: BTreeMap<&'a str, &'a [Edge]>,
    members: Vec<&'a Package>,
}

impl<'a> Graph<'a> {
    fn new(metadata: &'a Metadata) -> Self {
        Self {
            packages: metadata.by_id(),
            edges: metadata.edges(),
            members: metadata.members().collect(),
        }
    }

    fn check(&self, rule: &Rule) -> Vec<String> {
        let subjects: Vec<&Package> = match rule.subject {
            Subject::Any => self.members.clone(),
            Subject::Crate(name) => {
                let found = self.members.iter().find(|member| member.name == name);
                let Some(member) = found else {
                    return vec![format!("no crate {name}: this rule has lost its subject")];
                };
                vec![member]
            }
        };
        subjects
            .iter()
            .flat_map(|subject| self.paths(subject, rule.via))
            .filter(|path| self.is_forbidden(path, &rule.forbidden))
            .map(|path| format!("{} ({})", self.show(&path), rule.because))
            .collect()
    }

    /// The shortest path to each crate that `subject` depends on, as ids.
    fn paths(&self, subject: &'a Package, via: Via) -> Vec<Vec<&'a str>> {
        let start = subject.id.as_str();
        let mut seen = BTreeSet::from([start]);
        let mut queue = VecDeque::from([vec![start]]);
        let mut paths = Vec::new();
        while let Some(path) = queue.pop_front() {
            let Some(&last) = path.last() else { continue };
            let with_tests = last == start && matches!(via, Via::Tests);
            let edges = self.edges.get(last).copied().unwrap_or_default();
            for edge in edges.iter().filter(|edge| with_tests || edge.is_shipped()) {
                if seen.insert(&edge.pkg) {
                    let longer = [path.as_slice(), &[edge.pkg.as_str()]].concat();
                    paths.push(longer.clone());
                    queue.push_back(longer);
                }
            }
        }
        paths
    }

    fn is_forbidden(&self, path: &[&str], forbidden: &Forbidden) -> bool {
        let Some(package) = path.last().and_then(|id| self.packages.get(id)) else {
            return false;
        };
        match forbidden {
            Forbidden::Crates(names) => names.contains(&package.name.as_str()),
            Forbidden::Ours => self.members.iter().any(|member| member.id == package.id),
        }
    }

    fn show(&self, path: &[&str]) -> String {
        let names: Vec<&str> = path
            .iter()
            .map(|id| self.packages.get(id).map_or(*id, |package| &package.name))
            .collect();
        names.join(" → ")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use serde_json::{Value, json};

    use super::*;

    const OURS: [&str; 7] = [
        "codex-engine",
        "codex-mcp",
        "codex-protocol",
        "common",
        "scripted-model",
        "testkit",
        "xtask",
    ];

    /// The violations in a graph with our crates and these dependencies, each as (from, kind,
    /// to).
    fn broken(edges: &[(&str, Option<&str>, &str)]) -> Vec<String> {
        let mut names: BTreeSet<&str> = OURS.into();
        names.extend(edges.iter().flat_map(|(from, _, to)| [*from, *to]));
        let packages: Vec<Value> = names
            .iter()
            .map(|name| {
                json!({"id": name, "name": name, "version": "0.1.0", "license": null,
                       "source": null, "manifest_path": "", "publish": null, "dependencies": []})
            })
            .collect();
        let nodes: Vec<Value> = names
            .iter()
            .map(|name| {
                let deps: Vec<Value> = edges
                    .iter()
                    .filter(|(from, ..)| from == name)
                    .map(|(_, kind, to)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
                    .collect();
                json!({"id": name, "deps": deps})
            })
            .collect();
        let metadata = serde_json::from_value(json!({
            "packages": packages, "workspace_members": OURS, "resolve": {"nodes": nodes},
        }))
        .unwrap();
        violations(&metadata)
    }

    #[test]
    fn intended_graph_passes() {
        let edges = [
            ("codex-mcp", None, "codex-engine"),
            ("codex-mcp", None, "scripted-model"),
            ("codex-mcp", None, "tokio"),
            ("codex-mcp", Some("dev"), "testkit"),
            ("codex-engine", None, "codex-protocol"),
            ("codex-engine", Some("dev"), "proptest"),
            ("proptest", None, "tempfile"),
            ("codex-protocol", None, "serde"),
            ("scripted-model", None, "axum"),
            ("testkit", None, "scripted-model"),
        ];
        assert_eq!(broken(&edges), Vec::<String>::new());
    }

    #[test]
    fn whole_path_to_a_forbidden_crate_is_shown() {
        let edges = [
            ("codex-protocol", None, "helpful"),
            ("helpful", Some("build"), "tokio"),
        ];
        assert_eq!(
            broken(&edges),
            ["codex-protocol → helpful → tokio (the wire types do no I/O and read no clock)"]
        );
    }

    #[test]
    fn rule_rejects_its_violation() {
        for edge in [
            ("common", None, "nix"),
            ("codex-protocol", None, "chrono"),
            ("scripted-model", None, "codex-protocol"),
            ("scripted-model", Some("dev"), "testkit"),
            ("testkit", Some("dev"), "codex-mcp"),
            ("codex-mcp", None, "testkit"),
            ("codex-mcp", Some("build"), "testkit"),
            ("testkit", Some("dev"), "xtask"),
            ("common", Some("dev"), "fuzz-targets"),
        ] {
            assert_eq!(broken(&[edge]).len(), 1, "{edge:?}");
        }
    }

    #[test]
    fn tests_of_a_dependency_do_not_count() {
        let edges = [
            ("testkit", None, "scripted-model"),
            ("scripted-model", Some("dev"), "tokio-test"),
            ("codex-protocol", None, "serde"),
            ("serde", Some("dev"), "tokio"),
        ];
        assert_eq!(broken(&edges), Vec::<String>::new());
    }

    #[test]
    fn cycle_through_tests_ends() {
        let edges = [
            ("codex-mcp", Some("dev"), "testkit"),
            ("testkit", None, "codex-mcp"),
        ];
        assert_eq!(
            broken(&edges),
            ["testkit → codex-mcp (it drives the program from outside)"]
        );
    }

    #[test]
    fn rule_without_its_crate_is_an_error() {
        let metadata = json!({"packages": [], "workspace_members": [], "resolve": {"nodes": []}});
        let findings = violations(&serde_json::from_value(metadata).unwrap());
        assert!(findings.contains(&"no crate testkit: this rule has lost its subject".to_owned()));
    }
}
