//! Performs the effects of the machine, and handles stops and resizes of the terminal.

use std::io;
use std::time::Duration;

use common::text::one_line;
use nix::sys::signal;
use nix::unistd::Pid;
use safe_files::off_runtime;
use tokio::time::{Instant, timeout};

use super::{FLUSH, Wrapper, WrapperConfig, WrapperResult};
use crate::logic::arguments::Attachment;
use crate::logic::contract::left_out;
use crate::logic::machine::{Effect, Input, Resume, Shutdown};
use crate::logic::path::{PicturePath, SHOWN_PATH};
use crate::logic::picture::{BadPicture, BadPictureReason};
use crate::logic::requested::{MOST_PICTURES, RequestedPictures};
use crate::signals::SignalEvent;

/// How long to wait for the signals that explain why the process was continued.
const WOKEN: Duration = Duration::from_millis(1);

impl Wrapper {
    pub(super) async fn perform(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::TerminateCodex => {
                self.streams.ending = true;
                self.typed.clear();
                if let Some(running) = &self.running {
                    running.process.terminate();
                }
                None
            }
            Effect::CheckPictures(requested) => self.check(&requested).await,
            Effect::StartCodex(resume) => {
                if let Some(notice) = &resume.notice {
                    self.say(format!("\r\ncodex-mcp: {notice}.\r\n").as_bytes());
                }
                let started = self.start(&resume);
                self.flush(Instant::now() + FLUSH).await;
                self.apply(match started {
                    Ok(()) => Input::CodexStarted,
                    Err(error) => Input::StartFailed(error.to_string()),
                })
            }
            Effect::ShutDown(_) => None,
        }
    }

    async fn check(&mut self, requested: &RequestedPictures) -> Option<Effect> {
        self.attachments.clear();
        let room = self.copies.clear().map_err(|error| error.to_string());
        let mut bad = Vec::new();
        for path in &requested.pictures {
            let copy = match &room {
                Ok(()) => self.copy(path).await,
                Err(reason) => Err(BadPicture {
                    path: path.clone(),
                    why: BadPictureReason::Unfit(reason.clone()),
                }),
            };
            let shown = one_line(path.as_str(), SHOWN_PATH);
            let said = match &copy {
                Ok(_) => format!("Codex asked for {shown} and continues with it"),
                Err(error) => format!("Codex asked for {shown}, but: {error}"),
            };
            self.say(format!("\r\ncodex-mcp: {said}.\r\n").as_bytes());
            match copy {
                Ok(copy) => self.attachments.push(copy),
                Err(error) => bad.push(error),
            }
        }
        if !requested.left_out.is_empty() {
            let said = format!(
                "\r\ncodex-mcp: Codex gets {MOST_PICTURES} pictures at once, and not {}.\r\n",
                left_out(requested)
            );
            self.say(said.as_bytes());
        }
        self.apply(Input::PicturesChecked(bad))
    }

    async fn copy(&mut self, path: &PicturePath) -> Result<Attachment, BadPicture> {
        let (image_root, asked) = (self.config.image_root.clone(), path.clone());
        let read = off_runtime::run(move || image_root.attachable(&asked)).await;
        let read = read.unwrap_or_else(|error| {
            Err(BadPicture {
                path: path.clone(),
                why: BadPictureReason::Unreadable(error.to_string()),
            })
        });
        self.copies.keep(path, &read?)
    }

    fn start(&mut self, resume: &Resume) -> io::Result<()> {
        let WrapperConfig {
            terminal, codex, ..
        } = &self.config;
        let attachments = match resume.pictures.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.attachments),
        };
        let running = codex.resume(
            &resume.session,
            &attachments,
            &resume.words,
            terminal.size()?,
            terminal.attributes(),
        )?;
        self.running = Some(running);
        self.streams.codex_closed = false;
        self.streams.ending = false;
        self.look_at = Some(Instant::now());
        Ok(())
    }

    pub(super) fn resize(&mut self) {
        let Ok(size) = self.config.terminal.size() else {
            return;
        };
        self.screen.resize(size);
        if let Some(running) = &self.running {
            // If this fails, Codex has exited, which is handled next.
            let _ = running.tty.resize(size);
        }
    }

    /// Stops this process as Codex has stopped, and continues Codex when this process is continued.
    /// The terminal is then set up as Codex left it: 0.153.4 may have switched modes on again
    /// before it stopped.
    pub(super) async fn stop(&mut self) -> Option<Effect> {
        self.drain(Instant::now() + FLUSH).await;
        let undo = self.screen.undo();
        self.config.terminal.set_undo(undo);
        // If the terminal was closed, that is noticed below.
        let _ = self.config.terminal.restore();
        // Stops the whole process group, which is what the shell waits for.
        let _ = signal::kill(Pid::from_raw(0), signal::Signal::SIGTSTP);
        // If this process is in the background, taking the terminal would stop it again before it
        // has handled the signals.
        while let Ok(signal_event) = timeout(WOKEN, self.signals.next()).await {
            if let SignalEvent::End(signal) = signal_event {
                return self.apply(Input::Signalled(signal));
            }
        }
        let gone = self.take_the_terminal();
        if gone.is_none() {
            self.shown.extend(self.screen.redo());
            self.config.terminal.set_undo(self.screen.undo());
            self.flush(Instant::now() + FLUSH).await;
        }
        if let Some(running) = &self.running {
            running.process.resume();
        }
        gone
    }

    pub(super) fn take_the_terminal(&mut self) -> Option<Effect> {
        match self.config.terminal.make_raw() {
            Ok(()) => {
                self.resize();
                None
            }
            Err(_) => self.user_gone(),
        }
    }

    pub(super) async fn shutdown(mut self, shutdown: Shutdown) -> WrapperResult {
        self.flush(Instant::now() + FLUSH).await;
        if self.running.is_some() {
            let undo = self.screen.undo();
            self.config.terminal.set_undo(undo);
        }
        WrapperResult {
            shutdown,
            conversation: self.machine.thread().cloned(),
            trouble: self.trouble,
        }
    }
}
