//! Bytes and paths in JSON, which can represent neither unless they are UTF-8: they are stored as
//! Base64.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A path, or the contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn of(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    pub(crate) fn into_path(self) -> PathBuf {
        OsString::from_vec(self.0).into()
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD_NO_PAD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(de::Error::custom)?;
        Ok(Self(bytes))
    }
}

/// Stores a path, by `serde(with)`.
pub(crate) mod path {
    use super::{Bytes, Deserialize, Deserializer, Path, PathBuf, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Bytes::of(path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        Bytes::deserialize(deserializer).map(Bytes::into_path)
    }
}

/// Stores a collection of paths, by `serde(with)`.
pub(crate) mod paths {
    use super::{Bytes, Deserialize, Deserializer, PathBuf, Serializer};

    pub(crate) fn serialize<'a, C, S>(paths: &'a C, serializer: S) -> Result<S::Ok, S::Error>
    where
        &'a C: IntoIterator<Item = &'a PathBuf>,
        S: Serializer,
    {
        serializer.collect_seq(paths.into_iter().map(|path| Bytes::of(path)))
    }

    pub(crate) fn deserialize<'de, C, D>(deserializer: D) -> Result<C, D::Error>
    where
        C: FromIterator<PathBuf>,
        D: Deserializer<'de>,
    {
        let paths = Vec::<Bytes>::deserialize(deserializer)?;
        Ok(paths.into_iter().map(Bytes::into_path).collect())
    }
}

/// Stores texts by their paths, by `serde(with)`.
pub(crate) mod texts_by_path {
    use std::collections::BTreeMap;

    use super::{Bytes, Deserialize, Deserializer, PathBuf, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        texts: &BTreeMap<PathBuf, String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(texts.iter().map(|(path, text)| (Bytes::of(path), text)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<PathBuf, String>, D::Error> {
        let texts = BTreeMap::<Bytes, String>::deserialize(deserializer)?;
        let texts = texts.into_iter();
        Ok(texts.map(|(path, text)| (path.into_path(), text)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "path")]
        one: PathBuf,
        #[serde(with = "paths")]
        list: Vec<PathBuf>,
        #[serde(with = "paths")]
        set: BTreeSet<PathBuf>,
        #[serde(with = "texts_by_path")]
        texts: BTreeMap<PathBuf, String>,
    }

    #[test]
    fn paths_that_are_not_text_survive_json() {
        let path = Bytes(b"a\xff/b\n".to_vec()).into_path();
        let paths = Paths {
            one: path.clone(),
            list: vec![path.clone(), PathBuf::new()],
            set: [path.clone()].into(),
            texts: [(path, "x".to_owned())].into(),
        };
        let text = serde_json::to_string(&paths).unwrap();
        assert_eq!(serde_json::from_str::<Paths>(&text).unwrap(), paths);
    }
}
