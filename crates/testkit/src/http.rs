//! A client of HTTP that sends exactly what a test says: also what no browser and no library would send.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The limit for each response and event.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub struct Response {
    /// Its status.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Its body. Invalid UTF-8 in it is replaced.
    pub body: String,
}

impl Response {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        let found = all.find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Its body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    to: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(to: SocketAddr, method: &str, path: &str) -> Self {
        Self {
            to,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("host".to_owned(), to.to_string())],
            body: String::new(),
        }
    }

    /// Sets a header, in place of one of the same name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(one, _)| one != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a token.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Gives it a form as its body.
    #[must_use]
    pub fn form(self, fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter();
        let pairs = fields.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let kind = "application/x-www-form-urlencoded";
        Self { body, ..self }.header("content-type", kind)
    }

    /// Gives it JSON as its body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        let body = body.to_string();
        Self { body, ..self }.header("content-type", "application/json")
    }

    /// Opens a connection, and sends the request.
    async fn begin(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.to).await.unwrap();
        let Self {
            method, path, body, ..
        } = self;
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self
            .headers
            .iter()
            .any(|(name, _)| name == "content-length")
        {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str(&format!("\r\n{body}"));
        // A server that has refused the head need not read the body.
        let _ = stream.write_all(text.as_bytes()).await;
        BufReader::new(stream)
    }

    /// Sends the request, and reads the whole response.
    ///
    /// # Panics
    /// When there is no response in time.
    pub async fn send(&self) -> Response {
        let sending = async {
            let mut stream = self.begin().await;
            let (status, headers) = head(&mut stream).await;
            let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
            let mut body = Vec::new();
            match is_chunked {
                true => while chunk(&mut stream, &mut body).await {},
                false => drop(stream.read_to_end(&mut body).await),
            }
            Response {
                status,
                headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            }
        };
        let sent = timeout(TIME_LIMIT, sending).await;
        sent.unwrap_or_else(|_| panic!("no response to {self:?}"))
    }

    /// Sends the request, whose response is a stream of events.
    ///
    /// # Panics
    /// When there is no response in time, or another one.
    pub async fn events(&self) -> Events {
        let mut stream = self.begin().await;
        let (status, _) = timeout(TIME_LIMIT, head(&mut stream)).await.unwrap();
        if status != 200 {
            let mut body = Vec::new();
            let _ = timeout(TIME_LIMIT, stream.read_to_end(&mut body)).await;
            panic!("{status} to {self:?}: {}", String::from_utf8_lossy(&body));
        }
        Events {
            stream,
            text: Vec::new(),
        }
    }
}

fn encoded(text: &str) -> String {
    let bytes = text.bytes();
    bytes
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn head(stream: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let status = line(stream).await;
    let status = status
        .split(' ')
        .nth(1)
        .unwrap_or_else(|| panic!("no response: {status:?}"));
    let mut headers = Vec::new();
    loop {
        let header = line(stream).await;
        let Some((name, value)) = header.split_once(": ") else {
            return (status.parse().unwrap(), headers);
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
}

/// Reads a chunk; `false` at the end.
async fn chunk(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> bool {
    let length = line(stream).await;
    let length = usize::from_str_radix(&length, 16).unwrap_or_default();
    if length == 0 {
        return false;
    }
    let mut chunk = vec![0; length];
    stream.read_exact(&mut chunk).await.unwrap();
    body.extend(chunk);
    line(stream).await;
    true
}

/// A stream of server-sent events.
pub struct Events {
    stream: BufReader<TcpStream>,
    text: Vec<u8>,
}

/// A server-sent event.
#[derive(Debug)]
pub struct Event {
    /// Its ID.
    pub id: Option<String>,
    /// Its kind; `message` if it names none.
    pub kind: String,
    /// Its data.
    pub data: Value,
}

impl Events {
    /// The next event; `None` at the end.
    ///
    /// # Panics
    /// When none comes in time.
    pub async fn next(&mut self) -> Option<Event> {
        let reading = async {
            loop {
                let end = self.text.windows(2).position(|two| two == b"\n\n");
                if let Some(end) = end {
                    let text: Vec<u8> = self.text.drain(..end + 2).collect();
                    let text = String::from_utf8(text).unwrap();
                    if let Some(event) = event(&text) {
                        return Some(event);
                    }
                    continue;
                }
                if !chunk(&mut self.stream, &mut self.text).await {
                    return None;
                }
            }
        };
        let read = timeout(TIME_LIMIT, reading).await;
        read.unwrap_or_else(|_| panic!("no event in time"))
    }

    /// The next event for which `is_it` holds.
    ///
    /// # Panics
    /// When none comes in time, or the stream ends.
    pub async fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self
                .next()
                .await
                .unwrap_or_else(|| panic!("the stream has ended"));
            if is_it(&event) {
                return event;
            }
        }
    }
}

/// Reads an event; `None` for a comment or an event without data.
fn event(text: &str) -> Option<Event> {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(one, _)| *one == name)
            .map(|(_, value)| value.to_owned())
    };
    Some(Event {
        id: field("id"),
        kind: field("event").unwrap_or_else(|| "message".to_owned()),
        data: serde_json::from_str(&field("data").filter(|data| !data.is_empty())?).unwrap(),
    })
}
