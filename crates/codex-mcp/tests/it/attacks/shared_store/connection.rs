//! Connections to a server without TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use settings::store_access::OthersJobs;

use super::Machine;

/// A server without TLS, and the first bytes of its clients.
fn server_without_tls() -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, first) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut bytes = vec![0; 1000];
            let length = client.read(&mut bytes).unwrap();
            bytes.truncate(length);
            sender.send(bytes).unwrap();
            client.write_all(b"N").unwrap();
        }
    });
    (port, first)
}

#[test]
fn plain_connection_beyond_loopback_is_refused() {
    let (port, first) = server_without_tls();
    // 0.0.0.0 is no loopback address, but leads to this machine.
    let url = format!("postgres://me:sesame@0.0.0.0:{port}/jobs");
    let machine = Machine::new(&url, OthersJobs::Leave);
    let (code, _, said) = machine.run_jobs(&["list"]);
    assert_ne!(code, 0);
    assert!(said.contains("offers no TLS"), "{said}");
    assert!(said.contains("sslmode=disable"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
    assert_eq!(first.recv().unwrap(), [0, 0, 0, 8, 4, 210, 22, 47]);
    // The control: with sslmode=disable, the user's name is sent in plain text.
    let machine = Machine::new(&format!("{url}?sslmode=disable"), OthersJobs::Leave);
    machine.run_jobs(&["list"]);
    let sent = first.recv().unwrap();
    assert!(sent.windows(8).any(|part| part == b"user\0me\0"));
}
