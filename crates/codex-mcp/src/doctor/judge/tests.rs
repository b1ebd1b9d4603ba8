//! Tests of the judgement on made-up facts.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use codex_config::layers::UserConfig;
use codex_engine::LimitsUnknown;
use codex_engine::binary::{CodexBinary, Source};
use codex_protocol::codex::RateLimits;
use common::output::{Colours, Output};
use common::toml_error;
use git_probe::private::{Leftover, LeftoverState};
use serde_json::value::RawValue;
use settings::Setting;
use supervise::exit::Exit;
use supervise::short_lived::TextOutput;

use super::super::facts::{
    Commands, ConfigFile, Directory, HomeSource, InitializeOutcome, Store, StoreState, Tools,
};
use super::super::render::as_text;
use super::super::report::Status;
use super::super::settings::Settings;
use super::*;
use crate::installation::VERSION;
use crate::installation::channel::Channel;

const LIMIT: Duration = Duration::from_secs(10);

fn ended(code: i32, stdout: &str, stderr: &str) -> CommandOutcome {
    CommandOutcome::Ended(TextOutput {
        exit: Exit::Code(code),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    })
}

fn settings(config: &str) -> Settings {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    Settings::of(&UserConfig::read(home.path()).layers(None, None))
}

fn store(location: &str, source: settings::Source, state: StoreState) -> Store {
    Store {
        location: Setting::new(location.parse().unwrap(), source),
        state,
    }
}

fn healthy() -> Facts {
    let probes = Probes {
        commands: Commands {
            app_server: ended(0, "Usage", ""),
            exec: ended(0, "Usage", ""),
            mcp_server: ended(2, "", "error: unrecognized subcommand"),
        },
        app_server: InitializeOutcome::Answered(Duration::from_millis(123)),
        login: ended(0, "", "WARNING: x\nLogged in using an API key - sk-a***b\n"),
        limits: Err(LimitsUnknown::NotLimited),
        asked_at: UNIX_EPOCH,
        sandbox: ended(0, "", ""),
    };
    let codex = Codex {
        binary: CodexBinary {
            chosen: "/usr/bin/codex".into(),
            native: "/usr/lib/codex/bin/codex".into(),
            helpers: None,
            source: Source::Path,
        },
        version: ended(0, "codex-cli 0.169.0\n", ""),
        probes: Some(probes),
    };
    let config = "model = \"m\"\nsandbox_mode = \"read-only\"\n";
    Facts {
        installation: Installation {
            commit: Some("1d66ea9b"),
            channel: Channel::Npm,
            program: Some("/usr/lib/node_modules/codex-mcp/bin/codex-mcp".into()),
        },
        codex: Ok(CodexSetup {
            program: Ok(codex),
            wrong: Vec::new(),
            warnings: Vec::new(),
            repository: None,
            store: store(
                "/home/you/jobs.db",
                settings::Source::Default,
                StoreState::Readable,
            ),
            home: Home {
                path: "/home/you/.codex".into(),
                chosen_by: HomeSource::Default,
                directory: Directory::Writable,
                config: ConfigFile::Valid,
                git_rules: None,
                settings: settings(config),
                key_is_set: false,
            },
        }),
        tools: Tools {
            git: ended(0, "git version 2.47.3\n", ""),
            gh: ended(0, "gh version 2.83.0 (2025-11-04)\nhttps://x\n", ""),
            gh_login: ended(0, "", ""),
        },
        leftovers: Ok(Vec::new()),
        state: Ok(Some("/home/you/.local/state/codex-mcp".into())),
    }
}

/// The facts of a healthy machine, but for a change.
fn facts(change: impl FnOnce(&mut CodexSetup)) -> Facts {
    let mut facts = healthy();
    change(facts.codex.as_mut().unwrap());
    facts
}

fn probes(setup: &mut CodexSetup) -> &mut Probes {
    let codex = setup.program.as_mut().unwrap();
    codex.probes.as_mut().unwrap()
}

