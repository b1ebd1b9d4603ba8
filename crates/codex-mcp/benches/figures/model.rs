//! The scripted model on a thread of its own, so that it never waits for the
//! client, nor the client for it.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use scripted_model::{Recording, Script, ScriptedModel};
use tokio::sync::oneshot;

/// The model's answer to every prompt.
pub(crate) const ANSWER: &str = "Hello.";

/// The prompt for Codex.
pub(crate) const PROMPT: &str = "Say hello.";

/// A running model. Dropping it ends it.
pub(crate) struct Model {
    codex_config: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    /// A model that plays this script. It keeps none of the requests.
    pub(crate) fn start(script: Script) -> Self {
        let (started, config) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            crate::block_on(async {
                let script = script.recording(Recording::Off);
                let model = ScriptedModel::start(script).await.unwrap();
                started.send(model.codex_config()).unwrap();
                // Also when the sender is dropped.
                let _ = stopped.await;
                model.stop().await;
            });
        });
        Self {
            codex_config: config.recv().unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The `config.toml` of a Codex that is to use it.
    pub(crate) fn codex_config(&self) -> &str {
        &self.codex_config
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed on stderr.
            let _ = thread.join();
        }
    }
}
