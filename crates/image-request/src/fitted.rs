//! Fits pictures for Codex: checks that they can be decoded, and scales them down to the size that
//! the model sees.
//!
//! Newer releases of Codex scale down pictures with more than 2048 pixels on a side or 2500 patches
//! of 32 by 32. Older ones pass on every picture, even one that the model's provider then refuses
//! with each request of the conversation.

use std::io::Cursor;

use codex_engine::logic::picture_kind::PictureKind;
use codex_protocol::codex::Release;
use image::codecs::jpeg::JpegEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage};

use crate::logic::picture::{BadPictureReason, answer_limit, size_for_models};

/// The longest side that is decoded, in pixels.
const LONGEST_SIDE: u32 = 1 << 15;

/// How many bytes the decoded pixels may take: those of 64 million pixels in colour.
const MOST_DECODED: u64 = 192 * 1024 * 1024;

/// The quality of a JPEG, of 100, and that of a JPEG that has to be small.
const QUALITY: u8 = 90;
const SMALL_QUALITY: u8 = 80;

/// The length of the longest side below which a picture is not scaled down further.
const SMALLEST: u32 = 64;

/// A picture fitted for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedPicture {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its kind, which may differ from the original's.
    pub kind: PictureKind,
}

/// Decodes a picture of this kind, and scales it down for this release if it is too large. A
/// picture that fits is returned unchanged.
///
/// # Errors
///
/// [`BadPictureReason::Damaged`] and [`BadPictureReason::TooManyPixels`].
pub fn fit(
    bytes: Vec<u8>,
    kind: PictureKind,
    codex: Option<Release>,
) -> Result<FittedPicture, BadPictureReason> {
    let (image, orientation) = decoded(&bytes, kind)?;
    let most = answer_limit(codex);
    let (width, height) = (image.width(), image.height());
    let fits = |bytes: &[u8]| u64::try_from(bytes.len()).is_ok_and(|size| size <= most);
    let smaller = size_for_models(width, height);
    if smaller.is_none() && fits(&bytes) {
        return Ok(FittedPicture { bytes, kind });
    }
    drop(bytes);
    let mut image = match smaller {
        Some((width, height)) => image.thumbnail_exact(width, height),
        None => image,
    };
    image.apply_orientation(orientation);
    let first = encoded(&image, kind)?;
    if fits(&first.bytes) {
        return Ok(first);
    }
    loop {
        let small = jpeg(&image, SMALL_QUALITY)?;
        if fits(&small.bytes) {
            return Ok(small);
        }
        let (width, height) = (image.width() / 4 * 3, image.height() / 4 * 3);
        if width.max(height) < SMALLEST {
            return Err(BadPictureReason::Damaged(
                "it cannot be made small enough".to_owned(),
            ));
        }
        image = image.thumbnail_exact(width.max(1), height.max(1));
    }
}

/// Checks that a picture of this kind can be decoded.
///
/// # Errors
///
/// [`BadPictureReason::Damaged`] and [`BadPictureReason::TooManyPixels`].
pub fn check_decodable(bytes: &[u8], kind: PictureKind) -> Result<(), BadPictureReason> {
    decoded(bytes, kind).map(drop)
}

/// The pixels and the orientation. The number of pixels is checked first.
fn decoded(
    bytes: &[u8],
    kind: PictureKind,
) -> Result<(DynamicImage, Orientation), BadPictureReason> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format(kind));
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_DECODED);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(why)?;
    if decoder.total_bytes() > MOST_DECODED {
        return Err(BadPictureReason::TooManyPixels);
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(why)?;
    Ok((image, orientation))
}

fn format(kind: PictureKind) -> ImageFormat {
    match kind {
        PictureKind::Png => ImageFormat::Png,
        PictureKind::Jpeg => ImageFormat::Jpeg,
        PictureKind::WebP => ImageFormat::WebP,
    }
}

fn why(error: ImageError) -> BadPictureReason {
    match error {
        ImageError::Limits(_) => BadPictureReason::TooManyPixels,
        error => BadPictureReason::Damaged(error.to_string()),
    }
}