fn finding(facts: &Facts, check: Check) -> Finding {
    let report = judge(facts);
    let found = report.findings.into_iter().find(|it| it.check == check);
    found.unwrap()
}

#[track_caller]
fn assert_finding(facts: &Facts, check: Check, status: Status, words: &str) {
    let finding = finding(facts, check);
    assert_eq!(finding.status, status, "{finding:?}");
    assert!(finding.message.contains(words), "{finding:?}");
}

fn text(facts: &Facts) -> String {
    let mut out = Output::new(Vec::new(), Colours::Off);
    as_text(&judge(facts), None, &mut out).unwrap();
    let text = String::from_utf8(out.into_inner()).unwrap();
    text.replace(VERSION, "VERSION")
}

#[test]
fn healthy_machine_has_no_problems() {
    insta::assert_snapshot!(text(&healthy()));
}

#[test]
fn broken_machine_reports_each_problem() {
    let mut facts = facts(|setup| {
        setup.home.chosen_by = HomeSource::Variable;
        setup.home.directory = Directory::ReadOnly;
        setup.program.as_mut().unwrap().version = ended(0, "codex-cli 0.99.0\n", "");
        *probes(setup) = Probes {
            commands: Commands {
                app_server: ended(2, "", ""),
                exec: CommandOutcome::TimedOut(LIMIT),
                mcp_server: CommandOutcome::Failed("no".to_owned()),
            },
            app_server: InitializeOutcome::TimedOut(LIMIT),
            login: ended(1, "", "Not logged in\n"),
            limits: Err(LimitsUnknown::NoCodex),
            asked_at: UNIX_EPOCH,
            sandbox: ended(1, "", "bwrap: Operation not permitted\n"),
        };
    });
    facts.tools = Tools {
        git: ended(127, "", "cannot start git"),
        gh: CommandOutcome::TimedOut(LIMIT),
        gh_login: CommandOutcome::TimedOut(LIMIT),
    };
    insta::assert_snapshot!(text(&facts));
}

#[test]
fn missing_codex_is_a_problem() {
    let facts = facts(|setup| {
        setup.program = Err(NoCodex::NotOnPath);
        setup.home.directory = Directory::Missing;
        setup.home.config = ConfigFile::Absent;
        setup.home.settings = settings("");
    });
    insta::assert_snapshot!(text(&facts));
}

#[test]
fn home_that_the_check_has_made_is_noted() {
    let facts = facts(|setup| setup.home.directory = Directory::MadeByProbe);
    let words = "/home/you/.codex (the default) did not exist; the check of Codex has made it";
    assert_finding(&facts, Check::CodexHome, Status::Note, words);
    assert!(judge(&facts).works());
}

#[test]
fn used_up_limits_warn_until_they_are_reset() {
    let told = |used: u32, at| {
        let told = format!(
            r#"{{"rateLimits":{{"primary":{{"usedPercent":{used},"windowDurationMins":300,
                "resetsAt":60}}}}}}"#
        );
        let limits = RateLimits::read(&RawValue::from_string(told).unwrap()).unwrap();
        facts(|setup| {
            probes(setup).limits = Ok(limits);
            probes(setup).asked_at = at;
        })
    };
    let words = "42 % of 5h used, reset at 1970-01-01 00:01 UTC";
    assert_finding(&told(42, UNIX_EPOCH), Check::Limits, Status::Ok, words);
    let used_up = told(100, UNIX_EPOCH);
    assert_finding(&used_up, Check::Limits, Status::Warning, "used up: 100 %");
    let value = finding(&used_up, Check::Limits).value.unwrap();
    assert_eq!(value["usedUpUntil"], "1970-01-01T00:01:00.000Z");
    assert!(judge(&used_up).works());
    let reset = told(100, UNIX_EPOCH + Duration::from_secs(60));
    assert_finding(&reset, Check::Limits, Status::Ok, "100 %");
}

