//! An empty list of CAs in the place of Mozilla's.
//!
//! sqlx trusts all CAs of the crate `webpki-roots` (or all of the system) in addition to
//! those in `sslrootcert`. libpq trusts only the latter, and so do we: nobody with a
//! certificate of a public CA may impersonate a server that has its own CA. The workspace therefore
//! patches that crate with this one, and `job-queue` passes the CAs of the system where they are
//! wanted.
//!
//! ```text
//!  sslrootcert ───────────────────────────────┐
//!  webpki_roots (this crate): none ───────────┼─► sqlx ─► rustls: is it the server?
//!  the system's CAs, where job-queue asks ────┘
//! ```
//!
//! ```
//! assert!(webpki_roots::TLS_SERVER_ROOTS.is_empty());
//! ```

use rustls_pki_types::TrustAnchor;

/// No CA.
pub const TLS_SERVER_ROOTS: &[TrustAnchor<'static>] = &[];
