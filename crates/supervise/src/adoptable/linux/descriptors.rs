//! Passes file descriptors over Unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends a file descriptor with an empty line: a descriptor can only be sent along with data.
///
/// # Errors
///
/// Those of sendmsg(2).
pub(crate) fn send_descriptor(stream: &impl AsFd, descriptor: &impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for a file descriptor"));
    }
    let line = [IoSlice::new(b"\n")];
    retry_on_intr(|| sendmsg(stream, &line, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Reads the next bytes, and the file descriptor that came with them, if any.
///
/// # Errors
///
/// Those of recvmsg(2).
pub(super) fn receive(
    stream: &impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // Earlier descriptors are dropped, which closes them.
            descriptor = descriptors.last().or(descriptor);
        }
    }
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptor_arrives_with_an_empty_line() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut sent, mut far) = UnixStream::pair().unwrap();
        send_descriptor(&one, &sent).unwrap();
        (&one).write_all(b"ab").unwrap();
        let mut buffer = [0; 8];
        let (count, descriptor) = receive(&other, &mut buffer).unwrap();
        assert_eq!(buffer.get(..count), Some(b"\n".as_slice()));
        let mut received = UnixStream::from(descriptor.unwrap());
        received.write_all(b"x").unwrap();
        sent.write_all(b"y").unwrap();
        drop((received, sent));
        let mut heard = String::new();
        far.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "xy");
        let (count, descriptor) = receive(&other, &mut buffer).unwrap();
        assert_eq!(buffer.get(..count), Some(b"ab".as_slice()));
        assert!(descriptor.is_none());
        drop(one);
        assert_eq!(receive(&other, &mut buffer).unwrap().0, 0);
    }
}
