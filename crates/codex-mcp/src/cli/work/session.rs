//! Sessions of host processes: the requests of the command line, and the answers of the host.

use std::time::{Duration, SystemTime};

use codex_engine::command::OpenQuestion;
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::events::{Event, ResponseMode};
use codex_engine::logic::session::State;
use codex_engine::{AppServers, Attachment, SessionHandle};
use common::text::shell_word;
use host_process::connect::{self, ConnectError};
use host_process::endpoint::HostEndpoint;
use host_process::logic::handshake::{
    ANSWER_LIMIT, AttachAnswer, Door, MOST_QUESTIONS, SessionAct, SessionAnswer, SessionEvent,
    SessionRequest, SessionSummary,
};
use job_queue::question::{NamedQuestion, StoredQuestion};
use job_queue::service::{Response, decision_for};
use serde_json::{Value, json};
use supervise::adoptable::ADOPTION_WAIT;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::Failure;
use crate::cli::serve;
use crate::cli::stored::complain;
use crate::cli::work_list;
use crate::cli::wrong_state::{Verb, WrongState};

/// The most events in one answer: an answer has room for this many of the longest events, which are
/// texts of 16,384 characters that take 6 bytes each.
const PAGE: usize = 64;

/// The size in bytes of the JSON of a session's questions that are sent in full. The rest of the
/// answer has room for the other questions in their shortest form.
const IN_FULL: usize = ANSWER_LIMIT / 2;

/// How long Codex may take to accept a text. It takes some milliseconds.
const STEER_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before the next host is looked for again.
const NEXT_HOST_PAUSE: Duration = Duration::from_millis(300);

/// The advice for a session in which no turn runs.
const NEXT_TURN: &str = "a message from its client or `codex-mcp top` begins the next turn";

/// A session of a host process.
#[derive(Debug)]
pub(super) struct HostedSession {
    endpoint: HostEndpoint,
    id: String,
    questions: Vec<NamedQuestion>,
}

impl HostedSession {
    /// The session with this ID or ID prefix, on whichever host it is. If none has it, and one was
    /// killed, the next host is waited for. A warning names each host that does not answer.
    pub(super) async fn find(text: &str) -> Result<Self, Failure> {
        let deadline = Instant::now() + ADOPTION_WAIT;
        let (mut found, failures) = loop {
            let (found, mut failures) = Self::look_up(text).await?;
            let lost = failures.iter().position(ConnectError::is_of_lost_host);
            match lost {
                Some(_) if found.is_empty() && Instant::now() < deadline => {
                    await_next_host().await?;
                }
                Some(lost) if found.is_empty() => return Err(failures.swap_remove(lost).into()),
                _ => break (found, failures),
            }
        };
        for error in failures {
            complain("warning", &error.to_string());
        }
        match (found.pop(), found.is_empty()) {
            (None, _) => Err(Failure::NoSession(text.to_owned())),
            (Some(only), true) => Ok(only),
            (Some(last), false) => Err(Failure::Ambiguous {
                prefix: text.to_owned(),
                found: found.into_iter().chain([last]).map(|one| one.id).collect(),
            }),
        }
    }

    /// The sessions with this ID or ID prefix, and the errors of the hosts that do not answer.
    async fn look_up(text: &str) -> Result<(Vec<Self>, Vec<ConnectError>), Failure> {
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for endpoint in serve::all_endpoints()? {
            let request = SessionRequest {
                session: text.to_owned(),
                act: SessionAct::Look,
            };
            match connect::act(&endpoint, &request).await {
                Ok(SessionAnswer::Found { session, questions }) => {
                    let read = |question| serde_json::from_value(question).ok();
                    found.push(Self {
                        endpoint,
                        id: session,
                        questions: questions.into_iter().filter_map(read).collect(),
                    });
                }
                Ok(SessionAnswer::Refused { why }) => return Err(Failure::Refused(why)),
                Ok(_) => {}
                Err(error) => failures.push(error),
            }
        }
        Ok((found, failures))
    }

    /// Its open questions.
    pub(super) fn questions(&self) -> &[NamedQuestion] {
        &self.questions
    }

