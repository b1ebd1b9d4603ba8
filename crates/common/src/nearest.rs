//! The name that a mistyped one was meant to be.

/// How near a mistyped name has to be to a right one for that to be what was meant,
/// from 0 to 1.
const ALIKE: f64 = 0.7;

/// The nearest of the known names, if one is near.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = folded(name);
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(&name, &folded(known)), *known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

/// A name without what differs between spellings: `waitMs`, `wait_ms` and `wait-ms` are
/// one.
pub fn folded(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}
