//! Diffs, and the contents of new files.

use maud::{Markup, html};

use super::layout::foreign;

/// The lines of a diff, or of a new file, in an element with this ID: at most this many.
pub(crate) fn lines(id: &str, diff: &str, is_new_file: bool, most: usize) -> Markup {
    let class = |line: &str| match line.as_bytes().first() {
        _ if is_new_file => "added",
        Some(b'+') => "added",
        Some(b'-') => "removed",
        Some(b'@') => "place",
        _ => "same",
    };
    let left_out = diff.lines().count().saturating_sub(most);
    html! {
        pre.diff id=(id) tabindex="0" {
            @for line in diff.lines().take(most) {
                span class=(class(line)) { (foreign(line)) "\n" }
            }
        }
        @if left_out > 0 { p.hint { (left_out) " more lines" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_diff_have_their_colours() {
        let html = lines("d", "@@ -1 +1 @@\n-a\n+<b>\n", false, 3).into_string();
        for part in ["place\">@@", "removed\">-a", "added\">+&lt;b&gt;"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("more lines"), "{html}");
        let cut = lines("d", "a\nb\nc", true, 1).into_string();
        assert!(cut.contains("2 more lines"), "{cut}");
    }
}
