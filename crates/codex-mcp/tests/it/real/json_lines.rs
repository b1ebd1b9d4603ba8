//! Clients in other languages: scripts that read and print lines of JSON.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The limit of each line, and of the end.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A running client.
pub(super) struct LineClient {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl LineClient {
    pub(super) fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
        }
    }

    /// The next line that it prints.
    pub(super) async fn line(&mut self) -> Value {
        let line = timeout(TIME_LIMIT, self.output.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("the client does not answer"));
        let line = line
            .unwrap()
            .unwrap_or_else(|| panic!("the client has failed"));
        serde_json::from_str(&line).unwrap()
    }

    /// Writes a line, and returns the next one that it prints.
    pub(super) async fn ask(&mut self, line: &Value) -> Value {
        let line = format!("{line}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.line().await
    }

    /// Ends the client, which must succeed.
    pub(super) async fn finish(self) {
        drop(self.input);
        let mut process = self.process;
        let ended = timeout(TIME_LIMIT, process.wait()).await;
        let ended = ended.unwrap_or_else(|_| panic!("the client does not end"));
        assert!(ended.unwrap().success());
    }
}
