//! Shell completions, which know the work under way, and manual pages.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use job_queue::store::{JobStore, NewJob, Request};
use settings::Access;
use settings::store_location::Location;
use testkit::Home;

use crate::terminal::Terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_codex-mcp");

/// A name that a shell would run.
const HOSTILE: &str = "$(touch pwned)";

/// A home, and a shell with the program on its PATH.
struct Shell {
    home: Home,
}

impl Shell {
    fn new() -> Self {
        Self {
            home: Home::new(""),
        }
    }

    fn command(&self, program: &str) -> Command {
        let directory = Path::new(PROGRAM).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = self.home.command(program);
        command.env("PATH", format!("{}:{path}", directory.display()));
        command
    }

    fn codex_mcp(&self, args: &[&str]) -> Output {
        self.command(PROGRAM).args(args).output().unwrap()
    }

    fn store(&self) -> (Location, Access) {
        let state = self.home.state_home().join("codex-mcp");
        (Location::Sqlite(state.join("jobs.db")), Access::of(&state))
    }

    /// Adds jobs to the store; returns their IDs.
    async fn add_jobs(&self, names: &[&str]) -> Vec<String> {
        let (location, access) = self.store();
        let store = JobStore::open(&location, &access).await.unwrap();
        let mut ids = Vec::new();
        for name in names {
            let mut request = Request::new("do something", "/repo");
            request.task_name = (*name).to_owned();
            let job = NewJob::new(request);
            store.submit(&job).await.unwrap();
            ids.push(job.id.as_str().to_owned());
        }
        drop(store);
        let log = location.path().unwrap().with_extension("db-wal");
        let closed = async || (!log.exists()).then_some(());
        testkit::wait::wait_for("a closed store", closed).await;
        ids
    }

