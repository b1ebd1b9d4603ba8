//! Questions of a misbehaving Codex in the turn of a job.

use std::sync::Arc;
use std::time::Duration;

use codex_engine::logic::action::Decision;
use codex_engine::logic::work::FailureClass;
use job_queue::call::{CallOutcome, CallRequest, CallUpdate, Control, PendingDirective, run};
use job_queue::call_settings::Approval;
use job_queue::directive::{Answer, Directive};
use serde_json::{Map, Value, json};
use testkit::Home;
use testkit::fake::{Action, FakeCodex, Plan, Question, TurnEnd};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::calls::planned;
use crate::jobs::kill_codex;
use crate::runs::{assert_failed, assert_said, request};

/// A turn in which Codex asks these, one after the other.
fn asking(questions: impl IntoIterator<Item = Question>) -> Plan {
    let asks = questions.into_iter().map(|question| Action::Ask {
        method: question.method,
        params: question.params,
    });
    let begin = [Action::Answer, Action::StartTurn];
    let end = [Action::say("ok"), Action::EndTurn(TurnEnd::Completed)];
    let all = begin.into_iter().chain(asks).chain(end);
    Plan::new().on("turn/start", all.collect::<Vec<_>>())
}

fn user_input() -> Question {
    Question {
        method: "item/tool/requestUserInput".to_owned(),
        params: json!({ "itemId": "i", "questions": [
            { "id": "colour", "header": "Colour", "question": "Which?", "options": null },
        ] }),
    }
}

/// A request whose questions are put to a person.
fn asked(home: &Home) -> CallRequest {
    let mut request = request(home, "hi");
    request.settings.approval = Approval::Ask;
    request
}

/// Runs the request; each question gets this answer, or none, after this time.
async fn answered(
    plan: &Plan,
    request: impl FnOnce(&Home) -> CallRequest,
    after: Duration,
    answer: impl Fn(&Home, &str) -> Option<Decision> + Send + 'static,
) -> (CallOutcome, Vec<Value>, Vec<Result<(), String>>) {
    let (home, engine, fake) = planned(plan);
    let home = Arc::new(home);
    let of_answers = Arc::clone(&home);
    let (give, mut directives) = mpsc::unbounded_channel();
    let (ask, mut questions) = mpsc::unbounded_channel::<String>();
    let answering = tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(question) = questions.recv().await {
            sleep(after).await;
            let Some(decision) = answer(&of_answers, &question) else {
                continue;
            };
            let (tell, said) = oneshot::channel();
            let directive = Directive::Answer(Answer {
                question,
                decision,
                reason: None,
                by: None,
            });
            let given = PendingDirective {
                directive,
                bound: None,
                reply: tell,
            };
            if give.send(given).is_ok() {
                told.push(said.await.unwrap());
            }
        }
        told
    });
    let hear = move |news: CallUpdate<'_>| {
        if let CallUpdate::Questions(open) = news {
            for one in open {
                ask.send(one.id.0.clone()).unwrap();
            }
        }
    };
    let control = Control {
        cancel: CancellationToken::new(),
        directives: Some(&mut directives),
    };
    let outcome = run(&engine, &request(&home), hear, control).await;
    drop(directives);
    engine.shut_down().await;
    let told = answering.await.unwrap();
    // Its log is in the home.
    (outcome, results(&fake), told)
}

fn results(fake: &FakeCodex) -> Vec<Value> {
    let received = fake.received().into_iter();
    let results = received.filter(|message| message.get("method").is_none());
    results.map(|message| message["result"].clone()).collect()
}

#[tokio::test]
async fn open_question_does_not_count_as_turn_time() {
    let limited = |home: &Home| CallRequest {
        timeout: Duration::from_secs(2),
        ..asked(home)
    };
    let plan = asking([Question::approval("ls")]);
    let late = Duration::from_secs(4);
    let (outcome, ..) = answered(&plan, limited, late, |_, _| Some(Decision::Accept)).await;
    assert_said(&outcome, "ok");

    // The control: a turn in which nothing is asked is ended.
    let hang = Plan::new().on("turn/start", [Action::Answer, Action::StartTurn]);
    let (outcome, ..) = answered(&hang, limited, late, |_, _| None).await;
    assert_failed(&outcome, FailureClass::Timeout);
}

#[tokio::test]
async fn text_answer_reaches_codex() {
    let words = Map::from_iter([("colour".to_owned(), json!("red"))]);
    let submit = move |_: &Home, _: &str| Some(Decision::Submit(words.clone()));
    let (outcome, results, told) =
        answered(&asking([user_input()]), asked, Duration::ZERO, submit).await;
    assert_said(&outcome, "ok");
    assert_eq!(told, [Ok(())]);
    let red = json!({ "answers": { "colour": { "answers": ["red"] } } });
    assert!(results.contains(&red), "{results:#?}");
}

/// A decision that was not offered leaves the question open.
#[tokio::test]
async fn answer_that_does_not_fit_is_refused() {
    let other = Decision::AcceptWithExecpolicyAmendment(vec!["rm".to_owned()]);
    let plan = asking([Question::approval("ls")]);
    let briefly = |home: &Home| {
        let mut request = asked(home);
        request.settings.approval_timeout_ms = Some(1000);
        request
    };
    let (outcome, results, told) = answered(&plan, briefly, Duration::ZERO, move |_, _| {
        Some(other.clone())
    })
    .await;
    assert_said(&outcome, "ok");
    let refused = told[0].as_ref().unwrap_err();
    assert!(refused.contains("not among those"), "{refused}");
    // No other answer came in time.
    let declined = results.iter().any(|one| one["decision"] == "decline");
    assert!(declined, "{results:#?}");
}

#[tokio::test]
async fn codex_that_dies_with_a_question_open_ends_the_turn() {
    let plan = asking([Question::approval("ls")]);
    let (outcome, _, told) = answered(&plan, asked, Duration::ZERO, |home, _| {
        kill_codex(home);
        None
    })
    .await;
    assert_failed(&outcome, FailureClass::Signal);
    assert_eq!(told, []);
}
