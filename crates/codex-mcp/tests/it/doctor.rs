//! `codex-mcp doctor`, rings 3 and 4: with real Codexes and with programs that are not Codex.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{Action, FakeCodex, Plan, fake_codex_path};
use testkit::process::wait_until_gone;
use testkit::{Home, codex, write_program};

use crate::output::CommandOutput;
use crate::trust;

/// A provider that needs neither a login nor a key. Nothing listens at its address.
const LOCAL: &str = "model = \"mock-model\"\nmodel_provider = \"mock\"\n\
                     [model_providers.mock]\nname = \"mock\"\n\
                     base_url = \"http://127.0.0.1:1/v1\"\nwire_api = \"responses\"\n\
                     requires_openai_auth = false\n";

/// The longest duration on a healthy machine, with a large margin for a busy one.
const HEALTHY: Duration = Duration::from_secs(10);

/// How long Codex may outlive doctor: the guard's grace period and a margin.
const GONE: Duration = Duration::from_secs(5);

/// A run of doctor.
struct Doctor<'a> {
    home: &'a Home,
    env: Vec<(&'static str, OsString)>,
    privileges: Privileges,
}

#[derive(Clone, Copy)]
enum Privileges {
    /// The privileges of the test.
    Kept,
    /// No write access as root.
    Dropped,
}

impl<'a> Doctor<'a> {
    fn new(home: &'a Home, codex: &Path) -> Self {
        Self {
            home,
            env: vec![("CODEX_MCP_CODEX_BIN", codex.into())],
            privileges: Privileges::Kept,
        }
    }

    fn real(home: &'a Home, release: &str) -> Self {
        Self::new(home, &codex::native_binary(release))
    }

    fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        let program = env!("CARGO_BIN_EXE_codex-mcp");
        let mut command = match self.privileges {
            Privileges::Kept => Command::new(program),
            Privileges::Dropped => {
                let mut command = Command::new("setpriv");
                command.args(["--inh-caps=-all", "--bounding-set=-all", program]);
                command
            }
        };
        let output = command
            .arg("doctor")
            .args(args)
            .env_clear()
            .envs(self.home.env())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.work())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        output.into()
    }

    /// The report of `doctor --json`, checked against the exit code.
    fn report(&self, args: &[&str]) -> Report {
        let said = self.run(&[&["--json"], args].concat());
        assert_eq!(said.stderr, "");
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(report["works"], said.code == 0, "{report:#}");
        Report(report)
    }
}

struct Report(Value);

