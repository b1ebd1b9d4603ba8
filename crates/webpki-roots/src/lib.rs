//! An empty list of CAs in the place of Mozilla's.
//!
//! sqlx trusts all CAs of the crate `webpki-roots` (or all of the system) beside those of
//! `sslrootcert`. libpq trusts the latter alone, and so do we: with its own CA, a server must not
//! be replaced by whoever has a certificate of a public one. The workspace therefore patches that
//! crate with this one, and `job-queue` passes the CAs of the system where they are wanted.

use rustls_pki_types::TrustAnchor;

/// No CA.
pub const TLS_SERVER_ROOTS: &[TrustAnchor<'static>] = &[];
