//! The usage limits of the account: Codex's reports of them, and queries.
//!
//! Codex reports the limits with each turn. Without a recent report, we query Codex, which asks its
//! backend. Releases before 0.130.0 answer no other request while they wait for the backend, so
//! they are queried in a separate app-server that is started only for the query. Jobs that need the
//! limits at the same time share one query.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::{AccountReadParams, Method, RateLimits, Release};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::app_server::AppServer;
use super::cached_usage::{LastQuery, LimitsUnknown, RECENT};
use super::connection::CallError;
use super::engine::Engine;
use crate::logic::usage_limits::{is_outdated, refused_until, unusable_until};

/// How long Codex may take to answer `account/rateLimits/read`. A nearby backend takes 0.3 s.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// How long it may take to start a separate app-server and to get its answer.
const SEPARATE_SERVER_TIMEOUT: Duration = Duration::from_secs(8);

/// A usage limit at which a turn has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached {
    /// The time of its reset, if Codex has reported it.
    pub reset: Option<SystemTime>,
}

impl Engine {
    /// How much of the account's limits is used, if Codex has reported that.
    #[must_use]
    pub fn rate_limits(&self) -> Option<RateLimits> {
        self.codex.hub.rate_limits().map(|(limits, _)| limits)
    }

    /// How much of the account's limits is used. Without a recent report, Codex is asked;
    /// a release that would be blocked meanwhile is asked in a separate app-server.
    ///
    /// # Errors
    ///
    /// [`LimitsUnknown`].
    pub async fn limits(&self) -> Result<RateLimits, LimitsUnknown> {
        let (server, _) = self.codex.backend.running().ok_or(LimitsUnknown::NoCodex)?;
        self.limits_of(&server, None).await
    }

    async fn limits_of(
        &self,
        server: &AppServer,
        model: Option<&str>,
    ) -> Result<RateLimits, LimitsUnknown> {
        let known = server.account();
        if known != Account::Silent {
            check(known)?;
        }
        let arrived = Instant::now();
        let mut last = self.codex.last_query.lock().await;
        if let Some(recent) = self.recent_limits(model) {
            return Ok(recent);
        }
        match last.as_ref() {
            Some(query) if query.answers(arrived) || query.has_failed_recently() => {
                query.result.clone()
            }
            _ => {
                check(server.current_account().await)?;
                self.query(server, &mut last).await
            }
        }
    }

    /// Queries the limits in the app-server of this engine, which must have no other
    /// work. It is started if it does not run.
    ///
    /// # Errors
    ///
    /// [`LimitsUnknown`].
    pub async fn query_limits(&self) -> Result<RateLimits, LimitsUnknown> {
        let ready = self.codex.backend.ready(&self.codex.hub).await;
        let (server, _) = ready.map_err(|error| LimitsUnknown::QueryFailed(error.to_string()))?;
        check(server.current_account().await)?;
        self.read_limits(&server).await
    }

    /// The time until which the account or the model is used up, so that a turn with this provider
    /// and model (or the configured ones) need not be tried. `refused` is the time until which an
    /// earlier turn of the same job was refused. Codex rounds 99.5 % to 100, so at 100 % one turn
    /// is tried for each reset.
    ///
    /// If the limits are not known, a turn is tried unless one was refused.
    pub async fn used_up(
        &self,
        provider: Option<&str>,
        model: Option<&str>,
        refused: Option<SystemTime>,
    ) -> Option<SystemTime> {
        let (server, _) = self.codex.backend.current().await?;
        if !server.account().limits(provider) {
            return None;
        }
        let refused = refused.filter(|&until| until > SystemTime::now());
        let limits = match reads_limits_concurrently(&server) || refused.is_some() {
            true => self.limits_of(&server, model).await,
            false => self.recent_limits(model).ok_or_else(|| {
                let words = "this release is not asked during other work";
                LimitsUnknown::QueryFailed(words.to_owned())
            }),
        };
        match limits {
            Ok(limits) => unusable_until(&limits, model, refused, SystemTime::now()),
            Err(why) => {
                tracing::debug!("the usage limits are not known: {why}");
                refused
            }
        }
    }

