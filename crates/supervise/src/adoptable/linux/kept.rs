//! The values that a guard keeps for the next owner.

use std::collections::BTreeMap;

use super::messages::{KeptValue, OwnerMessage};

/// The most bytes of keys and values together.
const LIMIT: usize = 64 << 20;

/// Values by their keys.
#[derive(Debug)]
pub(crate) struct KeptValues {
    values: BTreeMap<String, String>,
    /// The length of all keys and values.
    bytes: usize,
    limit: usize,
    /// Whether the owner is the last one.
    is_last: bool,
}

impl Default for KeptValues {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl KeptValues {
    fn new(limit: usize) -> Self {
        Self {
            values: BTreeMap::new(),
            bytes: 0,
            limit,
            is_last: false,
        }
    }

    /// Applies a message of an owner. A line that cannot be parsed is ignored.
    pub(crate) fn apply_line(&mut self, line: &[u8]) {
        if let Ok(message) = serde_json::from_slice(line) {
            self.apply(message);
        }
    }

    /// Applies a message. A value that does not fit is dropped, and so is the value that it was to
    /// replace, as the next owner would take that for the current one.
    fn apply(&mut self, message: OwnerMessage) {
        match message {
            OwnerMessage::Forget(key) => self.forget(&key),
            OwnerMessage::Last => self.is_last = true,
            OwnerMessage::Keep(KeptValue { key, value }) => {
                self.forget(&key);
                let bytes = self.bytes.saturating_add(key.len() + value.len());
                if bytes <= self.limit {
                    self.bytes = bytes;
                    self.values.insert(key, value);
                }
            }
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some((key, value)) = self.values.remove_entry(key) {
            self.bytes -= key.len() + value.len();
        }
    }

    /// Whether no other owner may follow.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// All values, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.values.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(kept: &KeptValues) -> Vec<(&str, &str)> {
        let all = kept.iter();
        all.map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }

    #[test]
    fn values_are_kept_replaced_and_forgotten() {
        let mut kept = KeptValues::default();
        kept.apply_line(br#"{"keep":{"key":"a","value":"1"}}"#);
        kept.apply_line(br#"{"keep":{"key":"b","value":"2"}}"#);
        kept.apply_line(br#"{"keep":{"key":"a","value":"three"}}"#);
        kept.apply_line(br#"{"forget":"b"}"#);
        kept.apply_line(br#"{"forget":"never kept"}"#);
        kept.apply_line(b"nonsense");
        assert!(!kept.is_last());
        kept.apply_line(br#""last""#);
        assert!(kept.is_last());
        assert_eq!(values(&kept), [("a", "three")]);
        assert_eq!(kept.bytes, 6);
    }

    #[test]
    fn value_over_the_limit_is_dropped() {
        let mut kept = KeptValues::new(8);
        kept.apply_line(br#"{"keep":{"key":"a","value":"123"}}"#);
        kept.apply_line(br#"{"keep":{"key":"b","value":"1234"}}"#);
        assert_eq!(values(&kept), [("a", "123")]);
        kept.apply_line(br#"{"keep":{"key":"a","value":"12345678"}}"#);
        assert_eq!(values(&kept), []);
        kept.apply_line(br#"{"keep":{"key":"b","value":"1234567"}}"#);
        assert_eq!(values(&kept), [("b", "1234567")]);
        assert_eq!(kept.bytes, 8);
    }
}
