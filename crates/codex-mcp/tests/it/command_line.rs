//! Global options of all verbs, and the exit codes of wrong command lines.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::Signal;
use testkit::Home;
use testkit::process::signal;
use testkit::wait::wait_for;

use crate::output::CommandOutput;
use crate::terminal::Terminal;

fn say(home: &Home, args: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let output = home
        .command(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(args)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    output.into()
}

#[test]
fn wrong_command_line_exits_with_2_or_3() {
    let home = Home::new("");
    for (args, code) in [
        (&["threads", "--no-such"][..], 2),
        (&["-q", "serve", "--timeout", "soon"], 2),
        (&["run", "--no-such"], 3),
        (&["-C", "/", "--color", "never", "run", "--no-such"], 3),
        (&["-v", "jobs", "list", "--limit", "0"], 3),
        (&["-C", "/no/such/directory", "threads"], 2),
        (&["-C", "/no/such/directory", "jobs", "list"], 3),
        (&["threads", "-q", "-v"], 2),
        (&["top", "--no-such"], 3),
        (&["web", "token"], 3),
    ] {
        let said = say(&home, args, &[]);
        assert_eq!(said.code, code, "{args:?}: {}", said.stderr);
        assert!(
            said.stdout.is_empty() && !said.stderr.is_empty(),
            "{args:?}"
        );
    }
}

/// An empty text is a prefix of every name, and Codex would report an empty model as a missing login.
#[test]
fn empty_name_is_refused() {
    let home = Home::new("");
    for args in [
        &["approve", "sess_000000000000", ""][..],
        &["decline", "sess_000000000000", ""],
        &["jobs", "approve", "00000000", ""],
        &["run", "x", "--model", ""],
        &["review", "--model", ""],
        &["jobs", "submit", "x", "--model", ""],
    ] {
        let said = say(&home, args, &[]);
        assert_eq!(said.code, 3, "{args:?}: {}", said.stderr);
        let is_named = said.stderr.contains("a value is required for");
        assert!(is_named, "{args:?}: {}", said.stderr);
    }
}

#[test]
fn tip_for_a_mistyped_verb_names_no_hidden_verb() {
    let home = Home::new("");
    let said = say(&home, &["team"], &[]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("'threads'"), "{}", said.stderr);
    assert!(!said.stderr.contains("team-tools"), "{}", said.stderr);
}

#[test]
fn tip_for_a_name_that_is_no_verb_names_the_lists() {
    let home = Home::new("");
    for (args, code) in [
        (&["list"][..], 2),
        (&["runs"], 2),
        (&["status"], 2),
        (&["-q", "sessions"], 2),
        (&["jobs", "status"], 3),
    ] {
        let said = say(&home, args, &[]);
        assert_eq!(said.code, code, "{args:?}: {}", said.stderr);
        for words in ["unrecognized subcommand", "codex-mcp ps", "jobs list"] {
            assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
        }
        assert!(!said.stderr.contains("similar"), "{}", said.stderr);
    }
    let said = say(&home, &["web", "list"], &[]);
    assert!(!said.stderr.contains("codex-mcp ps"), "{}", said.stderr);
}

#[test]
fn tip_for_a_name_of_another_program_names_the_verb() {
    let home = Home::new("");
    for (name, tip) in [
        ("login", "tip: `codex login`"),
        ("stop", "tip: `codex-mcp cancel`"),
        ("mcp-server", "tip: `codex-mcp serve`"),
        ("wait", "after `codex-mcp jobs`"),
    ] {
        let said = say(&home, &[name], &[]);
        assert_eq!(said.code, 2, "{name}: {}", said.stderr);
        assert!(said.stderr.contains(tip), "{name}: {}", said.stderr);
        assert!(!said.stderr.contains("similar"), "{}", said.stderr);
    }
    let said = say(&home, &["web", "login"], &[]);
    assert!(!said.stderr.contains("codex login"), "{}", said.stderr);
}

#[test]
fn tip_for_a_text_without_quotes_names_the_quotes() {
    let home = Home::new("");
    let tip = |args: &[&str]| {
        let said = say(&home, args, &[]);
        assert_eq!(said.code, 3, "{args:?}: {}", said.stderr);
        said.stderr
            .contains("tip: put the text for Codex in quotes")
    };
    for verb in [
        &["run", "--until", "commits=1"][..],
        &["review"],
        &["jobs", "submit"],
        &["jobs", "resume", "0123abcd"],
        &["jobs", "steer", "0123abcd"],
        &["steer", "0123abcd"],
    ] {
        let args = [verb, &["fix", "the", "test"]].concat();
        assert!(tip(&args), "{args:?}");
    }
    for args in [
        &["run", "fix", "--no-such"][..],
        &["jobs", "list", "the", "test"],
    ] {
        assert!(!tip(args), "{args:?}");
    }
}

#[test]
fn revoke_without_an_id_names_the_option_for_all() {
    let home = Home::new("");
    let said = say(&home, &["web", "revoke"], &[]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    let named = said.stderr.contains("<ID|--all>");
    assert!(named, "{}", said.stderr);
    let said = say(&home, &["web", "revoke", "--all"], &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[tokio::test]
async fn web_says_that_ctrl_c_ends_it() {
    let home = Home::new("");
    let log = home.root().join("stderr");
    let mut web = tokio::process::Command::from(home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .args(["web", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_for("the hint of the page", async || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("until Ctrl-C").then_some(())
    })
    .await;
    signal(web.id().unwrap(), Signal::SIGINT);
    assert_eq!(web.wait().await.unwrap().code(), Some(130));
}

/// The control is an address that only this machine reaches.
#[tokio::test]
async fn web_warns_and_shows_a_qr_code_if_other_machines_reach_it() {
    let shown = async |args: &[&str]| {
        let home = Home::new("");
        let mut web = home.command(env!("CARGO_BIN_EXE_codex-mcp"));
        web.arg("web").args(args);
        let terminal = Terminal::runs(web).shows("until Ctrl-C").await;
        terminal.signal(Signal::SIGINT);
        let (shown, code) = terminal.ends().await;
        assert_eq!(code, Some(130), "{shown}");
        shown
    };
    let hints = |shown: &str| {
        let link = "http://machine:1/login?code=";
        ["not encrypted", "\u{2588}", link].map(|words| shown.contains(words))
    };
    let open = shown(&["--listen", "0.0.0.0:0", "--allow-host", "machine:1"]).await;
    assert_eq!(hints(&open), [true; 3], "{open}");
    let local = shown(&["--listen", "127.0.0.1:0", "--allow-host", "machine:1"]).await;
    assert_eq!(hints(&local), [false; 3], "{local}");
}

#[test]
fn directory_of_trust_is_not_the_global_one() {
    let home = Home::new("");
    fs::create_dir(home.work().join("sub")).unwrap();
    for args in [
        &["trust", "--show", "sub"][..],
        &["-C", "sub", "trust", "--list"],
    ] {
        let said = say(&home, args, &[]);
        assert_eq!(said.code, 0, "{args:?}: {}", said.stderr);
    }
    let said = say(&home, &["trust", "/no/such/directory"], &[]);
    assert!(!said.stderr.contains("-C"), "{}", said.stderr);
    assert!(
        said.stderr.contains("/no/such/directory"),
        "{}",
        said.stderr
    );
}

#[test]
fn missing_codex_of_a_review_and_of_setup_is_named_with_the_remedy() {
    let home = Home::new("");
    let choice = ["--codex-bin", "no-such-codex"];
    let said = say(&home, &[&["review", "x"], &choice[..]].concat(), &[]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    for words in [
        "there is no `no-such-codex`",
        "npm install -g @openai/codex",
    ] {
        assert!(said.stderr.contains(words), "{}", said.stderr);
    }
    let said = say(
        &home,
        &[&["setup", "cursor", "--yes"], &choice[..]].concat(),
        &[],
    );
    assert_eq!(said.code, 2, "{}", said.stderr);
    let named = said.stderr.contains("there is no `no-such-codex`");
    assert!(named, "{}", said.stderr);
}

/// `--repo` is the same as `--cwd`, as it is in the tools.
#[test]
fn repo_is_an_alias_of_cwd() {
    let home = Home::new("");
    for verb in [&["review"][..], &["run", "x"], &["jobs", "submit", "x"]] {
        let args = [verb, &["--repo", "/no/such/directory"]].concat();
        let said = say(&home, &args, &[]);
        assert_eq!(said.code, 3, "{args:?}: {}", said.stderr);
        let named = said.stderr.contains("/no/such/directory");
        assert!(named, "{args:?}: {}", said.stderr);
        let has_remedy = said.stderr.contains("; --cwd names ");
        assert!(has_remedy, "{args:?}: {}", said.stderr);
    }
    let said = say(&home, &["jobs", "list", "--repo", "."], &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn invalid_arguments_of_a_review_are_refused_before_codex_starts() {
    let home = Home::new("");
    let codex = ["--codex-bin", "no-such-codex"];
    for (args, words) in [
        (&[" "][..], "the text is empty: say what to review"),
        (&["x", "--timeout", "0"], "--timeout: "),
        (
            &["--cwd", "/no/such/directory"],
            "there is no directory /no/such/directory; --cwd names ",
        ),
    ] {
        let said = say(&home, &[&["review"], args, &codex[..]].concat(), &[]);
        assert_eq!(said.code, 3, "{args:?}: {}", said.stderr);
        let error = format!("error: {words}");
        assert!(said.stderr.starts_with(&error), "{}", said.stderr);
    }
}

#[test]
fn invalid_limit_is_named_by_its_option() {
    let home = Home::new("");
    for (option, value) in [
        ("--turn-timeout", "0"),
        ("--total-timeout", "2d"),
        ("--max-turns", "0"),
        ("--stall-after", "101"),
        ("--max-tokens", "0"),
    ] {
        let said = say(&home, &["run", "x", option, value], &[]);
        assert_eq!(said.code, 3, "{}", said.stderr);
        let named = format!("error: {option}: ");
        assert!(said.stderr.starts_with(&named), "{}", said.stderr);
    }
}

#[test]
fn mistyped_variable_warns_and_suggests_the_right_one() {
    let home = Home::new("");
    let hint = "Did you mean `CODEX_MCP_SANDBOX`?";
    let said = say(&home, &["threads"], &[("CODEX_MCP_SANDBX", "read-only")]);
    assert_eq!(said.code, 0);
    assert!(said.stderr.contains(hint), "{}", said.stderr);
    let said = say(&home, &["doctor"], &[("CODEX_MCP_SANDBX", "read-only")]);
    assert!(said.stdout.contains(hint), "{}", said.stdout);
    let said = say(&home, &["threads"], &[("CODEX_MCP_SANDBOX", "read-only")]);
    assert_eq!(said.stderr, "");
}

#[test]
fn directory_option_selects_the_settings() {
    let home = Home::new("");
    let below = home.work().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(
        below.join(".atm.toml"),
        "[plugins.codex-mcp]\nmodel = \"from-below\"\n",
    )
    .unwrap();
    crate::trust(&home, &below);
    for args in [["-C", "below", "config"], ["config", "-C", "below"]] {
        let said = say(&home, &args, &[]);
        assert!(said.stdout.contains("from-below"), "{}", said.stderr);
    }
    assert!(!say(&home, &["config"], &[]).stdout.contains("from-below"));
}

#[test]
fn quiet_hides_warnings_but_not_errors() {
    let home = Home::new("");
    let file = home.work().join(".atm.toml");
    fs::write(&file, "[plugins.codex-mcp]\nsandbx = 1\n").unwrap();
    crate::trust(&home, &home.work());
    assert!(say(&home, &["config"], &[]).stderr.contains("warning"));
    let quiet = say(&home, &["config", "--quiet"], &[]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    let failed = say(&home, &["-q", "config", "--role", "absent"], &[]);
    assert!(
        failed.stderr.starts_with("error: there is no role"),
        "{}",
        failed.stderr
    );
}

#[test]
fn color_option_decides_colours() {
    let home = Home::new("");
    let coloured = |args: &[&str], variables: &[(&str, &str)]| {
        let said = say(
            &home,
            &[args, &["doctor", "--codex-bin", "/no/codex"]].concat(),
            variables,
        );
        assert_eq!(said.code, 1, "{}", said.stderr);
        said.stdout.contains('\u{1b}')
    };
    assert!(!coloured(&[], &[]));
    assert!(coloured(&["--color", "always"], &[]));
    assert!(coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!coloured(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    let wrong = say(&home, &["--color", "always", "threads", "--no-such"], &[]);
    assert!(wrong.stderr.contains('\u{1b}'), "{}", wrong.stderr);
}