/// Encodes photographs as JPEG, and pictures with sharp edges or transparency as PNG.
fn encoded(image: &DynamicImage, kind: PictureKind) -> Result<FittedPicture, BadPictureReason> {
    let transparent = image.color().has_alpha();
    let plain = match (kind, transparent) {
        (PictureKind::Jpeg, _) | (PictureKind::WebP, false) => return jpeg(image, QUALITY),
        (_, true) => DynamicImage::ImageRgba8(image.to_rgba8()),
        (_, false) => DynamicImage::ImageRgb8(image.to_rgb8()),
    };
    let mut bytes = Vec::new();
    plain
        .write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)
        .map_err(why)?;
    Ok(FittedPicture {
        bytes,
        kind: PictureKind::Png,
    })
}

fn jpeg(image: &DynamicImage, quality: u8) -> Result<FittedPicture, BadPictureReason> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, quality)
        .encode_image(&on_white(image))
        .map_err(why)?;
    Ok(FittedPicture {
        bytes,
        kind: PictureKind::Jpeg,
    })
}

/// The picture on white, as a JPEG has no transparency.
fn on_white(image: &DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let pixels = image.to_rgba8();
    RgbImage::from_fn(pixels.width(), pixels.height(), |x, y| {
        let [red, green, blue, alpha] = pixels.get_pixel(x, y).0;
        let mixed = |colour: u8| {
            let (colour, alpha) = (u16::from(colour), u16::from(alpha));
            let sum = (colour * alpha + 255 * (255 - alpha)) / 255;
            u8::try_from(sum).unwrap_or(u8::MAX)
        };
        image::Rgb([mixed(red), mixed(green), mixed(blue)])
    })
}

#[cfg(test)]
mod tests {
    use image::{ImageBuffer, Rgba, RgbaImage};

    use super::*;

    const OLD: Option<Release> = Some(Release::new(0, 104, 0));

