//! Masks credentials in texts before they are stored, logged or printed.
//!
//! There are two kinds of rules. A form that nothing else has (`ghp_…`, a private
//! key) is masked everywhere. The value after a name (`token: …`) is mostly code or
//! prose: it is masked only if it is quoted, follows a `=` directly, or looks as if a
//! machine had made it.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

/// The replacement of a credential.
pub const MASK: &str = "[masked]";

/// How much of a text is searched beyond the excerpt, in bytes: enough to recognise a
/// credential that begins within the excerpt.
const MARGIN: usize = 2048;

/// The longest part by which a credential is recognised, in bytes.
const TELLING: usize = 1024;

/// A rule: the groups `head` and `tail` of the pattern stay, and so does a quote with which the
/// group `value` begins. The rest is masked.
struct Rule {
    /// The pattern matches no text without one of these (in lower case). Searching for them
    /// takes a hundredth of the time.
    hints: &'static [&'static str],
    pattern: &'static str,
    /// Whether the text of the group `value` looks like a credential. [`any`] without that group.
    value: fn(&str) -> bool,
}

/// Words that name a credential when a name ends with one of them.
const SECRET_NAMES: &[&str] = &["pass", "pwd", "secret", "token", "key", "credential"];

/// A part of patterns: the end of a name of a credential. `_PASS` counts only in capitals:
/// `render_pass=shadow` is code.
macro_rules! secret_name {
    () => {
        r"(?:pass(?:word|wd|phrase)|(?-i:_PASS)|pwd|secret(?:[_-]?key(?:[_-]?base)?)?|token|(?:access|account|api|auth|encryption|private)[_-]?key|credentials?)"
    };
}

