//! The end of the input, SIGTERM, SIGINT and SIGKILL, in each phase of a server's life.

use std::fmt::Debug;

use serde_json::Value;
use testkit::Signal;

use super::serve::{Serve, code};

/// A phase of a server's life.
pub(super) trait LifePhase: Copy + Debug {
    /// Brings a server to this phase. Returns the open call, if there is one.
    async fn reach(self) -> (Serve, Option<Value>);

    /// A signal may arrive before the program has installed its handlers.
    fn is_before_all(self) -> bool;

    /// Ends a server in this phase: an open call is answered, and no process is left.
    async fn end(self, signal: Option<Signal>) {
        let (mut serve, call) = self.reach().await;
        match signal {
            None => serve.client.close_stdin(),
            Some(signal) => serve.client.signal(signal),
        }
        let status = serve.client.exited().await;
        let expected = match signal {
            Some(Signal::SIGINT) => 130,
            _ => 0,
        };
        assert!(
            status.code() == Some(expected) || self.is_before_all(),
            "{self:?}: {status}"
        );
        if let Some(call) = call {
            let Some(answer) = serve.client.response_so_far(&call) else {
                panic!("{self:?}: no answer\n{}", serve.client.stderr());
            };
            assert_eq!(code(&answer["result"]), "SHUTTING_DOWN", "{self:?}");
        }
        serve.gone(status).await;
    }

    async fn kill(self) {
        let (serve, call) = self.reach().await;
        serve.kill(call.as_slice()).await;
    }
}

/// Defines a test for each end of a server, which has to end well in each of these phases.
macro_rules! ends_in_every_phase {
    ($phases:expr) => {
        #[tokio::test]
        async fn end_of_input_ends_everything_in_every_phase() {
            futures::future::join_all($phases.map(|phase| phase.end(None))).await;
        }

        #[tokio::test]
        async fn sigterm_ends_everything_in_every_phase() {
            let signal = Some(testkit::Signal::SIGTERM);
            futures::future::join_all($phases.map(|phase| phase.end(signal))).await;
        }

        #[tokio::test]
        async fn sigint_ends_everything_in_every_phase() {
            let signal = Some(testkit::Signal::SIGINT);
            futures::future::join_all($phases.map(|phase| phase.end(signal))).await;
        }

        #[tokio::test]
        async fn killed_server_leaves_no_process_in_any_phase() {
            futures::future::join_all($phases.map(|phase| phase.kill())).await;
        }
    };
}
pub(super) use ends_in_every_phase;