    /// The limit at which a turn with this provider and model has just failed; `None` if the login
    /// is not a ChatGPT account, in which case waiting does not help. Codex is not queried once
    /// `cancel` is cancelled.
    pub async fn limit_reached(
        &self,
        provider: Option<&str>,
        model: Option<&str>,
        cancel: &CancellationToken,
    ) -> Option<LimitReached> {
        let (server, _) = match self.codex.backend.running() {
            Some(running) => running,
            None => {
                cancel
                    .run_until_cancelled(self.codex.backend.current())
                    .await??
            }
        };
        if !server.account().limits(provider) {
            return None;
        }
        let (limits, reported) = self.codex.hub.limits_after_refusal();
        let known = refused_until(&limits, model, None, SystemTime::now());
        if known.is_none() && reads_limits_concurrently(&server) {
            cancel.run_until_cancelled(self.query_once(&server)).await;
        }
        let (limits, _) = self.codex.hub.limits_after_refusal();
        let reset = refused_until(&limits, model, reported.as_deref(), SystemTime::now());
        Some(LimitReached { reset })
    }

    fn recent_limits(&self, model: Option<&str>) -> Option<RateLimits> {
        let (limits, reported_at) = self.codex.hub.rate_limits()?;
        let is_outdated = is_outdated(&limits, model, SystemTime::now());
        let is_recent = reported_at.elapsed() < RECENT && !is_outdated;
        is_recent.then_some(limits)
    }

    /// Queries Codex, unless another query was answered while this one waited.
    async fn query_once(&self, server: &AppServer) {
        let arrived = Instant::now();
        let mut last = self.codex.last_query.lock().await;
        if !last.as_ref().is_some_and(|query| query.answers(arrived))
            && let Err(why) = self.query(server, &mut last).await
        {
            tracing::debug!("the usage limits are not known: {why}");
        }
    }

    async fn query(
        &self,
        server: &AppServer,
        last: &mut Option<LastQuery>,
    ) -> Result<RateLimits, LimitsUnknown> {
        let began = Instant::now();
        let result = match reads_limits_concurrently(server) {
            true => self.read_limits(server).await,
            false => self.query_separate_server().await,
        };
        *last = Some(LastQuery {
            began,
            ended: Instant::now(),
            result: result.clone(),
        });
        result
    }

    async fn read_limits(&self, server: &AppServer) -> Result<RateLimits, LimitsUnknown> {
        let method = Method::AccountRateLimitsRead;
        let params = AccountReadParams::default();
        let response: Result<Box<RawValue>, CallError> =
            server.call(method, &params, READ_TIMEOUT).await;
        let response = response.map_err(|error| LimitsUnknown::QueryFailed(error.to_string()))?;
        let read = RateLimits::read(&response);
        let limits = read.map_err(|error| LimitsUnknown::QueryFailed(error.to_string()))?;
        Ok(self.codex.hub.replace_limits(limits))
    }

    /// Queries an app-server that is started only for this.
    async fn query_separate_server(&self) -> Result<RateLimits, LimitsUnknown> {
        let separate = self.another();
        let result = tokio::time::timeout(SEPARATE_SERVER_TIMEOUT, separate.query_limits()).await;
        separate.shut_down().await;
        let slow = |_| LimitsUnknown::QueryFailed("Codex takes too long to start".to_owned());
        Ok(self.codex.hub.replace_limits(result.map_err(slow)??))
    }
}

/// Checks that an account has limits that can be queried.
fn check(account: Account) -> Result<(), LimitsUnknown> {
    match account {
        Account::ChatGpt | Account::Unknown => Ok(()),
        Account::Missing => Err(LimitsUnknown::NoLogin),
        Account::Unlimited => Err(LimitsUnknown::NotLimited),
        Account::Silent => {
            let words = "Codex does not answer which account it uses";
            Err(LimitsUnknown::QueryFailed(words.to_owned()))
        }
    }
}

