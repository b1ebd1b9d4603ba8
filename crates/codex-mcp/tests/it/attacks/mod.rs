//! Attacks, each with a control that shows it working where nothing protects.

mod approvals;
// Without /proc, background processes are not stopped.
#[cfg(not(portable))]
mod background;
mod bounds;
mod environment;
mod fixture;
mod hidden_refs;
mod host;
mod hostile_commits;
mod hostile_files;
mod interrupted_runs;
mod job_answers;
mod missing_home;
mod outside_git;
mod pipes;
mod planted;
mod questions;
mod recommended_commands;
mod repeated_call_ids;
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
mod untrusted_servers;
mod work_of_user;