    /// What a question asks, on one line.
    pub(super) fn question_summary(&self, id: &str) -> String {
        let asked = self.questions.iter().find(|one| one.id == id);
        asked.map_or_else(String::new, |one| one.question.summary())
    }

    /// Its ID, as it is shown at a terminal.
    pub(super) fn short(&self) -> &str {
        self.id.get(..work_list::SESSION_ID).unwrap_or(&self.id)
    }

    /// The command that continues its thread. `None` if its host says nothing of it.
    pub(super) async fn resume_command(&self) -> Option<String> {
        let SessionSummary {
            thread, directory, ..
        } = self.summary().await?;
        let directory = directory.map(|directory| format!("--cwd {} ", shell_word(directory)));
        let directory = directory.unwrap_or_default();
        Some(format!(
            "codex-mcp run {directory}--thread {thread} \"...\""
        ))
    }

    /// Whether it was cancelled. `false` if its host does not say so.
    pub(super) async fn is_cancelled(&self) -> bool {
        self.state().await == Some(State::Cancelled)
    }

    /// The result of a verb. If the state of the session does not allow the verb, the error says so.
    pub(super) async fn explained<T>(
        &self,
        verb: Verb,
        result: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match result {
            Err(error @ (Failure::Refused(_) | Failure::NotAsked(_))) => {
                let wrong_state = self.wrong_state(verb).await;
                Err(wrong_state.map_or(error, Failure::WrongState))
            }
            other => other,
        }
    }

    /// The error of a verb in the present state of the session; `None` if the state allows it.
    async fn wrong_state(&self, verb: Verb) -> Option<WrongState> {
        let (state, instead) = match (self.state().await?, verb) {
            (State::Cancelled, _) => {
                let resume = self.resume_command().await?;
                ("cancelled", format!("`{resume}` continues its thread"))
            }
            (State::Idle, Verb::Steer) => ("idle", NEXT_TURN.to_owned()),
            (State::Error, Verb::Steer) => ("in error", NEXT_TURN.to_owned()),
            _ => return None,
        };
        Some(WrongState {
            verb,
            work: format!("session {}", self.short()),
            state: state.to_owned(),
            instead,
        })
    }

    /// Its present state, if its host names one that is known.
    async fn state(&self) -> Option<State> {
        serde_json::from_value(self.summary().await?.state.into()).ok()
    }

    /// When it began, if its host says so.
    pub(super) async fn began(&self) -> Option<SystemTime> {
        Some(self.summary().await?.created)
    }

    async fn summary(&self) -> Option<SessionSummary> {
        let all = connect::sessions(&self.endpoint).await.ok()?;
        all.into_iter().find(|one| one.session == self.id)
    }

    /// Has the host perform an action that it only confirms.
    pub(super) async fn act(&self, act: SessionAct) -> Result<(), Failure> {
        match self.ask(act).await? {
            SessionAnswer::Done => Ok(()),
            _ => Err(Failure::UnexpectedAnswer),
        }
    }

    /// Asks the host something about the session.
    pub(super) async fn ask(&self, act: SessionAct) -> Result<SessionAnswer, Failure> {
        self.accepted(connect::act(&self.endpoint, &self.request(act)).await?)
    }

    /// Asks for a page of its events. If its host was killed, the next one is waited for.
    pub(super) async fn events(&self, from: u64) -> Result<SessionAnswer, Failure> {
        let deadline = Instant::now() + ADOPTION_WAIT;
        loop {
            match self.ask(SessionAct::Events { from }).await {
                Err(Failure::Connect(error))
                    if error.is_of_lost_host() && Instant::now() < deadline =>
                {
                    await_next_host().await?;
                }
                answer => return answer,
            }
        }
    }

    /// Asks the host how to open Codex's program on the session. The host stays as long as the
    /// returned connection is open.
    pub(super) async fn attach(&self) -> Result<(AttachAnswer, UnixStream), Failure> {
        let request = self.request(SessionAct::Attach);
        let answered = connect::act_and_stay(&self.endpoint, &request).await?;
        let (answer, stream) = answered.ok_or_else(|| Failure::NoSession(self.id.clone()))?;
        match self.accepted(answer)? {
            SessionAnswer::Attach(answer) => Ok((answer, stream)),
            _ => Err(Failure::UnexpectedAnswer),
        }
    }

