//! Attacks, each with a control that shows it working where nothing protects.

mod approvals;
mod background;
mod bounds;
mod environment;
mod hidden_refs;
mod hostile_commits;
mod hostile_files;
mod interrupted_runs;
mod job_answers;
mod outside_git;
mod pipes;
mod planted;
mod questions;
mod recommended_commands;
mod replaced_directory;
mod repository;
mod resumed_jobs;
mod search_paths;
mod settings;
mod settings_of_user;
mod shared_store;
mod state_directory;
mod submodules;
mod terminal;
mod trusted_content;
