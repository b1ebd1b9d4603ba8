//! Requests to Codex, with time limits and retries.

use std::time::Duration;

use codex_protocol::codex::Method;
use codex_protocol::rpc::{ErrorObject, code};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::app_server::AppServer;
use super::connection::CallError;
use super::error::EngineError;

/// How long Codex may take to begin or resume a thread or a turn: a slow MCP
/// server of the user's is started with the thread.
const THREAD_TIMEOUT: Duration = Duration::from_secs(90);

/// How long Codex may take for other requests.
const RPC_TIMEOUT: Duration = Duration::from_secs(30);

/// The most attempts of a request that Codex asks to repeat later.
const ATTEMPTS: u32 = 6;

/// The pause before the second attempt. It doubles before each further attempt.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Makes a request, and repeats it after a pause while Codex says that it can be repeated later.
///
/// # Errors
///
/// [`EngineError`] of the last attempt.
pub(super) async fn call<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    let mut pause = BACK_OFF;
    for _ in 1..ATTEMPTS {
        match call_once(server, method, params).await {
            Err(EngineError::Refused { refusal, .. }) if is_temporary(&refusal) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answered => return answered,
        }
    }
    call_once(server, method, params).await
}

/// Whether the same request can succeed a moment later: Codex is overloaded, or is still unloading the
/// thread ("… is closing; retry thread/resume after the thread is closed", 0.110.0).
fn is_temporary(refusal: &ErrorObject) -> bool {
    refusal.code == code::CODEX_OVERLOADED || refusal.message.contains("is closing; retry")
}

async fn call_once<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    let timeout = match method {
        Method::TurnSteer
        | Method::BackgroundTerminalsClean
        | Method::BackgroundTerminalsList
        | Method::BackgroundTerminalsTerminate => RPC_TIMEOUT,
        _ => THREAD_TIMEOUT,
    };
    match server.call(method, params, timeout).await {
        Ok(result) => Ok(result),
        Err(CallError::Closed(_)) => Err(EngineError::Gone(server.exit().await)),
        Err(CallError::Refused(refusal)) => Err(EngineError::Refused { method, refusal }),
        Err(CallError::TooLong { length, limit }) => {
            Err(EngineError::RequestTooLong { length, limit })
        }
        Err(CallError::TimedOut { method, after }) => Err(EngineError::Silent { method, after }),
        Err(CallError::Unreadable { method, error }) => {
            Err(EngineError::Unreadable { method, error })
        }
    }
}
