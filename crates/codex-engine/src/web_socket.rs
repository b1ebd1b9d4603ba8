//! The messages of an app-server that listens on a port: each is a text message of WebSocket
//! (`codex app-server --listen ws://127.0.0.1:0`, 0.130.0 to 0.169.0).

use std::io;

use futures::SinkExt;
use futures::stream::SplitSink;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::Uri;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Utf8Bytes};

use super::access_token::AccessToken;

pub(super) use tokio_tungstenite::tungstenite::Message;

/// A connection with an app-server.
pub(super) type WebSocket = WebSocketStream<TcpStream>;

/// The address in the handshake. Codex considers only its path.
const ADDRESS: &str = "ws://127.0.0.1/";

/// The longest frame that is sent, in bytes. Codex 0.153.4 and 0.169.0 close the connection when a
/// frame exceeds 16 MiB.
const LONGEST_FRAME: usize = 8 << 20;

/// The longest message that is sent, in bytes. Codex closes the connection when a message exceeds
/// 64 MiB, the default limit of the library that it uses (tungstenite).
pub(super) const LONGEST_MESSAGE: usize = 60 << 20;

/// The limit of a message, as a multiple of the line limit. A message between the two limits is
/// skipped, and the waiting caller gets an error; a longer one ends the connection.
const MARGIN: usize = 4;

/// Begins to speak WebSocket on a connection.
///
/// # Errors
///
/// If the peer does not, or refuses the token.
pub(super) async fn open(
    stream: TcpStream,
    token: &AccessToken,
    line_limit: usize,
) -> io::Result<WebSocket> {
    // Nagle's algorithm would delay messages that somebody waits for.
    stream.set_nodelay(true)?;
    let limit = Some(line_limit.saturating_mul(MARGIN));
    let config = WebSocketConfig::default()
        .max_message_size(limit)
        .max_frame_size(limit);
    let request = ClientRequestBuilder::new(Uri::from_static(ADDRESS))
        .with_header("Authorization", token.authorization());
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    let (web_socket, _) = opened.map_err(io::Error::other)?;
    Ok(web_socket)
}

/// The JSON in a message; `None` for a control message of WebSocket.
pub(super) fn text(message: &Message) -> Option<&[u8]> {
    match message {
        Message::Text(text) => Some(text.as_bytes()),
        Message::Binary(bytes) => Some(bytes),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => None,
    }
}

/// Sends a line as one message, without its line end. A long line is split into several frames.
///
/// # Errors
///
/// Those of the connection, and [`Error::Utf8`] if the line is not valid UTF-8.
pub(super) async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    mut line: Vec<u8>,
) -> Result<(), Error> {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() <= LONGEST_FRAME {
        let text = Utf8Bytes::try_from(line).map_err(|error| Error::Utf8(error.to_string()))?;
        return sink.send(Message::Text(text)).await;
    }
    let count = line.len().div_ceil(LONGEST_FRAME);
    for (number, part) in line.chunks(LONGEST_FRAME).enumerate() {
        let kind = match number {
            0 => OpCode::Data(Data::Text),
            _ => OpCode::Data(Data::Continue),
        };
        let frame = Frame::message(part.to_vec(), kind, number + 1 == count);
        sink.send(Message::Frame(frame)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::StreamExt;
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_async;

    use super::*;

    /// The server has the limits of Codex: it takes no frame of more than 16 MiB.
    #[tokio::test]
    async fn long_line_is_one_message() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut web_socket = accept_async(stream).await.unwrap();
            web_socket.next().await.unwrap().unwrap()
        };
        let mut line = "ß".repeat(10 << 20).into_bytes();
        line.push(b'\n');
        let client = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let token = AccessToken::random().unwrap();
            let (mut sink, _rest) = open(stream, &token, 1 << 20).await.unwrap().split();
            send(&mut sink, line.clone()).await.unwrap();
        };
        let (message, ()) = tokio::join!(server, client);
        assert_eq!(text(&message), line.strip_suffix(b"\n"));
    }
}
