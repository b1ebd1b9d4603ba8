//! Finds the known name that a mistyped name is probably meant to be.

/// The least similarity of a mistyped name and the known name that is suggested for it,
/// from 0 to 1.
const ALIKE: f64 = 0.7;

/// The most similar of the known names, if one is similar enough.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = folded(name);
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&name, &folded(known)), *known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

/// A name without the differences between spellings: `waitMs`, `wait_ms` and `wait-ms` are
/// the same.
pub fn folded(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}
