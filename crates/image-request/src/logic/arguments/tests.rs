use codex_protocol::codex::ThreadId;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const ID: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";

fn os(args: &[&str]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

fn read(args: &[&str]) -> Arguments {
    Arguments::read(os(args)).unwrap()
}

fn added() -> AddedArguments {
    let server = json!({"command": "/p", "args": ["eyes-mcp"]});
    AddedArguments::new(&server, "Look.", Approval::Never, OsStr::new("/f"))
}

/// A command line, with what is always added as `ADDED`.
fn shown(line: &[OsString]) -> String {
    let line: Vec<String> = line
        .iter()
        .map(|arg| arg.to_str().unwrap().to_owned())
        .collect();
    let quoted = shlex::try_join(line.iter().map(String::as_str)).unwrap();
    let added = added();
    let added = ["-c", &added.server, "-c", &added.instructions];
    quoted.replace(&shlex::try_join(added).unwrap(), "ADDED")
}

#[test]
fn command_lines_are_built_from_every_kind_of_arguments() {
    let lines: [&[&str]; 32] = [
        &[],
        &["look at it"],
        &["--", "exec"],
        &["--", "-a"],
        &["-a", "on-request", "look"],
        &["-a=on-request"],
        &["-aon-request"],
        &["--ask-for-approval", "on-request"],
        &["--ask-for-approval=on-request"],
        &["--full-auto"],
        &["--yolo", "look"],
        &["--dangerously-bypass-approvals-and-sandbox"],
        &["--approve-for-me"],
        &["-c", "approval_policy=\"on-request\""],
        &["-capproval_policy=never"],
        &["-m", "-a"],
        &["-m", "gpt", "--", "-a", "never"],
        &["-i", "a.png", "b.png", "-m", "gpt", "look"],
        &["-i", "a.png", "--", "look"],
        &["--image=a.png", "look"],
        &["-ia.png", "look"],
        &[
            "-C",
            "/a b",
            "--add-dir",
            "x",
            "--search",
            "-s",
            "read-only",
            "look",
        ],
        &["-p", "exec", "--enable", "resume", "look", "resume"],
        &["-c", "model=\"o3\"", "--config=a.b=1", "--oss", "look"],
        &["-c", "developer_instructions='Be brief.'", "look"],
        &["--no-alt-screen", "--all", "look"],
        &["--new-option=x", "--other", "look"],
        &["resume"],
        &["resume", "--last", "-m", "gpt"],
        &["-m", "gpt", "resume", ID, "look"],
        &["fork", "--all", "-a", "untrusted"],
        &["-"],
    ];
    let mut table = String::new();
    let picture = Attachment::new(OsStr::new("./a b.png")).unwrap();
    for line in lines {
        let arguments = read(line);
        let begin = arguments.begin(&added());
        let resume = arguments.resume(
            &added(),
            &Session::Last,
            std::slice::from_ref(&picture),
            "Go on",
        );
        let given = shown(&os(line));
        table += &format!("{given}\n  {}\n  {}\n", shown(&begin), shown(&resume));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn added_arguments_are_complete() {
    let thread = ThreadId::parse(ID).unwrap();
    let resume = read(&["look"]).resume(&added(), &Session::Named(thread), &[], "-- It has gone");
    let expected = [
        "resume",
        ID,
        "-a",
        "never",
        "-c",
        r#"mcp_servers.image-request-mcp={"args" = ["eyes-mcp"], "command" = "/p"}"#,
        "-c",
        r#"developer_instructions="Look.""#,
        "-C",
        "/f",
        "--",
        "-- It has gone",
    ];
    assert_eq!(resume, os(&expected));
}

#[test]
fn configured_approval_policy_stays() {
    let server = json!({});
    let added = AddedArguments::new(&server, "", Approval::Configured, OsStr::new("/f"));
    for line in [
        read(&["look"]).begin(&added),
        read(&["-C", "/x"]).resume(&added, &Session::Last, &[], ""),
    ] {
        assert!(
            !line.contains(&"-a".into()) && !line.contains(&"/f".into()),
            "{line:?}"
        );
    }
}

#[test]
fn subcommands_that_are_not_interactive_are_refused() {
    let error = Arguments::read(os(&["--worktree", "look"])).unwrap_err();
    assert_eq!(error, BadArguments::Worktree);
    assert!(Arguments::read(os(&["--", "--worktree"])).is_ok());
    for line in [&["exec", "look"][..], &["-m", "gpt", "e"]] {
        let error = Arguments::read(os(line)).unwrap_err();
        assert!(matches!(error, BadArguments::Subcommand(_)), "{error}");
    }
    let error = Arguments::read(os(&["help", "resume"])).unwrap_err();
    assert_eq!(error, BadArguments::Help);
    assert!(error.to_string().contains("`codex-mcp eyes --help`"));
    for line in [["look", "exec"], ["--", "help"]] {
        assert!(Arguments::read(os(&line)).is_ok());
    }
}

#[test]
fn last_instructions_of_the_user_count() {
    assert_eq!(read(&["look"]).instructions(), None);
    let two = [
        "-c",
        "developer_instructions=\"a\"",
        "--config=developer_instructions = b = c",
        "-cmodel=x",
        "--",
        "-cdeveloper_instructions=d",
    ];
    assert_eq!(read(&two).instructions(), Some("b = c"));
}

#[test]
fn last_profile_and_directory_win() {
    let given = read(&[
        "-p",
        "a",
        "--profile=b",
        "-C/x",
        "--cd",
        "/y",
        "look",
        "--",
        "-p",
        "c",
    ]);
    assert_eq!(given.profile(), Some("b"));
    assert_eq!(given.directory(), Some(OsStr::new("/y")));
    assert_eq!(read(&["-pc"]).profile(), Some("c"));
    let none = read(&["-c", "profile=x", "--", "-C", "/z"]);
    assert_eq!((none.profile(), none.directory()), (None, None));
}

#[test]
fn attachment_with_a_comma_is_refused() {
    let error = Attachment::new(OsStr::new("./a,/etc/b.png")).unwrap_err();
    assert_eq!(error, BadArguments::Comma("./a,/etc/b.png".into()));
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_unicode_are_kept() {
    use std::os::unix::ffi::OsStrExt;

    let bad = OsStr::from_bytes(b"/\xff.png");
    let arguments = Arguments::read(vec![bad.to_owned()]).unwrap();
    assert!(arguments.begin(&added()).contains(&bad.to_owned()));
    let picture = Attachment::new(bad).unwrap();
    let resume = arguments.resume(
        &added(),
        &Session::Last,
        std::slice::from_ref(&picture),
        "Go on",
    );
    assert_eq!(resume.iter().filter(|arg| *arg == bad).count(), 1);
}

fn arg() -> impl Strategy<Value = String> {
    let known = [
        "-a", "-c", "-i", "-m", "--", "--yolo", "resume", "--last", "a.png",
    ];
    prop_oneof![
        any::<String>(),
        proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        "-[acim]=?[a-z_=]{0,5}",
    ]
}

proptest! {
    /// Nothing that the user has given is lost, nor its order; and the resumed Codex gets
    /// one picture and one prompt, whatever the first one got.
    #[test]
    fn arbitrary_arguments_keep_their_order(args in proptest::collection::vec(arg(), 0..8), words in any::<String>()) {
        let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        let Ok(arguments) = Arguments::read(args.clone()) else { return Ok(()) };
        let together: Vec<OsString> =
            arguments.groups.iter().flat_map(|group| group.args.clone()).collect();
        prop_assert_eq!(&together, &args);
        let picture = Attachment::new(OsStr::new("./p.png")).unwrap();
        let line = arguments.resume(&added(), &Session::Last, std::slice::from_ref(&picture), &words);
        let end: Vec<OsString> = os(&["-i", "./p.png", "--", &words]);
        prop_assert!(line.ends_with(&end));
        let before = Arguments::read(line[..line.len() - 4].to_vec()).unwrap();
        let odd = |group: &&ArgumentGroup| matches!(group.kind, ArgumentKind::Word | ArgumentKind::Pictures);
        prop_assert_eq!(before.groups.iter().find(odd), None);
    }
}

#[test]
fn conversation_is_the_word_after_resume() {
    for (line, expected) in [
        ("resume 0199a213", Some("0199a213")),
        ("-m m resume -c a=1 0199a213 words", Some("0199a213")),
        ("fork 0199a213", Some("0199a213")),
        ("resume --last 0199a213", None),
        ("resume", None),
        ("0199a213", None),
        ("resume -- 0199a213", None),
    ] {
        let args = line.split(' ').map(OsString::from).collect();
        let mut arguments = Arguments::read(args).unwrap();
        let named = arguments.conversation_mut().map(|word| word.clone());
        assert_eq!(named, expected.map(OsString::from), "{line}");
    }
}
