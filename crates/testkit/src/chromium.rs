//! Debian's Chromium, driven by its WebDriver (<https://www.w3.org/TR/webdriver2/>).
//!
//! The few commands are sent by hand: of the clients, thirtyfour changes how serde_json orders the
//! members of all objects of the workspace, and fantoccini needs a crate under another licence.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::target_dir;

/// The limit for whatever a browser does.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two looks at a page.
const PAUSE: Duration = Duration::from_millis(20);

/// The version of axe-core that `cargo xtask provision` installs.
const AXE: &str = include_str!("../axe-core-version.txt");

/// The line in which the driver names its port.
const STARTED: &str = "started successfully on port ";

/// A driver, which starts browsers. All its processes end with it.
pub struct Driver {
    process: Child,
    /// Nobody else reads what the driver prints.
    _output: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
    /// What it and its browsers write. A longer path than one of `/tmp` is too long for a socket of
    /// Chromium.
    _directory: TempDir,
}

/// A browser. Its methods are about the tab that was opened or switched to last.
#[derive(Clone)]
pub struct Browser {
    driver: SocketAddr,
    session: String,
}

/// An element of a page.
pub struct Element {
    browser: Browser,
    id: String,
}

/// The Enter key, as WebDriver names it.
pub const ENTER: &str = "\u{E007}";

/// The member of an object that is an element, see section 12 of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Driver {
    /// Starts a driver.
    ///
    /// # Panics
    /// When Debian's `chromium-driver` is not installed, or does not start.
    pub async fn start() -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .envs(
                ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"]
                    .map(|name| (name, directory.path())),
            )
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; run `cargo xtask provision`"));
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let starting = async {
            loop {
                let line = output.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("chromedriver has ended"));
                if let Some((_, port)) = line.split_once(STARTED) {
                    return port.trim_end_matches('.').parse::<u16>().unwrap();
                }
            }
        };
        let port = timeout(TIME_LIMIT, starting).await;
        let port = port.unwrap_or_else(|_| panic!("chromedriver does not start"));
        Self {
            process,
            _output: output,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            _directory: directory,
        }
    }

    /// Starts a browser with a page of this size, dark or light.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn browser(&self, (width, height): (u32, u32), scheme: &str) -> Browser {
        // The sandbox needs a user other than root.
        let options = json!({ "args": ["--headless=new", "--no-sandbox"] });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options });
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        let begun = send(self.address, "POST", "/session", &wanted).await;
        let begun = begun.unwrap_or_else(|error| panic!("Chromium does not start: {error}"));
        let browser = Browser {
            driver: self.address,
            session: begun["sessionId"].as_str().unwrap().to_owned(),
        };
        // A window of Chromium is at least 500 pixels wide, so a phone has to be emulated.
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 500 });
        browser
            .command("Emulation.setDeviceMetricsOverride", size)
            .await;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.command("Emulation.setEmulatedMedia", media).await;
        browser
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A driver that is killed alone leaves its browsers. It may have ended by itself.
        if let Some(pid) = self.process.id() {
            let group = Pid::from_raw(pid.cast_signed());
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Sends a command to a driver; returns its value.
async fn send(to: SocketAddr, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let sending = async {
        let mut stream = TcpStream::connect(to).await?;
        stream.write_all((head + &body).as_bytes()).await?;
        // The driver keeps the connection open.
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => {
                    length = value.trim().parse().unwrap_or_default();
                }
                None if line.is_empty() => break,
                _ => {}
            }
        }
        let mut response = vec![0; length];
        stream.read_exact(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    let sent = timeout(TIME_LIMIT, sending).await;
    let response = sent.map_err(|_| format!("no response to {path}"))?;
    let response = response.map_err(|error| error.to_string())?;
    let mut answer: Value = serde_json::from_slice(&response).map_err(|error| error.to_string())?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        Some(error) => Err(format!("{error}: {}", value["message"])),
        None => Ok(value),
    }
}

impl Browser {
    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Value, String> {
        let path = format!("/session/{}{path}", self.session);
        send(self.driver, method, &path, &body).await
    }

    /// A command of Chromium's own protocol.
    async fn command(&self, name: &str, params: Value) {
        let body = json!({ "cmd": name, "params": params });
        self.send("POST", "/goog/cdp/execute", body).await.unwrap();
    }

    async fn execute(&self, script: &str, arguments: Value) -> Result<Value, String> {
        let body = json!({ "script": script, "args": arguments });
        self.send("POST", "/execute/sync", body).await
    }

    /// Runs a script on the page; returns its result.
    ///
    /// # Panics
    /// When it fails.
    pub async fn run(&self, script: &str, arguments: Value) -> Value {
        self.execute(script, arguments).await.unwrap()
    }

