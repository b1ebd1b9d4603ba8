//! Patterns for paths, against the crate globset.
//!
//! Input: a pattern in the first line, and a path in each other one.

use globset::GlobBuilder;
use goal_run::logic::glob::Glob;

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.split('\n');
    let pattern = lines.next().unwrap_or_default();
    let Ok(glob) = pattern.parse::<Glob>() else {
        return;
    };
    assert_eq!(glob.as_str().parse().as_ref(), Ok(&glob));
    assert_eq!(glob.to_string(), glob.as_str());
    let json = serde_json::to_string(&glob).unwrap();
    assert_eq!(serde_json::from_str::<Glob>(&json).unwrap(), glob);
    if let Some(plain) = glob.plain() {
        assert!(glob.matches(&plain), "{plain:?} does not match itself");
    }
    let model = model(&glob);
    for path in lines.take(20).filter(|path| is_path(path)) {
        check(&glob, path);
        if let Some(model) = &model
            && path.is_ascii()
        {
            assert_eq!(glob.matches(path), model.is_match(path), "{path:?}");
        }
    }
}

/// Whether a repository can have a file of this path.
fn is_path(path: &str) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    path.len() <= 200 && path.split('/').all(is_name)
}

/// A match lies in the directory of the pattern, and every directory above leads to it.
fn check(glob: &Glob, path: &str) {
    let above = path.match_indices('/').map(|(slash, _)| &path[..slash]);
    let above: Vec<&str> = above.collect();
    if glob.matches(path) {
        assert!(glob.covers(path), "{path:?} is not covered");
        let directory = glob.directory();
        let is_below = path
            .strip_prefix(&*directory)
            .is_some_and(|rest| rest.starts_with('/'));
        assert!(
            directory.is_empty() || is_below,
            "{path:?} is not in {directory:?}"
        );
        for directory in &above {
            assert!(
                glob.leads_into(directory),
                "{directory:?} leads to {path:?}"
            );
        }
        assert!(glob.plain().is_none_or(|plain| plain == path));
    }
    let covered = above.iter().any(|directory| glob.matches(directory));
    assert_eq!(glob.covers(path), covered || glob.matches(path), "{path:?}");
}

/// The pattern for globset; `None` for patterns that mean something else there: it matches bytes, and
/// has no escapes in brackets.
fn model(glob: &Glob) -> Option<globset::GlobMatcher> {
    let text = glob.as_str();
    let is_other = !text.is_ascii() || text.contains('\\') && text.contains('[');
    // Stars around braces can become `**` here, where braces are expanded first, and `**` at an end of
    // an alternative is no component there.
    let beside_braces = ["*{", "}*", "}{", "{**", "**}", ",**", "**,"];
    let meets_braces = beside_braces.iter().any(|pair| text.contains(pair));
    // A class that begins with `^`, or holds a comma or a brace, is read in another way; so is a dash
    // after a range, as in `[a-a-c]`, which git reads as itself.
    let classes = text.split('[').skip(1);
    let odd_class = |class: &str| {
        class.starts_with(['^', ']', '!', '-'])
            || class.contains(['{', '}', ','])
            || class.matches('-').count() > 1
    };
    if is_other || meets_braces || classes.into_iter().any(odd_class) {
        return None;
    }
    let mut builder = GlobBuilder::new(text);
    builder
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true);
    Some(builder.build().ok()?.compile_matcher())
}
