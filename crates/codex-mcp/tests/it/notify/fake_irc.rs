//! With a server of IRC that does what a real one doesn't.

use std::time::Duration;

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy, sink};
use tokio::net::{TcpListener, TcpStream};

use super::{LONG, SHORT, nobody, tell};

const WELCOME: &str = ":s 001 codex-mcp :hello\r\n";
const JOINED: &str = ":codex-mcp!u@h JOIN #runs\r\n";

/// Tells a server that does this with whoever comes.
async fn tell_one<F: Future<Output = io::Result<()>>>(
    serve: impl FnOnce(BufReader<TcpStream>) -> F,
    patience: std::time::Duration,
) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut teller = nobody();
    teller.patience.irc = patience;
    let url = format!("irc://127.0.0.1:{port}/runs");
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        // That we go away is no failure of the server's.
        let _ = serve(BufReader::new(stream)).await;
    };
    tokio::join!(tell(&url, &teller), serving).0
}

/// Reads on until a line begins so.
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
async fn a_ping_before_the_welcome_is_answered() {
    let told = tell_one(
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
    told.await.unwrap();
}

#[tokio::test]
async fn what_was_confirmed_is_said_even_if_nobody_closes() {
    let told = tell_one(
        |mut stream| async move {
            stream.write_all(WELCOME.as_bytes()).await?;
            stream.write_all(JOINED.as_bytes()).await?;
            stream.write_all(b":s PONG s :said\r\n").await?;
            copy(&mut stream, &mut sink()).await.map(drop)
        },
        Duration::from_secs(15),
    );
    told.await.unwrap();
}

#[tokio::test]
async fn silence_is_not_waited_for_for_ever() {
    let joined = format!("{WELCOME}{JOINED}");
    let silent = |said: String| {
        let serve = |mut stream: BufReader<TcpStream>| async move {
            stream.write_all(said.as_bytes()).await?;
            copy(&mut stream, &mut sink()).await.map(drop)
        };
        tell_one(serve, SHORT)
    };
    let all = ["", WELCOME, &joined].map(|said| silent(said.to_owned()));
    for told in futures::future::join_all(all).await {
        let error = told.unwrap_err();
        assert!(error.contains("not answered in time"), "{error}");
    }
}

#[tokio::test]
async fn an_end_before_the_line_was_said_is_an_error() {
    for said in ["", "x", WELCOME, &format!("{WELCOME}{JOINED}")] {
        let told = tell_one(
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
        let error = told.await.unwrap_err();
        assert!(error.contains("the connection was closed"), "{error}");
    }
}

#[tokio::test]
async fn a_flood_and_a_line_without_end_are_bounded() {
    let line = format!(":s NOTICE * :{}\r\n", "x".repeat(400));
    for piece in [line, "x".repeat(400)] {
        let told = tell_one(
            |mut stream| async move {
                loop {
                    stream.write_all(piece.as_bytes()).await?;
                }
            },
            LONG,
        );
        let error = told.await.unwrap_err();
        assert!(error.contains("more than is listened to"), "{error}");
    }
}

#[tokio::test]
async fn pings_without_end_to_a_deaf_server_are_bounded() {
    let told = tell_one(
        |mut stream| async move {
            let pings = "PING :x\r\n".repeat(1000);
            while stream.write_all(pings.as_bytes()).await.is_ok() {}
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map(drop)
        },
        LONG,
    );
    let error = told.await.unwrap_err();
    assert!(error.contains("more than is listened to"), "{error}");
}

#[tokio::test]
async fn a_long_line_that_means_nothing_is_passed_over() {
    let told = tell_one(
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
    told.await.unwrap();
}
