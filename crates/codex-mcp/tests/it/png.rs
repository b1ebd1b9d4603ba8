//! Small PNG pictures.

/// A PNG of 2 by 2 pixels with a text chunk.
pub(crate) fn png(text: &str) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut png, b"IHDR", &[0, 0, 0, 2, 0, 0, 0, 2, 8, 0, 0, 0, 0]);
    chunk(&mut png, b"tEXt", format!("Comment\0{text}").as_bytes());
    // Stored without compression: a line's filter and its pixels, twice.
    let pixels = [0x78, 0x01, 1, 6, 0, 0xf9, 0xff, 0, 0, 255, 0, 255, 0];
    let sum = adler(&[0, 0, 255, 0, 255, 0]);
    chunk(
        &mut png,
        b"IDAT",
        &[&pixels[..], &sum.to_be_bytes()].concat(),
    );
    chunk(&mut png, b"IEND", &[]);
    png
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    let checked = [&kind[..], data].concat();
    png.extend(&checked);
    png.extend(crc(&checked).to_be_bytes());
}

/// CRC of a chunk, PNG 5.5.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            1 => sum >> 1 ^ 0xedb8_8320,
            _ => sum >> 1,
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Adler-32, RFC 1950, 8.2.
fn adler(bytes: &[u8]) -> u32 {
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

/// A PNG that declares this size but holds four pixels.
pub(crate) fn declared(width: u32, height: u32) -> Vec<u8> {
    let png = png("declared");
    let mut declared = png[..8].to_vec();
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let rest = &[8, 0, 0, 0, 0];
    chunk(&mut declared, b"IHDR", &[&size, rest.as_slice()].concat());
    // The rest, after the signature and the header.
    declared.extend(&png[8 + 25..]);
    declared
}