    /// The candidates with their descriptions, as fish asks for them.
    fn fish(&self, words: &[&str]) -> Vec<(String, String)> {
        let output = self
            .command(PROGRAM)
            .env("_CODEX_MCP_COMPLETE", "fish")
            .args(["--", "codex-mcp"])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{words:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let candidates = lines.lines().map(|line| {
            let (value, about) = line.split_once('\t').unwrap_or((line, ""));
            (value.to_owned(), about.to_owned())
        });
        candidates.collect()
    }

    fn values(&self, words: &[&str]) -> Vec<String> {
        let found = self.fish(words).into_iter();
        let values = found.map(|(value, _)| value);
        values.filter(|value| !value.starts_with('-')).collect()
    }

    /// What bash offers, by the script that it sources.
    fn bash(&self, words: &[&str]) -> Vec<String> {
        let [.., before, last] = words else {
            unreachable!()
        };
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "source <(codex-mcp completions bash) && COMP_WORDS=({}) && COMP_CWORD={} && \
             _clap_complete_codex_mcp codex-mcp '{last}' '{before}' && \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            words.len() - 1,
        );
        let output = self.command("bash").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    let mut all: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let shell = Shell::new();
    for (words, offered) in [
        (&["codex-mcp", "ser"][..], "serve"),
        (&["codex-mcp", "serve", "--ap"], "--api"),
        (&["codex-mcp", "serve", "--api", ""], "sessions"),
        (&["codex-mcp", "threads", "--pr"], "--prune"),
        (&["codex-mcp", "jobs", "sub"], "submit"),
        (&["codex-mcp", "jobs", "submit", "--sa"], "--sandbox"),
        (&["codex-mcp", "jobs", "list", "--status", "fa"], "failed"),
    ] {
        let found = shell.bash(words);
        assert!(
            found.iter().any(|one| one == offered),
            "{words:?}: {found:?}"
        );
    }
}

#[tokio::test]
async fn ids_of_jobs_are_completed_and_nothing_is_written() {
    let shell = Shell::new();
    let hostile = format!("{HOSTILE}\u{1b}[31m\nnext line {}", "x".repeat(500));
    let ids = shell.add_jobs(&["first", &hostile]).await;
    let (location, _) = shell.store();
    let state = location.path().unwrap().parent().unwrap().to_owned();
    let before = contents(&state);

    let newest_first = [ids[1].clone(), ids[0].clone()];
    for verb in [
        &["logs"][..],
        &["cancel"],
        &["jobs", "show"],
        &["jobs", "wait"],
    ] {
        let words = [verb, &[""]].concat();
        assert_eq!(shell.values(&words), newest_first, "{verb:?}");
        let begun = [verb, &[&ids[0][..8]]].concat();
        assert_eq!(shell.values(&begun), [ids[0].as_str()], "{verb:?}");
    }
    // None asks, runs, or is a session.
    for verb in [
        &["approve"][..],
        &["steer"],
        &["attach"],
        &["jobs", "decline"],
    ] {
        let words = [verb, &[""]].concat();
        assert_eq!(shell.values(&words), [""; 0], "{verb:?}");
    }
    assert_eq!(
        shell.bash(&["codex-mcp", "logs", &ids[1][..8]]),
        [ids[1].as_str()]
    );

    let described = shell.fish(&["logs", &ids[1][..8]]);
    let [(_, about)] = described.as_slice() else {
        panic!("{described:?}")
    };
    assert!(about.starts_with("job, queued: $(touch pwned)"), "{about}");
    assert!(about.len() <= 100 && !about.contains('\u{1b}'), "{about}");

    assert_eq!(contents(&state), before);
    assert_eq!(shell.home.processes(), []);
    assert!(!shell.home.work().join("pwned").exists());
}

#[tokio::test]
async fn store_of_the_command_line_is_completed() {
    let shell = Shell::new();
    let ids = shell.add_jobs(&["first"]).await;
    let (location, _) = shell.store();
    let other = shell.home.tmp().join("other.db");
    fs::rename(location.path().unwrap(), &other).unwrap();
    assert_eq!(shell.values(&["jobs", "show", ""]), [""; 0]);
    let store = other.to_str().unwrap();
    assert_eq!(shell.values(&["jobs", "--store", store, "show", ""]), ids);
    // A file that is no store, and none at all.
    fs::write(&other, "no store").unwrap();
    assert_eq!(
        shell.values(&["jobs", "--store", store, "show", ""]),
        [""; 0]
    );
    assert_eq!(
        shell.values(&["jobs", "--store", "/no/such/file", "show", ""]),
        [""; 0]
    );
}

#[tokio::test]
async fn jobs_are_completed_though_a_setting_is_wrong() {
    let shell = Shell::new();
    let ids = shell.add_jobs(&["first"]).await;
    let directory = shell.home.atm_home().join(".config/atm");
    fs::create_dir_all(&directory).unwrap();
    let text = "[plugins.codex-mcp]\nnotify = \"desktop\"\n";
    fs::write(directory.join("config.toml"), text).unwrap();
    assert_eq!(shell.values(&["cancel", ""]), ids);
}

#[test]
fn teams_are_completed_and_hostile_names_are_not() {
    let shell = Shell::new();
    let teams = shell.home.atm_home().join(".claude/teams");
    for team in ["red", "blue", HOSTILE, "two words"] {
        fs::create_dir_all(teams.join(team)).unwrap();
    }
    assert_eq!(shell.values(&["serve", "--team", ""]), ["blue", "red"]);
    let joined = shell.fish(&["serve", "--team=r"]);
    assert_eq!(joined, [("--team=red".to_owned(), String::new())]);
    assert_eq!(shell.bash(&["codex-mcp", "serve", "--team", "r"]), ["red"]);

    fs::create_dir(shell.home.work().join(HOSTILE)).unwrap();
    fs::create_dir(shell.home.work().join("harmless")).unwrap();
    let plain = [".", "README.md", "harmless/"];
    assert_eq!(shell.values(&["-C", ""]), plain);
    assert_eq!(shell.bash(&["codex-mcp", "-C", ""]), plain);
    assert!(!shell.home.work().join("pwned").exists());
}

#[test]
fn completion_without_a_home_or_with_broken_settings_offers_nothing() {
    let shell = Shell::new();
    let run = |variable: (&str, &str)| {
        let output = shell
            .command(PROGRAM)
            .env("_CODEX_MCP_COMPLETE", "fish")
            .env(variable.0, variable.1)
            .args(["--", "codex-mcp", "jobs", "show", ""])
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(output.status.success(), "{output:?}");
    };
    run(("HOME", ""));
    run(("CODEX_MCP_SANDBOX", "nonsense"));
    // A shell that the engine does not know gets an exit code, and nothing in its line.
    let output = shell
        .command(PROGRAM)
        .env("_CODEX_MCP_COMPLETE", "tcsh")
        .args(["--", "codex-mcp", ""])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn completion_file_is_installed_and_removed() {
    let shell = Shell::new();
    let file = shell
        .home
        .home()
        .join(".local/share/bash-completion/completions/codex-mcp");
    let installed = shell.codex_mcp(&["completions", "bash", "--install"]);
    assert!(installed.status.success(), "{installed:?}");
    let said = String::from_utf8(installed.stdout).unwrap();
    assert_eq!(said, format!("installed: {}\n", file.display()));
    let again = shell.codex_mcp(&["completions", "bash", "--install"]);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.starts_with("up to date"), "{said}");

    let line = format!("source {} && complete -p codex-mcp", file.display());
    let loaded = shell.command("bash").args(["-c", &line]).output().unwrap();
    let loaded = String::from_utf8(loaded.stdout).unwrap();
    assert!(loaded.contains("_clap_complete_codex_mcp"), "{loaded}");

    let removed = shell.codex_mcp(&["completions", "bash", "--remove"]);
    assert!(removed.status.success() && !file.exists(), "{removed:?}");
    let refused = shell.codex_mcp(&["completions", "elvish", "--install"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("codex-mcp completions elvish"), "{said}");
}

#[test]
fn completion_file_of_the_user_is_neither_replaced_nor_removed() {
    let shell = Shell::new();
    let functions = shell.home.home().join(".local/share/zsh/site-functions");
    let file = functions.join("_codex-mcp");
    fs::create_dir_all(&functions).unwrap();
    fs::write(&file, "mine\n").unwrap();
    for action in ["--install", "--remove"] {
        let refused = shell.codex_mcp(&["completions", "zsh", action]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("codex-mcp has not written it"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
    }
}

#[test]
fn fish_completes_by_its_installed_file() {
    let shell = Shell::new();
    let installed = shell.codex_mcp(&["completions", "fish", "--install"]);
    assert!(installed.status.success(), "{installed:?}");
    let line = "complete --do-complete 'codex-mcp jobs sub'";
    let output = shell.command("fish").args(["-c", line]).output().unwrap();
    let offered = String::from_utf8(output.stdout).unwrap();
    assert!(offered.starts_with("submit\t"), "{offered}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[tokio::test]
async fn zsh_completes_by_its_installed_file() {
    let shell = Shell::new();
    let installed = shell.codex_mcp(&["completions", "zsh", "--install"]);
    assert!(installed.status.success(), "{installed:?}");
    let hint = String::from_utf8(installed.stderr).unwrap();
    assert!(hint.contains("zsh/site-functions $fpath)"), "{hint}");
    let functions = shell.home.home().join(".local/share/zsh/site-functions");
    let mut zsh = shell.command("zsh");
    zsh.args(["--no-rcs", "--interactive"]).env("PS1", "% ");
    let mut terminal = Terminal::runs(zsh);
    terminal.types(&format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D; print load''ed\n",
        functions.display()
    ));
    let mut terminal = terminal.shows("loaded").await;
    // The completed line becomes the argument of a command.
    terminal.types("codex-mcp jobs sub\t\u{1}print -r -- \n");
    let mut terminal = terminal.shows("codex-mcp jobs submit").await;
    terminal.types("exit\n");
    let (seen, code) = terminal.ends().await;
    assert_eq!(code, Some(0), "{seen}");
}

#[test]
fn manual_is_installed_where_man_finds_it() {
    let shell = Shell::new();
    let directory = shell.home.home().join(".local/share/man/man1");
    let installed = shell.codex_mcp(&["man", "--install"]);
    assert!(installed.status.success(), "{installed:?}");
    let said = String::from_utf8(installed.stdout).unwrap();
    for page in ["codex-mcp.1", "codex-mcp-run.1", "codex-mcp-jobs-submit.1"] {
        let path = directory.join(page);
        assert!(path.is_file(), "{page}");
        assert!(
            said.contains(&format!("installed: {}\n", path.display())),
            "{said}"
        );
    }
    assert!(!directory.join("codex-mcp-guard.1").exists());
    let pages = contents(&directory);
    assert_eq!(said.lines().count(), pages.len());

    let again = shell.codex_mcp(&["man", "--install"]);
    let said = String::from_utf8(again.stdout).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("up to date"), "{said}");
    assert_eq!(contents(&directory), pages);
    assert_found_by_man(&shell, &directory);

    let removed = shell.codex_mcp(&["man", "--remove"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(contents(&directory), []);
}

#[test]
fn pages_of_earlier_versions_are_removed_and_those_of_others_stay() {
    let shell = Shell::new();
    let directory = shell.home.home().join(".local/share/man/man1");
    let installed = shell.codex_mcp(&["man", "--install"]);
    assert!(installed.status.success(), "{installed:?}");
    let page = fs::read_to_string(directory.join("codex-mcp-run.1")).unwrap();
    let source = concat!("codex-mcp ", env!("CARGO_PKG_VERSION"));
    assert!(page.contains(source), "{page}");
    let old = directory.join("codex-mcp-oldverb.1");
    let other = directory.join("codex-mcp-notes.1");
    let text = ".TH notes 1 \"\" \"codex-mcp 1.0\"\nWritten by hand: \"codex-mcp serve\"\n";
    fs::write(&other, text).unwrap();
    for action in ["--install", "--remove"] {
        fs::write(&old, page.replace(source, "codex-mcp 0.0.1")).unwrap();
        let done = shell.codex_mcp(&["man", action]);
        assert!(done.status.success(), "{done:?}");
        assert!(!old.exists(), "{action}");
    }
    assert_eq!(contents(&directory), [(other, text.as_bytes().to_vec())]);
}

/// The pages are found beside the PATH, as the help says.
fn assert_found_by_man(shell: &Shell, directory: &Path) {
    let local = shell.home.home().join(".local/bin");
    fs::create_dir_all(&local).unwrap();
    let path = std::env::var("PATH").unwrap();
    let found = shell
        .command("man")
        .args(["-w", "codex-mcp-jobs-submit"])
        .env("PATH", format!("{}:{path}", local.display()))
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let page = directory.join("codex-mcp-jobs-submit.1");
    assert_eq!(Path::new(found.trim()), page, "{found}");
}

#[test]
fn place_that_cannot_be_written_is_named() {
    let shell = Shell::new();
    let data = shell.home.tmp().join("data");
    fs::create_dir_all(&data).unwrap();
    // A file in the way stops root too.
    fs::write(data.join("man"), "").unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o555)).unwrap();
    let output = shell
        .command(PROGRAM)
        .args(["man", "--install"])
        .env("XDG_DATA_HOME", &data)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: cannot write "), "{said}");
    assert!(said.contains(data.to_str().unwrap()), "{said}");
    assert_eq!(output.stdout, b"");
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
}