    /// Runs a script at the beginning of each page that is opened from now on.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn run_on_each_page(&self, script: &str) {
        let script = json!({ "source": script });
        self.command("Page.addScriptToEvaluateOnNewDocument", script)
            .await;
    }

    /// Opens a page: an address, or a path on the same server.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open(&self, address: &str) {
        let address = match address.starts_with('/') {
            true => {
                let origin = self.execute("return location.origin", json!([])).await;
                format!("{}{address}", origin.unwrap().as_str().unwrap())
            }
            false => address.to_owned(),
        };
        let opened = self.send("POST", "/url", json!({ "url": address })).await;
        opened.unwrap_or_else(|error| panic!("{address}: {error}"));
    }

    /// Opens another tab, and switches to it. Returns the former one.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn open_tab(&self) -> String {
        let former = self.send("GET", "/window", json!({})).await.unwrap();
        let tab = json!({ "type": "tab" });
        let opened = self.send("POST", "/window/new", tab).await.unwrap();
        self.switch_to(opened["handle"].as_str().unwrap()).await;
        former.as_str().unwrap().to_owned()
    }

    /// Switches to a tab.
    ///
    /// # Panics
    /// When it is gone.
    pub async fn switch_to(&self, tab: &str) {
        let tab = json!({ "handle": tab });
        self.send("POST", "/window", tab).await.unwrap();
    }

    /// Waits for an element.
    ///
    /// # Panics
    /// When it does not appear.
    pub async fn wait_for(&self, css: &str) -> Element {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            if let Some(element) = self.all(css).await.into_iter().next() {
                return element;
            }
            if Instant::now() > deadline {
                panic!("no {css}: {}", self.text().await);
            }
            sleep(PAUSE).await;
        }
    }

    /// The elements that there are now.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn all(&self, css: &str) -> Vec<Element> {
        let body = json!({ "using": "css selector", "value": css });
        let found = self.send("POST", "/elements", body).await.unwrap();
        let ids = found.as_array().unwrap().iter();
        ids.map(|one| Element {
            browser: self.clone(),
            id: one[ELEMENT].as_str().unwrap().to_owned(),
        })
        .collect()
    }

    /// Waits until the text of an element contains something.
    ///
    /// # Panics
    /// When it does not.
    pub async fn wait_for_text(&self, css: &str, words: &str) {
        let script = "const [css, words] = arguments; \
            return [...document.querySelectorAll(css)].some((one) => one.textContent.includes(words))";
        let deadline = Instant::now() + TIME_LIMIT;
        // A page that is being loaded has no document for a moment.
        while self.execute(script, json!([css, words])).await != Ok(true.into()) {
            if Instant::now() > deadline {
                panic!("no {words:?} in {css}: {}", self.text().await);
            }
            sleep(PAUSE).await;
        }
    }

    async fn text(&self) -> String {
        let text = self
            .execute("return location + document.body.innerText", json!([]))
            .await;
        text.map_or_else(|error| error, |text| text.to_string())
    }

    /// Goes into a frame of the page: what follows concerns its document.
    ///
    /// # Panics
    /// When it does not appear.
    pub async fn enter(&self, css: &str) {
        let frame = self.wait_for(css).await;
        let id = json!({ "id": { ELEMENT: frame.id } });
        self.send("POST", "/frame", id).await.unwrap();
    }

    /// The violations that axe-core finds on the page, with the elements.
    ///
    /// # Panics
    /// When axe-core is not installed.
    pub async fn axe(&self) -> Vec<Value> {
        let directory = target_dir().join("axe-core").join(AXE.trim());
        let script = std::fs::read_to_string(directory.join("node_modules/axe-core/axe.min.js"));
        let script =
            script.unwrap_or_else(|error| panic!("axe-core: {error}; run `cargo xtask provision`"));
        self.execute(&script, json!([])).await.unwrap();
        let run = "const done = arguments[0]; axe.run().then((found) => done(found.violations.map( \
            (one) => ({ id: one.id, nodes: one.nodes.map((node) => node.html) }))), \
            (error) => done([String(error)]))";
        let body = json!({ "script": run, "args": [] });
        let found = self.send("POST", "/execute/async", body).await.unwrap();
        serde_json::from_value(found).unwrap()
    }

    /// Whether the page is wider than its window, so that one has to scroll to its side.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn overflows(&self) -> bool {
        let script = "return document.documentElement.scrollWidth > window.innerWidth";
        self.execute(script, json!([])).await.unwrap() == true
    }

    /// The element that has the focus: its ID.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn focus(&self) -> String {
        let focus = self
            .execute("return document.activeElement.id", json!([]))
            .await;
        focus.unwrap().as_str().unwrap().to_owned()
    }

    /// A picture of the page, as PNG in base64.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn screenshot(&self) -> String {
        let picture = self.send("GET", "/screenshot", json!({})).await;
        picture.unwrap().as_str().unwrap().to_owned()
    }

    async fn point(&self, actions: Value) {
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        let actions = json!({ "actions": [mouse] });
        self.send("POST", "/actions", actions).await.unwrap();
    }

    /// Lets go of the button of the mouse.
    ///
    /// # Panics
    /// When the browser does not answer.
    pub async fn release_button(&self) {
        let up = json!({ "type": "pointerUp", "button": 0 });
        self.point(json!([up])).await;
    }

    /// Ends the browser.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn finish(self) {
        self.send("DELETE", "", json!({})).await.unwrap();
    }
}

impl Element {
    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Value, String> {
        let path = format!("/element/{}{path}", self.id);
        self.browser.send(method, &path, body).await
    }

    /// Clicks it.
    ///
    /// # Errors
    /// When it is gone, or something covers it.
    pub async fn click(&self) -> Result<(), String> {
        self.send("POST", "/click", json!({})).await.map(drop)
    }

    /// Presses the button of the mouse on it, until the browser lets go of it.
    ///
    /// # Panics
    /// When it is not in the window.
    pub async fn press_button(&self) {
        let here = json!({ ELEMENT: self.id });
        let to = json!({ "type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": here });
        let down = json!({ "type": "pointerDown", "button": 0 });
        self.browser.point(json!([to, down])).await;
    }

    /// Types a text into it.
    ///
    /// # Panics
    /// When it is gone, or takes no keys.
    pub async fn type_text(&self, text: &str) {
        self.send("POST", "/value", json!({ "text": text }))
            .await
            .unwrap();
    }

    /// Its visible text.
    ///
    /// # Panics
    /// When it is gone.
    pub async fn text(&self) -> String {
        let text = self.send("GET", "/text", json!({})).await.unwrap();
        text.as_str().unwrap().to_owned()
    }
}
