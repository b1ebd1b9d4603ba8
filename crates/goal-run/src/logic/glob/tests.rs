use proptest::prelude::*;

use super::*;

fn glob(text: &str) -> Glob {
    text.parse().unwrap()
}

#[test]
fn patterns_match_paths() {
    for (pattern, fitting, others) in [
        (
            "a.txt",
            &["a.txt"][..],
            &["b.txt", "x/a.txt", "a.txt/b", "A.txt"][..],
        ),
        ("./a/b", &["a/b"], &["b"]),
        ("*.tex", &["a.tex", ".tex", "é.tex"], &["a/b.tex", "a.text"]),
        ("src/*", &["src/a", "src/.hidden"], &["src", "src/a/b"]),
        (
            "**/*.rs",
            &["a.rs", "x/a.rs", "x/y/a.rs"],
            &["a.rs/x", "rs"],
        ),
        ("a/**", &["a/b", "a/b/c"], &["a", "ab", "b/a"]),
        ("a/**/z", &["a/z", "a/b/z", "a/b/z/z"], &["a", "z", "a/z/b"]),
        (
            "**/a/**/b",
            &["a/b", "x/a/y/b", "a/a/b/b"],
            &["b", "a", "a/b/c"],
        ),
        (
            "?.md",
            &["a.md", "ß.md", "😀.md"],
            &["ab.md", ".md", "/.md"],
        ),
        ("[a-c0]x", &["ax", "cx", "0x"], &["dx", "x", "-x"]),
        ("[!a-c]x", &["dx", "-x"], &["ax", "x"]),
        ("[]a-]x", &["]x", "ax", "-x"], &["bx"]),
        ("[[]x", &["[x"], &["]x"]),
        ("{a,b/c,}x", &["ax", "b/cx", "x"], &["bx", "cx"]),
        ("*{,x}*", &["a", "a/b"], &[]),
        (
            "{a{1,2},b}.{c,d}",
            &["a1.c", "a2.d", "b.c"],
            &["a.c", "a1b.c"],
        ),
        ("a,b", &["a,b"], &["a", "b"]),
        (r"\*\{a\}\\", &[r"*{a}\"], &["x{a}"]),
        ("!a", &["!a"], &["a", "b"]),
        ("-rf $(x) 'y' \"z\"", &["-rf $(x) 'y' \"z\""], &["-rf"]),
        ("a*b*c", &["abc", "aXbYbZc", "abcbc"], &["ab", "abcd"]),
    ] {
        let glob = glob(pattern);
        for path in fitting {
            assert!(glob.matches(path), "{pattern} does not fit {path}");
        }
        for path in others {
            assert!(!glob.matches(path), "{pattern} fits {path}");
        }
    }
}

#[test]
fn malformed_pattern_is_refused_with_advice() {
    let long = "x".repeat(LENGTH_LIMIT + 1);
    let deep = format!("{}a{}", "{".repeat(9), "}".repeat(9));
    let many = "{a,b}".repeat(7);
    let mut table = String::new();
    for text in [
        "",
        &long,
        "a\0b",
        "a\nb",
        "a\u{1b}[0m",
        "/etc/passwd",
        "{/a,b}",
        "../a",
        "a/../b",
        "a/{.,x}./b",
        "a/./b",
        "a//b",
        ".",
        "..",
        r"\.\./a",
        "a/",
        "./",
        ".git/config",
        "src/**.rs",
        "a**",
        "***",
        "[",
        "[]",
        "[a",
        "[z-a]",
        "[a/b]",
        "{a",
        "a}",
        "{a,{b}",
        &deep,
        &many,
        "a\\",
        "a\\/b",
    ] {
        let refusal = text.parse::<Glob>().unwrap_err();
        let shown: String = text.chars().take(30).collect();
        table += &format!("{shown:?}: {refusal}\n");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn directory_pattern_covers_its_files() {
    for (pattern, path, covered) in [
        ("src", "src", true),
        ("src", "src/a/b", true),
        ("src", "src2/a", false),
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/a.md", false),
        ("crates/*", "crates/a/src/lib.rs", true),
        ("a/b", "a", false),
    ] {
        assert_eq!(glob(pattern).covers(path), covered, "{pattern} {path}");
    }
}

#[test]
fn plain_path_and_directory_of_a_pattern_are_found() {
    for (pattern, plain, directory) in [
        ("a/b.txt", Some("a/b.txt"), "a"),
        (r"a\*b", Some("a*b"), ""),
        ("a/b/*.c", None, "a/b"),
        ("a/**", None, "a"),
        ("*/a", None, ""),
        ("a/{b,c}/d", None, "a"),
        ("a/b/{c,d}", None, "a/b"),
    ] {
        let glob = glob(pattern);
        assert_eq!(glob.plain().as_deref(), plain, "{pattern}");
        assert_eq!(glob.directory(), directory, "{pattern}");
    }
}

/// What would take others exponential time.
#[test]
fn hostile_patterns_take_no_longer_than_others() {
    let name = "a".repeat(400);
    let path = format!("{}{name}", "a/".repeat(400));
    assert!(!glob(&format!("{}b", "a*".repeat(200))).matches(&name));
    assert!(!glob(&format!("{}b", "**/a/".repeat(100))).matches(&path));
    assert!(!glob(&format!("{}b", "{a,*b}".repeat(6))).matches(&name));
}

/// Every way to read a pattern of characters, `?`, `*`, `/` and `**`.
fn naive(pattern: &[char], path: &[char]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ['*', '*', '/', rest @ ..] => {
            let mut ends = (0..path.len()).filter(|at| path[*at] == '/');
            naive(rest, path) || ends.any(|at| naive(rest, &path[at + 1..]))
        }
        ['*', '*'] => !path.is_empty(),
        ['*', rest @ ..] => {
            let length = path.iter().take_while(|next| **next != '/').count();
            (0..=length).any(|taken| naive(rest, &path[taken..]))
        }
        ['?', rest @ ..] => matches!(path, [next, more @ ..] if *next != '/' && naive(rest, more)),
        [wanted, rest @ ..] => {
            matches!(path, [next, more @ ..] if next == wanted && naive(rest, more))
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_pattern_does_not_panic(text in any::<String>(), signs in r"[{},*?\[\]!/\\a.-]{0,30}") {
        for text in [text, signs] {
            if let Ok(glob) = text.parse::<Glob>() {
                prop_assert!(glob.covers("a/b.c") || !glob.matches("a/b.c"));
                prop_assert_eq!(glob.as_str().parse::<Glob>().unwrap(), glob);
            }
        }
    }

    #[test]
    fn matching_agrees_with_a_naive_matcher(
        parts in proptest::collection::vec(r"\*\*|[ab*?]{1,4}", 1..5),
        names in proptest::collection::vec("[ab]{1,4}", 1..5),
    ) {
        let (pattern, path) = (parts.join("/"), names.join("/"));
        if let Ok(glob) = pattern.parse::<Glob>() {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&characters(&pattern), &characters(&path));
            prop_assert_eq!(glob.matches(&path), expected, "{} {}", pattern, path);
        }
    }
}

#[test]
fn directories_that_can_hold_a_match_are_known() {
    for (pattern, into, not_into) in [
        ("src/*.rs", &["src"][..], &["srcs", "src/a", "docs"][..]),
        ("a.txt", &[], &["a", "a.txt", "b"]),
        ("**/*.rs", &["a", "a/b/c"], &[]),
        ("a/**/b/c", &["a", "a/x", "a/x/y/z"], &["b", "b/a"]),
        (
            "{a,b?}/[xy]/d",
            &["a", "bc", "a/x", "bc/y"],
            &["b", "a/z", "a/x/d"],
        ),
        ("docs/**", &["docs", "docs/a/b"], &["doc", "src"]),
    ] {
        let glob: Glob = pattern.parse().unwrap();
        for directory in into {
            assert!(glob.leads_into(directory), "{pattern} {directory}");
        }
        for directory in not_into {
            assert!(!glob.leads_into(directory), "{pattern} {directory}");
        }
    }
}
