//! A command in Codex's sandbox, with the network allowed, that has the host, or Codex itself, work
//! for it outside of the sandbox. The controls are the same program outside of the sandbox, and a
//! Codex that nothing protects.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use scripted_model::{Reply, Script, Shell};
use serde_json::json;
use tokio::process::Command;

use super::fixture::{DEADLINE, RepositoryFixture};
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
    # A refusal without an ID is said to a client whose confinement cannot be compared.
    print $answer =~ /"id":/ ? "host-answered\n" : "host-refused\n";
}
"#;

/// Connects to each port that a log names, without a token and with a wrong one.
const ATTACK_ON_CODEX: &str = r#"
use Socket;
$| = 1;
my %ports;
for my $log (glob("$ENV{HOSTS}/*.log")) {
    open(my $lines, "<", $log) or die "log: $!";
    while (<$lines>) { $ports{$1} = 1 if m{ws://127\.0\.0\.1:(\d+)} }
}
for my $port (keys %ports) {
    for my $token ("", "Authorization: Bearer wrong\r\n") {
        socket(my $codex, AF_INET, SOCK_STREAM, 0) or die "socket: $!";
        connect($codex, sockaddr_in($port, inet_aton("127.0.0.1"))) or die "connect: $!";
        syswrite($codex, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            . "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            . "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n$token\r\n");
        my $answer = <$codex> // "";
        print $answer =~ m{^HTTP/1.1 (\d+)} ? "codex-said-$1\n" : "codex-said-nothing\n";
    }
}
"#;

/// The status by which a server begins to speak WebSocket.
const SWITCHING: &str = "codex-said-101";

/// The status for a client without the right token.
const UNAUTHORIZED: &str = "codex-said-401";

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

/// Codex itself does anything for a client that it accepts. Releases without a port have nothing
/// to attack, and on other systems than Linux none has one.
async fn command_in_the_sandbox_does_not_reach_codex(release: &str) {
    let attack = "HOSTS=\"$HOME/../state/codex-mcp/hosts\" perl \"$HOME/attack\"";
    let script = Script::new().otherwise([
        Reply::shell(Shell::new(attack).waiting(Duration::from_secs(30))),
        Reply::say("Done."),
    ]);
    let stage = RepositoryFixture::new(release, script).await;
    fs::write(stage.home.home().join("attack"), ATTACK_ON_CODEX).unwrap();
    // Its log tells the port, and must not tell the token.
    let mut client = stage
        .client_in(&["--host"], [("CODEX_MCP_LOG", "trace")])
        .await;
    let arguments = json!({
        "prompt": "work",
        "sandbox": "workspace-write",
        "approval-policy": "never",
        "config": { "sandbox_workspace_write.network_access": true },
    });
    let result = client.call_tool("codex", arguments.clone()).await;
    assert!(!stage.saw(SWITCHING, 0), "{result:#}");
    let has_port = release != "0.104.0" && supervise::adoptable::is_supported();
    assert_eq!(stage.saw(UNAUTHORIZED, 0), has_port, "{result:#}");
    let since = stage.requests();
    let hosts = stage.home.state_home().join("codex-mcp/hosts");
    for entry in fs::read_dir(&hosts).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "log") {
            let log = fs::read_to_string(path).unwrap();
            assert!(log.contains(" TRACE ") && !log.contains("Bearer "));
        }
    }

    // The control: a Codex that demands no token.
    let log = File::create(hosts.join("control.log")).unwrap();
    let mut control = Command::new(testkit::codex::native_binary(testkit::codex::newest()))
        .args(["app-server", "--listen", "ws://127.0.0.1:0"])
        .env_clear()
        .envs(stage.home.env())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let listens = || {
        fs::read_to_string(hosts.join("control.log"))
            .unwrap()
            .contains("ws://")
    };
    let listening = async {
        while !listens() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let listening = tokio::time::timeout(DEADLINE, listening).await;
    assert!(listening.is_ok(), "the control does not listen");
    let result = client.call_tool("codex", arguments).await;
    assert!(stage.saw(SWITCHING, since), "{result:#}");
    control.kill().await.unwrap();
    assert!(client.finish().await.success());
    let stopped = stage.codex_mcp(&["host", "stop"]).await;
    assert!(stopped.status.success());
    assert_eq!(stage.home.processes(), []);
}
