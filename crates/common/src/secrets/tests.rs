use proptest::prelude::*;

use super::*;

#[test]
fn each_rule_has_a_pattern() {
    assert_eq!(PATTERNS.len(), RULES.len());
}

#[test]
fn text_around_a_credential_is_kept() {
    for (text, expected) in [
        ("use sk-proj-abcDEF0123456789xyz now", "use [masked] now"),
        (
            "Authorization: Bearer abc.def",
            "Authorization: Bearer [masked]",
        ),
        (
            "-H 'authorization: Basic dXNlcjpwdw==' -v",
            "-H 'authorization: Basic [masked]' -v",
        ),
        ("Bearer a1b2c3d4e5", "Bearer [masked]"),
        ("password=hunter2 and more", "password=[masked] and more"),
        (
            "DB_PASSWORD=\"correct horse\" make",
            "DB_PASSWORD=\"[masked]\" make",
        ),
        (
            "{\"token\": \"x y\", \"a\": 1}",
            "{\"token\": \"[masked]\", \"a\": 1}",
        ),
        (
            r#"{\"token\": \"x y\", \"a\": 1}"#,
            r#"{\"token\": \"[masked]\", \"a\": 1}"#,
        ),
        (
            r#"{"password": "ab\"cdefgh", "a": 1}"#,
            r#"{"password": "[masked]", "a": 1}"#,
        ),
        (
            r#"{\"password\": \"ab\\\"cdefgh\", \"a\": 1}"#,
            r#"{\"password\": \"[masked]\", \"a\": 1}"#,
        ),
        (
            r#"{\\\"token\\\": \\\"x y\\\", \\\"a\\\": 1}"#,
            r#"{\\\"token\\\": \\\"[masked]\\\", \\\"a\\\": 1}"#,
        ),
        (
            r#"{"token": "{\"a\": \"b\"}", "a": 1}"#,
            r#"{"token": "[masked]", "a": 1}"#,
        ),
        ("DB_PASS=hunter2 make", "DB_PASS=[masked] make"),
        ("SMTP_PASS: \"x y\"", "SMTP_PASS: \"[masked]\""),
        ("SECRET_KEY_BASE=abc make", "SECRET_KEY_BASE=[masked] make"),
        ("ENCRYPTION_KEY=abc make", "ENCRYPTION_KEY=[masked] make"),
        ("HMAC_KEY=\"abc\" make", "HMAC_KEY=\"[masked]\" make"),
        (
            "AccountName=me;AccountKey=abc+/0==;a=b",
            "AccountName=me;AccountKey=[masked];a=b",
        ),
        ("?api_key=abc&page=2", "?api_key=[masked]&page=2"),
        ("api-key: k3y-0f-m1ne", "api-key: [masked]"),
        ("my password is tr0ub4dor&3", "my password is [masked]"),
        ("--token abcdef --force", "--token [masked] --force"),
        ("--db-pass hunter2 --force", "--db-pass [masked] --force"),
        ("--smtp_pass 'abcdef' run", "--smtp_pass '[masked]' run"),
        ("https://me:pw@host/x?y", "https://[masked]@host/x?y"),
        ("postgres://u:p@ss@h/db", "postgres://[masked]@h/db"),
        (
            "https://0123456789abcdef0123@host/",
            "https://[masked]@host/",
        ),
    ] {
        assert_eq!(mask(text), expected);
        // Once more changes nothing.
        assert_eq!(mask(expected), expected);
    }
}

/// Prompts that people write to Codex, and code that it works on.
#[test]
fn prose_and_code_are_not_masked() {
    for text in [
        "Fix the token refresh: the token is never renewed, see auth.rs line 20.",
        "The password field must not be empty. Ask for a password, then for the key.",
        "Basic authentication and bearer tokens are described in the bearer documentation.",
        "fn login(password: &str, token: Option<String>) -> Result<Token, Error> {",
        "struct Config { pub api_key: String, max_tokens: u32, token: u64, secret: bool }",
        "let token = parser.next_token()?; if token == Token::End { return Ok(token) }",
        "let password = read_password(); const KEY: usize = 5; key = value",
        "export TOKEN=$GITHUB_TOKEN API_KEY=${API_KEY} PASSWORD=$(cat /run/pw)",
        "password = \"$PASSWORD\"; token: '{{ secrets.TOKEN }}'; secret = \"\"",
        "class=\"sk-fading-circle sk-circle-fade-dot\" risk-of-something-very-long-0123",
        "clone https://github.com/a/b.git, git@github.com:a/b.git, ssh://git@host:22/x",
        "see http://localhost:8080/a@b and user@example.com, at 10:30 <a:b@c>",
        "authorization: String, Authorization: the user must be an owner",
        "commit 0123456789abcdef0123456789abcdef01234567 of branch feature/gh_pages",
        "Column(primary_key=id), sorted(sort_key=lambda it: it.name), first_pass: the parser",
        "begin(render_pass=shadow), steps { \"first_pass\": \"lexing\" }, --two_pass=yes",
        "ffmpeg -pass 1 -an, x264 --pass 2 in.y4m, HandBrakeCLI --two-pass --turbo, --bypass all",
        "gsk_render_node_get_bounds(node), msg.len(), model xai-grok-4-fast-reasoning",
        "tokens: 1200, tokenizer: \"cl100k\", token_type: \"x\", primary_key: 7, keyboard: \"de\"",
        "",
    ] {
        assert_eq!(mask(text), text);
    }
}

