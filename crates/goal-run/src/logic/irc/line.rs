//! Lines of IRC. Source: RFC 2812, 2.3.

/// A parsed line of a server. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerLine {
    /// The sender: a server, or `nickname!user@host`. May be empty.
    pub(super) origin: String,
    /// A word, or a number of three digits.
    pub(super) command: String,
    pub(super) parameters: Vec<String>,
}

impl ServerLine {
    /// Parses a line with or without its end; `None` if it has no command.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let mut rest = line.trim_end_matches(['\r', '\n']);
        // Tags are ignored (IRCv3, message tags).
        if rest.starts_with('@') {
            rest = word(rest).1;
        }
        let origin = match rest.strip_prefix(':') {
            Some(more) => {
                let (origin, after) = word(more);
                rest = after;
                origin
            }
            None => "",
        };
        let (command, rest) = word(rest);
        (!command.is_empty()).then(|| Self {
            origin: origin.to_owned(),
            command: command.to_owned(),
            parameters: parameters(rest),
        })
    }

    /// The number of the reply, if the command is one.
    pub(super) fn number(&self) -> Option<u16> {
        let digits = |text: &str| text.bytes().all(|one| one.is_ascii_digit());
        let is_number = self.command.len() == 3 && digits(&self.command);
        self.command.parse().ok().filter(|_| is_number)
    }

    pub(super) fn parameter(&self, at: usize) -> &str {
        self.parameters.get(at).map_or("", String::as_str)
    }

    /// The last parameter, which is the text for people.
    pub(super) fn words(&self) -> &str {
        self.parameters.last().map_or("", String::as_str)
    }

    /// The nickname of the sender.
    pub(super) fn nickname(&self) -> &str {
        let end = self.origin.find('!').unwrap_or(self.origin.len());
        self.origin.get(..end).unwrap_or_default()
    }
}

fn parameters(mut rest: &str) -> Vec<String> {
    let mut parameters = Vec::new();
    while !rest.is_empty() {
        if let Some(last) = rest.strip_prefix(':') {
            parameters.push(last.to_owned());
            break;
        }
        let (parameter, after) = word(rest);
        parameters.push(parameter.to_owned());
        rest = after;
    }
    parameters
}

/// The first word, and the text after its spaces.
fn word(text: &str) -> (&str, &str) {
    match text.split_once(' ') {
        Some((word, rest)) => (word, rest.trim_start_matches(' ')),
        None => (text, ""),
    }
}

/// Whether two names are the same to a server. Source: RFC 2812, 2.2. Some servers
/// distinguish more names; that does no harm within one channel.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let fold = |sign: u8| match sign {
        b'[' => b'{',
        b']' => b'}',
        b'\\' => b'|',
        b'~' => b'^',
        sign => sign.to_ascii_lowercase(),
    };
    one.bytes().map(fold).eq(other.bytes().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &str) -> (String, String, Vec<String>) {
        let line = ServerLine::parse(line.as_bytes()).unwrap();
        (line.origin, line.command, line.parameters)
    }

    #[test]
    fn lines_are_parsed() {
        for (line, origin, command, parameters) in [
            ("PING :a b\r", "", "PING", &["a b"][..]),
            ("PING a", "", "PING", &["a"]),
            (":s 433 * n :in use", "s", "433", &["*", "n", "in use"]),
            (":n!u@h  JOIN  #c ", "n!u@h", "JOIN", &["#c"]),
            ("@time=1;x=:y :s 001 n :", "s", "001", &["n", ""]),
            ("ERROR", "", "ERROR", &[]),
            (":s X a:b ::c", "s", "X", &["a:b", ":c"]),
        ] {
            let parameters = parameters.iter().map(ToString::to_string).collect();
            let expected = (origin.to_owned(), command.to_owned(), parameters);
            assert_eq!(parts(line), expected, "{line}");
        }
        for line in ["", "\r", ":", ":s", ":s ", "@t", " "] {
            assert_eq!(ServerLine::parse(line.as_bytes()), None, "{line:?}");
        }
        assert!(ServerLine::parse(b":\xff \xff").is_some());
    }

    #[test]
    fn only_three_digits_are_a_number() {
        let number = |line: &str| ServerLine::parse(line.as_bytes()).unwrap().number();
        assert_eq!(number(":s 001 n"), Some(1));
        assert_eq!(number("475"), Some(475));
        for line in ["1", "+01", "0001", "4x5", "JOIN", "-12"] {
            assert_eq!(number(line), None, "{line}");
        }
    }

    #[test]
    fn names_are_compared_as_servers_do() {
        assert!(is_same("#Runs[1]\\~", "#rUNS{1}|^"));
        assert!(!is_same("#runs", "#runs2") && !is_same("#a", "#b"));
    }
}
