//! The machine: what is shown, and what a key does.

use std::time::SystemTime;

use codex_engine::logic::action::Decision;
use crossterm::event::{Event, KeyCode as Key, KeyEventKind, KeyModifiers};
use work_board::{AllWork, Kind};

use super::choices::{self, Choice};
use super::list::WorkList;
use super::mode::{Act, Draft, Effect, Mode, Notice, OpenForm, Purpose, Target};
use super::opened::{self, Content, Opened};

/// How far a page moves the selection of the list.
const PAGE: usize = 10;

pub(crate) const QUESTION_CLOSED: &str = "The question was closed meanwhile.";

/// The text of a message that nothing takes, so that it can be copied.
fn unsent(draft: &Draft) -> String {
    format!("Not sent: {}", draft.text)
}

/// All that is shown.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) list: WorkList,
    pub(crate) opened: Option<Opened>,
    pub(crate) mode: Mode,
    pub(crate) notice: Option<Notice>,
    /// The last message that was refused.
    draft: Option<Draft>,
    pub(crate) now: SystemTime,
}

impl App {
    pub(crate) fn new(now: SystemTime) -> Self {
        Self {
            list: WorkList::default(),
            opened: None,
            mode: Mode::Browse,
            notice: None,
            draft: None,
            now,
        }
    }

    /// Takes the list of all work.
    pub(crate) fn set_work(&mut self, work: AllWork) {
        if !self.list.set(work) {
            return;
        }
        if let Some(opened) = &mut self.opened {
            let work = self.list.find(&opened.target.id);
            opened.set_work(work, self.now);
        }
        self.drop_closed_question();
    }

    /// Takes what is known of some work, if it is the open one.
    pub(crate) fn set_content(&mut self, of: &Target, content: Content) {
        if let Some(opened) = &mut self.opened
            && opened.target == *of
        {
            opened.set_content(content);
        }
    }

    pub(crate) fn notify(&mut self, text: impl Into<String>, is_failure: bool) {
        let text = text.into();
        self.notice = Some(Notice { text, is_failure });
    }

    /// Opens some work.
    pub(crate) fn open(&mut self, target: Target) -> Effect {
        let work = self.list.find(&target.id).cloned();
        self.opened = Some(Opened::new(target.clone(), work));
        self.mode = Mode::Browse;
        Effect::Follow(target)
    }

    /// Opens a fork, or a job that was submitted again, unless the work it came from was left
    /// meanwhile, or something is being typed or confirmed.
    pub(crate) fn begun(&mut self, from: &Target, new: Target) -> Option<Effect> {
        if !self.is_open(from) || self.mode != Mode::Browse {
            self.notify(format!("New: {} {}", new.kind.as_ref(), new.id), false);
            return None;
        }
        let words = format!("This is the new {}.", new.kind.as_ref());
        let effect = self.open(new);
        self.notify(words, false);
        Some(effect)
    }

    /// Keeps a refused message, so that it can be sent again if the work still takes messages. It is not
    /// opened at once: the next keys are meant for what is shown now.
    pub(crate) fn not_sent(&mut self, draft: Draft) {
        let Draft { target, why, .. } = &draft;
        let takes_messages = match &self.opened {
            Some(opened) if opened.target == *target => opened.allows(Act::Send),
            _ => !opened::has_ended(target, self.list.find(&target.id)),
        };
        let next = match (takes_messages, self.is_open(target)) {
            (true, true) => "Press s to edit the message again.".to_owned(),
            (true, false) => format!(
                "Open {} {}. Press s to edit the message again.",
                target.kind.as_ref(),
                target.id
            ),
            (false, _) => unsent(&draft),
        };
        self.notify(format!("{why}. {next}"), true);
        self.draft = Some(draft);
    }

