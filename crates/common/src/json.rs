//! Merges JSON objects and removes members that are null.

use serde_json::Value;

/// The object without members that are null.
pub fn without_nulls(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    value
}

/// The members of both objects, those of `over` where both have one, without
/// members that are null.
pub fn merged(mut under: Value, over: Value) -> Value {
    if let (Some(under), Value::Object(over)) = (under.as_object_mut(), over) {
        under.extend(over);
    }
    without_nulls(under)
}