fn broken_settings() -> ConfigError {
    ConfigError::Unreadable(safe_files::untrusted_file::ReadError::Io {
        path: ".atm.toml".into(),
        error: std::io::ErrorKind::PermissionDenied.into(),
    })
}

#[test]
fn broken_own_settings_are_a_problem() {
    let facts = Facts {
        codex: Err(broken_settings()),
        ..healthy()
    };
    insta::assert_snapshot!(text(&facts));
}

#[test]
fn codex_is_checked_though_a_setting_is_wrong() {
    let facts = facts(|setup| setup.wrong.push(broken_settings()));
    let words = "cannot read .atm.toml";
    assert_finding(&facts, Check::Settings, Status::Problem, words);
    assert_finding(&facts, Check::AppServer, Status::Ok, "");
    assert!(!judge(&facts).works());
}

#[test]
fn report_has_all_checks_in_order_and_hints_for_problems() {
    let not_codex = facts(|setup| {
        let codex = setup.program.as_mut().unwrap();
        codex.version = ended(0, "", "");
        codex.probes = None;
    });
    let no_codex = facts(|setup| setup.program = Err(NoCodex::NotOnPath));
    let no_settings = Facts {
        codex: Err(broken_settings()),
        ..healthy()
    };
    let names = |facts: &Facts| -> Vec<&str> {
        let report = judge(facts);
        for finding in &report.findings {
            let trouble = matches!(finding.status, Status::Problem | Status::Warning);
            assert!(!trouble || finding.hint.is_some(), "{finding:?}");
        }
        report.findings.iter().map(|it| it.check.name()).collect()
    };
    let all = names(&healthy());
    assert_eq!(all.len(), 16);
    for facts in [not_codex, no_codex, no_settings] {
        assert_eq!(names(&facts), all);
        assert!(!judge(&facts).works());
    }
}

#[test]
fn program_without_a_version_is_a_problem() {
    for (outcome, words) in [
        (ended(0, "", ""), "is not Codex"),
        (
            ended(126, "", "cannot start x: no"),
            "126; it said: cannot start x: no",
        ),
        (CommandOutcome::TimedOut(LIMIT), "did not end within 10 s"),
    ] {
        let facts = facts(|setup| {
            let codex = setup.program.as_mut().unwrap();
            codex.version = outcome;
            codex.probes = None;
        });
        assert_finding(&facts, Check::Version, Status::Problem, words);
        assert_finding(&facts, Check::AppServer, Status::Note, "not checked");
    }
}

#[test]
fn codex_that_waits_for_our_tools_is_reported() {
    for (version, status, words) in [
        ("0.104.0", Status::Note, "`codex exec resume` until Ctrl-C"),
        ("0.112.9", Status::Note, "`codex exec resume` until Ctrl-C"),
        (
            "0.113.0",
            Status::Note,
            "`codex resume` waits until Esc is pressed",
        ),
        ("0.117.0", Status::Ok, "0.117.0"),
    ] {
        let facts = facts(|setup| {
            let codex = setup.program.as_mut().unwrap();
            codex.version = ended(0, &format!("codex-cli {version}\n"), "");
        });
        assert_finding(&facts, Check::Version, status, words);
    }
}

