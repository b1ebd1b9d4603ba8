//! The decisions that fit a question: those that Codex offers, and always a decline.

use serde_json::{Value, json};
use testkit::fake::Action;

use super::deciding::asked;
use super::{Sessions, ask, decision, join, sent};

const COMMAND: &str = "item/commandExecution/requestApproval";
const USER_INPUT: &str = "item/tool/requestUserInput";

/// A question about a command with these decisions on offer.
fn offering(decisions: Value) -> Action {
    ask(
        COMMAND,
        json!({"command": "git push", "availableDecisions": decisions}),
    )
}

fn user_question() -> Action {
    let questions = json!([{"id": "colour", "header": "Colour", "question": "Which?",
        "options": [{"label": "red", "description": ""}]}]);
    ask(USER_INPUT, json!({"itemId": "i", "questions": questions}))
}

/// The arguments of an answer as text.
fn answers_to(session: &str, question: &Value, answers: Value) -> Value {
    json!({"action": "respond_user_input", "sessionId": session,
        "requestId": question["requestId"], "answers": answers})
}

impl Sessions {
    /// Answers a question in a way that must be refused, and checks that it is still open and
    /// Codex got no answer.
    async fn still_open(&mut self, session: &str, question: &Value, arguments: Value) -> String {
        let answered = self.serve.answers().len();
        let refusal = self.refused("codex_check", arguments).await;
        let state = self.state(session).await;
        assert_eq!(state["status"], "waiting_approval");
        assert_eq!(state["actions"][0], *question);
        assert_eq!(self.serve.answers().len(), answered);
        assert_eq!(refusal.code, "INVALID_ARGUMENT", "{}", refusal.message);
        refusal.message
    }

    /// Decides the only question; returns the answer that Codex gets.
    async fn decided(&mut self, arguments: Value) -> Value {
        self.call("codex_check", arguments).await;
        self.answers(1).await[0]["result"].clone()
    }
}

#[tokio::test]
async fn decision_not_offered_leaves_the_question_open() {
    for (offered, wrong, right) in [
        (json!(["cancel"]), "accept", "acceptForSession"),
        (
            json!(["acceptForSession", "cancel"]),
            "accept",
            "acceptForSession",
        ),
        (json!(["cancel"]), "accept", "decline"),
        (json!([]), "accept", "cancel"),
    ] {
        let (mut sessions, session, question) = asked(offering(offered.clone())).await;
        let mut listed = offered.as_array().unwrap().clone();
        for always in ["acceptForSession", "decline"] {
            if !listed.contains(&json!(always)) {
                listed.push(json!(always));
            }
        }
        assert_eq!(question["availableDecisions"], json!(listed));
        let arguments = decision(&session, &question, wrong);
        let words = sessions.still_open(&session, &question, arguments).await;
        assert!(words.contains("does not offer"), "{words}");
        let arguments = decision(&session, &question, right);
        let answer = sessions.decided(arguments).await;
        assert_eq!(answer, json!({"decision": right}));
        sessions.finish().await;
    }
}

#[tokio::test]
async fn amendment_needs_its_text_and_its_offer() {
    let execpolicy = "acceptWithExecpolicyAmendment";
    let network = "applyNetworkPolicyAmendment";
    let offer =
        json!(["accept", {execpolicy: {"execpolicy_amendment": ["git", "push"]}}, "cancel"]);
    let (mut sessions, session, question) = asked(offering(offer)).await;
    let with = |decided: &str, more: Value| join(decision(&session, &question, decided), more);
    for (arguments, named) in [
        (with(execpolicy, json!({})), "execpolicyAmendment"),
        (
            with(execpolicy, json!({"execpolicyAmendment": []})),
            "execpolicyAmendment",
        ),
        (
            with(execpolicy, json!({"execpolicyAmendment": ["git"]})),
            "proposedExecpolicyAmendment",
        ),
        (with(network, json!({})), "networkPolicyAmendment"),
        (
            with(
                network,
                json!({"networkPolicyAmendment": {"action": "allow", "host": "h"}}),
            ),
            "does not offer",
        ),
    ] {
        let words = sessions.still_open(&session, &question, arguments).await;
        assert!(words.contains(named), "{words}");
    }
    let words = json!(["git", "push", "origin"]);
    let arguments = with(execpolicy, json!({"execpolicyAmendment": words}));
    let answer = sessions.decided(arguments).await;
    assert_eq!(
        answer,
        json!({"decision": {execpolicy: {"execpolicy_amendment": words}}})
    );
    sessions.finish().await;
}