/// Whether Codex answers other requests while it asks its backend about the limits.
fn reads_limits_concurrently(server: &AppServer) -> bool {
    let release = server.about.codex_version().and_then(Release::parse);
    release.is_some_and(|release| release >= Release::FIRST_WITH_CONCURRENT_LIMITS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use codex_protocol::lines::DEFAULT_LINE_LIMIT;
    use futures::future::join_all;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::account::NEXT_TRY;
    use crate::in_memory::engine_over;
    use crate::logic::session::Timeouts;
    use crate::{Launch, Options};

    /// How long the Codex of these tests takes to answer about the limits.
    const READ_TIME: Duration = Duration::from_secs(2);

    /// A Codex with an account of ChatGPT, and how often it was asked about its limits.
    async fn codex(version: &str) -> (Engine, Arc<AtomicUsize>) {
        codex_that(version, Login::Told).await
    }

    /// When a Codex tells its account.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Login {
        Told,
        ToldAtTheSecondRequest,
    }

    async fn codex_that(version: &str, login: Login) -> (Engine, Arc<AtomicUsize>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let asked = Arc::<AtomicUsize>::default();
        tokio::spawn(answer(
            theirs,
            version.to_owned(),
            login,
            Arc::clone(&asked),
        ));
        let options = Options {
            launch: Launch {
                codex: None,
                line_limit: DEFAULT_LINE_LIMIT,
            },
            codex_home: "/nowhere".into(),
            timeouts: Timeouts {
                approval: READ_TIME,
                stall: READ_TIME,
            },
        };
        let (reader, writer) = split(ours);
        let engine = engine_over(options, reader, writer).await;
        (engine.map_err(|error| panic!("{error}")).unwrap(), asked)
    }

    async fn answer(
        stream: DuplexStream,
        version: String,
        mut login: Login,
        asked: Arc<AtomicUsize>,
    ) {
        let (reader, mut writer) = split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&line).unwrap();
            let result = match request["method"].as_str().unwrap() {
                "initialize" => json!({ "userAgent": format!("codex/{version} (test)") }),
                "account/read" if login == Login::ToldAtTheSecondRequest => {
                    login = Login::Told;
                    continue;
                }
                "account/read" => {
                    json!({ "account": { "type": "chatgpt" }, "requiresOpenaiAuth": true })
                }
                "account/rateLimits/read" => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    sleep(READ_TIME).await;
                    json!({ "rateLimits": { "limitId": "codex",
                        "primary": { "usedPercent": 42 } } })
                }
                _ => continue,
            };
            let answer = json!({ "id": request["id"], "result": result });
            let line = format!("{answer}\n");
            writer.write_all(line.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_failures_share_one_limits_query() {
        let (engine, asked) = codex("0.169.0").await;
        let cancel = CancellationToken::new();
        let began = Instant::now();
        let reached = join_all((0..8).map(|_| engine.limit_reached(None, None, &cancel))).await;
        assert_eq!(reached, [Some(LimitReached { reset: None }); 8]);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(began.elapsed() < READ_TIME * 2);
        // A turn that fails later needs a later answer.
        engine.limit_reached(None, None, &cancel).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn codex_that_was_silent_about_its_account_is_asked_again_later() {
        let (engine, asked) = codex_that("0.169.0", Login::ToldAtTheSecondRequest).await;
        for _ in 0..3 {
            let unknown = engine.limits().await.unwrap_err().to_string();
            assert!(unknown.contains("which account"), "{unknown}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        tokio::time::advance(NEXT_TRY).await;
        let used = engine.limits().await.unwrap().windows().next();
        assert_eq!(used.map(|window| window.used_percent), Some(42.0));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_during_a_limits_query_starts_another_query() {
        let (engine, asked) = codex("0.169.0").await;
        let never = CancellationToken::new();
        let later = async {
            sleep(READ_TIME / 2).await;
            engine.limit_reached(None, None, &never).await
        };
        tokio::join!(engine.limit_reached(None, None, &never), later);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_turn_does_not_wait_for_the_limits_query() {
        let (engine, asked) = codex("0.169.0").await;
        let cancel = CancellationToken::new();
        let began = Instant::now();
        let others = CancellationToken::new();
        let second = async {
            let reached = engine.limit_reached(None, None, &cancel).await;
            assert!(began.elapsed() < READ_TIME / 2);
            reached
        };
        let (first, second, ()) =
            tokio::join!(engine.limit_reached(None, None, &others), second, async {
                sleep(READ_TIME / 4).await;
                cancel.cancel();
                assert_eq!(asked.load(Ordering::Relaxed), 1);
            },);
        let unknown = Some(LimitReached { reset: None });
        assert_eq!((first, second), (unknown, unknown));
        let late = engine.limit_reached(None, None, &cancel);
        assert_eq!(timeout(READ_TIME / 4, late).await, Ok(unknown));
    }

    /// The start of an app-server holds the slot of the backend.
    #[tokio::test(start_paused = true)]
    async fn limit_is_known_while_an_app_server_is_being_started() {
        let (engine, _) = codex("0.169.0").await;
        let cancel = CancellationToken::new();
        let starting = engine.codex.backend.hold().await;
        let (reached, ()) = tokio::join!(engine.limit_reached(None, None, &cancel), async {
            sleep(READ_TIME).await;
            drop(starting);
        });
        assert_eq!(reached, Some(LimitReached { reset: None }));
    }
}
