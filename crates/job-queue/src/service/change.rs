//! Repeats changes of the store whose answers were lost.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::StoreError;

/// For how long after its first failure a change is repeated, as a standby takes over within seconds,
/// and the pause before each repetition.
const REPEAT_FOR: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);

/// The failure of a change.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// The change was not made.
    NotMade(StoreError),
    /// An answer was lost, so that the change may have been made or not.
    Unclear(StoreError),
}

/// Makes a change, and repeats it while a retry may succeed. The change must have no further effect
/// if it was made already.
pub(super) async fn repeat<T, F>(mut change: impl FnMut() -> F) -> Result<T, ChangeError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut first_failure = None;
    let mut is_unclear = false;
    loop {
        let error = match change().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        is_unclear |= matches!(error, StoreError::AnswerLost { .. });
        let first_failure = *first_failure.get_or_insert_with(Instant::now);
        if error.is_retryable() && first_failure.elapsed() < REPEAT_FOR {
            sleep(PAUSE).await;
            continue;
        }
        return Err(match is_unclear {
            true => ChangeError::Unclear(error),
            false => ChangeError::NotMade(error),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn unreachable() -> StoreError {
        StoreError::Unreachable {
            store: "a".to_owned(),
            error: "b".to_owned(),
        }
    }

    fn answer_lost() -> StoreError {
        StoreError::AnswerLost {
            store: "a".to_owned(),
            error: "b".to_owned(),
        }
    }

    fn busy() -> StoreError {
        StoreError::Busy {
            store: "a".to_owned(),
            error: "b".to_owned(),
        }
    }

    fn too_long() -> StoreError {
        StoreError::TooLong {
            what: "the prompt",
            length: 2,
            most: 1,
        }
    }

    /// The result of a change that fails in these ways one after the other, and then succeeds.
    async fn after(failures: impl IntoIterator<Item = StoreError>) -> Result<u32, ChangeError> {
        let mut failures = failures.into_iter();
        repeat(|| ready(failures.next().map_or(Ok(7), Err))).await
    }

    #[tokio::test(start_paused = true)]
    async fn change_is_repeated_after_a_lost_answer() {
        assert_eq!(
            after([answer_lost(), busy(), unreachable()]).await.unwrap(),
            7
        );
    }

    #[tokio::test(start_paused = true)]
    async fn change_without_an_answer_is_unclear() {
        let began = Instant::now();
        let failures = std::iter::once(answer_lost()).chain(std::iter::repeat_with(unreachable));
        let error = after(failures).await.unwrap_err();
        assert!(matches!(error, ChangeError::Unclear(_)), "{error:?}");
        assert!(began.elapsed() <= REPEAT_FOR + PAUSE);
        let error = after([answer_lost(), too_long()]).await.unwrap_err();
        assert!(matches!(error, ChangeError::Unclear(_)), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn change_that_was_refused_or_never_begun_is_not_made() {
        let error = after([too_long()]).await.unwrap_err();
        assert!(matches!(error, ChangeError::NotMade(_)), "{error:?}");
        for failure in [busy, unreachable] {
            let error = after(std::iter::repeat_with(failure)).await.unwrap_err();
            assert!(matches!(error, ChangeError::NotMade(_)), "{error:?}");
        }
    }
}