#[tokio::test]
async fn both_spellings_of_an_amendment_reach_codex() {
    let rule = json!({"action": "allow", "host": "example.org"});
    for (name, inside, value, spellings) in [
        (
            "acceptWithExecpolicyAmendment",
            "execpolicy_amendment",
            json!(["git", "push"]),
            ["execpolicyAmendment", "execpolicy_amendment"],
        ),
        (
            "applyNetworkPolicyAmendment",
            "network_policy_amendment",
            rule,
            ["networkPolicyAmendment", "network_policy_amendment"],
        ),
    ] {
        for spelling in spellings {
            let offer = json!([{name: {inside: value}}]);
            let (mut sessions, session, question) = asked(offering(offer)).await;
            let arguments = join(
                decision(&session, &question, name),
                json!({spelling: value}),
            );
            let answer = sessions.decided(arguments).await;
            assert_eq!(
                answer,
                json!({"decision": {name: {inside: value}}}),
                "{spelling}"
            );
            let structured = sessions.events_of(&session, "approval_result").await;
            assert_eq!(structured[0]["data"]["decision"], name);
            sessions.finish().await;
        }
    }
}

#[tokio::test]
async fn text_for_a_decision_and_the_reverse_are_refused() {
    let input = |session: &str, question: &Value| {
        answers_to(session, question, json!({"colour": {"answers": ["red"]}}))
    };
    let (mut sessions, session, question) = asked(Action::ask_approval("touch x")).await;
    let arguments = input(&session, &question);
    let words = sessions.still_open(&session, &question, arguments).await;
    assert!(words.contains("takes a decision"), "{words}");
    let arguments = decision(&session, &question, "accept");
    assert_eq!(
        sessions.decided(arguments).await,
        json!({"decision": "accept"})
    );
    sessions.finish().await;

    let (mut sessions, session, question) = asked(user_question()).await;
    assert_eq!(question["type"], "user_input");
    for wrong in ["accept", "acceptForSession"] {
        let arguments = decision(&session, &question, wrong);
        let words = sessions.still_open(&session, &question, arguments).await;
        assert!(words.contains("answer each field"), "{words}");
    }
    let arguments = input(&session, &question);
    let answer = sessions.decided(arguments).await;
    assert_eq!(answer, json!({"answers": {"colour": {"answers": ["red"]}}}));
    sessions.finish().await;
}

#[tokio::test]
async fn text_does_not_allow_an_mcp_tool() {
    let approval = ask(
        "mcpServer/elicitation/request",
        json!({"serverName": "s", "message": "Call it?",
            "_meta": {"codex_approval_kind": "mcp_tool_call"},
            "requestedSchema": {"type": "object", "properties": {}}}),
    );
    let (mut sessions, session, question) = asked(approval).await;
    for answers in [json!({}), json!({"sure": "yes"})] {
        let arguments = answers_to(&session, &question, answers);
        let words = sessions.still_open(&session, &question, arguments).await;
        assert!(words.contains("takes a decision"), "{words}");
    }
    let answer = sessions
        .decided(decision(&session, &question, "decline"))
        .await;
    assert_eq!(answer, json!({"action": "decline"}));
    sessions.finish().await;
}

