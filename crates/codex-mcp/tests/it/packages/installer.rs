//! The shell installer, with packages of a program that only prints texts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::write_program;

use super::{Packages, VERSION, file_server, success, triple, version_of};
use crate::notify::fake_web::{Answer, WebServer};

/// What the installer may call.
const TOOLS: &[&str] = &[
    "awk",
    "chmod",
    "cp",
    "gzip",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sha256sum",
    "sh",
    "tar",
    "uname",
];

/// A program with as much of our command line as packages need.
const PROGRAM: &str = "\
#!/bin/sh
case $1 in
  --version) echo codex-mcp VERSION ;;
  man) echo .TH ;;
  completions) echo '#' ;;
esac
";

/// A user with an empty home, who has the installer of a release and a server with its packages.
struct User {
    directory: TempDir,
    packages: Packages,
    address: String,
}

impl User {
    fn new() -> Self {
        let directory = Packages::directory();
        let root = directory.path();
        for name in ["bin", "home", "tmp"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let program = root.join("program");
        write_program(&program, &PROGRAM.replace("VERSION", VERSION));
        let packages = Packages::of(&program);
        let address = file_server::serve(packages.directory.path());
        let user = Self {
            directory,
            packages,
            address,
        };
        TOOLS.iter().for_each(|tool| user.give(tool));
        user
    }

    /// Puts a tool of this system onto the user's PATH.
    fn give(&self, tool: &str) {
        let path = std::env::var_os("PATH").unwrap();
        let mut found = std::env::split_paths(&path).map(|directory| directory.join(tool));
        let found = found.find(|path| path.is_file());
        let found = found.unwrap_or_else(|| panic!("no {tool}: run `cargo xtask provision`"));
        symlink(found, self.bin().join(tool)).unwrap();
    }

    /// Replaces `uname` by one that reports another machine.
    fn pretend(&self, system: &str, machine: &str) {
        let uname = self.bin().join("uname");
        fs::remove_file(&uname).unwrap();
        let text =
            format!("#!/bin/sh\ncase $1 in -s) echo {system} ;; -m) echo {machine} ;; esac\n");
        write_program(&uname, &text);
    }

    fn bin(&self) -> PathBuf {
        self.directory.path().join("bin")
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn tmp(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    /// Where the installer puts the program by default.
    fn installed(&self) -> PathBuf {
        self.home().join(".local/bin/codex-mcp")
    }

    /// A program of the user's, in the directory that has all of this user's.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin().join(program));
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.home())
            .env("TMPDIR", self.tmp());
        command
    }

    fn installer(&self, args: &[&str]) -> Command {
        let mut command = self.command("sh");
        command.arg(self.packages.path("install.sh")).args(args);
        command
    }

    fn install(&self, args: &[&str]) -> Output {
        self.installer(args).output().unwrap()
    }

    /// Checks that the installer refuses for the reason, and has left nothing.
    fn check_refusal(&self, args: &[&str], reason: &str) {
        let output = self.install(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr.contains(reason), "{stderr}");
        assert!(
            is_empty(&self.home()) && is_empty(&self.tmp()),
            "{output:?}"
        );
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn installer_installs_what_it_has_verified() {
    for downloader in ["curl", "wget"] {
        let user = User::new();
        user.give(downloader);
        let said = success(&user.install(&["--from", &user.address]));
        assert!(
            version_of(&user.installed()).contains(VERSION),
            "{downloader}"
        );
        let advice = format!(
            "export PATH=\"{}:$PATH\"",
            user.home().join(".local/bin").display()
        );
        assert!(said.contains(&advice), "{said}");
        assert!(is_empty(&user.tmp()), "{downloader}");

        // Again, to a directory that is on PATH.
        let bin = format!("{}/", user.bin().display());
        let said = success(&user.install(&["--to", &bin, "--from", &user.address]));
        assert!(user.bin().join("codex-mcp").is_file());
        assert!(!said.contains("export PATH"), "{said}");
    }
}

#[test]
fn advised_path_is_absolute() {
    let user = User::new();
    user.give("curl");
    let said = success(&user.install(&["--to", "new/", "--from", &user.address]));
    let new = user.directory.path().join("new");
    assert!(new.join("codex-mcp").is_file());
    let advice = format!("export PATH=\"{}:$PATH\"", new.display());
    assert!(said.contains(&advice), "{said}");
}

/// A redirect to an address without TLS. Wget 1 follows it, as the control shows.
#[tokio::test]
async fn redirect_from_tls_is_not_followed_without_it() {
    let user = User::new();
    user.give("wget");
    let version = user.command("wget").arg("--version").output().unwrap();
    assert!(
        version.stdout.starts_with(b"GNU Wget "),
        "the installer uses no wget but GNU Wget 1: {version:?}"
    );
    let settings = user.directory.path().join("wgetrc");
    fs::write(&settings, "check_certificate = off\n").unwrap();
    let plain = WebServer::start(Answer::ok()).await;
    let redirect = format!("302 Found\r\nLocation: {}", plain.url("http", "x"));
    let tls = WebServer::with_tls(Answer::with(&redirect, "")).await;
    let from = tls.url("https", "release");
    let run = async |mut command: Command| {
        command.env("WGETRC", &settings);
        let output = tokio::process::Command::from(command).output().await;
        output.unwrap()
    };

    let mut control = user.command("wget");
    control.args(["-q", "-O", "downloaded", &from]);
    success(&run(control).await);
    assert_eq!((tls.requests().len(), plain.requests().len()), (1, 1));
    let output = run(user.installer(&["--from", &from])).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot download"), "{output:?}");
    assert_eq!((tls.requests().len(), plain.requests().len()), (2, 1));
}

#[test]
fn installer_refuses_changed_archive() {
    let user = User::new();
    user.give("curl");
    let archive = user
        .packages
        .path(&format!("{}.tar.gz", Packages::archive_stem()));
    let original = fs::read(&archive).unwrap();
    let mut changed = original.clone();
    *changed.last_mut().unwrap() ^= 1;

    fs::write(&archive, changed).unwrap();
    user.check_refusal(&["--from", &user.address], "the checksum of");

    // The control: the same with the archive as it was.
    fs::write(&archive, original).unwrap();
    success(&user.install(&["--from", &user.address]));
    assert!(user.installed().is_file());
}

#[test]
fn installer_refuses_archive_without_checksum() {
    let user = User::new();
    user.give("curl");
    let sums = user.packages.path("SHA256SUMS");
    let without = fs::read_to_string(&sums)
        .unwrap()
        .replace(&triple(), "other");
    fs::write(&sums, without).unwrap();
    user.check_refusal(&["--from", &user.address], "SHA256SUMS does not list");
}

/// In a directory that is mounted with noexec, nothing that is unpacked can be run.
#[test]
fn directory_without_programs_is_named() {
    let user = User::new();
    user.give("curl");
    let tar = user.bin().join("tar");
    fs::rename(&tar, user.bin().join("real-tar")).unwrap();
    let text = "#!/bin/sh\nreal-tar \"$@\" && chmod 644 \"$TMPDIR\"/*/*/codex-mcp\n";
    write_program(&tar, text);
    user.check_refusal(&["--from", &user.address], "set TMPDIR");
}

#[test]
fn installer_refuses_where_it_cannot_work() {
    let user = User::new();
    let from = ["--from", user.address.as_str()];
    user.check_refusal(&from, "curl or wget is needed");
    let wget = user.bin().join("wget");
    write_program(&wget, "#!/bin/sh\necho BusyBox >&2; exit 1\n");
    let with_tls = ["--from", "https://forge.example/x"];
    user.check_refusal(&with_tls, "curl or GNU Wget 1 is needed");
    fs::remove_file(wget).unwrap();
    user.give("curl");
    user.check_refusal(
        &["--from", "http://forge.example/x"],
        "must begin with https://",
    );
    user.check_refusal(&["--form", &user.address], "unknown argument: --form");
    for (system, machine, reason) in [
        ("MINGW64_NT-10.0-26100", "x86_64", "inside WSL"),
        ("FreeBSD", "amd64", "no build for FreeBSD"),
        ("Linux", "riscv64", "no build for the processor riscv64"),
        // There is none in this release.
        ("Darwin", "arm64", "cannot download"),
    ] {
        user.pretend(system, machine);
        user.check_refusal(&from, reason);
    }
}