const RULES: &[Rule] = &[
    // Private keys (RFC 7468, OpenPGP), also where newlines are written as `\n`, and
    // also without their end.
    Rule {
        hints: &["private key"],
        pattern: r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
        value: any,
    },
    // JSON Web Tokens (RFC 7519): the header is JSON, so it begins with `{"`.
    Rule {
        hints: &["eyj"],
        pattern: r"\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){1,4}",
        value: any,
    },
    // OpenAI, and others that use the same form.
    Rule {
        hints: &["sk-"],
        pattern: r"\b(?P<value>sk-[A-Za-z0-9_-]{16,})",
        value: made_by_a_machine,
    },
    // GitHub, GitLab, npm, Stripe, Hugging Face.
    Rule {
        hints: &[
            "gh",
            "github_pat_",
            "glpat-",
            "glrt-",
            "gldt-",
            "glcbt-",
            "npm_",
            "k_live_",
            "k_test_",
            "whsec_",
            "hf_",
        ],
        pattern: r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|gl(?:pat|rt|dt|cbt)-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{30,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}|hf_[A-Za-z0-9]{30,})",
        value: any,
    },
    // Amazon: access key IDs, which identify the account.
    Rule {
        hints: &["akia", "asia", "abia", "acca"],
        pattern: r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
        value: any,
    },
    // Slack.
    Rule {
        hints: &["xox", "xapp-", "hooks.slack.com"],
        pattern: r"\b(?:(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}|(?P<head>hooks\.slack\.com/services/)[A-Za-z0-9/]+)",
        value: any,
    },
    // Google.
    Rule {
        hints: &["aiza", "ya29.", "gocspx-"],
        pattern: r"\b(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_.-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
        value: any,
    },
    // PyPI, Docker, SendGrid, Vault, Groq, xAI, age.
    Rule {
        hints: &[
            "pypi-age",
            "dckr_pat_",
            "sg.",
            "hvs.",
            "gsk_",
            "xai-",
            "age-secret-key-1",
        ],
        pattern: r"\b(?:pypi-AgE[A-Za-z0-9_-]{16,}|dckr_pat_[A-Za-z0-9_-]{16,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|hvs\.[A-Za-z0-9_-]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{20,})",
        value: any,
    },
    // HTTP (RFC 9110, RFC 6750).
    Rule {
        hints: &["authorization"],
        pattern: r#"(?i)(?P<head>\bauthorization\\*["']?\s*[:=]\s*\\*["']?(?:basic|bearer|token|negotiate|apikey)\s+)[^\s"'\\,;]+"#,
        value: any,
    },
    Rule {
        hints: &["authorization"],
        pattern: r#"(?i)(?P<head>\bauthorization\\*["']?\s*[:=]\s*\\*["']?(?:digest|aws4-hmac-sha256)\s+)[^\r\n]+"#,
        value: any,
    },
    Rule {
        hints: &["authorization"],
        pattern: r#"(?i)(?P<head>\bauthorization\\*["']?\s*[:=]\s*\\*["']?)(?P<value>[A-Za-z0-9._~+/=-]{6,})"#,
        value: made_by_a_machine,
    },
    Rule {
        hints: &["bearer"],
        pattern: r"(?i)(?P<head>\bbearer\s+)(?P<value>[A-Za-z0-9._~+/=-]{6,})",
        value: bearer,
    },
    Rule {
        hints: &["basic"],
        pattern: r"(?i)(?P<head>\bbasic\s+)(?P<value>[A-Za-z0-9+/=_-]{8,})",
        value: made_by_a_machine,
    },
    // URLs (RFC 3986) with a password, or with a token as the user.
    Rule {
        hints: &["://"],
        pattern: r#"(?i)(?P<head>\b[a-z][a-z0-9+.-]*://)[^\s/@:"'<>]*:[^\s/"'<>]+(?P<tail>@)"#,
        value: any,
    },
    Rule {
        hints: &["://"],
        pattern: r#"(?i)(?P<head>\b[a-z][a-z0-9+.-]*://)(?P<value>[^\s/@:"'<>]{16,})(?P<tail>@)"#,
        value: made_by_a_machine,
    },
    // A user's password for curl.
    Rule {
        hints: &["curl"],
        pattern: r#"(?P<head>\bcurl\b[^\r\n]*?\s(?:-u|--user|--proxy-user)(?:\s+|=)?["']?[^\s:"']+:)(?P<value>[^\s"']+)"#,
        value: any,
    },
    // Names and values: quoted. A backslash escapes a quote in the value. In a text that is itself
    // quoted, such as JSON in JSON, `\"` encloses the value, and a quote in it is `\\\"`. Further
    // within, and in single quotes (which have no escapes in a shell), any quote ends it.
    Rule {
        hints: SECRET_NAMES,
        pattern: concat!(
            "(?i)(?P<head>",
            secret_name!(),
            r#"\\*["']?\s*(?:=>|:=|[:=])\s*)(?P<value>"(?:[^"\\\r\n]|\\[^\r\n])*|\\"(?:[^"\\\r\n]|\\{3}"|\\{4}|\\+[^"\\\r\n])*|\\{2,}"(?:[^"\r\n]*[^"\\\r\n])?|\\*'(?:[^'\r\n]*[^'\\\r\n])?)"#
        ),
        value: quoted,
    },
    // Without quotes, directly behind the sign: variables, queries of URLs, flags.
    Rule {
        hints: SECRET_NAMES,
        pattern: concat!(
            "(?i)(?P<head>",
            secret_name!(),
            r#"=)(?P<value>[^\s"'`,;&=][^\s"'`,;&]*)"#
        ),
        value: assigned,
    },
    // Other keys, only as variables in capitals: `primary_key=id` is code.
    Rule {
        hints: &["_key="],
        pattern: r#"(?P<head>[A-Z0-9]_KEY=\\*["']?)(?P<value>[^\s"'`,;&=\\][^\s"'`,;&\\]*)"#,
        value: assigned,
    },
    // Without quotes, with space around the sign: settings, headers, but mostly code.
    Rule {
        hints: SECRET_NAMES,
        pattern: concat!(
            "(?i)(?P<head>",
            secret_name!(),
            r#"(?:\\*["']?\s*(?:=>|:=|[:=])\s*|\s+is\s+))(?P<value>[^\s"'`,;&=\\][^\s"'`,;\\]*)"#
        ),
        value: plain_value,
    },
    // As an argument of a program. `-pass 1` and `--pass 1` number the pass of an encoder.
    Rule {
        hints: SECRET_NAMES,
        pattern: r#"(?i)(?P<head>(?:--?[a-z-]*(?:password|passwd|passphrase|secret|token|api-?key|access-?key)|--[a-z0-9_-]*[a-z0-9][_-]pass)\s+\\*["']?)(?P<value>[^\s"'`,;&\\-][^\s"'`,;&\\]*)"#,
        value: assigned,
    },
];

static PATTERNS: LazyLock<Vec<(&'static Rule, Regex)>> = LazyLock::new(|| {
    // A test checks that each pattern compiles.
    let compiled = |rule: &'static Rule| Some((rule, Regex::new(rule.pattern).ok()?));
    RULES.iter().filter_map(compiled).collect()
});

/// The text, with credentials masked.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let mut masked = Cow::Borrowed(text);
    for (rule, pattern) in PATTERNS.iter() {
        if rule.hints.iter().any(|hint| lower.contains(hint)) {
            let replaced = pattern.replace_all(&masked, |found: &Captures<'_>| rule.masked(found));
            if let Cow::Owned(new) = replaced {
                masked = Cow::Owned(new);
            }
        }
    }
    masked
}

