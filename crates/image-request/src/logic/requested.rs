//! The pictures that Codex waits for, within bounds.

use super::path::PicturePath;

/// The most pictures that a resumed Codex gets.
pub const MOST_PICTURES: usize = 8;

/// The most omitted pictures that are named.
const MOST_NAMED: usize = 8;

/// The requests since Codex was resumed last, within bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedPictures {
    /// The pictures for the resumed Codex, without duplicates, in the order of the requests.
    pub pictures: Vec<PicturePath>,
    /// Pictures beyond [`MOST_PICTURES`].
    pub left_out: Vec<PicturePath>,
    /// The number of further omitted requests, which are not named.
    pub unnamed: u64,
}

impl RequestedPictures {
    /// A request for one picture.
    #[must_use]
    pub fn one(path: PicturePath) -> Self {
        let mut requested = Self::default();
        requested.add(path);
        requested
    }

    /// Adds a picture, unless it was requested already.
    pub fn add(&mut self, path: PicturePath) {
        if self.pictures.contains(&path) || self.left_out.contains(&path) {
            return;
        }
        if self.pictures.len() < MOST_PICTURES {
            self.pictures.push(path);
        } else if self.left_out.len() < MOST_NAMED {
            self.left_out.push(path);
        } else {
            self.unnamed = self.unnamed.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_pictures_are_bounded_and_distinct() {
        let mut requested = RequestedPictures::default();
        for number in [1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 9, 2] {
            requested.add(format!("{number}.png").parse().unwrap());
        }
        let names = |paths: &[PicturePath]| {
            let names = paths.iter().map(|path| path.as_str().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names(&requested.pictures),
            "./1.png ./2.png ./3.png ./4.png ./5.png ./6.png ./7.png ./8.png"
        );
        assert_eq!(
            (names(&requested.left_out), requested.unnamed),
            ("./9.png".to_owned(), 0)
        );
        for number in 10..30 {
            requested.add(format!("{number}.png").parse().unwrap());
        }
        assert_eq!(
            (requested.left_out.len(), requested.unnamed),
            (MOST_NAMED, 13)
        );
    }
}
