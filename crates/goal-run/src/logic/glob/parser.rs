//! Parses patterns.

use std::iter::Peekable;
use std::str::Chars;

use super::{ALTERNATIVES_LIMIT, BadGlob, DEPTH_LIMIT, Glob, LENGTH_LIMIT, Part, Sense, Token};

/// A sign of a pattern, before braces are expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sign {
    Token(Token),
    Slash,
    Open,
    Comma,
    Close,
}

/// The constructor of an error, to which the caller adds the text.
type Refusal = fn(String) -> BadGlob;

pub(super) fn parse(text: &str) -> Result<Glob, BadGlob> {
    let text = text.strip_prefix("./").unwrap_or(text);
    check(text)?;
    let refuse = |refusal: Refusal| refusal(text.to_owned());
    let signs = signs(text).map_err(refuse)?;
    let written_out = Braces::new(&signs).all().map_err(refuse)?;
    let alternatives: Result<Vec<_>, Refusal> =
        written_out.iter().map(|signs| parts(signs)).collect();
    Ok(Glob {
        text: text.to_owned(),
        alternatives: alternatives.map_err(refuse)?,
    })
}

fn check(text: &str) -> Result<(), BadGlob> {
    if text.is_empty() {
        return Err(BadGlob::Empty);
    }
    if text.len() > LENGTH_LIMIT {
        return Err(BadGlob::TooLong);
    }
    match text.chars().any(char::is_control) {
        true => Err(BadGlob::ControlCharacter(text.to_owned())),
        false => Ok(()),
    }
}

fn signs(text: &str) -> Result<Vec<Sign>, Refusal> {
    let mut signs = Vec::new();
    let mut depth = 0_usize;
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let sign = match character {
            '/' => Sign::Slash,
            '{' => Sign::Open,
            '}' => Sign::Close,
            ',' if depth > 0 => Sign::Comma,
            '*' => Sign::Token(Token::Many),
            '?' => Sign::Token(Token::Any),
            '[' => Sign::Token(class(&mut rest).ok_or(BadGlob::Brackets as Refusal)?),
            '\\' => {
                let escaped = rest.next().filter(|character| *character != '/');
                Sign::Token(Token::Character(
                    escaped.ok_or(BadGlob::Backslash as Refusal)?,
                ))
            }
            character => Sign::Token(Token::Character(character)),
        };
        match sign {
            Sign::Open => depth += 1,
            Sign::Close => depth = depth.checked_sub(1).ok_or(BadGlob::Braces as Refusal)?,
            _ => {}
        }
        signs.push(sign);
    }
    Ok(signs)
}

/// Reads a class after its opening bracket; `None` if it is malformed. A closing bracket that
/// comes first is literal.
fn class(rest: &mut Peekable<Chars<'_>>) -> Option<Token> {
    let sense = match rest.next_if(|character| matches!(character, '!' | '^')) {
        Some(_) => Sense::NotIn,
        None => Sense::In,
    };
    let mut ranges = Vec::new();
    loop {
        let character = rest.next()?;
        if character == ']' && !ranges.is_empty() {
            return Some(Token::Class { sense, ranges });
        }
        let low = member(character, rest)?;
        let mut ahead = rest.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']');
        let high = match is_range {
            true => {
                rest.next();
                let character = rest.next()?;
                member(character, rest)?
            }
            false => low,
        };
        if low > high {
            return None;
        }
        ranges.push((low, high));
    }
}

fn member(character: char, rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    let member = match character {
        '\\' => rest.next()?,
        character => character,
    };
    (member != '/').then_some(member)
}

/// Expands braces.
struct Braces<'a> {
    rest: std::slice::Iter<'a, Sign>,
    depth: usize,
}

impl<'a> Braces<'a> {
    fn new(signs: &'a [Sign]) -> Self {
        Self {
            rest: signs.iter(),
            depth: 0,
        }
    }

    fn all(mut self) -> Result<Vec<Vec<Sign>>, Refusal> {
        self.sequence()
    }

    /// The expansions up to a comma, the end of a brace, or the end of the pattern.
    fn sequence(&mut self) -> Result<Vec<Vec<Sign>>, Refusal> {
        let mut found = vec![Vec::new()];
        loop {
            match self.rest.as_slice().first() {
                None | Some(Sign::Comma | Sign::Close) => return Ok(found),
                Some(Sign::Open) => {
                    self.rest.next();
                    found = combined(&found, &self.choices()?)?;
                }
                Some(sign) => {
                    self.rest.next();
                    for signs in &mut found {
                        signs.push(sign.clone());
                    }
                }
            }
        }
    }

    /// The expansions of a brace after its opening sign.
    fn choices(&mut self) -> Result<Vec<Vec<Sign>>, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(BadGlob::TooMany);
        }
        let mut choices = Vec::new();
        loop {
            choices.extend(self.sequence()?);
            if choices.len() > ALTERNATIVES_LIMIT {
                return Err(BadGlob::TooMany);
            }
            match self.rest.next() {
                Some(Sign::Comma) => {}
                Some(Sign::Close) => break,
                _ => return Err(BadGlob::Braces),
            }
        }
        self.depth -= 1;
        Ok(choices)
    }
}

fn combined(firsts: &[Vec<Sign>], seconds: &[Vec<Sign>]) -> Result<Vec<Vec<Sign>>, Refusal> {
    if firsts.len() * seconds.len() > ALTERNATIVES_LIMIT {
        return Err(BadGlob::TooMany);
    }
    let pairs = firsts
        .iter()
        .flat_map(|first| seconds.iter().map(move |second| (first, second)));
    Ok(pairs
        .map(|(first, second)| [first.as_slice(), second].concat())
        .collect())
}

fn parts(signs: &[Sign]) -> Result<Vec<Part>, Refusal> {
    if signs.first() == Some(&Sign::Slash) {
        return Err(BadGlob::Absolute);
    }
    if signs.last() == Some(&Sign::Slash) {
        return Err(BadGlob::Directory);
    }
    let names = signs.split(|sign| *sign == Sign::Slash);
    let mut parts: Vec<Part> = names.map(part).collect::<Result<_, _>>()?;
    if parts.first().and_then(Part::plain) == Some(".git") {
        return Err(BadGlob::GitDirectory);
    }
    // A path below a directory has at least one more name.
    if parts.last() == Some(&Part::Directories) {
        parts.push(Part::Form(vec![Token::Many]));
    }
    Ok(parts)
}

fn part(signs: &[Sign]) -> Result<Part, Refusal> {
    let tokens: Vec<Token> = signs
        .iter()
        .filter_map(|sign| match sign {
            Sign::Token(token) => Some(token.clone()),
            _ => None,
        })
        .collect();
    if tokens == [Token::Many, Token::Many] {
        return Ok(Part::Directories);
    }
    if tokens
        .windows(2)
        .any(|pair| pair == [Token::Many, Token::Many])
    {
        return Err(BadGlob::Directories);
    }
    let plain: Option<String> = tokens
        .iter()
        .map(|token| match token {
            Token::Character(character) => Some(*character),
            _ => None,
        })
        .collect();
    match plain {
        Some(name) if matches!(name.as_str(), "" | "." | "..") => Err(BadGlob::Dots),
        Some(name) => Ok(Part::Plain(name)),
        None => Ok(Part::Form(tokens)),
    }
}