/// The first `characters` characters of a text, with credentials masked before it is cut; a
/// cut is marked with `…`. Control characters that JSON does not escape become U+FFFD.
#[must_use]
pub fn excerpt(text: &str, characters: usize) -> String {
    let most = characters.saturating_mul(4).saturating_add(MARGIN);
    let window = text.get(..text.floor_char_boundary(most)).unwrap_or(text);
    let masked = mask(window);
    let masked = match window.len() < text.len() {
        true => whole_words(&masked),
        false => &masked,
    };
    let harmless = |character: char| match character {
        '\u{7f}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        other => other,
    };
    let mut rest = masked.chars();
    let mut excerpt: String = rest.by_ref().take(characters).map(harmless).collect();
    if rest.next().is_some() || window.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}

/// The text without its last word, which may be the unrecognised half of a credential.
/// Of a very long word, such as a text without spaces, only the end is removed.
fn whole_words(text: &str) -> &str {
    if text.ends_with(MASK) {
        return text;
    }
    let space = text.rfind(char::is_whitespace).unwrap_or_default();
    let end = space.max(text.floor_char_boundary(text.len().saturating_sub(TELLING)));
    text.get(..end).unwrap_or_default()
}

impl Rule {
    fn masked(&self, found: &Captures<'_>) -> String {
        let group = |name| found.name(name).map_or("", |group| group.as_str());
        let (quote, value) = split_quote(group("value"));
        // An earlier rule may have masked it already.
        match value.contains(MASK) || !(self.value)(value) {
            true => found.get(0).map_or("", |all| all.as_str()).to_owned(),
            false => format!("{}{quote}{MASK}{}", group("head"), group("tail")),
        }
    }
}

/// Splits a text after the quote with which it begins, if it does; backslashes before the quote
/// belong to it.
fn split_quote(text: &str) -> (&str, &str) {
    let begin = text.trim_start_matches('\\');
    match begin.strip_prefix(['"', '\'']) {
        Some(rest) => text.split_at(text.len() - rest.len()),
        None => ("", text),
    }
}

fn any(_: &str) -> bool {
    true
}

/// Whether a machine has probably made the text. Names and words have one case, or capitals
/// where words begin, and seldom digits.
fn made_by_a_machine(text: &str) -> bool {
    let has = |wanted: fn(&u8) -> bool| text.as_bytes().iter().any(wanted);
    let mixed = || {
        let lower = has(u8::is_ascii_lowercase);
        // A capital after the first letter.
        lower && text.bytes().skip(1).any(|byte| byte.is_ascii_uppercase())
    };
    has(u8::is_ascii_alphabetic) && (has(u8::is_ascii_digit) || mixed())
}

/// No word of prose is that long.
fn bearer(text: &str) -> bool {
    text.len() > 16 || made_by_a_machine(text)
}

fn quoted(text: &str) -> bool {
    !text.is_empty() && !is_reference(text)
}

fn assigned(text: &str) -> bool {
    let call = text.contains('(') && text.ends_with([')', '?']);
    !call && !is_reference(text) && !is_type(text)
}

fn plain_value(text: &str) -> bool {
    let text = text.trim_end_matches(['.', ')', ']', '}', '!', '?']);
    let opens = text.starts_with(['[', '{', '<', '(']);
    let code = opens || text.contains('(') || text.contains("::") || text.ends_with('>');
    let plain = |byte: u8| byte.is_ascii_alphabetic() || b"_-.:/".contains(&byte);
    let word = text.bytes().all(plain);
    text.len() >= 4 && !code && !word && !is_reference(text) && !is_type(text)
}

/// Whether the text is a placeholder or a reference, such as `$TOKEN`.
fn is_reference(text: &str) -> bool {
    let variable = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit();
        !name.is_empty() && name.bytes().all(plain)
    };
    let within = |begin, end| {
        // An object of JSON is no placeholder.
        text.starts_with(begin) && text.ends_with(end) && !text.contains('"')
    };
    text.strip_prefix('$').is_some_and(variable)
        || ["${", "$(", "%(", "{{"]
            .iter()
            .any(|begin| text.starts_with(begin))
        || ["%s", "%d"].contains(&text)
        || within('<', '>')
        || within('{', '}')
        || text.bytes().all(|byte| byte == b'*')
}

/// Whether the text is a type or literal that follows a name in code.
fn is_type(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let word = text.trim_end_matches(|last: char| last.is_ascii_digit());
    [
        "string",
        "str",
        "bool",
        "boolean",
        "number",
        "int",
        "uint",
        "float",
        "double",
        "any",
        "none",
        "null",
        "nil",
        "true",
        "false",
        "undefined",
        "bytes",
        "u",
        "i",
        "f",
        "utf",
        "sha",
        "base",
        "self",
        "text",
        "varchar",
        "optional",
        "required",
    ]
    .contains(&word)
}

#[cfg(test)]
mod tests;