    fn is_open(&self, target: &Target) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.target == *target)
    }

    /// An answer that has not been confirmed is not for the next question.
    fn drop_closed_question(&mut self) {
        let (asked, next) = match &self.mode {
            Mode::Confirm {
                effect: Effect::Answer { question, .. },
                ..
            } => (question, Mode::Browse),
            Mode::Type {
                purpose: Purpose::Field(OpenForm { question, .. }),
                ..
            } => (question, Mode::Closed),
            _ => return,
        };
        let work = self.opened.as_ref().and_then(|opened| opened.work.as_ref());
        let is_open = work.is_some_and(|work| work.questions.iter().any(|one| one.id == *asked));
        if !is_open {
            self.mode = next;
            self.notify(QUESTION_CLOSED, true);
        }
    }

    /// Handles an event of the terminal.
    pub(crate) fn take(&mut self, event: Event) -> Option<Effect> {
        let key = match event {
            Event::Paste(text) => {
                self.paste(&text);
                return None;
            }
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            _ => return None,
        };
        let modifiers = key.modifiers - KeyModifiers::SHIFT;
        match (modifiers == KeyModifiers::CONTROL, key.code) {
            (true, Key::Char('c')) => Some(Effect::Quit),
            (true, Key::Char('z')) => Some(Effect::Suspend),
            _ if modifiers.is_empty() => self.press(key.code),
            _ => None,
        }
    }

    /// A text from the clipboard is never a key.
    pub(crate) fn paste(&mut self, pasted: &str) {
        match &mut self.mode {
            Mode::Type { purpose, text } => {
                // Terminals send the key Enter for the end of a line.
                text.push_str(&pasted.replace("\r\n", "\n").replace('\r', "\n"));
                if *purpose == Purpose::Filter {
                    self.list.filter.clone_from(text);
                }
            }
            Mode::Closed => {}
            mode => {
                *mode = Mode::Browse;
                let words = match &self.opened {
                    Some(opened) if !opened.allows(Act::Send) => opened.refusal(Act::Send),
                    _ => "Press s to write a message, and paste then.",
                };
                self.notify(words, true);
            }
        }
    }

    /// Handles a key.
    pub(crate) fn press(&mut self, key: Key) -> Option<Effect> {
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Closed if !matches!(key, Key::Enter | Key::Esc) => {
                self.mode = Mode::Closed;
                None
            }
            Mode::Help | Mode::Closed => None,
            Mode::Type { purpose, text } => self.press_typing(key, purpose, text),
            Mode::Confirm { effect, .. } if key == Key::Enter => Some(effect),
            Mode::Confirm { .. } => {
                self.notify("Nothing was done.", false);
                None
            }
            Mode::Browse => {
                self.notice = None;
                match self.opened.is_some() {
                    true => self.press_opened(key),
                    false => self.press_list(key),
                }
            }
        }
    }

    fn press_list(&mut self, key: Key) -> Option<Effect> {
        match key {
            Key::Char('q') => return Some(Effect::Quit),
            Key::Esc if self.list.filter.is_empty() => return Some(Effect::Quit),
            Key::Esc => self.list.filter.clear(),
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('/') => {
                let text = self.list.filter.clone();
                self.type_text(Purpose::Filter, text);
            }
            Key::Char('j') | Key::Down => self.list.select(|at| at + 1),
            Key::Char('k') | Key::Up => self.list.select(|at| at.saturating_sub(1)),
            Key::PageDown => self.list.select(|at| at + PAGE),
            Key::PageUp => self.list.select(|at| at.saturating_sub(PAGE)),
            Key::Char('g') | Key::Home => self.list.select(|_| 0),
            Key::Char('G') | Key::End => self.list.select(|_| usize::MAX),
            Key::Enter => {
                let (id, kind) = self
                    .list
                    .selected()
                    .map(|work| (work.id.clone(), work.kind))?;
                self.list.select(|at| at);
                return Some(self.open(Target { id, kind }));
            }
            _ => {}
        }
        None
    }

    fn press_opened(&mut self, key: Key) -> Option<Effect> {
        let opened = self.opened.as_mut()?;
        let page = usize::from(opened.screen.height).saturating_sub(1).max(1);
        match key {
            Key::Char('q') | Key::Esc => {
                self.opened = None;
                return Some(Effect::Unfollow);
            }
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('j') | Key::Down => opened.below = opened.below.saturating_sub(1),
            Key::Char('k') | Key::Up => opened.below = opened.below.saturating_add(1),
            Key::PageDown | Key::Char(' ') => opened.below = opened.below.saturating_sub(page),
            Key::PageUp => opened.below = opened.below.saturating_add(page),
            Key::Char('g') | Key::Home => opened.below = usize::MAX,
            Key::Char('G') | Key::End => opened.below = 0,
            Key::Char(digit) if digit.is_ascii_digit() => self.choose(digit),
            Key::Char(key) => return self.begin(Act::of_key(key)?),
            _ => {}
        }
        None
    }

    /// Begins an action on the open work, if its state allows it.
    fn begin(&mut self, act: Act) -> Option<Effect> {
        let opened = self.opened.as_mut()?;
        let target = opened.target.clone();
        if !opened.allows(act) {
            let draft = self.draft.as_ref();
            let refusal = match draft.filter(|draft| act == Act::Send && draft.target == target) {
                Some(draft) => format!("{} {}", opened.refusal(act), unsent(draft)),
                None => opened.refusal(act).to_owned(),
            };
            self.notify(refusal, true);
            return None;
        }
        let is_draft = |draft: &mut Draft| act == Act::Send && draft.target == target;
        let draft = self.draft.take_if(is_draft);
        match act {
            Act::Send => {
                let (text, problem) = draft.map(|draft| (draft.text, draft.why)).unzip();
                self.type_text(Purpose::Message { problem }, text.unwrap_or_default());
            }
            Act::Interrupt => return Some(Effect::Interrupt(target)),
            Act::ShowDiff => opened.show_diff(!opened.shows_diff),
            Act::Fork => return Some(Effect::Fork(target)),
            Act::End => self.confirm_end(target),
            Act::Retry => self.confirm("submit it again", Effect::Retry(target)),
        }
        None
    }

    fn type_text(&mut self, purpose: Purpose, text: String) {
        self.mode = Mode::Type { purpose, text };
    }

    fn type_field(&mut self, form: OpenForm) {
        let preset = form.field().and_then(|field| field.preset.clone());
        self.type_text(Purpose::Field(form), preset.unwrap_or_default());
    }

    fn confirm_end(&mut self, target: Target) {
        let words = match target.kind {
            Kind::Session => "end the session",
            Kind::Job => "cancel the job",
            Kind::Run => "cancel the run",
        };
        self.confirm(words, Effect::Cancel(target));
    }

    fn confirm(&mut self, words: &str, effect: Effect) {
        let words = format!("Enter: {words}. Any other key: do nothing.");
        self.mode = Mode::Confirm { words, effect };
    }

    /// Takes a choice of the open question, which has to be confirmed.
    fn choose(&mut self, digit: char) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        let Some(question) = opened.question() else {
            return self.notify("Nothing is asked here.", true);
        };
        if opened.has_just_changed(self.now) {
            return self.notify("The question has just changed. Look again.", true);
        }
        let question_id = question.id.to_owned();
        let (all, subject) = (choices::choices(question), question.subject());
        let number = digit
            .to_digit(10)
            .and_then(|number| usize::try_from(number).ok());
        let choice = number.and_then(|number| all.get(number.checked_sub(1)?));
        let Some(choice) = choice.cloned() else {
            return self.notify(format!("There is no choice {digit}."), true);
        };
        // What is decided is to be seen.
        opened.show_diff(false);
        let target = opened.target.clone();
        match &choice {
            Choice::Type(fields) => {
                let form = OpenForm::new(question_id, fields.clone());
                self.type_field(form);
            }
            Choice::Decide(decision) => {
                let effect = Effect::Answer {
                    target,
                    question: question_id,
                    decision: decision.clone(),
                };
                self.confirm(&format!("{} ({subject})", choices::label(&choice)), effect);
            }
        }
    }

    fn press_typing(&mut self, key: Key, purpose: Purpose, mut text: String) -> Option<Effect> {
        match key {
            Key::Enter => return self.typed(purpose, text),
            Key::Esc => {
                if purpose == Purpose::Filter {
                    self.list.filter.clear();
                }
                return None;
            }
            Key::Char(character) => text.push(character),
            Key::Backspace => drop(text.pop()),
            _ => {}
        }
        if purpose == Purpose::Filter {
            self.list.filter.clone_from(&text);
        }
        self.type_text(purpose, text);
        None
    }

    fn typed(&mut self, purpose: Purpose, text: String) -> Option<Effect> {
        match purpose {
            Purpose::Filter => None,
            Purpose::Message { .. } if text.trim().is_empty() => None,
            Purpose::Message { .. } => {
                let target = self.opened.as_ref()?.target.clone();
                Some(Effect::Send { target, text })
            }
            Purpose::Field(form) => {
                self.typed_field(form, &text);
                None
            }
        }
    }

    /// Takes the text for a field, and asks for the next one, or to confirm them all.
    fn typed_field(&mut self, mut form: OpenForm, text: &str) {
        let Some(opened) = &self.opened else {
            return;
        };
        let target = opened.target.clone();
        let Some(field) = form.field().cloned() else {
            return;
        };
        let meant = choices::meant(&field, text);
        match field.value(&meant.into()) {
            Ok(value) => {
                form.answers.extend(value.map(|value| (field.id, value)));
                form.at += 1;
                form.problem = None;
            }
            Err(why) => {
                form.problem = Some(why.to_string());
                return self.type_field(form);
            }
        }
        if form.field().is_some() {
            return self.type_field(form);
        }
        let effect = Effect::Answer {
            target,
            question: form.question,
            decision: Decision::Submit(form.answers),
        };
        self.confirm("send the answers", effect);
    }
}
