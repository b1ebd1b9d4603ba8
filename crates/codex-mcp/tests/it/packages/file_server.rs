//! An HTTP server on loopback that has the files of a directory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

/// Serves the directory until the process ends, and returns the address.
pub(super) fn serve(directory: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let directory = directory.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up has seen enough.
            let _ = answer(stream, &directory);
        }
    });
    address
}

fn answer(mut stream: TcpStream, directory: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let name = request.split(' ').nth(1).unwrap_or_default();
    let path = directory.join(PathBuf::from(name.trim_start_matches('/')));
    let (status, body) = match fs::read(path) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(&body)
}
