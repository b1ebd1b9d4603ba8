//! Decisions without I/O: the look of a conversation, and the labels of decisions.

pub mod conversation;
pub mod decision_label;
mod item;
pub mod step;
