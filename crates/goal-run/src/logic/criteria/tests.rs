use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn criterion(text: &str) -> Criterion {
    text.parse().unwrap()
}

fn read(value: Value) -> Result<Criteria, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

const TEXTS: [&str; 12] = [
    "files=src/**/*.{rs,toml}",
    "files=a=b.txt",
    "commits=2",
    "commits=1@feature/x",
    "branch=feature/x",
    "pushed",
    "pr",
    "issue_comment=owner/repo#7",
    "clean",
    "command=sh -c 'test \"$A\" = b'",
    "review",
    "diff_within=docs,src/{a,b}/*.rs",
];

#[test]
fn criteria_are_described() {
    let mut table = String::new();
    for text in TEXTS {
        let criterion = criterion(text);
        assert_eq!(criterion.to_string(), text);
        let (basis, grants) = (criterion.basis(), criterion.grants());
        table += &format!(
            "{text}\n  {basis:?} {grants:?}\n  {}\n",
            criterion.requirement()
        );
        assert!(!criterion.requirement().contains('\n'));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn commands_keep_the_order_in_which_they_are_given() {
    let given = [
        "command=make z",
        "clean",
        "command=make a",
        "command=make z",
    ];
    let criteria = Criteria::new(given.map(criterion)).unwrap();
    let texts: Vec<String> = criteria.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["clean", "command=make z", "command=make a"]);
    let kept = serde_json::to_value(&criteria).unwrap();
    assert_eq!(read(kept), Ok(criteria));
}

#[test]
fn malformed_criterion_is_refused_with_advice() {
    let mut table = String::new();
    for text in [
        "",
        "tests=1",
        "Files=a",
        "files",
        "files=",
        "files=../a",
        "files=/etc/passwd",
        "files=a\0",
        "commits",
        "commits=",
        "commits=0",
        "commits=-1",
        "commits=+1",
        "commits=1001",
        "commits=2@",
        "commits=1@-d",
        "branch=--force",
        "branch=a\nb",
        "branch=20261123",
        "branch=fix-gdeadbee",
        "pushed=true",
        "pr=1",
        "issue_comment=7",
        "clean=",
        "command=",
        "command=a && b",
        "diff_within=",
        "diff_within=a,",
        "diff_within=a,../b",
        "--until",
        "$(reboot)",
    ] {
        let refusal = text.parse::<Criterion>().unwrap_err();
        table += &format!("{text:?}: {refusal}\n");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn paths_are_split_at_commas_outside_of_patterns() {
    for (text, expected) in [
        ("a", &["a"][..]),
        ("src/,docs/", &["docs", "src"]),
        ("b,a,b", &["a", "b"]),
        ("{a,b},c", &["c", "{a,b}"]),
        ("[,],a", &["[,]", "a"]),
        (r"a\,b,c", &[r"a\,b", "c"]),
    ] {
        let Criterion::DiffWithin(paths) = criterion(&format!("diff_within={text}")) else {
            panic!("{text}");
        };
        assert_eq!(paths.iter().map(Glob::as_str).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn object_has_the_keys_of_the_texts() {
    let all = read(json!({
        "files": ["src/**/*.{rs,toml}", "a=b.txt"],
        "commits": [2, "1@feature/x"],
        "branch": "feature/x",
        "pushed": true,
        "pr": true,
        "issue_comment": "owner/repo#7",
        "clean": true,
        "command": "sh -c 'test \"$A\" = b'",
        "review": true,
        "diff_within": ["docs", "src/{a,b}/*.rs"],
    }));
    let expected = Criteria::new(TEXTS.map(criterion)).unwrap();
    assert_eq!(all.unwrap(), expected);
    assert!(read(json!({})).unwrap().is_empty());
    assert!(
        read(json!({"pushed": false, "files": []}))
            .unwrap()
            .is_empty()
    );
    let both = read(json!({"diff_within": "a,b"})).unwrap();
    assert_eq!(both, read(json!({"diff_within": ["a", "b"]})).unwrap());
}

#[test]
fn malformed_object_is_refused_naming_the_fault() {
    for (object, named) in [
        (json!({"file": "a"}), "unknown field `file`"),
        (json!({"files": "../a"}), "files: \"../a\" has"),
        (
            json!({"files": {"a": 1}}),
            "write a text or a list of texts",
        ),
        (json!({"commits": 0}), "commits: \"0\" is not a number"),
        (json!({"commits": -1}), "write a text or a list of texts"),
        (json!({"pushed": "yes"}), "expected a boolean"),
        (json!({"branch": "-d"}), "branch: \"-d\" is not a name"),
        (
            json!({"command": "a | b"}),
            "command: | means something to a shell",
        ),
        (
            json!({"issue_comment": 3}),
            "issue_comment: \"3\" names no issue",
        ),
        (
            json!({"diff_within": ["a", "/"]}),
            "diff_within: the path is empty",
        ),
        (
            json!({"files": vec!["{a,b}"; 3], "branch": (0..51).map(|n| format!("b{n}")).collect::<Vec<_>>()}),
            "there are 52 criteria",
        ),
    ] {
        let refusal = read(object.clone()).unwrap_err();
        assert!(refusal.contains(named), "{object}: {refusal}");
    }
}

#[test]
fn grants_follow_from_the_criteria() {
    let criteria = Criteria::new(["files=a", "commits=1"].map(criterion)).unwrap();
    assert_eq!(
        criteria.grants().into_iter().collect::<Vec<_>>(),
        [Grant::GitDirectory]
    );
    let criteria = Criteria::new(["clean", "pr"].map(criterion)).unwrap();
    let all = [Grant::GitDirectory, Grant::Network];
    assert_eq!(criteria.grants().into_iter().collect::<Vec<_>>(), all);
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(
        kind in proptest::sample::select(vec!["files", "commits", "branch", "command", "diff_within", "x"]),
        value in any::<String>(),
    ) {
        if let Ok(criterion) = format!("{kind}={value}").parse::<Criterion>() {
            prop_assert_eq!(criterion.to_string().parse::<Criterion>().unwrap(), criterion.clone());
            prop_assert!(!criterion.requirement().contains('\n'));
        }
    }

    #[test]
    fn criteria_survive_serialization(texts in proptest::sample::subsequence(TEXTS.to_vec(), 0..11)) {
        let criteria = Criteria::new(texts.into_iter().map(criterion)).unwrap();
        let written = serde_json::to_value(&criteria).unwrap();
        prop_assert_eq!(read(written).unwrap(), criteria);
    }
}
