//! `irc:` notifiers with a fake server that behaves as no real one does.

use std::time::Duration;

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy, sink};
use tokio::net::{TcpListener, TcpStream};

use super::{LONG, SHORT, tell, teller_without_mail};

const WELCOME: &str = ":s 001 codex-mcp :hello\r\n";
const JOINED: &str = ":codex-mcp!u@h JOIN #runs\r\n";

/// Notifies a server that handles its one connection with `serve`.
async fn tell_server<F: Future<Output = io::Result<()>>>(
    serve: impl FnOnce(BufReader<TcpStream>) -> F,
    timeout: std::time::Duration,
) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut teller = teller_without_mail();
    teller.timeouts.irc = timeout;
    let url = format!("irc://127.0.0.1:{port}/runs");
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        // The client closes the connection first, which is no error.
        let _ = serve(BufReader::new(stream)).await;
    };
    tokio::join!(tell(&url, &teller), serving).0
}

/// Reads until a line begins with `begin`.
async fn until(stream: &mut BufReader<TcpStream>, begin: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).await.unwrap(), 0, "no {begin}");
        if line.starts_with(begin) {
            return line;
        }
    }
}

#[tokio::test]
async fn ping_before_the_welcome_is_answered() {
    let sent = tell_server(
        |mut stream| async move {
            stream.write_all(b"PING :a1b2 c3\r\n").await?;
            assert_eq!(until(&mut stream, "PONG").await, "PONG :a1b2 c3\r\n");
            stream.write_all(WELCOME.as_bytes()).await?;
            until(&mut stream, "JOIN #runs").await;
            stream.write_all(JOINED.as_bytes()).await?;
            until(&mut stream, "PING").await;
            stream.write_all(b"PING x\r\n:s PONG s said\n").await?;
            assert_eq!(until(&mut stream, "PONG").await, "PONG :x\r\n");
            until(&mut stream, "QUIT").await;
            Ok(())
        },
        LONG,
    );
    sent.await.unwrap();
}

#[tokio::test]
async fn confirmed_line_counts_as_sent_without_a_close() {
    let sent = tell_server(
        |mut stream| async move {
            stream.write_all(WELCOME.as_bytes()).await?;
            stream.write_all(JOINED.as_bytes()).await?;
            stream.write_all(b":s PONG s :said\r\n").await?;
            copy(&mut stream, &mut sink()).await.map(drop)
        },
        Duration::from_secs(15),
    );
    sent.await.unwrap();
}

#[tokio::test]
async fn silent_server_is_waited_for_up_to_the_timeout() {
    let joined = format!("{WELCOME}{JOINED}");
    let silent = |said: String| {
        let serve = |mut stream: BufReader<TcpStream>| async move {
            stream.write_all(said.as_bytes()).await?;
            copy(&mut stream, &mut sink()).await.map(drop)
        };
        tell_server(serve, SHORT)
    };
    let all = ["", WELCOME, &joined].map(|said| silent(said.to_owned()));
    for told in futures::future::join_all(all).await {
        let error = told.unwrap_err();
        assert!(error.contains("not answered in time"), "{error}");
    }
}

#[tokio::test]
async fn connection_closed_before_the_line_was_sent_is_an_error() {
    for said in ["", "x", WELCOME, &format!("{WELCOME}{JOINED}")] {
        let sent = tell_server(
            |mut stream| async move {
                stream.write_all(said.as_bytes()).await?;
                let wanted = match said.contains("JOIN") {
                    true => "PING",
                    false => "USER",
                };
                until(&mut stream, wanted).await;
                Ok(())
            },
            LONG,
        );
        let error = sent.await.unwrap_err();
        assert!(error.contains("the connection was closed"), "{error}");
    }
}

#[tokio::test]
async fn flood_and_endless_line_are_bounded() {
    let line = format!(":s NOTICE * :{}\r\n", "x".repeat(400));
    for piece in [line, "x".repeat(400)] {
        let sent = tell_server(
            |mut stream| async move {
                loop {
                    stream.write_all(piece.as_bytes()).await?;
                }
            },
            LONG,
        );
        let error = sent.await.unwrap_err();
        assert!(error.contains("sent more than the limit"), "{error}");
    }
}

#[tokio::test]
async fn endless_pings_of_a_server_that_does_not_read_are_bounded() {
    let sent = tell_server(
        |mut stream| async move {
            let pings = "PING :x\r\n".repeat(1000);
            while stream.write_all(pings.as_bytes()).await.is_ok() {}
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map(drop)
        },
        LONG,
    );
    let error = sent.await.unwrap_err();
    assert!(error.contains("sent more than the limit"), "{error}");
}

#[tokio::test]
async fn long_notice_is_skipped() {
    let sent = tell_server(
        |mut stream| async move {
            let long = format!(":s NOTICE * :{}\r\n", "x".repeat(100_000));
            stream.write_all(long.as_bytes()).await?;
            stream.write_all(WELCOME.as_bytes()).await?;
            until(&mut stream, "JOIN").await;
            stream.write_all(JOINED.as_bytes()).await?;
            until(&mut stream, "PING").await;
            stream.write_all(b":s PONG s :said\r\n").await?;
            until(&mut stream, "QUIT").await;
            Ok(())
        },
        LONG,
    );
    sent.await.unwrap();
}