    fn request(&self, act: SessionAct) -> SessionRequest {
        SessionRequest {
            session: self.id.clone(),
            act,
        }
    }

    fn accepted(&self, answer: SessionAnswer) -> Result<SessionAnswer, Failure> {
        match answer {
            SessionAnswer::Unknown => Err(Failure::NoSession(self.id.clone())),
            SessionAnswer::Refused { why } => Err(Failure::Refused(why)),
            answer => Ok(answer),
        }
    }

    /// The question with this ID prefix, or else the only one, and the decision that a response
    /// makes about it.
    pub(super) fn decision(
        &self,
        named: Option<&str>,
        response: Response,
    ) -> Result<(String, Decision), Failure> {
        let is_meant = |one: &&NamedQuestion| named.is_none_or(|name| one.id.starts_with(name));
        let meant: Vec<&NamedQuestion> = self.questions.iter().filter(is_meant).collect();
        match meant.as_slice() {
            [] => Err(Failure::NotAsked(self.short().to_owned())),
            [NamedQuestion { id, question }] => {
                Ok((id.clone(), decision_for(id, question, response)?))
            }
            several => Err(Failure::SeveralQuestions {
                session: self.short().to_owned(),
                questions: several.iter().map(|one| one.id.clone()).collect(),
            }),
        }
    }
}

/// Waits a moment for the next host. One for this environment is started: the sessions may have no
/// client that would start it.
async fn await_next_host() -> Result<(), Failure> {
    serve::start_awaited_host().await?;
    sleep(NEXT_HOST_PAUSE).await;
    Ok(())
}

/// The answer of a host to a request about one of its sessions.
pub(in crate::cli) async fn answer_of(
    app_servers: &AppServers,
    request: SessionRequest,
) -> SessionAnswer {
    let session = match app_servers.session(&request.session) {
        Ok(Some(session)) => session,
        Ok(None) => return SessionAnswer::Unknown,
        Err(error) => return refused(error),
    };
    // A reader leaves the session to its client, which has its tools and its audit.
    if !matches!(request.act, SessionAct::Look | SessionAct::Events { .. }) {
        session.restore().await;
    }
    if matches!(request.act, SessionAct::Look | SessionAct::Answer { .. }) {
        session.questions_restored().await;
    }
    match request.act {
        SessionAct::Look => look(&session),
        SessionAct::Events { from } => events(&session, from),
        SessionAct::Interrupt if session.has_turn() => {
            session.interrupt(session.view().turn);
            SessionAnswer::Done
        }
        SessionAct::Interrupt => refused("no turn runs"),
        SessionAct::Cancel { .. } if session.view().state == State::Cancelled => {
            refused("the session was cancelled before")
        }
        SessionAct::Cancel { door } => {
            session
                .cancel(match door {
                    Door::Terminal => "by a user at a terminal",
                    Door::Page => "by a user on the web page",
                })
                .await;
            SessionAnswer::Done
        }
        SessionAct::Attach => attach(&session),
        SessionAct::Steer { text } => match timeout(STEER_TIMEOUT, session.steer(&text)).await {
            Ok(steered) => confirmed(steered),
            Err(_) => refused("Codex has not said within 5 s whether it takes the text"),
        },
        SessionAct::Answer {
            question,
            decision,
            reason,
            door,
        } => match serde_json::from_value::<Decision>(decision) {
            Ok(decision) => {
                let question = ActionId(question);
                let by = match door {
                    Door::Terminal => DecidedBy::Terminal,
                    Door::Page => DecidedBy::Page,
                };
                confirmed(session.respond(by, &question, &decision, reason.as_deref()))
            }
            Err(error) => refused(error),
        },
    }
}