#[test]
fn private_git_directories_are_listed_with_hints() {
    let leftover = |name: &str, state| Leftover {
        path: Path::new("/state").join(name),
        repository: Some("/srv/re\u{1b}]0;x\npo".into()),
        state,
    };
    let mut facts = healthy();
    facts.leftovers = Ok(vec![
        leftover("a", LeftoverState::InUse),
        leftover("b", LeftoverState::Interrupted),
        leftover("c", LeftoverState::Kept("/state/c/kept".into())),
        leftover(
            "d\u{202e}",
            LeftoverState::Unreadable("no\nJSON".to_owned()),
        ),
        leftover("e", LeftoverState::Orphaned),
        leftover("f", LeftoverState::Unfinished),
    ]);
    let report = judge(&facts);
    let listed = report.findings.iter();
    let listed = listed.filter(|finding| finding.check == Check::PrivateGit);
    let listed: Vec<&Finding> = listed.collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&listed).unwrap());
    assert!(report.works());

    facts.leftovers = Ok((0..30)
        .map(|number| leftover(&number.to_string(), LeftoverState::InUse))
        .collect());
    assert!(text(&facts).contains("10 more"));
    facts.leftovers = Err("no".to_owned());
    assert_finding(&facts, Check::PrivateGit, Status::Note, "not checked: no");
}

#[test]
fn state_directory_that_codex_can_write_is_a_warning() {
    let path = "/tmp/state/codex-mcp";
    let mut facts = healthy();
    facts.state = Err(WritableState { path: path.into() });
    let words = "/tmp/state/codex-mcp is below /tmp";
    assert_finding(&facts, Check::StateDir, Status::Warning, words);
    let finding = finding(&facts, Check::StateDir);
    assert_eq!(finding.value, Some(path.into()));
    assert_eq!(finding.hint.as_deref(), Some(REMEDY));
    // Work other than runs is not affected.
    assert!(judge(&facts).works());
}

#[test]
fn store_that_cannot_be_used_is_a_warning() {
    let default = || settings::Source::Default;
    let set = || settings::Source::Variable("CODEX_MCP_STORE");
    let missing = || StoreState::Missing(Directory::Missing);
    let absent = || StoreState::Missing(Directory::Writable);
    let read_only = || StoreState::Missing(Directory::ReadOnly);
    let file = "/srv/x/jobs.db";
    let url = "postgres://me:sesame@db/jobs";
    let first = "does not exist yet; the first job makes it";
    for (location, source, state, status, words) in [
        (file, default(), missing(), Status::Ok, first),
        (file, default(), absent(), Status::Ok, first),
        (file, set(), absent(), Status::Ok, first),
        (
            file,
            set(),
            missing(),
            Status::Warning,
            "($CODEX_MCP_STORE) does not exist, and there is no directory /srv/x",
        ),
        (file, set(), read_only(), Status::Warning, "cannot write"),
        (url, set(), StoreState::Empty, Status::Ok, "no tables yet"),
        (url, set(), StoreState::Older, Status::Ok, "upgraded"),
        (
            url,
            set(),
            StoreState::TimedOut(LIMIT),
            Status::Warning,
            "postgres://me@db/jobs ($CODEX_MCP_STORE) did not answer within 10 s",
        ),
        (
            url,
            set(),
            StoreState::Failed("it is away".to_owned()),
            Status::Warning,
            "it is away",
        ),
    ] {
        let facts = facts(|setup| setup.store = store(location, source, state));
        assert_finding(&facts, Check::Store, status, words);
        let finding = finding(&facts, Check::Store);
        if status == Status::Warning {
            let hint = "works. Repair it, or correct $CODEX_MCP_STORE.";
            assert!(
                finding.hint.as_ref().unwrap().ends_with(hint),
                "{finding:?}"
            );
        }
        let finding = format!("{finding:?}");
        assert!(!finding.contains("sesame"), "{finding}");
        // Work other than jobs is not affected.
        assert!(judge(&facts).works());
    }
}

#[test]
fn login_is_required_by_the_provider() {
    let with = |config: &str, key_is_set| {
        facts(|setup| {
            setup.home.settings = settings(config);
            setup.home.key_is_set = key_is_set;
            probes(setup).login = ended(1, "", "Not logged in\n");
        })
    };
    let key = "model_provider = \"x\"\n[model_providers.x]\nenv_key = \"K\"\n\
               env_key_instructions = \"Ask Kim.\"\n";
    let check = Check::Login;
    assert_finding(&with("", false), check, Status::Problem, "not logged in");
    assert_finding(&with(key, true), check, Status::Ok, "from K, which is set");
    assert_finding(
        &with(key, false),
        check,
        Status::Problem,
        "K, which is not set",
    );
    let hint = finding(&with(key, false), check).hint.unwrap();
    assert!(hint.ends_with("Ask Kim."), "{hint}");
    let local = with("model_provider = \"ollama\"", false);
    assert_finding(&local, check, Status::Ok, "not needed");
}

