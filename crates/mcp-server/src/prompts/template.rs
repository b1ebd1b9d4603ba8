//! The templates of the prompts: Markdown in which some lines are directives.
//!
//! | line | meaning |
//! | --- | --- |
//! | `<!-- if TOOL … -->` | The lines up to the next `if` or `end` are kept if all of these tools are served. |
//! | `<!-- end -->` | The lines from here on are kept. |
//! | `{{arguments}}` | The arguments, or nothing if there are none. |

const ARGUMENTS: &str = "{{arguments}}";

/// A line of a template.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// Names of tools, with spaces between.
    If(&'a str),
    End,
    Arguments,
    Text(&'a str),
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let directive = line.strip_prefix("<!-- ");
        let directive = directive.and_then(|rest| rest.strip_suffix(" -->"));
        match (line, directive) {
            (ARGUMENTS, _) => Self::Arguments,
            (_, Some("end")) => Self::End,
            (_, Some(directive)) => match directive.strip_prefix("if ") {
                Some(tools) => Self::If(tools),
                None => Self::Text(line),
            },
            (_, None) => Self::Text(line),
        }
    }
}

/// The text of a template for a server that has these tools. The text of arguments is never read as
/// a directive.
pub(super) fn render(template: &str, served: &[&str], arguments: &str) -> String {
    let mut rendered = Rendered::default();
    let mut is_kept = true;
    for line in template.lines() {
        match Line::parse(line) {
            Line::If(tools) => is_kept = tools.split(' ').all(|tool| served.contains(&tool)),
            Line::End => is_kept = true,
            _ if !is_kept => {}
            Line::Arguments if arguments.is_empty() => {}
            Line::Arguments => rendered.push(arguments),
            Line::Text("") if rendered.omits_blank => {}
            Line::Text(text) => rendered.push(text),
        }
    }
    rendered.text
}

#[derive(Default)]
struct Rendered {
    text: String,
    /// Whether a blank line would be the second in a row.
    omits_blank: bool,
}

impl Rendered {
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.omits_blank = line.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "\
begin

{{arguments}}

<!-- if one -->
of one
<!-- if one two -->
of both
<!-- if two -->
of two
<!-- end -->
end
";

    #[test]
    fn sections_need_all_of_their_tools() {
        for (served, expected) in [
            (&[][..], "begin\n\nend\n"),
            (&["one"], "begin\n\nof one\nend\n"),
            (&["two"], "begin\n\nof two\nend\n"),
            (&["two", "one"], "begin\n\nof one\nof both\nof two\nend\n"),
        ] {
            assert_eq!(render(TEMPLATE, served, ""), expected);
        }
    }

    #[test]
    fn arguments_are_inserted_as_they_are() {
        let arguments = "<!-- if one -->\n\n\n{{arguments}}\n<!-- end -->";
        assert_eq!(
            render(TEMPLATE, &[], arguments),
            format!("begin\n\n{arguments}\n\nend\n")
        );
    }
}
