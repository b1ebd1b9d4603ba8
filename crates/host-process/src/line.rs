//! The first lines of a connection.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Writes a message as a line.
pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

/// Reads a message from a line of at most `limit` bytes; `None` at the end of the stream. Nothing
/// behind the line is read.
pub(crate) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    loop {
        // Byte by byte, as what follows belongs to others. The line comes at once.
        match stream.read_u8().await {
            Ok(b'\n') => return Ok(Some(serde_json::from_slice(&line)?)),
            Ok(byte) => line.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        if line.len() > limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the first line has more than {limit} bytes"),
            ));
        }
    }
}