#[test]
fn unknown_login_is_a_warning() {
    let facts = facts(|setup| probes(setup).login = ended(3, "", "what?\n"));
    assert_finding(
        &facts,
        Check::Login,
        Status::Warning,
        "code 3; it said: what?",
    );
}

#[test]
fn config_that_codex_refuses_is_reported_once() {
    let refusal = "WARNING: x\nError loading configuration: Model provider `x` not found\n";
    let refused = facts(|setup| {
        probes(setup).login = ended(1, "", refusal);
        probes(setup).sandbox = ended(1, "", refusal);
    });
    assert_finding(&refused, Check::Config, Status::Problem, "`x` not found");
    assert_finding(&refused, Check::Login, Status::Note, "not checked");
    assert_finding(&refused, Check::Sandbox, Status::Note, "not checked");

    let no_home = facts(|setup| {
        probes(setup).login = ended(1, "", refusal);
        probes(setup).app_server = InitializeOutcome::Failed("it ended".to_owned());
        setup.home.chosen_by = HomeSource::Variable;
        setup.home.directory = Directory::Missing;
    });
    assert_finding(
        &no_home,
        Check::CodexHome,
        Status::Problem,
        "does not exist",
    );
    assert_finding(&no_home, Check::Config, Status::Note, "not checked");
    let hint = finding(&no_home, Check::AppServer).hint.unwrap();
    assert_eq!(hint, "Solve the problem of codex-home first.");
}

#[test]
fn credential_in_an_excerpt_of_a_file_is_masked() {
    let file = "token = \"hunter2 hunter2\" x\n";
    let error = toml::from_str::<toml::Table>(file).unwrap_err();
    let excerpt = error.to_string();
    // Before it is masked, the excerpt contains the credential.
    assert!(excerpt.contains("hunter2"), "{excerpt}");

    let refusal = format!("Error loading configuration: {excerpt}");
    let facts = facts(|setup| probes(setup).login = ended(1, "", &refusal));
    assert_finding(
        &facts,
        Check::Config,
        Status::Problem,
        "token = \"[masked]\" x",
    );
    let json = serde_json::to_string(&judge(&facts)).unwrap();
    assert!(!json.contains("hunter2"), "{json}");
}

#[test]
fn malformed_config_is_a_problem_without_codex_too() {
    let malformed = toml_error::parse::<toml::Table>("a = = 1").unwrap_err();
    let facts = facts(|setup| {
        setup.home.config = ConfigFile::Malformed(malformed);
        setup.program = Err(NoCodex::NotExecutable {
            path: "/x".into(),
            from: Source::File("/home/you/.atm.toml".into()),
        });
    });
    assert_finding(&facts, Check::Config, Status::Problem, "line 1, column 5");
    let hint = finding(&facts, Check::Codex).hint.unwrap();
    assert!(hint.contains("codex_bin in /home/you/.atm.toml"), "{hint}");
}

#[test]
fn command_in_a_hint_can_be_typed() {
    let binary = |chosen: &str, source| CodexBinary {
        chosen: chosen.into(),
        native: Path::new("/x").into(),
        helpers: None,
        source,
    };
    let named = binary("/opt/my codex", Source::FlagOrVariable);
    assert_eq!(words::command_name(&named), "'/opt/my codex'");
    let found = binary("/usr/bin/codex", Source::Path);
    assert_eq!(words::command_name(&found), "codex");
}
