//! A fake ChatGPT backend, which answers for the usage limits of an account.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::LATER;

/// The reset of a limit, `ahead` seconds after it was first asked for.
#[derive(Debug, Clone)]
pub(super) struct Reset {
    ahead: u64,
    at: Arc<OnceLock<u64>>,
}

impl Reset {
    pub(super) fn ahead(ahead: u64) -> Self {
        let at = Arc::default();
        Self { ahead, at }
    }

    /// The reset in seconds since 1970.
    pub(super) fn at(&self) -> u64 {
        *self.at.get_or_init(|| now() + self.ahead)
    }

    pub(super) fn is_past(&self) -> bool {
        self.at() <= now()
    }
}

/// The backend's answer about the account.
#[derive(Debug, Clone)]
pub(super) enum Account {
    /// The limit is not reached.
    Free,
    /// The limit is reached until the reset.
    UsedUp(Reset),
    /// The limit is exceeded by more than a rounding error.
    Exceeded(Reset),
    /// The model `gpt-spark` has a limit of its own.
    OfModel {
        /// The used part of the limit of the account, in percent.
        account: u32,
        /// The used part of the limit of the model, in percent.
        model: u32,
        /// The reset of both.
        reset: Reset,
    },
    /// The backend answers with an error.
    Broken,
    /// The backend never answers.
    Silent,
}

/// A fake ChatGPT backend.
pub(super) struct FakeBackend {
    account: Arc<Mutex<Account>>,
    /// The number of requests for the limits.
    asked: Arc<AtomicUsize>,
    pub(super) address: String,
}

pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

impl FakeBackend {
    pub(super) async fn start(account: Account) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backend = Self {
            account: Arc::new(Mutex::new(account)),
            asked: Arc::default(),
            address: format!("http://{address}/backend-api"),
        };
        let (account, asked) = (Arc::clone(&backend.account), Arc::clone(&backend.asked));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (account, asked) = (Arc::clone(&account), Arc::clone(&asked));
                tokio::spawn(answer(connection, account, asked));
            }
        });
        backend
    }

    pub(super) fn set_account(&self, account: Account) {
        *self.account.lock().unwrap() = account;
    }

    pub(super) fn requests(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Answers one request, and closes the connection.
async fn answer(
    mut connection: TcpStream,
    account: Arc<Mutex<Account>>,
    asked: Arc<AtomicUsize>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.ok()?);
    }
    let is_usage = String::from_utf8_lossy(&head).contains("/wham/usage");
    let account = account.lock().unwrap().clone();
    if is_usage {
        asked.fetch_add(1, Ordering::Relaxed);
    }
    let (status, body) = match (is_usage, account) {
        (false, _) => ("404 Not Found", json!({})),
        (true, Account::Silent) => return std::future::pending().await,
        (true, Account::Broken) => ("500 Internal Server Error", json!({})),
        (true, Account::UsedUp(reset)) if !reset.is_past() => ("200 OK", usage(100, reset.at())),
        (true, Account::Exceeded(reset)) => ("200 OK", usage(102, reset.at())),
        (
            true,
            Account::OfModel {
                account,
                model,
                reset,
            },
        ) => {
            let mut usage = usage(account, reset.at());
            usage["additional_rate_limits"] = json!([{
                "limit_name": "GPT-Spark",
                "metered_feature": "codex_spark",
                "rate_limit": limit(model, reset.at()),
            }]);
            ("200 OK", usage)
        }
        (true, Account::UsedUp(_) | Account::Free) => ("200 OK", usage(42, now() + LATER)),
    };
    let body = body.to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    connection.write_all(answer.as_bytes()).await.ok()
}

fn usage(used: u32, reset: u64) -> Value {
    json!({
        "plan_type": "pro",
        "rate_limit": limit(used, reset),
        "credits": { "has_credits": false, "unlimited": false, "balance": "0" },
    })
}

fn limit(used: u32, reset: u64) -> Value {
    json!({
        "allowed": true,
        "limit_reached": false,
        "primary_window": { "used_percent": used, "limit_window_seconds": 18_000,
            "reset_after_seconds": 1, "reset_at": reset },
        "secondary_window": null,
    })
}
