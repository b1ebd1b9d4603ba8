//! Attacks, each with a control that shows it working where nothing protects.

mod environment;
mod hostile_files;
mod repository;
mod settings;
