//! What the machine wants done, and what a shell and a terminal want of a program.

use std::io;
use std::time::Duration;

use codex_mcp_core::eyes::machine::{Effect, Input, Leave, Resume};
use codex_mcp_core::eyes::path::{PicturePath, SHOWN_PATH};
use codex_mcp_core::eyes::picture::{BadPicture, Why};
use codex_mcp_core::text::one_line;
use nix::sys::signal;
use nix::unistd::Pid;
use tokio::time::{Instant, timeout};

use super::{Ended, FLUSH, Parts, Wrapper};
use crate::eyes::signals::Heard;
use crate::off_runtime;

/// How long we listen why we go on.
const WOKEN: Duration = Duration::from_millis(1);

impl Wrapper {
    pub(super) async fn perform(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::End => {
                self.flow.ending = true;
                self.typed.clear();
                if let Some(running) = &self.running {
                    running.process.terminate();
                }
                None
            }
            Effect::Check(path) => self.check(&path).await,
            Effect::Start(resume) => {
                let started = self.start(&resume);
                self.flush(Instant::now() + FLUSH).await;
                self.apply(match started {
                    Ok(()) => Input::Started,
                    Err(error) => Input::NotStarted(error.to_string()),
                })
            }
            Effect::Leave(_) => None,
        }
    }

    async fn check(&mut self, path: &PicturePath) -> Option<Effect> {
        let (place, asked) = (self.parts.place.clone(), path.clone());
        let read = off_runtime::run(move || place.read(&asked)).await;
        let read = read.unwrap_or_else(|error| {
            Err(BadPicture {
                path: path.clone(),
                why: Why::Unreadable(error.to_string()),
            })
        });
        let kept = read.and_then(|bytes| self.copies.keep(path, &bytes));
        let shown = one_line(path.as_str(), SHOWN_PATH);
        let said = match &kept {
            Ok(_) => format!("\r\ncodex-mcp: Codex asked for {shown} and goes on with it.\r\n"),
            Err(error) => format!("\r\ncodex-mcp: Codex asked for {shown}, but: {error}.\r\n"),
        };
        self.say(said.as_bytes());
        let checked = kept.map(|copy| self.attachment = Some(copy));
        self.apply(Input::Checked(checked))
    }

    fn start(&mut self, resume: &Resume) -> io::Result<()> {
        let Parts {
            terminal, codex, ..
        } = &self.parts;
        let attachment = self.attachment.take().filter(|_| resume.picture.is_some());
        let running = codex.resume(
            &resume.session,
            attachment.as_ref(),
            &resume.words,
            terminal.size()?,
            terminal.manner(),
        )?;
        self.running = Some(running);
        self.flow.codex_closed = false;
        self.flow.ending = false;
        self.look_at = Some(Instant::now());
        Ok(())
    }

    pub(super) fn resize(&mut self) {
        let Ok(size) = self.parts.terminal.size() else {
            return;
        };
        self.screen.resize(size);
        if let Some(running) = &self.running {
            // It has gone if this fails, and we are about to hear of it.
            let _ = running.tty.resize(size);
        }
    }

    /// Stops as Codex has, and lets it go on when we do, in a terminal that is as Codex
    /// has left it: 0.153.4 may switch on again what it uses before it has stopped.
    pub(super) async fn stop(&mut self) -> Option<Effect> {
        self.drain(Instant::now() + FLUSH).await;
        let undo = self.screen.undo();
        self.parts.terminal.undo_with(undo);
        // If the terminal has gone, we hear of it below.
        let _ = self.parts.terminal.put_back();
        // All of our group: whoever has started us waits for that.
        let _ = signal::kill(Pid::from_raw(0), signal::Signal::SIGTSTP);
        // In the background, taking the terminal would stop us again before we have
        // heard why we go on.
        while let Ok(heard) = timeout(WOKEN, self.signals.next()).await {
            if let Heard::End(signal) = heard {
                return self.apply(Input::Told(signal));
            }
        }
        let gone = self.take_the_terminal();
        if gone.is_none() {
            self.shown.extend(self.screen.redo());
            self.parts.terminal.undo_with(self.screen.undo());
            self.flush(Instant::now() + FLUSH).await;
        }
        if let Some(running) = &self.running {
            running.process.go_on();
        }
        gone
    }

    pub(super) fn take_the_terminal(&mut self) -> Option<Effect> {
        match self.parts.terminal.make_raw() {
            Ok(()) => {
                self.resize();
                None
            }
            Err(_) => self.user_gone(),
        }
    }

    pub(super) async fn leave(mut self, leave: Leave) -> Ended {
        self.flush(Instant::now() + FLUSH).await;
        if self.running.is_some() {
            let undo = self.screen.undo();
            self.parts.terminal.undo_with(undo);
        }
        Ended {
            leave,
            conversation: self.machine.thread().cloned(),
            trouble: self.trouble,
        }
    }
}
