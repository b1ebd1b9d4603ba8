//! Names that git takes for refs.

use common::text::visible;

/// Whether git accepts this as the name of a ref. `NAME.lock` is refused: a git that is killed
/// while it writes a ref leaves such a file.
///
/// Source: git-check-ref-format(1).
pub(crate) fn is_ref_name(name: &str) -> bool {
    let is_bad = |one: char| one.is_control() || " ~^:?*[\\".contains(one);
    let is_bad_part =
        |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    !name.contains(is_bad)
        // Refuses names with hidden characters, which look different from what they are.
        && visible(name) == name
        && !name.ends_with('.')
        && !["..", "@{"].iter().any(|bad| name.contains(bad))
        && !name.split('/').any(is_bad_part)
}
