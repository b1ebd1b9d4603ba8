//! A command in Codex's sandbox, with the network allowed, that has the host, or Codex itself, work
//! for it outside of the sandbox. The controls are the same program outside of the sandbox, and a
//! socket that nothing protects.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::json;
use tokio::process::Command;

use super::fixture::RepositoryFixture;
use crate::on_each_release;

on_each_release!(
    command_in_the_sandbox_is_not_served,
    command_in_the_sandbox_does_not_reach_codex,
);

/// Connects to each socket of a host, tries to make the file that it demands, and asks for a
/// thread without a sandbox.
const ATTACK: &str = r#"
use Socket;
$| = 1;
for my $path (glob("$ENV{HOSTS}/*.sock")) {
    socket(my $host, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    connect($host, sockaddr_un($path)) or die "connect: $!";
    print "host-connected\n";
    my $challenge = <$host> // "";
    if ($challenge =~ /"file":"([^"]+)"/) {
        my $made = open(my $proof, ">", "$ENV{HOSTS}/$1");
        print $made ? "host-proved\n" : "host-not-proved\n";
    }
    my $request = do { local $/; open(my $file, "<", $ENV{REQUEST}); <$file> };
    syswrite($host, $request);
    my $answer = "";
    while (sysread($host, my $part, 65536)) {
        $answer .= $part;
        last if $answer =~ /"id":1/;
    }
    print length($answer) ? "host-answered\n" : "host-refused\n";
}
"#;

/// Connects to each socket of an app-server, also under the names that they no longer have.
const ATTACK_ON_CODEX: &str = r#"
use Socket;
$| = 1;
my %paths = map { $_ => 1 } glob("$ENV{HOSTS}/*.codex"), glob("$ENV{TMPDIR}/codex-daemon-*/*");
if (open(my $known, "<", "/proc/net/unix")) {
    # Other tests have sockets, too.
    my ($root) = $ENV{HOME} =~ m{^(.*)/home$} or die "home";
    while (<$known>) { $paths{$1} = 1 if m{ (\Q$root\E/\S*)$} && $1 !~ /\.(?:sock|guard)$/ }
}
for my $path (keys %paths) {
    socket(my $codex, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    my ($name) = $path =~ m{([^/]+)$};
    print connect($codex, sockaddr_un($path)) ? "connected to $name\n" : "refused by $name\n";
}
"#;

/// What a client sends that wants a thread.
fn request(stage: &RepositoryFixture) -> String {
    let evil = json!({
        "prompt": "evil",
        "sandbox": "danger-full-access",
        "approval-policy": "never",
    });
    let serve = json!({ "serve": {
        "args": ["serve"],
        "directory": stage.home.work(),
        "stdio": { "mode": "auto", "warnings": [] },
        "client": "c",
    } });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    } });
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "codex",
        "arguments": evil,
    } });
    format!("{serve}\n{initialize}\n{begun}\n{call}\n")
}

async fn command_in_the_sandbox_is_not_served(release: &str) {
    let attack = "HOSTS=\"$HOME/../state/codex-mcp/hosts\" REQUEST=\"$HOME/request\" \
                  perl \"$HOME/attack\"";
    let script = Script::new()
        .on(
            "evil",
            [Reply::shell("touch \"$HOME/caught\""), Reply::say("Done.")],
        )
        .otherwise([
            Reply::shell(Shell::new(attack).waiting(Duration::from_secs(30))),
            Reply::say("Done."),
        ]);
    let stage = RepositoryFixture::new(release, script).await;
    fs::write(stage.home.home().join("attack"), ATTACK).unwrap();
    fs::write(stage.home.home().join("request"), request(&stage)).unwrap();
    assert_eq!(stage.home.state_home(), stage.home.root().join("state"));
    let mut client = stage.client(&["--host"]).await;
    let arguments = json!({
        "prompt": "work",
        "sandbox": "workspace-write",
        "approval-policy": "never",
        "config": { "sandbox_workspace_write.network_access": true },
    });
    let result = client.call_tool("codex", arguments).await;
    assert!(stage.saw("host-connected", 1), "{result:#}");
    assert!(stage.saw("host-refused", 1), "{result:#}");
    assert!(!stage.saw("host-proved", 1), "{result:#}");
    assert!(
        !stage.saw("host-answered", 1) && !stage.was_attacked(),
        "{result:#}"
    );

    let mut control = Command::new("perl");
    control
        .arg(stage.home.home().join("attack"))
        .env_clear()
        .envs(stage.home.env())
        .env("HOSTS", stage.home.state_home().join("codex-mcp/hosts"))
        .env("REQUEST", stage.home.home().join("request"))
        .stdin(Stdio::null());
    let output = control.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("host-proved"), "{said}");
    assert!(said.contains("host-answered"), "{said}");
    stage.wait_until_attacked().await;
    assert!(client.finish().await.success());
    let stopped = stage.codex_mcp(&["host", "stop"]).await;
    assert!(stopped.status.success());
    assert_eq!(stage.home.processes(), []);
}

/// Codex itself would do anything for whoever connects to its socket. This attack comes after the
/// guard has removed the socket's name.
async fn command_in_the_sandbox_does_not_reach_codex(release: &str) {
    let attack = "HOSTS=\"$HOME/../state/codex-mcp/hosts\" perl \"$HOME/attack\"";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(attack).waiting(Duration::from_secs(30))),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(release, script).await;
    fs::write(stage.home.home().join("attack"), ATTACK_ON_CODEX).unwrap();
    let adopts = [("CODEX_MCP_HOST_ADOPTS", "1")];
    let mut client = stage.client_in(&["--host"], adopts).await;
    let arguments = json!({
        "prompt": "warm up",
        "sandbox": "workspace-write",
        "approval-policy": "never",
        "config": { "sandbox_workspace_write.network_access": true },
    });
    let result = client.call_tool("codex", arguments.clone()).await;
    assert!(!stage.saw("connected to", 0), "{result:#}");
    let since = stage.requests();

    // Nothing protects this socket.
    let control = stage
        .home
        .state_home()
        .join("codex-mcp/hosts/control.codex");
    let _listener = UnixListener::bind(&control).unwrap();
    let result = client.call_tool("codex", arguments).await;
    assert!(stage.saw("connected to control.codex", since), "{result:#}");
    fs::remove_file(control).unwrap();
    assert!(client.finish().await.success());
    let stopped = stage.codex_mcp(&["host", "stop"]).await;
    assert!(stopped.status.success());
    assert_eq!(stage.home.processes(), []);
}
