//! `irc:` notifiers with a real server.

use testkit::Signal;
use testkit::ngircd::Ngircd;
use testkit::wait::wait_for;

use super::{LINE, SHORT, notifier, tell, tell_line, tell_text, teller_without_mail};

fn channel(server: &Ngircd, channel: &str) -> String {
    format!("irc://127.0.0.1:{}/{channel}", server.port())
}

#[tokio::test]
async fn channel_members_get_exactly_the_line() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let mut elsewhere = server.guest_in("#other", "other");
    tell(&channel(&server, "runs"), &teller_without_mail())
        .await
        .unwrap();
    // `tell` returns after the line has arrived, so the test does not wait here.
    let from = ":codex-mcp!~codex-mcp@127.0.0.1";
    assert_eq!(
        guest.all_with("codex-mcp"),
        [
            format!("{from} JOIN :#runs"),
            format!("{from} PRIVMSG #runs :{LINE}"),
            format!("{from} QUIT :codex-mcp"),
        ]
    );
    assert_eq!(elsewhere.all_with("codex-mcp"), [] as [&str; 0]);
}

#[tokio::test]
async fn long_line_is_whole_and_commands_in_lines_are_escaped() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#bär", "guest");
    let url = channel(&server, "b%C3%A4r");
    let long = format!("BLOCKED :: {}", "é".repeat(194));
    tell_text(&url, &long, &teller_without_mail())
        .await
        .unwrap();
    let hostile = "DONE\r\nQUIT :x\r\nPRIVMSG guest :secret\u{1}\0 $(y) %s ::";
    tell_text(&url, hostile, &teller_without_mail())
        .await
        .unwrap();
    let said: Vec<String> = guest.all_with("PRIVMSG");
    let from = ":codex-mcp!~codex-mcp@127.0.0.1 PRIVMSG #bär :";
    assert_eq!(
        said,
        [
            format!("{from}{long}"),
            format!("{from}DONE QUIT :x PRIVMSG guest :secret\\u{{1}}\\u{{0}} $(y) %s ::"),
        ]
    );
}

#[tokio::test]
async fn concurrent_notifiers_have_a_nickname_each() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let _taken = server.guest("codex-mcp");
    let _taken_too = server.guest("Codex-2");
    let notifiers = [(); 4].map(|()| notifier(&channel(&server, "runs")));
    for told in tell_line(&notifiers, LINE, &teller_without_mail()).await {
        told.result.unwrap();
    }
    let said = guest.all_with("PRIVMSG");
    assert_eq!(said.len(), 4);
    assert!(
        said.iter().any(|line| line.starts_with(":codex-3!")),
        "{said:?}"
    );
}

#[tokio::test]
async fn taken_nicknames_are_an_error() {
    let server = Ngircd::start("");
    let _taken = server.guest("codex-mcp");
    let _all: Vec<_> = (2..=9)
        .map(|number| server.guest(&format!("codex-{number}")))
        .collect();
    let error = tell(&channel(&server, "runs"), &teller_without_mail())
        .await
        .unwrap_err();
    assert!(error.contains("takes none of our nicknames"), "{error}");
}

#[tokio::test]
async fn throttling_server_is_waited_for() {
    let server = Ngircd::start("[Limits]\nMaxPenaltyTime = -1\n");
    let mut guest = server.guest_in("#runs", "guest");
    let _taken = server.guest("codex-mcp");
    tell(&channel(&server, "runs"), &teller_without_mail())
        .await
        .unwrap();
    let said = guest.wait_for("PRIVMSG");
    assert!(said.ends_with(&format!("PRIVMSG #runs :{LINE}")), "{said}");
}

#[tokio::test]
async fn channel_that_refuses_us_is_reported_with_its_reason() {
    let server = Ngircd::start(
        "[Channel]\nName = #key\nModes = +nk secret\n\
         [Channel]\nName = #invited\nModes = +i\n\
         [Channel]\nName = #banned\nModes = +b codex-mcp!*@*\n\
         [Channel]\nName = #full\nModes = +l 1\n\
         [Channel]\nName = #quiet\nModes = +m\n",
    );
    let mut guest = server.guest_in("#full", "guest");
    for quiet in ["#quiet", "#key secret", "#banned"] {
        guest.write(&format!("JOIN {quiet}"));
        guest.wait_for(" 366 ");
    }
    for (name, words) in [
        ("key", "wants a key (+k)"),
        ("invited", "only who is invited may join (+i)"),
        ("banned", "we are banned there (+b)"),
        ("full", "the channel is full"),
        ("quiet", "who joins may not speak there"),
    ] {
        let error = tell(&channel(&server, name), &teller_without_mail())
            .await
            .unwrap_err();
        let place = format!("nothing can be said in #{name}: ");
        assert!(error.contains(&place) && error.contains(words), "{error}");
    }
    assert_eq!(guest.all_with("PRIVMSG"), [] as [&str; 0]);
}

#[tokio::test]
async fn channel_that_cannot_be_created_is_reported() {
    let server = Ngircd::start("[Options]\nAllowedChannelTypes =\n");
    let error = tell(&channel(&server, "runs"), &teller_without_mail())
        .await
        .unwrap_err();
    assert!(error.contains("there is no such channel"), "{error}");
}

#[tokio::test]
async fn server_with_a_password_is_reported() {
    let server = Ngircd::start("[Global]\nPassword = secret\n");
    let error = tell(&channel(&server, "runs"), &teller_without_mail())
        .await
        .unwrap_err();
    assert!(error.contains("password"), "{error}");
}

#[tokio::test]
async fn hanging_server_is_waited_for_up_to_the_timeout() {
    let server = Ngircd::start("");
    drop(server.guest("guest"));
    server.signal(Signal::SIGSTOP);
    let mut teller = teller_without_mail();
    teller.timeouts.irc = SHORT;
    let error = tell(&channel(&server, "runs"), &teller).await.unwrap_err();
    let words = "not answered in time, while we registered";
    assert!(error.contains(words), "{error}");
}

#[tokio::test]
async fn server_killed_during_registration_is_reported() {
    let server = Ngircd::start("");
    drop(server.guest("guest"));
    server.signal(Signal::SIGSTOP);
    let (url, teller) = (channel(&server, "runs"), teller_without_mail());
    let kill = async {
        wait_for("a connection", async || {
            (connections_to(server.port()) > 0).then_some(())
        })
        .await;
        server.signal(Signal::SIGKILL);
    };
    let (told, ()) = tokio::join!(tell(&url, &teller), kill);
    let error = told.unwrap_err();
    assert!(error.contains("closed while we registered"), "{error}");

    let error = tell(&url, &teller).await.unwrap_err();
    assert!(
        error.contains("cannot be reached: Connection refused"),
        "{error}"
    );
}

/// Counts the clients that are connected to a local port, from `/proc/net/tcp` (see proc(5)).
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let connected = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    table.lines().skip(1).filter(connected).count()
}

#[tokio::test]
async fn host_name_is_resolved_and_an_unknown_one_is_reported() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let url = format!("irc://localhost:{}/runs", server.port());
    tell(&url, &teller_without_mail()).await.unwrap();
    assert_eq!(guest.all_with("PRIVMSG").len(), 1);
    let error = tell("irc://nowhere.invalid/runs", &teller_without_mail()).await;
    let error = error.unwrap_err();
    assert!(
        error.starts_with("nowhere.invalid, port 6667, cannot be reached"),
        "{error}"
    );
}
