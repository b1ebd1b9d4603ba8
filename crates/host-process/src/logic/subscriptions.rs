//! The subscriptions of a client to resources (MCP 2024-11-05 to 2025-11-25), which the next host is
//! told again.

/// The most subscriptions that are kept.
const MOST: usize = 1000;

/// The subscriptions of a client, each with the request that the next host gets.
#[derive(Debug)]
pub struct Subscriptions<T> {
    known: Vec<(String, T)>,
}

impl<T> Default for Subscriptions<T> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<T> Subscriptions<T> {
    /// Notes a subscription, in place of an earlier one to the same resource.
    pub fn add(&mut self, uri: String, request: T) {
        self.remove(&uri);
        if self.known.len() < MOST {
            self.known.push((uri, request));
        }
    }

    /// Forgets the subscription to a resource.
    pub fn remove(&mut self, uri: &str) {
        self.known.retain(|(known, _)| known != uri);
    }

    /// Forgets the subscriptions whose request `keep` rejects.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.known.retain(|(_, request)| keep(request));
    }

    /// The requests, oldest first.
    pub fn requests(&self) -> impl Iterator<Item = &T> {
        self.known.iter().map(|(_, request)| request)
    }

    /// The resource of the subscription whose request `is_it` accepts.
    pub fn uri_of(&self, is_it: impl Fn(&T) -> bool) -> Option<&str> {
        let mut known = self.known.iter();
        known.find_map(|(uri, request)| is_it(request).then_some(&**uri))
    }

    /// Whether there is no subscription.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_unique_and_bounded() {
        let mut all = Subscriptions::default();
        for number in 0..2 * MOST {
            all.add(number.to_string(), number);
        }
        assert!(all.requests().copied().eq(0..MOST));
        all.add("0".to_owned(), MOST);
        assert!(all.requests().copied().eq(1..=MOST));
        all.remove("1");
        all.retain(|number| *number < 3);
        assert!(all.requests().copied().eq([2]));
        all.remove("2");
        assert!(all.is_empty());
    }
}
