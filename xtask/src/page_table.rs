//! The tables of the pages of `docs` that a command measures.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Puts the table of `cargo xtask COMMAND` between its two comments of a page.
///
/// # Errors
/// When the page has no such comments, or cannot be written.
pub(crate) fn write(page: &Path, command: &str, table: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(page)?;
    let text = replaced(&text, command, table).with_context(|| page.display().to_string())?;
    fs::write(page, text)?;
    Ok(())
}

fn replaced(text: &str, command: &str, table: &str) -> anyhow::Result<String> {
    let begin = format!("<!-- begin: cargo xtask {command} -->\n");
    let end = "<!-- end -->\n";
    let (before, rest) = text.split_once(&begin).context("the page has no table")?;
    let (_, after) = rest
        .split_once(end)
        .context("the table of the page has no end")?;
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn table_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- begin: cargo xtask x -->\nold\n<!-- end -->\nb\n";
        let expected = "a\n<!-- begin: cargo xtask x -->\n\nnew\n<!-- end -->\nb\n";
        assert_eq!(replaced(page, "x", "new").unwrap(), expected);
        assert!(replaced(page, "y", "new").is_err());
        assert!(replaced("<!-- begin: cargo xtask x -->\n", "x", "new").is_err());
    }
}