#[test]
fn excerpt_cuts_no_credential_in_half() {
    let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let text = format!("{}{key} and so on", "x ".repeat(98));
    assert_eq!(excerpt(&text, 200), format!("{}[mas…", "x ".repeat(98)));
    let pem = format!(
        "-----BEGIN RSA PRIVATE KEY-----\n{}",
        "MIIE\n".repeat(100_000)
    );
    assert_eq!(excerpt(&pem, 200), format!("{MASK}…"));
    assert_eq!(excerpt("a\u{9b}31m\u{7f}\n", 200), "a\u{fffd}31m\u{fffd}\n");
    assert_eq!(
        excerpt(&"ß".repeat(201), 200),
        format!("{}…", "ß".repeat(200))
    );
    assert_eq!(excerpt(&"ß".repeat(200), 200), "ß".repeat(200));
}

/// A mask is shorter than the credential, so the excerpt reaches further into the text.
#[test]
fn excerpt_omits_the_last_word_of_its_window() {
    let begin = "-----BEGIN PRIVATE KEY-----";
    let end = "-----END PRIVATE KEY-----";
    for length in 2700..2800 {
        let key = "x".repeat(length);
        let text = format!(
            "{begin}{key}{end} ghp_0123456789abcdefghij {}",
            "x".repeat(99)
        );
        let shown = excerpt(&text, 200);
        assert!(
            shown.starts_with(MASK) && !shown.contains("ghp_"),
            "{shown}"
        );
    }
}

/// A text with a credential, and the part of it that must not be seen.
fn credential() -> impl Strategy<Value = (String, String)> {
    let alone = |pattern: &str| {
        proptest::string::string_regex(pattern)
            .unwrap()
            .prop_map(|key: String| (key.clone(), key))
    };
    let within = |before: &'static str, pattern: &str, after: &'static str| {
        proptest::string::string_regex(pattern)
            .unwrap()
            .prop_map(move |secret: String| (format!("{before}{secret}{after}"), secret))
    };
    prop_oneof![
        alone("sk-[A-Za-z]{8}[0-9][A-Za-z0-9]{30}"),
        alone("sk-(proj|ant-api03)-[A-Za-z0-9_-]{20}[0-9][A-Za-z0-9]{20}"),
        alone("gh[opusr]_[A-Za-z0-9]{36}"),
        alone("github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
        alone("gl(pat|rt|dt|cbt)-[A-Za-z0-9_-]{20}"),
        alone("(AKIA|ASIA)[A-Z0-9]{16}"),
        alone("xox[abprs]-[0-9]{10}-[A-Za-z0-9]{24}"),
        alone("AIza[A-Za-z0-9_-]{34}[A-Za-z0-9]"),
        alone("GOCSPX-[A-Za-z0-9_-]{28}"),
        alone("pypi-AgE[A-Za-z0-9_-]{60}"),
        alone("dckr_pat_[A-Za-z0-9_-]{27}"),
        alone("SG\\.[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]{43}"),
        alone("hvs\\.[A-Za-z0-9_-]{90}"),
        alone("gsk_[A-Za-z0-9]{52}"),
        alone("xai-[A-Za-z0-9]{80}"),
        alone("AGE-SECRET-KEY-1[A-Z0-9]{58}"),
        alone("eyJ[A-Za-z0-9]{20}\\.eyJ[A-Za-z0-9_-]{30}\\.[A-Za-z0-9_-]{42}[A-Za-z0-9]"),
        within("Bearer ", "[A-Za-z0-9._~+/-]{17,60}", ""),
        within("Authorization: Basic ", "[A-Za-z0-9+/]{8,60}", "=="),
        within("Authorization: token ", "[a-z0-9]{8,60}", ""),
        within("password=", "[A-Za-z0-9!@#%^*+-]{6,20}", ""),
        within("PASSWORD='", "[A-Za-z0-9!@#%&*+ -]{6,20}[a-z]", "'")
            .prop_filter("no reference", |(_, s)| !is_reference(s)),
        within("DB_PASS=", "[A-Za-z0-9!@#%^*+-]{6,20}", ""),
        within("ENCRYPTION_KEY=", "[A-Za-z0-9+/]{43}", "="),
        within("token: ", "[a-z]{3}[0-9][A-Za-z0-9]{9,20}", ""),
        within("api_key=\"", "[A-Za-z0-9]{6,20}", "\""),
        within("\"client_secret\": \"", "[A-Za-z0-9]{6,20}", "\""),
        within("https://user:", "[A-Za-z0-9!:%]{6,20}", "@host/path"),
        within(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n",
            "([A-Za-z0-9+/]{64}\n){1,30}",
            "-----END OPENSSH PRIVATE KEY-----"
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credential_is_masked_wherever_it_stands(
        before in "[a-z ,.(]{0,250}[ \n\"]",
        (text, secret) in credential(),
        after in "[ \n\"][a-z ,.]{0,50}",
    ) {
        let whole = format!("{before}{text}{after}");
        for shown in [mask(&whole).into_owned(), excerpt(&whole, 200)] {
            // Nor the beginning of the credential.
            let beginning: String = secret.chars().take(12).collect();
            prop_assert!(!shown.contains(&beginning), "{beginning:?} in {shown:?}");
        }
    }

    #[test]
    fn masking_any_text_is_idempotent(text in "(?s).{0,300}", characters in 0..250_usize) {
        let once = mask(&text).into_owned();
        prop_assert!(excerpt(&text, characters).chars().count() <= characters + 1);
        prop_assert_eq!(mask(&once), once.as_str());
    }
}
