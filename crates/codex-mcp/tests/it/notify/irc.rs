//! With a real server of IRC.

use std::time::Duration;

use testkit::Signal;
use testkit::ngircd::Ngircd;

use super::{LINE, SHORT, nobody, notifier, tell, tell_line, tell_this};

fn channel(server: &Ngircd, channel: &str) -> String {
    format!("irc://127.0.0.1:{}/{channel}", server.port())
}

#[tokio::test]
async fn others_in_the_channel_get_exactly_the_line() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let mut elsewhere = server.guest_in("#other", "other");
    tell(&channel(&server, "runs"), &nobody()).await.unwrap();
    // It has gone out when we are told so: nothing is waited for here.
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
async fn the_longest_line_is_whole_and_nothing_in_it_is_a_command() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#bär", "guest");
    let url = channel(&server, "b%C3%A4r");
    let long = format!("BLOCKED :: {}", "é".repeat(194));
    tell_this(&url, &long, &nobody()).await.unwrap();
    let hostile = "DONE\r\nQUIT :x\r\nPRIVMSG guest :secret\u{1}\0 $(y) %s ::";
    tell_this(&url, hostile, &nobody()).await.unwrap();
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
async fn several_at_once_have_a_nickname_each() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let _taken = server.guest("codex-mcp");
    let _taken_too = server.guest("Codex-2");
    let notifiers = [(); 4].map(|()| notifier(&channel(&server, "runs")));
    for told in tell_line(&notifiers, LINE, &nobody()).await {
        told.came.unwrap();
    }
    let said = guest.all_with("PRIVMSG");
    assert_eq!(said.len(), 4);
    assert!(
        said.iter().any(|line| line.starts_with(":codex-3!")),
        "{said:?}"
    );
}

#[tokio::test]
async fn it_is_an_error_when_all_nicknames_are_taken() {
    let server = Ngircd::start("");
    let _taken = server.guest("codex-mcp");
    let _all: Vec<_> = (2..=9)
        .map(|number| server.guest(&format!("codex-{number}")))
        .collect();
    let error = tell(&channel(&server, "runs"), &nobody())
        .await
        .unwrap_err();
    assert!(error.contains("takes none of our nicknames"), "{error}");
}

#[tokio::test]
async fn a_server_as_it_is_installed_is_waited_for() {
    let server = Ngircd::start("[Limits]\nMaxPenaltyTime = -1\n");
    let mut guest = server.guest_in("#runs", "guest");
    let _taken = server.guest("codex-mcp");
    tell(&channel(&server, "runs"), &nobody()).await.unwrap();
    let said = guest.wait_for("PRIVMSG");
    assert!(said.ends_with(&format!("PRIVMSG #runs :{LINE}")), "{said}");
}

#[tokio::test]
async fn a_channel_that_is_closed_to_us_is_told_in_words() {
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
        let error = tell(&channel(&server, name), &nobody()).await.unwrap_err();
        let place = format!("nothing can be said in #{name}: ");
        assert!(error.contains(&place) && error.contains(words), "{error}");
    }
    assert_eq!(guest.all_with("PRIVMSG"), [] as [&str; 0]);
}

#[tokio::test]
async fn a_channel_that_cannot_be_made_is_told_in_words() {
    let server = Ngircd::start("[Options]\nAllowedChannelTypes =\n");
    let error = tell(&channel(&server, "runs"), &nobody())
        .await
        .unwrap_err();
    assert!(error.contains("there is no such channel"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_password_lets_nobody_in() {
    let server = Ngircd::start("[Global]\nPassword = secret\n");
    let error = tell(&channel(&server, "runs"), &nobody())
        .await
        .unwrap_err();
    assert!(error.contains("password"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_is_not_waited_for_for_ever() {
    let server = Ngircd::start("");
    drop(server.guest("guest"));
    server.signal(Signal::SIGSTOP);
    let mut teller = nobody();
    teller.patience.irc = SHORT;
    let error = tell(&channel(&server, "runs"), &teller).await.unwrap_err();
    let words = "not answered in time, while we registered";
    assert!(error.contains(words), "{error}");
}

#[tokio::test]
async fn a_server_that_is_killed_in_the_middle_is_told() {
    let server = Ngircd::start("");
    drop(server.guest("guest"));
    server.signal(Signal::SIGSTOP);
    let (url, teller) = (channel(&server, "runs"), nobody());
    let kill = async {
        while connections_to(server.port()) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.signal(Signal::SIGKILL);
    };
    let (told, ()) = tokio::join!(tell(&url, &teller), kill);
    let error = told.unwrap_err();
    assert!(error.contains("closed while we registered"), "{error}");

    let error = tell(&url, &teller).await.unwrap_err();
    assert!(
        error.contains("can't be reached: Connection refused"),
        "{error}"
    );
}

/// How many clients are connected to a port of this machine: proc(5), `/proc/net/tcp`.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let connected = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    table.lines().skip(1).filter(connected).count()
}

#[tokio::test]
async fn a_host_is_found_by_its_name_and_one_that_is_none_is_told() {
    let server = Ngircd::start("");
    let mut guest = server.guest_in("#runs", "guest");
    let url = format!("irc://localhost:{}/runs", server.port());
    tell(&url, &nobody()).await.unwrap();
    assert_eq!(guest.all_with("PRIVMSG").len(), 1);
    let error = tell("irc://nowhere.invalid/runs", &nobody()).await;
    let error = error.unwrap_err();
    assert!(
        error.starts_with("nowhere.invalid, port 6667, can't be reached"),
        "{error}"
    );
}
