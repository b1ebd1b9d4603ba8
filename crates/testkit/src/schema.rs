//! Checks values against a JSON Schema, as far as the schemas of tools go: `type`, `properties`,
//! `required`, `anyOf`, `items` and `enum`. Other keywords are ignored.

use serde_json::Value;

/// Checks a value against a schema.
///
/// # Errors
///
/// The place and the kind of the first mismatch.
pub fn check(value: &Value, schema: &Value) -> Result<(), String> {
    check_at("$", value, schema)
}

fn check_at(place: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
        return Err(format!("{place} is not {}: {value}", types.join(" or ")));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{place} is none of {allowed:?}: {value}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if value.is_object() && value.get(name).is_none() {
            return Err(format!("{place}.{name} is missing"));
        }
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let mut misfits = Vec::new();
        for alternative in alternatives {
            misfits.extend(check_at(place, value, alternative).err());
        }
        if misfits.len() == alternatives.len() {
            return Err(misfits.join(", and "));
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(member) = value.get(name) {
            check_at(&format!("{place}.{name}"), member, schema)?;
        }
    }
    if let Some(items) = schema.get("items") {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            check_at(&format!("{place}[{index}]"), item, items)?;
        }
    }
    Ok(())
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_of_several_schemas_must_fit() {
        let schema = json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] });
        assert_eq!(check(&json!({ "b": 1 }), &schema), Ok(()));
        let error = check(&json!({ "c": 1 }), &schema).unwrap_err();
        assert_eq!(error, "$.a is missing, and $.b is missing");
    }

    #[test]
    fn mismatch_is_named() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": { "type": ["integer", "null"] },
                "list": { "type": "array", "items": { "enum": ["a"] } },
            },
            "required": ["n"],
        });
        for fits in [
            json!({ "n": 1 }),
            json!({ "n": null, "list": ["a"], "x": 1 }),
        ] {
            assert_eq!(check(&fits, &schema), Ok(()), "{fits}");
        }
        for (misfit, place) in [
            (json!([]), "$ is not object"),
            (json!({}), "$.n is missing"),
            (json!({ "n": "1" }), "$.n is not integer or null"),
            (
                json!({ "n": 1, "list": ["a", "b"] }),
                "$.list[1] is none of",
            ),
        ] {
            let error = check(&misfit, &schema).unwrap_err();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
