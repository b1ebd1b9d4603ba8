//! What the machine wants done, and what a shell and a terminal want of a program.

use std::io;
use std::time::Duration;

use common::text::one_line;
use nix::sys::signal;
use nix::unistd::Pid;
use safe_files::off_runtime;
use tokio::time::{Instant, timeout};

use super::{Ended, FLUSH, Parts, Wrapper};
use crate::logic::arguments::Attachment;
use crate::logic::contract::left_out;
use crate::logic::machine::{Effect, Input, Leave, Resume};
use crate::logic::path::{PicturePath, SHOWN_PATH};
use crate::logic::picture::{BadPicture, Why};
use crate::logic::wanted::{MOST_PICTURES, Wanted};
use crate::signals::Heard;

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
            Effect::Check(wanted) => self.check(&wanted).await,
            Effect::Start(resume) => {
                if let Some(notice) = &resume.notice {
                    self.say(format!("\r\ncodex-mcp: {notice}.\r\n").as_bytes());
                }
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

    async fn check(&mut self, wanted: &Wanted) -> Option<Effect> {
        self.attachments.clear();
        let room = self.copies.clear().map_err(|error| error.to_string());
        let mut bad = Vec::new();
        for path in &wanted.pictures {
            let copy = match &room {
                Ok(()) => self.copy(path).await,
                Err(reason) => Err(BadPicture {
                    path: path.clone(),
                    why: Why::Unfit(reason.clone()),
                }),
            };
            let shown = one_line(path.as_str(), SHOWN_PATH);
            let said = match &copy {
                Ok(_) => format!("Codex asked for {shown} and goes on with it"),
                Err(error) => format!("Codex asked for {shown}, but: {error}"),
            };
            self.say(format!("\r\ncodex-mcp: {said}.\r\n").as_bytes());
            match copy {
                Ok(copy) => self.attachments.push(copy),
                Err(error) => bad.push(error),
            }
        }
        if !wanted.left_out.is_empty() {
            let said = format!(
                "\r\ncodex-mcp: Codex gets {MOST_PICTURES} pictures at once, and not {}.\r\n",
                left_out(wanted)
            );
            self.say(said.as_bytes());
        }
        self.apply(Input::Checked(bad))
    }

    async fn copy(&mut self, path: &PicturePath) -> Result<Attachment, BadPicture> {
        let (place, asked) = (self.parts.place.clone(), path.clone());
        let read = off_runtime::run(move || place.read(&asked)).await;
        let read = read.unwrap_or_else(|error| {
            Err(BadPicture {
                path: path.clone(),
                why: Why::Unreadable(error.to_string()),
            })
        });
        self.copies.keep(path, &read?)
    }

    fn start(&mut self, resume: &Resume) -> io::Result<()> {
        let Parts {
            terminal, codex, ..
        } = &self.parts;
        let attachments = match resume.pictures.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.attachments),
        };
        let running = codex.resume(
            &resume.session,
            &attachments,
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
