//! Attacks, each with a control that shows it working where nothing protects.

mod repository;
mod settings;
