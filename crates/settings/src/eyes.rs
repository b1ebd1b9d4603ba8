//! The settings of pictures that Codex requests.

use image_request::logic::picture::SizeLimit;

use crate::error::ConfigError;
use crate::file::File;
use crate::flags::Flags;
use crate::key::Key;
use crate::lookup::{Lookup, in_section};
use crate::source::{Setting, Source};

pub(super) const REQUEST_IMAGE: Key = Key {
    name: "request_image",
    flag: "--no-request-image",
    variable: "CODEX_MCP_REQUEST_IMAGE",
};
pub(super) const MAX_IMAGE_BYTES: Key = Key {
    name: "max_image_bytes",
    flag: "--max-image-bytes",
    variable: "CODEX_MCP_MAX_IMAGE_BYTES",
};

/// The settings of pictures that Codex requests.
#[derive(Debug)]
pub struct EyesSettings {
    /// Whether Codex's threads get the tool `request_image`.
    pub request_image: Setting<bool>,
    /// The size limit of a picture.
    pub max_image_bytes: Setting<SizeLimit>,
}

impl Lookup<'_> {
    pub(super) fn eyes(&self, flags: &Flags, files: &[File]) -> Result<EyesSettings, ConfigError> {
        let request_image =
            self.switch(REQUEST_IMAGE, flags.request_image, true, files, |file| {
                file.section.request_image
            })?;
        Ok(EyesSettings {
            request_image,
            max_image_bytes: self.max_image_bytes(flags.max_image_bytes, files)?,
        })
    }

    fn max_image_bytes(
        &self,
        flag: Option<SizeLimit>,
        files: &[File],
    ) -> Result<Setting<SizeLimit>, ConfigError> {
        let Key { name, variable, .. } = MAX_IMAGE_BYTES;
        if let Some(value) = flag {
            return Ok(Setting::new(value, Source::Flag(MAX_IMAGE_BYTES.flag)));
        }
        let invalid = |from: Source, why: String| ConfigError::Invalid {
            key: name,
            from,
            why,
        };
        let set = match self.in_variable::<String>(name, variable)? {
            Some(Setting { value, source }) => {
                let bytes = value.parse().map_err(|_| {
                    let why = format!("it must be a number of bytes, not {value:?}");
                    invalid(source.clone(), why)
                })?;
                Some(Setting::new(bytes, source))
            }
            None => in_section(files, |file| file.section.max_image_bytes),
        };
        let Some(Setting { value, source }) = set else {
            return Ok(Setting::new(SizeLimit::default(), Source::Default));
        };
        match SizeLimit::try_from(value) {
            Ok(limit) => Ok(Setting::new(limit, source)),
            Err(error) => Err(invalid(source, error.to_string())),
        }
    }
}
