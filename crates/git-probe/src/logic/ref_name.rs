//! Names that git takes for refs.

use common::text::visible;

/// Whether git takes this for the name of a ref. `NAME.lock` is what a git leaves that
/// was killed while it wrote a ref.
///
/// Source: git-check-ref-format(1).
pub(crate) fn is_ref_name(name: &str) -> bool {
    let is_bad = |one: char| one.is_control() || " ~^:?*[\\".contains(one);
    let is_bad_part =
        |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    !name.contains(is_bad)
        // What reads otherwise than it is.
        && visible(name) == name
        && !name.ends_with('.')
        && !["..", "@{"].iter().any(|bad| name.contains(bad))
        && !name.split('/').any(is_bad_part)
}