    /// A picture that no compression makes smaller.
    fn noise(width: u32, height: u32) -> RgbaImage {
        let mut state = 1_u32;
        ImageBuffer::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [red, green, blue, _] = state.to_be_bytes();
            Rgba([red, green, blue, 255])
        })
    }

    fn written(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        let image = match format {
            ImageFormat::Jpeg => &DynamicImage::ImageRgb8(image.to_rgb8()),
            _ => image,
        };
        image
            .write_to(&mut Cursor::new(&mut bytes), format)
            .unwrap();
        bytes
    }

    fn size(fitted: &FittedPicture) -> (u32, u32) {
        let (image, _) = decoded(&fitted.bytes, fitted.kind).unwrap();
        (image.width(), image.height())
    }

    const KINDS: [(PictureKind, ImageFormat); 3] = [
        (PictureKind::Png, ImageFormat::Png),
        (PictureKind::Jpeg, ImageFormat::Jpeg),
        (PictureKind::WebP, ImageFormat::WebP),
    ];

    #[test]
    fn small_picture_stays_as_it_is() {
        let image = DynamicImage::ImageRgba8(noise(90, 60));
        for (kind, format) in KINDS {
            let bytes = written(&image, format);
            for codex in [None, OLD] {
                let fitted = fit(bytes.clone(), kind, codex).unwrap();
                assert_eq!((fitted.kind, &fitted.bytes), (kind, &bytes));
            }
        }
    }

    #[test]
    fn large_picture_is_scaled_down() {
        let image = DynamicImage::ImageRgba8(noise(2600, 900));
        for (kind, format) in KINDS {
            let fitted = fit(written(&image, format), kind, None).unwrap();
            assert_eq!(size(&fitted), (2048, 709), "{kind}");
            let expected = match kind {
                PictureKind::Jpeg => PictureKind::Jpeg,
                // It has an alpha channel.
                PictureKind::Png | PictureKind::WebP => PictureKind::Png,
            };
            assert_eq!(fitted.kind, expected);
        }
        let opaque = DynamicImage::ImageRgb8(image.to_rgb8());
        let fitted = fit(written(&opaque, ImageFormat::WebP), PictureKind::WebP, None).unwrap();
        assert_eq!(fitted.kind, PictureKind::Jpeg);
        // With 16 bits a colour.
        let deep = DynamicImage::ImageRgb16(image.to_rgb16());
        let fitted = fit(written(&deep, ImageFormat::Png), PictureKind::Png, None).unwrap();
        assert_eq!(
            (fitted.kind, size(&fitted)),
            (PictureKind::Png, (2048, 709))
        );
    }

    #[test]
    fn picture_for_an_old_codex_is_a_small_file() {
        let clear = RgbaImage::from_pixel(700, 700, Rgba([0, 0, 0, 0]));
        let mut half = noise(700, 700);
        image::imageops::replace(&mut half, &clear, 350, 0);
        let bytes = written(&DynamicImage::ImageRgba8(half), ImageFormat::Png);
        assert!(bytes.len() > 500_000);
        let fitted = fit(bytes.clone(), PictureKind::Png, None).unwrap();
        assert_eq!(fitted.bytes, bytes);
        let fitted = fit(bytes, PictureKind::Png, OLD).unwrap();
        assert_eq!(fitted.kind, PictureKind::Jpeg);
        assert!(u64::try_from(fitted.bytes.len()).unwrap() <= answer_limit(OLD));
        let (image, _) = decoded(&fitted.bytes, PictureKind::Jpeg).unwrap();
        let (x, y) = (image.width() - 1, image.height() / 2);
        let corner = image.to_rgb8().get_pixel(x, y).0;
        assert!(corner.iter().all(|colour| *colour > 240), "{corner:?}");
    }

    /// The header of a PNG with this many pixels, which the rest does not keep.
    fn header(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = written(&DynamicImage::ImageRgba8(noise(8, 8)), ImageFormat::Png);
        bytes.splice(16..20, width.to_be_bytes());
        bytes.splice(20..24, height.to_be_bytes());
        let sum = crc(&bytes[12..29]);
        bytes.splice(29..33, sum.to_be_bytes());
        bytes
    }

    /// As PNG has it, 5.5.
    fn crc(bytes: &[u8]) -> u32 {
        let step = |sum: u32, byte: &u8| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
                1 => sum >> 1 ^ 0xedb8_8320,
                _ => sum >> 1,
            })
        };
        !bytes.iter().fold(u32::MAX, step)
    }

    #[test]
    fn picture_that_would_take_much_memory_is_not_decoded() {
        for (width, height) in [(100_000, 100_000), (30_000, 30_000), (u32::MAX, 1)] {
            let refused = fit(header(width, height), PictureKind::Png, None).unwrap_err();
            assert!(
                matches!(
                    refused,
                    BadPictureReason::TooManyPixels | BadPictureReason::Damaged(_)
                ),
                "{width}: {refused:?}"
            );
        }
        let refused = fit(header(30_000, 30_000), PictureKind::Png, None).unwrap_err();
        assert_eq!(refused, BadPictureReason::TooManyPixels);
        // The control: the same header with a true size.
        assert!(fit(header(8, 8), PictureKind::Png, None).is_ok());
    }

    #[test]
    fn damaged_picture_is_refused() {
        let image = DynamicImage::ImageRgba8(noise(90, 60));
        for (kind, format) in KINDS {
            let bytes = written(&image, format);
            for damaged in [&bytes[..12], &bytes[..40], b"<svg/>", b""] {
                let refused = fit(damaged.to_vec(), kind, None).unwrap_err();
                assert!(
                    matches!(refused, BadPictureReason::Damaged(_)),
                    "{kind}: {refused:?}"
                );
            }
        }
        for (kind, format) in [KINDS[0], KINDS[2]] {
            let bytes = written(&image, format);
            let half = bytes[..bytes.len() / 2].to_vec();
            let refused = fit(half, kind, None).unwrap_err();
            assert!(
                matches!(refused, BadPictureReason::Damaged(_)),
                "{kind}: {refused:?}"
            );
        }
    }
}