impl Report {
    fn check(&self, name: &str) -> &Value {
        let checks = self.0["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap()
    }

    /// The names of the checks with this status.
    fn with(&self, status: &str) -> Vec<&str> {
        let checks = self.0["checks"].as_array().unwrap();
        let fitting = checks.iter().filter(|check| check["status"] == status);
        fitting.map(|it| it["name"].as_str().unwrap()).collect()
    }

    #[track_caller]
    fn assert_says(&self, name: &str, status: &str, words: &str) {
        let check = self.check(name);
        assert_eq!(check["status"], status, "{:#}", self.0);
        let message = check["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
}

/// A script in the home.
fn program(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.root().join(name);
    write_program(&path, text);
    path
}

async fn assert_nothing_left(home: &Home) {
    let left: Vec<u32> = home.processes().iter().map(|it| it.pid).collect();
    assert_eq!(wait_until_gone(&left, GONE).await, []);
}

#[tokio::test]
async fn healthy_release_passes_and_is_left_unchanged() {
    for release in codex::releases() {
        let home = Home::new(LOCAL);
        let start = Instant::now();
        let report = Doctor::real(&home, release).report(&[]);
        assert!(start.elapsed() < HEALTHY, "{:?}", start.elapsed());

        assert_eq!(report.0["works"], true, "{:#}", report.0);
        assert_eq!(report.check("version")["value"], release);
        assert_eq!(
            report.check("commands")["value"],
            json!({"app-server": true, "exec": true, "mcp-server": release != codex::newest()})
        );
        assert!(report.check("app-server")["value"]["milliseconds"].is_u64());
        report.assert_says("login", "ok", "not needed: provider mock");
        assert_eq!(
            report.check("config")["value"],
            json!({"model": "mock-model", "model_provider": "mock"})
        );
        report.assert_says("sandbox", "ok", "runs");
        report.assert_says("git", "ok", "2.");

        assert_nothing_left(&home).await;
        let left = fs::read_dir(home.tmp()).unwrap().count();
        assert_eq!(left, 0, "{release} left something in TMPDIR");
    }
}

#[tokio::test]
async fn missing_login_is_reported_and_key_is_hidden_on_each_release() {
    for release in codex::releases() {
        let home = Home::new("");
        let report = Doctor::real(&home, release).report(&[]);
        assert_eq!(report.with("problem"), ["login"], "{:#}", report.0);
        report.assert_says("login", "problem", "not logged in");

        let login = r#"{"OPENAI_API_KEY": "sk-0123456789abcdefghij"}"#;
        fs::write(home.codex_home().join("auth.json"), login).unwrap();
        let said = Doctor::real(&home, release).run(&[]);
        assert_eq!(said.code, 0, "{}", said.stdout);
        assert!(!said.stdout.contains("sk-"), "{}", said.stdout);
        assert!(said.stdout.contains("API key"), "{}", said.stdout);
    }
}

#[tokio::test]
async fn broken_config_is_located_on_each_release() {
    for release in codex::releases() {
        for (config, words) in [
            (
                "model = \"m\"\nbad = = 3\n",
                "not valid TOML: line 2, column 7",
            ),
            (
                "approval_policy = \"nonsense\"\n",
                "config.toml:1:19: unknown variant",
            ),
            ("model_provider = \"nope\"\n", "`nope` not found"),
        ] {
            let home = Home::new(config);
            let report = Doctor::real(&home, release).report(&[]);
            assert_eq!(report.with("problem"), ["config"], "{:#}", report.0);
            report.assert_says("config", "problem", words);
        }
    }
}

#[tokio::test]
async fn unusable_home_is_reported_on_each_release() {
    for release in codex::releases() {
        let home = Home::new(LOCAL);
        let missing = home.root().join("missing");
        let report = Doctor::real(&home, release)
            .env("CODEX_HOME", &missing)
            .report(&[]);
        assert_eq!(report.with("problem"), ["app-server", "codex-home"]);
        report.assert_says("codex-home", "problem", "does not exist");
        assert!(!missing.exists());

        fs::set_permissions(home.codex_home(), Permissions::from_mode(0o500)).unwrap();
        let mut doctor = Doctor::real(&home, release);
        if fs::write(home.codex_home().join("by-root"), "").is_ok() {
            doctor.privileges = Privileges::Dropped;
        }
        let report = doctor.report(&[]);
        report.assert_says("codex-home", "problem", "cannot be written to");
    }
}

#[tokio::test]
async fn home_that_the_check_has_made_is_noted() {
    let home = Home::new("");
    let report = || {
        let doctor = Doctor::real(&home, codex::newest()).env("CODEX_HOME", "");
        doctor.report(&[])
    };
    let words = "(the default) did not exist; the check of Codex has made it";
    report().assert_says("codex-home", "note", words);
    assert!(home.home().join(".codex").is_dir());
    report().assert_says("codex-home", "ok", "(the default)");
}

#[tokio::test]
async fn npm_script_resolves_to_the_native_program() {
    let home = Home::new(LOCAL);
    let bin = home.root().join("bin");
    fs::create_dir(&bin).unwrap();
    let link = bin.join("codex");
    symlink(codex::npm_shim(codex::newest()), &link).unwrap();
    let gh = "case $1 in --version) echo 'gh version 2.83.0 (2025-11-04)';; *) echo gho_1;; esac";
    program(&home, "bin/gh", &format!("#!/bin/sh\n{gh}\n"));
    let path = std::env::join_paths([&bin, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();

    let mut doctor = Doctor::real(&home, codex::newest()).env("PATH", path);
    doctor.env.retain(|(name, _)| *name == "PATH");
    let said = doctor.run(&["--json"]);
    assert!(!said.stdout.contains("gho_1"), "{}", said.stdout);
    let report = doctor.report(&[]);
    let native = codex::native_binary(codex::newest());
    assert_eq!(
        report.check("codex")["value"],
        json!({
            "chosen": link,
            "native": native.canonicalize().unwrap(),
            "source": "PATH",
        })
    );
    report.assert_says("gh", "ok", "2.83.0, logged in");
}

#[tokio::test]
async fn program_that_is_not_codex_is_reported_and_not_probed() {
    let home = Home::new(LOCAL);
    let text = home.root().join("text");
    fs::write(&text, "not a program\n").unwrap();
    let missing = home.root().join("missing");
    for (path, check, words) in [
        (missing, "codex", "is not an executable file"),
        (text, "codex", "is not an executable file"),
        ("/bin/true".into(), "version", "is not Codex"),
        (
            program(&home, "garbage", "\u{0}\u{1}garbage"),
            "version",
            "exited with code",
        ),
        (
            program(
                &home,
                "loud",
                "#!/bin/sh\ntouch \"$1\"\necho codex-mcp 0.1.0\n",
            ),
            "version",
            "is not Codex",
        ),
    ] {
        let report = Doctor::new(&home, &path).report(&[]);
        assert_eq!(report.with("problem"), [check], "{:#}", report.0);
        report.assert_says(check, "problem", words);
        report.assert_says("app-server", "note", "not checked");
    }
    assert!(!home.work().join("app-server").exists());
}

#[tokio::test]
async fn hanging_codex_is_given_up_and_ended() {
    let home = Home::new(LOCAL);
    let silent = program(&home, "silent", "#!/bin/sh\nexec sleep 600\n");
    let report = Doctor::new(&home, &silent).report(&["--timeout", "1"]);
    report.assert_says("version", "problem", "did not end within 1 s");
    assert_nothing_left(&home).await;

    let report = fake(&home, &Plan::new().on("initialize", [Action::Hang]));
    report.assert_says("app-server", "problem", "`initialize` within 1 s");
    assert_nothing_left(&home).await;
}

#[tokio::test]
async fn app_server_that_ends_or_garbles_is_reported() {
    let home = Home::new(LOCAL);
    let complaint = Action::WriteStderr {
        text: "\u{1b}[31mout of cheese\u{1b}[0m".to_owned(),
    };
    let ends = Plan::new().at_start([complaint, Action::Exit { code: 3 }]);
    // Codex is started three times.
    let report = fake_within(&home, &ends, "10");
    let words = "exited with code 3 before it answered; it said: out of cheese";
    report.assert_says("app-server", "problem", words);

    let refusal = Action::Error {
        code: -32600,
        message: "no cheese".to_owned(),
    };
    let report = fake(&home, &Plan::new().on("initialize", [refusal]));
    report.assert_says("app-server", "problem", "no cheese");

    let garbage = Plan::new().on("initialize", [Action::garbage(), Action::Proceed]);
    let report = fake(&home, &garbage);
    report.assert_says("app-server", "ok", "answers");
    assert_nothing_left(&home).await;
}

/// The report of doctor on a fake Codex with this plan. The fake has no `help`, no `login` and no
/// `sandbox`.
fn fake(home: &Home, plan: &Plan) -> Report {
    fake_within(home, plan, "1")
}

/// The same, with this limit of each check in seconds.
fn fake_within(home: &Home, plan: &Plan, seconds: &str) -> Report {
    let fake = FakeCodex::new(home, plan);
    let mut doctor = Doctor::new(home, &fake_codex_path());
    for (name, path) in fake.env() {
        doctor = doctor.env(name, path);
    }
    doctor.report(&["--timeout", seconds])
}

#[tokio::test]
async fn unusable_settings_are_reported() {
    let home = Home::new(LOCAL);
    let settings = "[plugins.codex-mcp]\ncodex_bin = 7\n";
    fs::write(home.work().join(".atm.toml"), settings).unwrap();
    trust(&home, &home.work());
    let report = Doctor::real(&home, codex::newest()).report(&[]);
    assert_eq!(report.with("problem"), ["settings"]);
    report.assert_says(
        "settings",
        "problem",
        "line 2, column 13: `codex_bin`: it must be a text in quotes",
    );
    report.assert_says("git", "ok", "2.");
}

#[tokio::test]
async fn changed_repository_is_reported_once() {
    let home = Home::new(LOCAL);
    let file = home.work().join(".atm.toml");
    fs::write(&file, "[plugins.codex-mcp]\nmodel = \"m\"\n").unwrap();
    trust(&home, &home.work());
    fs::write(&file, "[plugins.codex-mcp]\nmodel = \"n\"\n").unwrap();
    let report = Doctor::real(&home, codex::newest()).report(&[]);
    report.assert_says("repository", "warning", "is not used as trusted");
    report.assert_says("settings", "ok", "fine");
}

#[tokio::test]
async fn codex_is_checked_though_a_setting_is_wrong() {
    let home = Home::new(LOCAL);
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let settings = "[plugins.codex-mcp]\nnotify = \"desktop\"\n";
    fs::write(directory.join("config.toml"), settings).unwrap();
    let report = Doctor::real(&home, codex::newest()).report(&[]);
    assert_eq!(report.with("problem"), ["settings"]);
    let words = "line 2, column 10: `notify`: it must be a list in brackets";
    report.assert_says("settings", "problem", words);
    report.assert_says("app-server", "ok", "");
}

#[tokio::test]
async fn missing_team_is_reported() {
    let home = Home::new(LOCAL);
    let report = || {
        let doctor = Doctor::real(&home, codex::newest()).env("ATM_TEAM", "builders");
        doctor.report(&[])
    };
    let words = "team ($ATM_TEAM): there is no team builders";
    report().assert_says("settings", "warning", words);
    let team = home.atm_home().join(".claude/teams/builders");
    fs::create_dir_all(&team).unwrap();
    fs::write(team.join("config.json"), r#"{"members": []}"#).unwrap();
    report().assert_says("settings", "ok", "fine");
}

#[tokio::test]
async fn state_directory_in_which_codex_can_write_is_reported() {
    let home = Home::new(LOCAL);
    let state = tempfile::tempdir_in("/tmp").unwrap();
    let doctor = Doctor::real(&home, codex::newest()).env("XDG_STATE_HOME", state.path());
    let report = doctor.report(&[]);
    report.assert_says("state-dir", "warning", "is below /tmp");
    assert_eq!(report.0["works"], true, "{:#}", report.0);
}

#[tokio::test]
async fn store_that_cannot_be_used_is_reported_and_none_is_made() {
    let home = Home::new(LOCAL);
    let store_row = |location: &str| {
        let doctor = Doctor::real(&home, codex::newest()).env("CODEX_MCP_STORE", location);
        let report = doctor.report(&[]);
        assert_eq!(report.0["works"], true, "{:#}", report.0);
        report
    };
    let below = |name: &str| home.root().join(name).to_str().unwrap().to_owned();
    for (location, status, words) in [
        (below("jobs.db"), "ok", "the first job makes it"),
        (below("missing/jobs.db"), "warning", "no directory"),
        (below(""), "warning", "it is a directory"),
    ] {
        store_row(&location).assert_says("store", status, words);
    }
    assert!(!home.root().join("jobs.db").exists());
    assert!(!home.root().join("missing").exists());

    let report = store_row("postgres://me:sesame@127.0.0.1:1/jobs");
    report.assert_says("store", "warning", "me@127.0.0.1:1/jobs cannot be reached");
    assert!(!report.0.to_string().contains("sesame"), "{:#}", report.0);
}

#[tokio::test]
async fn notifier_that_cannot_work_is_reported() {
    let home = Home::new(LOCAL);
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let settings =
        "[plugins.codex-mcp]\nnotify = [\"command:true\", \"command:no-such-program\"]\n";
    fs::write(directory.join("config.toml"), settings).unwrap();
    let report = Doctor::real(&home, codex::newest()).report(&[]);
    let words = "cannot notify command:no-such-program: there is no program no-such-program";
    report.assert_says("settings", "warning", words);
}

#[tokio::test]
async fn answers_by_mail_that_nobody_can_give_are_reported() {
    let home = Home::new(LOCAL);
    let team = home.atm_home().join(".claude/teams/builders");
    fs::create_dir_all(&team).unwrap();
    let roster = r#"{"name": "builders", "members": [{"name": "lead"}, {"name": "codex"}]}"#;
    fs::write(team.join("config.json"), roster).unwrap();
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    for (notify, status, words) in [
        ("", "warning", "nobody can answer"),
        (
            "notify = [\"command:true\"]",
            "warning",
            "nobody can answer",
        ),
        (
            "notify = [\"mail:codex\"]",
            "warning",
            "mail:codex cannot answer: it is the identity of the asking server",
        ),
        ("notify = [\"mail:lead\"]", "ok", "fine"),
    ] {
        let settings = format!("[plugins.codex-mcp]\nanswer_by_mail = true\n{notify}\n");
        fs::write(directory.join("config.toml"), settings).unwrap();
        let doctor = Doctor::real(&home, codex::newest()).env("ATM_TEAM", "builders");
        doctor.report(&[]).assert_says("settings", status, words);
    }
}

#[tokio::test]
async fn endpoint_that_other_machines_reach_is_reported() {
    let home = Home::new(LOCAL);
    let directory = home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    for (address, status, words) in [
        (
            "0.0.0.0:8399",
            "warning",
            "can be reached by other machines",
        ),
        ("127.0.0.1:8399", "ok", "fine"),
    ] {
        let settings = format!("[plugins.codex-mcp]\nhttp = \"{address}\"\n");
        fs::write(directory.join("config.toml"), settings).unwrap();
        let doctor = Doctor::real(&home, codex::newest());
        doctor.report(&[]).assert_says("settings", status, words);
    }
}

#[tokio::test]
async fn text_is_plain_in_a_pipe_and_closed_pipe_is_no_error() {
    let home = Home::new(LOCAL);
    let doctor = Doctor::real(&home, codex::newest());
    let said = doctor.run(&[]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(!said.stdout.contains('\u{1b}'), "{}", said.stdout);
    assert!(said.stdout.contains("\nok       settings     fine\n"));
    assert!(said.stdout.ends_with("\n\nCodex can work here.\n"));

    let closed = format!("exec {} doctor | true", env!("CARGO_BIN_EXE_codex-mcp"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &closed])
        .env_clear()
        .envs(home.env())
        .env("CODEX_MCP_CODEX_BIN", codex::native_binary(codex::newest()))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}