#[tokio::test]
async fn incomplete_answers_leave_all_questions_open() {
    let questions = json!([
        {"id": "colour", "header": "Colour", "question": "Which?", "options": null},
        {"id": "size", "header": "Size", "question": "How big?", "options": null}]);
    for right in [
        json!({"colour": {"answers": ["blue"]}, "size": {"answers": ["small"]}}),
        json!({"colour": "blue", "size": "small"}),
    ] {
        let questions = json!({"itemId": "i", "questions": questions});
        let (mut sessions, session, question) = asked(ask(USER_INPUT, questions)).await;
        for (wrong, named) in [
            (json!({}), "colour"),
            (json!({"colour": "blue"}), "size"),
            (
                json!({"colour": "blue", "size": "small", "shape": "round"}),
                "shape",
            ),
            (
                json!({"colour": {"answer": "blue"}, "size": "small"}),
                "colour",
            ),
            (json!({"colour": "blue", "size": {"answers": []}}), "size"),
            (json!({"colour": "blue", "size": null}), "size"),
        ] {
            let arguments = answers_to(&session, &question, wrong);
            let words = sessions.still_open(&session, &question, arguments).await;
            assert!(words.contains(&format!("question \"{named}\"")), "{words}");
        }
        let answer = sessions
            .decided(answers_to(&session, &question, right))
            .await;
        let expected = json!({"colour": {"answers": ["blue"]}, "size": {"answers": ["small"]}});
        assert_eq!(answer, json!({"answers": expected}));
        assert_eq!(sessions.result(&session).await["output"], "done");
        sessions.finish().await;
    }
}

#[tokio::test]
async fn decline_and_cancel_fit_every_question() {
    let network = json!({"network": {"enabled": true}});
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for (question, decline, cancel, interrupts) in [
        (
            offering(json!(["accept"])),
            json!({"decision": "decline"}),
            json!({"decision": "cancel"}),
            false,
        ),
        (
            ask("item/fileChange/requestApproval", json!({"itemId": "i"})),
            json!({"decision": "decline"}),
            json!({"decision": "cancel"}),
            false,
        ),
        (
            ask(
                "item/permissions/requestApproval",
                json!({"itemId": "i", "permissions": network}),
            ),
            json!({"permissions": {}}),
            json!({"permissions": {}}),
            true,
        ),
        (
            ask(
                "mcpServer/elicitation/request",
                json!({"serverName": "s", "message": "?",
                "requestedSchema": form}),
            ),
            json!({"action": "decline"}),
            json!({"action": "cancel"}),
            false,
        ),
        (
            user_question(),
            json!({"answers": {}}),
            json!({"answers": {}}),
            true,
        ),
    ] {
        for (word, expected) in [("decline", decline), ("cancel", cancel)] {
            let (mut sessions, session, open) = asked(question.clone()).await;
            let arguments = decision(&session, &open, word);
            let answer = sessions.decided(arguments).await;
            assert_eq!(answer, expected, "{word}: {open:#}");
            let result = sessions.result(&session).await;
            if word == "cancel" && interrupts {
                // Codex has no cancel for these questions, so the continuing turn is interrupted.
                sessions.serve.fake.wait_for_method("turn/interrupt").await;
            } else {
                assert_eq!(result["status"], "completed");
                assert_eq!(sent(&sessions.serve, "turn/interrupt"), Vec::<Value>::new());
            }
            sessions.finish().await;
        }
    }
}

#[tokio::test]
async fn decision_in_a_poll_has_no_effect() {
    let (mut sessions, session, question) = asked(Action::ask_approval("touch x")).await;
    let request = &question["requestId"];
    for (slip, named) in [
        (
            json!({"requestId": request, "decision": "accept"}),
            "decision",
        ),
        (json!({"decision": "decline"}), "decision"),
        (json!({"answers": {"colour": "red"}}), "answers"),
        (json!({"requestId": request}), "requestId"),
    ] {
        let arguments = join(json!({"action": "poll", "sessionId": session}), slip);
        let words = sessions.still_open(&session, &question, arguments).await;
        assert!(words.contains(named), "{words}");
    }
    let arguments = decision(&session, &question, "accept");
    assert_eq!(
        sessions.decided(arguments).await,
        json!({"decision": "accept"})
    );
    sessions.finish().await;
}
