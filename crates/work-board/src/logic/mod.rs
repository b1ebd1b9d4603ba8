//! What is decided without I/O: what a conversation looks like, and the labels of decisions.

pub mod conversation;
pub mod decision_label;
mod item;
pub mod step;
