//! Telling others of the end of a run.

use std::time::Duration;

use serde_json::{Value, json};

use super::Worker;
use super::ended::Ended;
use super::leash::{End, Leash};
use crate::jobs::run::order::Kept;
use crate::jobs::store::Job;
use crate::run::notify::{self, Patience, Teller};
use crate::team::Member;

/// How long each is waited for where somebody waits for the end of a run that they
/// have called off.
const HASTE: Duration = Duration::from_secs(4);

/// What is told, and for whom.
pub(super) struct Telling<'a> {
    pub(super) worker: &'a Worker,
    pub(super) job: &'a Job,
    pub(super) kept: &'a Kept,
    pub(super) ended: &'a Ended,
}

impl Telling<'_> {
    /// Tells it; what became of it, as JSON. A worker that ends tells nobody any more,
    /// so that what has come of the run is written down.
    pub(super) async fn tell(&self, leash: &Leash) -> Option<Value> {
        match leash.why() {
            Some(End::Unwanted) => {
                let patience = Patience {
                    mail: HASTE,
                    irc: HASTE,
                    command: HASTE,
                };
                Some(self.to_all(patience).await)
            }
            _ => {
                let telling = self.to_all(Patience::default());
                leash.pulled.run_until_cancelled(telling).await
            }
        }
    }

    async fn to_all(&self, patience: Patience) -> Value {
        let worker = self.worker;
        let number = worker
            .trouble
            .attempt(async || worker.store.number_of_a_run().await);
        let number = number.await.unwrap_or_else(|error| {
            tracing::warn!("the run has no number: {error}");
            0
        });
        let telling = notify::Telling {
            line: &self.ended.notice(number),
            result: &self.ended.result(),
        };
        let teller = self.teller(patience);
        let told = notify::tell_all(&self.kept.order.notify, telling, &teller).await;
        for told in &told {
            if let Err(error) = &told.came {
                tracing::warn!("{} was not told: {error}", told.to);
            }
        }
        json!(told)
    }

    /// In the name of who has submitted the run.
    fn teller(&self, patience: Patience) -> Teller {
        let identity = self.job.request.submitted_by.as_deref();
        let identity = identity.and_then(|identity| identity.parse().ok());
        Teller {
            member: identity.map(|identity| Member {
                identity,
                team: self.kept.team.clone(),
            }),
            desk: None,
            atm_home: self.kept.atm_home.clone().unwrap_or_default().into(),
            folder: self.kept.order.repo.clone(),
            env: Vec::new(),
            patience,
        }
    }
}
