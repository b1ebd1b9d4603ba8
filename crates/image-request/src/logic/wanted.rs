//! The pictures that Codex waits for, and those of them that it is resumed with.

use super::path::PicturePath;

/// How many pictures Codex is resumed with at most.
pub const MOST_PICTURES: usize = 8;

/// How many of the pictures that are left out are named at most.
const MOST_NAMED: usize = 8;

/// What Codex has asked for since it was resumed last, within bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// What it is resumed with, each picture once, in the order of the requests.
    pub pictures: Vec<PicturePath>,
    /// What is left out because it is more than [`MOST_PICTURES`].
    pub left_out: Vec<PicturePath>,
    /// How many more requests were left out, and are not named.
    pub unnamed: u64,
}

impl Wanted {
    /// One picture.
    #[must_use]
    pub fn one(path: PicturePath) -> Self {
        let mut wanted = Self::default();
        wanted.add(path);
        wanted
    }

    /// One more picture, unless it was asked for already.
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
    fn wanted_pictures_are_bounded_and_each_is_there_once() {
        let mut wanted = Wanted::default();
        for number in [1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 9, 2] {
            wanted.add(format!("{number}.png").parse().unwrap());
        }
        let names = |paths: &[PicturePath]| {
            let names = paths.iter().map(|path| path.as_str().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names(&wanted.pictures),
            "./1.png ./2.png ./3.png ./4.png ./5.png ./6.png ./7.png ./8.png"
        );
        assert_eq!(
            (names(&wanted.left_out), wanted.unnamed),
            ("./9.png".to_owned(), 0)
        );
        for number in 10..30 {
            wanted.add(format!("{number}.png").parse().unwrap());
        }
        assert_eq!((wanted.left_out.len(), wanted.unnamed), (MOST_NAMED, 13));
    }
}
