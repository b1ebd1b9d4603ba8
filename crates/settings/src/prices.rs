//! The prices of models, and their currency. Only the user can set them: a repository could
//! otherwise make its work look cheap.

use std::collections::BTreeMap;

use codex_engine::logic::cost::{Price, Prices};
use common::text::{one_line, visible_line};

use crate::error::ConfigError;
use crate::file::{File, NAME_SHOWN, SECTION, Scope, SetPrice};
use crate::lookup::of_user;
use crate::source::{Setting, Source, Warning};

const PRICES: &str = "prices";
const CURRENCY: &str = "currency";

/// The default of `currency`.
const DEFAULT_CURRENCY: &str = "USD";

/// The most characters of a currency.
const LONGEST_CURRENCY: usize = 8;

/// The highest price.
const HIGHEST: f64 = 1e9;

/// The prices of models, and their currency.
#[derive(Debug)]
pub struct PriceSettings {
    /// The prices, by the name of the model in Codex's reports.
    pub models: Option<Setting<BTreeMap<String, Price>>>,
    /// The currency.
    pub currency: Setting<String>,
}

impl PriceSettings {
    /// All prices, without their sources.
    #[must_use]
    pub fn prices(&self) -> Prices {
        let models = self.models.as_ref();
        Prices {
            currency: self.currency.value.clone(),
            models: models.map(|set| set.value.clone()).unwrap_or_default(),
        }
    }
}

pub(super) fn prices(
    files: &[File],
    hint: &str,
    warnings: &mut Vec<Warning>,
) -> Result<PriceSettings, ConfigError> {
    warn_about_repository(files, hint, warnings);
    Ok(PriceSettings {
        models: models(files)?,
        currency: currency(files)?,
    })
}

fn models(files: &[File]) -> Result<Option<Setting<BTreeMap<String, Price>>>, ConfigError> {
    let Some(Setting { value, source }) = of_user(files, |file| file.section.prices.clone()) else {
        return Ok(None);
    };
    let priced = |(model, set): (String, SetPrice)| {
        let price = price(&model, &set);
        price.map(|price| (model, price))
    };
    let models: Result<BTreeMap<_, _>, String> = value.into_iter().map(priced).collect();
    match models {
        Ok(models) => Ok(Some(Setting::new(models, source))),
        Err(why) => Err(ConfigError::Invalid {
            key: PRICES,
            from: source,
            why,
        }),
    }
}

fn price(model: &str, set: &SetPrice) -> Result<Price, String> {
    let model = one_line(model, NAME_SHOWN);
    let (input, output) = match (set.input, set.output) {
        (Some(input), Some(output)) => (input, output),
        (Some(_), None) => return Err(format!("`{model}` needs `output` too")),
        (None, Some(_)) => return Err(format!("`{model}` needs `input` too")),
        // Probably the name had a dot, and its end is the name of a table in this one.
        (None, None) => {
            return Err(format!(
                "`{model}` needs `input` and `output`; quotes keep a name with a dot together, as \
                 in [{SECTION}.{PRICES}.\"gpt-5.2\"]"
            ));
        }
    };
    let cached_input = set.cached_input.unwrap_or(input);
    let in_range = |price: &f64| (0.0..=HIGHEST).contains(price);
    match [input, cached_input, output].iter().all(in_range) {
        true => Ok(Price {
            input,
            cached_input,
            output,
        }),
        false => Err(format!(
            "the prices of `{model}` must be between 0 and {HIGHEST}"
        )),
    }
}

fn currency(files: &[File]) -> Result<Setting<String>, ConfigError> {
    let set = of_user(files, |file| file.section.currency.clone());
    let set = set.unwrap_or_else(|| Setting::new(DEFAULT_CURRENCY.to_owned(), Source::Default));
    let text = set.value.as_str();
    let is_word = (1..=LONGEST_CURRENCY).contains(&text.chars().count())
        && !text.contains(char::is_whitespace)
        && visible_line(text) == text;
    match is_word {
        true => Ok(set),
        false => Err(ConfigError::Invalid {
            key: CURRENCY,
            from: set.source,
            why: format!("it must be a word of 1 to {LONGEST_CURRENCY} characters, such as EUR"),
        }),
    }
}

fn warn_about_repository(files: &[File], hint: &str, warnings: &mut Vec<Warning>) {
    for file in files.iter().filter(|file| file.scope == Scope::Repository) {
        let section = &file.section;
        let set = [
            (PRICES, section.prices.is_some()),
            (CURRENCY, section.currency.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            warnings.push(Warning {
                message: format!(
                    "{key} in {} is left out: prices are the user's, not a repository's",
                    file.path.display()
                ),
                hint: hint.to_owned(),
            });
        }
    }
}
