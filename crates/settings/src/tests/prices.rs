use codex_engine::logic::cost::Price;
use serde_json::json;

use super::World;
use crate::flags::Flags;
use crate::source::Source;

#[test]
fn cached_input_costs_as_much_as_input_unless_it_has_a_price() {
    let text = "[plugins.codex-mcp]\ncurrency = \"€\"\n\
                [plugins.codex-mcp.prices.\"gpt-5.2\"]\ninput = 1.5\noutput = 10\n\
                [plugins.codex-mcp.prices.m]\ninput = 2\ncached_input = 0\noutput = 0.5\n";
    let config = World::new().user(text).load(Flags::default()).unwrap();
    assert_eq!(config.warnings, []);
    let prices = config.prices.prices();
    assert_eq!(prices.currency, "€");
    let price = |input, cached_input, output| Price {
        input,
        cached_input,
        output,
    };
    assert_eq!(prices.models["gpt-5.2"], price(1.5, 1.5, 10.0));
    assert_eq!(prices.models["m"], price(2.0, 0.0, 0.5));
    let shown = crate::show::as_json(&config);
    assert_eq!(
        shown["prices"]["value"]["m"],
        json!({ "input": 2.0, "cached_input": 0.0, "output": 0.5 })
    );
}

#[test]
fn invalid_prices_are_refused() {
    for (line, why) in [
        (
            "prices.m = { input = -1, output = 1 }",
            "must be between 0 and 1000000000",
        ),
        ("prices.m = { input = nan, output = 1 }", "must be between"),
        ("prices.m = { input = 1, output = inf }", "must be between"),
        (
            "prices.m = { input = 1, output = 1, cached_input = -0.1 }",
            "must be between",
        ),
        ("prices.m = { input = 1 }", "`m` needs `output` too"),
        ("prices.m = { output = 1 }", "`m` needs `input` too"),
        (
            "prices.gpt-5.2 = { input = 1, output = 1 }",
            "`gpt-5` needs `input` and `output`; quotes keep",
        ),
        (
            "prices = 3",
            "line 2, column 10: `prices`: it must be a table",
        ),
        (
            "prices.m = { input = \"1\" }",
            "`plugins.codex-mcp.prices.m.input`: it must be a number, without quotes",
        ),
        ("currency = \"\"", "it must be a word of 1 to 8 characters"),
        ("currency = \"US Dollar\"", "it must be a word"),
        ("currency = \"a b\"", "it must be a word"),
        ("currency = \"\\u202eUSD\"", "it must be a word"),
    ] {
        let world = World::new().user(&format!("[plugins.codex-mcp]\n{line}\n"));
        let error = world.load(Flags::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
        assert_eq!(error.contains("quotes keep"), line.contains("gpt-5.2"));
    }
}

#[test]
fn repository_does_not_set_prices() {
    let text = "[plugins.codex-mcp]\nprices.m = { input = -1, output = 0 }\ncurrency = \"\"\n";
    let config = World::new()
        .repository(text)
        .load(Flags::default())
        .unwrap();
    assert!(config.prices.models.is_none());
    assert_eq!(config.prices.currency.source, Source::Default);
    let told = config
        .warnings
        .iter()
        .map(|warning| warning.message.split(' ').next().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), ["prices", "currency"]);
}
