use super::*;

fn sender() -> ChannelSender {
    ChannelSender::new("#runs".parse().unwrap(), "DONE #7 :: abc")
}

/// One that has heard these lines.
fn after(lines: &[&str]) -> ChannelSender {
    let mut sender = sender();
    for line in lines {
        sender.receive(line.as_bytes()).unwrap();
    }
    sender
}

const WELCOME: &str = ":s 001 codex-mcp :Welcome";
const JOINED: &str = ":codex-mcp!~codex-mcp@h JOIN :#runs";
const PONG: &str = ":s PONG s :said";

fn states() -> [(&'static str, ChannelSender); 5] {
    let nearly_out = [":s 433 * codex :in use"; 8];
    [
        ("registering", sender()),
        ("registering by the last nickname", after(&nearly_out)),
        ("joining", after(&[WELCOME])),
        ("speaking", after(&[WELCOME, JOINED])),
        ("leaving", after(&[WELCOME, JOINED, PONG])),
    ]
}

#[test]
fn every_line_is_handled_in_every_state() {
    let mut table = String::new();
    for (name, state) in states() {
        table += &format!("# {name}\n");
        for line in [
            WELCOME,
            JOINED,
            PONG,
            "PING :cookie",
            ":s PING a b",
            "PING :a\rQUIT\u{1}",
            "ERROR :Closing Link: \u{2}bad\u{2} password",
            ":s 020 * :Please wait",
            ":s 422 codex-mcp :MOTD file is missing",
            ":s 432 * codex-mcp :Erroneous nickname",
            ":s 433 * codex-mcp :Nickname already in use",
            ":s 437 * codex-mcp :Nick is temporarily unavailable",
            ":s 464 * :Password incorrect",
            ":s 465 * :You are banned",
            ":s 403 codex-mcp #runs :No such channel",
            ":s 404 codex-mcp #RUNS :Cannot send to channel",
            ":s 405 codex-mcp #runs :You have joined too many channels",
            ":s 470 codex-mcp #runs ##runs :Forwarding to another channel",
            ":s 471 codex-mcp #runs :Cannot join channel (+l)",
            ":s 473 codex-mcp #runs :Cannot join channel (+i)",
            ":s 474 codex-mcp #runs :Cannot join channel (+b)",
            ":s 475 codex-mcp #runs :Cannot join channel (+k)",
            ":s 477 codex-mcp #runs :Register first",
            ":s 489 codex-mcp #runs :TLS only",
            ":s 520 codex-mcp #runs :Operators only",
            ":s 475 codex-mcp #other :Cannot join channel (+k)",
            ":other!u@h JOIN #runs",
            ":codex-mcp!u@h JOIN #other",
            ":other!u@h PRIVMSG #runs :codex-mcp: PING :x",
            ":s NOTICE * :*** Looking up your hostname",
            "garbage \u{fffd}",
            "",
        ] {
            let mut state = state.clone();
            let answer = match state.receive(line.as_bytes()) {
                Ok(lines) => format!("{lines:?}"),
                Err(error) => format!("fails: {error}"),
            };
            table += &format!("{line:?}: {answer}\n");
        }
        for read_end in [ReadEnd::Closed, ReadEnd::TimedOut, ReadEnd::Flood] {
            let end = match state.end(read_end) {
                Ok(()) => "said".to_owned(),
                Err(error) => format!("fails: {error}"),
            };
            table += &format!("{read_end:?}: {end}\n");
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn speaker_registers_and_sends_its_line_once() {
    let mut sender = sender();
    assert_eq!(
        sender.registration(),
        "NICK codex-mcp\r\nUSER codex-mcp 0 * :codex-mcp\r\n"
    );
    let mut receive = |line: &str| sender.receive(line.as_bytes()).unwrap();
    assert_eq!(receive("PING :1"), "PONG :1\r\n");
    assert_eq!(receive(WELCOME), "JOIN #runs\r\n");
    assert_eq!(
        receive(JOINED),
        "PRIVMSG #runs :DONE #7 :: abc\r\nPING :said\r\n"
    );
    assert_eq!(receive(JOINED), "");
    assert_eq!(receive(PONG), "QUIT\r\n");
    assert_eq!(receive("ERROR :Closing connection"), "");
    assert_eq!(sender.end(ReadEnd::Closed), Ok(()));
}

#[test]
fn speaker_uses_the_nickname_given_by_the_server() {
    let mut sender = after(&[":s 433 * codex-mcp :in use", ":s 001 Codex-2 :Welcome"]);
    assert_eq!(sender.receive(JOINED.as_bytes()).unwrap(), "");
    let joined = ":codex-2!u@h JOIN #RUNS * :codex-mcp";
    assert!(
        sender
            .receive(joined.as_bytes())
            .unwrap()
            .starts_with("PRIVMSG #runs :DONE")
    );
}

#[test]
fn control_characters_do_not_start_another_line() {
    let line = "DONE\r\nQUIT\n\u{1}ACTION\u{3}04 x\u{202e}\0 é :: $(y)";
    let mut sender = ChannelSender::new("#runs".parse().unwrap(), line);
    sender.receive(WELCOME.as_bytes()).unwrap();
    assert_eq!(
        sender.receive(JOINED.as_bytes()).unwrap(),
        "PRIVMSG #runs :DONE QUIT \\u{1}ACTION\\u{3}04 x\\u{202e}\\u{0} é :: $(y)\r\nPING :said\r\n"
    );
}

#[test]
fn relayed_line_fits_and_shows_where_it_was_cut() {
    for (channel, length) in [(5, 400), (50, 400), (50, 5000), (50, 1)] {
        for host in ["h".to_owned(), "h".repeat(63), "h".repeat(600)] {
            let channel = format!("#{}", "c".repeat(channel - 1));
            let text = "é".repeat(length / 2 + 1);
            let mut sender = ChannelSender::new(channel.parse().unwrap(), &text);
            let origin = format!("codex-mcp!~codex-mcp@{host}");
            sender.receive(WELCOME.as_bytes()).unwrap();
            let joined = format!(":{origin} JOIN {channel}");
            let written = sender.receive(joined.as_bytes()).unwrap();
            let (message, _) = written.split_once("\r\n").unwrap();
            let relayed = format!(":{origin} {message}\r\n");
            let (_, said) = message.split_once(" :").unwrap();
            assert!(host.len() > 500 || relayed.len() <= LINE_LIMIT, "{relayed}");
            assert!(said == text || said.ends_with(" …"), "{said}");
        }
    }
}

#[test]
fn longest_notice_is_sent_whole_to_a_usual_channel() {
    let text = "x".repeat(crate::logic::outcome::NOTICE_LIMIT);
    let mut sender = ChannelSender::new("#a-usual-channel".parse().unwrap(), &text);
    sender.receive(WELCOME.as_bytes()).unwrap();
    let joined = ":codex-mcp!~codex-mcp@runner-17.build.example.org JOIN #a-usual-channel";
    let written = sender.receive(joined.as_bytes()).unwrap();
    assert!(written.contains(&format!(":{text}\r\n")), "{written}");
}
