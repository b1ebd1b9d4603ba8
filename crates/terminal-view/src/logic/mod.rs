//! The contents of the view and the effects of keys, without I/O.

pub(crate) mod app;
pub(crate) mod choices;
pub(crate) mod job;
pub(crate) mod list;
pub(crate) mod mode;
pub(crate) mod opened;
pub(crate) mod rows;
#[cfg(test)]
mod tests;
pub(crate) mod transcript;
