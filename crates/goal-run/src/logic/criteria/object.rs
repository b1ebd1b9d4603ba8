//! The criteria as the object `exit_criteria`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{BadCriterion, Criteria, Criterion, TooManyCriteria};

/// Why an object does not describe criteria.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadObject {
    #[error("{key}: {why}")]
    Value {
        key: &'static str,
        why: BadCriterion,
    },
    #[error(transparent)]
    TooMany(#[from] TooManyCriteria),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CriteriaObject {
    #[serde(skip_serializing_if = "Values::is_empty")]
    files: Values,
    #[serde(skip_serializing_if = "Values::is_empty")]
    commits: Values,
    #[serde(skip_serializing_if = "Values::is_empty")]
    branch: Values,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pushed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pr: bool,
    #[serde(skip_serializing_if = "Values::is_empty")]
    issue_comment: Values,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    clean: bool,
    #[serde(skip_serializing_if = "Values::is_empty")]
    command: Values,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    review: bool,
    #[serde(skip_serializing_if = "Values::is_empty")]
    diff_within: Values,
}

impl<'de> Deserialize<'de> for Criteria {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(CriteriaVisitor)
    }
}

/// Accepts only an object: from a list, serde would take the first item as the first member.
struct CriteriaVisitor;

impl<'de> Visitor<'de> for CriteriaVisitor {
    type Value = Criteria;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, such as {\"commits\": 1, \"files\": [\"docs/*.md\"]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Criteria, A::Error> {
        let object = CriteriaObject::deserialize(MapAccessDeserializer::new(map))?;
        Criteria::try_from(object).map_err(Error::custom)
    }
}

/// One value, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "write a text or a list of texts; for `commits` a number too"
)]
enum Values {
    One(Value),
    Several(Vec<Value>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Number(u64),
}

impl Default for Values {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Values {
    fn is_empty(&self) -> bool {
        self.texts().is_empty()
    }

    fn texts(&self) -> Vec<String> {
        let values = match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        };
        values.iter().map(Value::text).collect()
    }

    fn add(&mut self, text: String) {
        let mut values: Vec<Value> = self.texts().into_iter().map(Value::Text).collect();
        values.push(Value::Text(text));
        *self = Self::Several(values);
    }
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

impl TryFrom<CriteriaObject> for Criteria {
    type Error = BadObject;

    fn try_from(object: CriteriaObject) -> Result<Self, BadObject> {
        let CriteriaObject {
            files,
            commits,
            branch,
            pushed,
            pr,
            issue_comment,
            clean,
            command,
            review,
            diff_within,
        } = object;
        let mut criteria = Vec::new();
        for (key, values) in [
            ("files", files),
            ("commits", commits),
            ("branch", branch),
            ("issue_comment", issue_comment),
            ("command", command),
        ] {
            for text in values.texts() {
                let criterion = format!("{key}={text}").parse();
                criteria.push(criterion.map_err(|why| BadObject::Value { key, why })?);
            }
        }
        let within = diff_within.texts();
        if !within.is_empty() {
            let key = "diff_within";
            let criterion = format!("{key}={}", within.join(",")).parse();
            criteria.push(criterion.map_err(|why| BadObject::Value { key, why })?);
        }
        for (is_on, criterion) in [
            (pushed, Criterion::Pushed),
            (pr, Criterion::PullRequest),
            (clean, Criterion::Clean),
            (review, Criterion::Review),
        ] {
            criteria.extend(is_on.then_some(criterion));
        }
        Ok(Self::new(criteria)?)
    }
}

impl From<Criteria> for CriteriaObject {
    fn from(criteria: Criteria) -> Self {
        let mut object = Self::default();
        for criterion in criteria.iter() {
            let written = criterion.to_string();
            let value = written.split_once('=').map_or("", |(_, value)| value);
            match criterion {
                Criterion::Files(_) => object.files.add(value.to_owned()),
                Criterion::Commits { .. } => object.commits.add(value.to_owned()),
                Criterion::Branch(_) => object.branch.add(value.to_owned()),
                Criterion::Pushed => object.pushed = true,
                Criterion::PullRequest => object.pr = true,
                Criterion::IssueComment(_) => object.issue_comment.add(value.to_owned()),
                Criterion::Clean => object.clean = true,
                Criterion::Command(_) => object.command.add(value.to_owned()),
                Criterion::Review => object.review = true,
                Criterion::DiffWithin(paths) => {
                    for path in paths {
                        object.diff_within.add(path.to_string());
                    }
                }
            }
        }
        object
    }
}
