//! Codex's open questions.

use super::*;

fn ids(questions: &[Question]) -> Vec<&str> {
    questions.iter().map(|one| one.id.as_str()).collect()
}

pub(super) async fn questions_are_listed_while_their_attempt_runs(stage: &TestStore) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let questions = async || store.questions(&claim.job).await.unwrap();
    let set = async |open: &[NewQuestion]| store.set_questions(&claim, open).await.unwrap();
    assert_eq!(set(&[asked("a"), asked("b")]).await, WriteOutcome::Done);
    let open = questions().await;
    assert_eq!(ids(&open), ["a", "b"]);
    assert_eq!(open[0].question, json!({ "text": HOSTILE }));
    assert_eq!(open[0].origin, Origin::ThisMachine);
    // The questions that stay open keep their order.
    assert_eq!(set(&[asked("b"), asked("c")]).await, WriteOutcome::Done);
    let later = questions().await;
    assert_eq!(ids(&later), ["b", "c"]);
    assert_eq!(later[0].asked_at, open[1].asked_at);
    let of_another = Claim {
        worker: new_worker_id(),
        ..claim.clone()
    };
    let set_by_another = store.set_questions(&of_another, &[]).await.unwrap();
    assert_eq!(set_by_another, WriteOutcome::Lost);
    assert_eq!(ids(&questions().await), ["b", "c"]);
    let end = finished(Ending::Completed);
    assert_eq!(
        store.finish(&claim, &end).await.unwrap(),
        WriteOutcome::Done
    );
    assert_eq!(questions().await, []);

    // After the end of the lease there may be no worker to read an answer.
    let claim = running(&store, NONE).await;
    let set = store.set_questions(&claim, &[asked("a")]).await.unwrap();
    assert_eq!(set, WriteOutcome::Done);
    wait_for("the end of the lease", async || {
        let open = store.questions(&claim.job).await.unwrap();
        open.is_empty().then_some(())
    })
    .await;
}

pub(super) async fn changed_question_is_unproven(stage: &TestStore) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let set = store.set_questions(&claim, &[asked("a")]).await.unwrap();
    assert_eq!(set, WriteOutcome::Done);
    let change = async |connection: &mut Connection| {
        let sql = "UPDATE codex_questions SET question = '{\"text\":\"harmless\"}'";
        connection.run(sql, Vec::new()).await
    };
    writing!(store, change).unwrap();
    let open = store.questions(&claim.job).await.unwrap();
    assert_eq!(open[0].question["text"], "harmless");
    assert_eq!(open[0].origin, Origin::Unproven);
}