fn look(session: &SessionHandle) -> SessionAnswer {
    let is_bounded = session.sandbox_bound().is_some();
    SessionAnswer::Found {
        session: session.id().to_string(),
        questions: told_questions(&session.questions(), is_bounded),
    }
}

/// The open questions of a session, as a host sends them: in full as long as there is room.
fn told_questions(open: &[OpenQuestion], is_bounded: bool) -> Vec<Value> {
    let mut room = IN_FULL;
    let told = |open: &OpenQuestion| {
        let named = |question| {
            json!(NamedQuestion {
                id: open.id.0.clone(),
                question,
            })
        };
        let question = StoredQuestion::new(open, is_bounded);
        let whole = named(question.clone());
        match room.checked_sub(whole.to_string().len()) {
            Some(left) => {
                room = left;
                whole
            }
            None => named(question.shortest()),
        }
    };
    open.iter().take(MOST_QUESTIONS).map(told).collect()
}

fn attach(session: &SessionHandle) -> SessionAnswer {
    match session.attach() {
        Ok(Attachment {
            program,
            address,
            token,
            thread,
            directory,
        }) => SessionAnswer::Attach(AttachAnswer {
            program,
            address,
            token,
            thread: thread.to_string(),
            directory,
        }),
        Err(error) => refused(error),
    }
}

fn events(session: &SessionHandle, from: u64) -> SessionAnswer {
    // This is read first: if no turn runs, all events of the last one are there.
    let is_running = session.has_turn();
    let page = session.events(from, PAGE);
    SessionAnswer::Events {
        events: page.events.iter().map(told).collect(),
        next: page.next,
        first: session.first_event(),
        is_running,
    }
}

/// An event, as a host tells it.
pub(in crate::cli) fn told(event: &Event) -> SessionEvent {
    SessionEvent {
        at: event.at,
        words: event.words(),
        data: event.shown(ResponseMode::Full),
    }
}

fn confirmed<E: std::fmt::Display>(done: Result<(), E>) -> SessionAnswer {
    match done {
        Ok(()) => SessionAnswer::Done,
        Err(error) => refused(error),
    }
}

fn refused(error: impl std::fmt::Display) -> SessionAnswer {
    SessionAnswer::Refused {
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use codex_protocol::codex::{Ask, CommandApproval};

    use super::*;

    fn open(command: &str) -> OpenQuestion {
        OpenQuestion {
            id: ActionId("req_1".to_owned()),
            ask: Ask::Command(CommandApproval {
                command: Some(command.to_owned()),
                ..CommandApproval::default()
            }),
            shown: json!({ "command": command }),
            expires: UNIX_EPOCH,
        }
    }

    /// A question of about 48 KiB of JSON.
    fn long() -> OpenQuestion {
        open(&"x\n".repeat(16_000))
    }

    #[test]
    fn questions_of_a_session_fit_into_an_answer() {
        let all = vec![long(); MOST_QUESTIONS + 1];
        let in_full = json!(StoredQuestion::new(&all[0], false)).to_string().len();
        assert!(in_full * MOST_QUESTIONS > ANSWER_LIMIT);
        let told = told_questions(&all, false);
        let length = json!(told).to_string().len();
        assert!(length < ANSWER_LIMIT, "{length}");
        let told: Vec<NamedQuestion> = serde_json::from_value(told.into()).unwrap();
        assert_eq!(told.len(), MOST_QUESTIONS);
        assert!(told[0].question.details.is_some());
        assert!(told[MOST_QUESTIONS - 1].question.details.is_none());
        for one in told {
            assert!(one.question.text.contains("Codex wants to run a command"));
            assert!(one.question.decisions.contains(&Decision::Accept));
        }
    }

    /// A short question after long ones is told in full.
    #[test]
    fn short_question_is_told_in_full() {
        let told = told_questions(&[vec![long(); 100], vec![open("ls")]].concat(), false);
        let before: NamedQuestion = serde_json::from_value(told[99].clone()).unwrap();
        assert!(before.question.details.is_none());
        let last = told.last().cloned().unwrap();
        let last: NamedQuestion = serde_json::from_value(last).unwrap();
        assert!(last.question.details.is_some());
    }
}
