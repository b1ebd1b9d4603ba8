//! The cost of tokens at the prices that the user has set. Codex reports no prices.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use codex_protocol::codex::TokenCount;
use serde::Serialize;

/// The number of tokens to which a price applies.
const PRICED: f64 = 1e6;

/// The most digits after the point of a shown amount.
const MOST_DIGITS: usize = 12;

/// The prices of a model, each for one million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Price {
    /// Tokens read by the model that were not cached.
    pub input: f64,
    /// Tokens read from the cache.
    pub cached_input: f64,
    /// Tokens written by the model, those of reasoning included.
    pub output: f64,
}

/// The prices of all models that have some.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    /// The currency: one short word without hidden characters.
    pub currency: String,
    /// The prices, by the name of the model in Codex's reports.
    pub models: BTreeMap<String, Price>,
}

/// An amount of money. As text, an amount below 1 has at least two significant digits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The amount, not negative.
    pub amount: f64,
    /// The currency.
    pub currency: String,
}

impl Prices {
    /// The cost of the tokens that a model has used. `None` if the model has no price, or if the
    /// counts contradict each other.
    #[must_use]
    pub fn cost(&self, model: &str, tokens: &TokenCount) -> Option<Cost> {
        let price = self.models.get(model)?;
        let cached = tokens.cached_input_tokens;
        let uncached = tokens.input_tokens.checked_sub(cached)?;
        let counts = [uncached, cached, tokens.output_tokens];
        if counts.iter().any(|count| *count < 0) {
            return None;
        }
        let prices = [price.input, price.cached_input, price.output];
        let parts = counts.iter().zip(prices);
        let amount: f64 = parts.map(|(count, price)| *count as f64 * price).sum();
        Some(Cost {
            amount: rounded(amount / PRICED),
            currency: self.currency.clone(),
        })
    }
}

/// Rounds to twelve significant digits, so that JSON shows 0.3 for the sum of 0.1 and 0.2.
fn rounded(amount: f64) -> f64 {
    format!("{amount:.11e}").parse().unwrap_or(amount)
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { amount, currency } = self;
        let is_small = |amount: f64| amount > 0.0 && amount < 1.0;
        let (mut digits, mut leading) = (2, amount * 10.0);
        while is_small(leading) && digits < MOST_DIGITS {
            leading *= 10.0;
            digits += 1;
        }
        match is_small(leading) {
            true => write!(f, "{amount:.1e} {currency}"),
            false => write!(f, "{amount:.digits$} {currency}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prices() -> Prices {
        let price = Price {
            input: 1.25,
            cached_input: 0.125,
            output: 10.0,
        };
        Prices {
            currency: "USD".to_owned(),
            models: BTreeMap::from([("m".to_owned(), price)]),
        }
    }

    fn cost([input, cached, output]: [i64; 3]) -> Option<f64> {
        let tokens = TokenCount {
            input_tokens: input,
            cached_input_tokens: cached,
            output_tokens: output,
            // Included in the output.
            reasoning_output_tokens: output,
            ..TokenCount::default()
        };
        let cost = prices().cost("m", &tokens)?;
        Some(cost.amount)
    }

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        assert_eq!(cost([1_000_000, 0, 0]), Some(1.25));
        assert_eq!(cost([1_000_000, 400_000, 100_000]), Some(1.8));
        assert_eq!(cost([1000, 1000, 0]), Some(0.000_125));
        assert_eq!(cost([0, 0, 3]), Some(0.000_03));
        assert_eq!(cost([0, 0, 0]), Some(0.0));
    }

    #[test]
    fn impossible_counts_have_no_cost_and_huge_ones_a_finite_one() {
        for counts in [
            [10, 11, 1],
            [-1, 0, 1],
            [1, -1, 1],
            [1, 0, -1],
            [i64::MAX, i64::MIN, 0],
            [i64::MIN, i64::MAX, 0],
        ] {
            assert_eq!(cost(counts), None, "{counts:?}");
        }
        let huge = cost([i64::MAX, 0, i64::MAX]).unwrap();
        assert!(huge.is_finite() && huge > 1e13, "{huge}");
    }

    #[test]
    fn model_without_a_price_has_no_cost() {
        assert_eq!(prices().cost("M", &TokenCount::default()), None);
        assert_eq!(Prices::default().cost("", &TokenCount::default()), None);
    }

    #[test]
    fn shown_amount_is_zero_only_if_it_is_zero() {
        for (amount, shown) in [
            (0.0, "0.00 USD"),
            (1234.5, "1234.50 USD"),
            (12.344, "12.34 USD"),
            (0.999, "1.00 USD"),
            (0.42, "0.42 USD"),
            (0.0123, "0.012 USD"),
            (0.000_000_3, "0.00000030 USD"),
            (2e-20, "2.0e-20 USD"),
        ] {
            let currency = "USD".to_owned();
            assert_eq!(Cost { amount, currency }.to_string(), shown);
        }
    }

    #[test]
    fn json_amount_has_no_rounding_noise() {
        let price = Price {
            input: 0.1,
            cached_input: 0.2,
            output: 0.2,
        };
        let prices = Prices {
            models: BTreeMap::from([("m".to_owned(), price)]),
            ..prices()
        };
        let tokens = TokenCount {
            input_tokens: 1,
            output_tokens: 1,
            ..TokenCount::default()
        };
        // As the sum of 0.1 and 0.2 is 0.30000000000000004.
        let cost = json!(prices.cost("m", &tokens));
        assert_eq!(cost.to_string(), r#"{"amount":3e-7,"currency":"USD"}"#);
    }
}
