#![expect(clippy::unwrap_used, reason = "test code")]

use serde_json::{Value, json};

use super::*;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn config(more: &str) -> anyhow::Result<Config> {
    Config::parse(&format!(
        r#"
        graph.targets = []
        [licenses]
        allow = ["MIT"]
        include-dev = true
        [bans]
        multiple-versions = "warn"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{{ crate = "left-pad", reason = "write it yourself" }}]
        {more}
        [sources]
        unknown-registry = "deny"
        unknown-git = "warn"
        allow-registry = ["https://github.com/rust-lang/crates.io-index"]
        allow-git = ["https://example.org/good"]
        "#
    ))
}

fn package(name: &str, version: &str, source: Option<&str>, dependencies: &Value) -> Value {
    json!({
        "id": format!("{name}@{version}"), "name": name, "version": version,
        "license": "MIT", "source": source, "manifest_path": "",
        "publish": source.map_or(json!([]), |_| Value::Null),
        "dependencies": dependencies,
    })
}

fn check(packages: &[Value]) -> Report {
    let metadata = serde_json::from_value(json!({
        "packages": packages, "workspace_members": [], "resolve": {"nodes": []},
    }))
    .unwrap();
    let config = config("").unwrap();
    let mut report = Report::default();
    licenses::check(&config.licenses, &metadata, &mut report).unwrap();
    bans(&config.bans, &metadata, &mut report);
    sources(&config.sources, &metadata, &mut report);
    report
}

#[test]
fn clean_graph_has_no_findings() {
    let path = json!([{"name": "b", "req": "*", "kind": null, "source": null}]);
    let graph = [
        package("a", "0.1.0", None, &path),
        package("b", "1.0.0", Some(CRATES_IO), &json!([])),
    ];
    assert_eq!(check(&graph), Report::default());
}

#[test]
fn banned_crates_and_wildcards_are_errors_and_duplicates_warnings() {
    let any = json!([{"name": "rand", "req": "*", "kind": "dev", "source": CRATES_IO}]);
    let graph = [
        package("a", "0.1.0", None, &any),
        package("left-pad", "1.0.0", Some(CRATES_IO), &json!([])),
        package("syn", "1.0.0", Some(CRATES_IO), &json!([])),
        package("syn", "2.0.0", Some(CRATES_IO), &json!([])),
    ];
    let report = check(&graph);
    assert_eq!(
        report.errors,
        [
            "a 0.1.0 takes any version of rand",
            "left-pad 1.0.0 is banned: write it yourself",
        ]
    );
    assert_eq!(report.warnings, ["several versions of syn: 1.0.0, 2.0.0"]);
}

#[test]
fn path_without_version_is_for_private_crates_and_tests() {
    let mut public = package(
        "a",
        "0.1.0",
        None,
        &json!([
            {"name": "b", "req": "*", "kind": null, "source": null},
            {"name": "c", "req": "*", "kind": "dev", "source": null},
        ]),
    );
    *public.get_mut("publish").unwrap() = Value::Null;
    assert_eq!(check(&[public]).errors, ["a 0.1.0 takes any version of b"]);
}

#[test]
fn unknown_sources_are_reported_at_their_level() {
    let graph = [
        package(
            "a",
            "1.0.0",
            Some("sparse+https://crates.example.org/"),
            &json!([]),
        ),
        package(
            "b",
            "1.0.0",
            Some("git+https://example.org/bad?branch=x#1"),
            &json!([]),
        ),
        package(
            "c",
            "1.0.0",
            Some("git+https://example.org/good.git?tag=1#2"),
            &json!([]),
        ),
    ];
    let report = check(&graph);
    assert_eq!(
        report.errors,
        ["a 1.0.0 comes from sparse+https://crates.example.org/"]
    );
    assert_eq!(
        report.warnings,
        ["b 1.0.0 comes from git+https://example.org/bad?branch=x#1"]
    );
}

#[test]
fn rule_that_is_not_checked_here_is_refused() {
    for (more, complaint) in [
        ("skip = []", "unknown field `skip`"),
        ("[bans.build]", "unknown field `build`"),
        ("[advisories]", "unknown field `advisories`"),
    ] {
        let error = config(more).unwrap_err().to_string();
        assert!(error.contains(complaint), "{more}: {error}");
    }
}

#[test]
fn own_rules_can_be_read() {
    Config::parse(include_str!("../../../deny.toml")).unwrap();
}
