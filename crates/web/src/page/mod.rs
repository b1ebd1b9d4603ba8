//! The page, one file for each part. All functions here depend only on the data to show.

pub(crate) mod diff;
pub(crate) mod field;
pub(crate) mod home;
pub(crate) mod job;
pub(crate) mod layout;
pub(crate) mod login;
pub(crate) mod mail;
pub(crate) mod question;
pub(crate) mod session;
pub(crate) mod threads;
