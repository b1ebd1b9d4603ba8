//! The project's chores, run as `cargo xtask VERB`. `cargo xtask test` is what CI
//! runs, and it installs by itself whatever the tests need.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool that starts other tools and is no part of the program"
)]

mod advisories;
mod atm;
mod bench;
mod chaos;
mod circles;
mod claude_code;
mod codex;
mod debian;
mod deny;
mod dist;
mod docs;
#[cfg(test)]
mod forge_tests;
mod fuzz;
mod installs;
mod layers;
mod matrix;
mod metadata;
mod nextest;
mod node;
mod node_module;
mod npm;
mod other_servers;
mod page_table;
mod peers;
mod picture;
mod portable;
mod provision;
mod purity;
mod python;
mod releases;
mod screenshots;
mod soak;
mod source;
mod test;
mod tool;
mod verdaccio;
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of codex-mcp")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Everything that CI runs: provision, checks, build, tests
    Test(test::Options),
    /// Measure the release build
    Bench(bench::Options),
    /// Kill processes at random under load, and check what was promised
    Chaos(chaos::Options),
    /// Keep the program under steady load, and check that nothing grows
    Soak(soak::Options),
    /// Go through the story of a user with each release of Codex
    Matrix(matrix::Options),
    /// Run the tests with the clients and test programs of others, those outside CI too
    Peers,
    /// Fuzz the parsers and the machines with libFuzzer, on a nightly compiler
    Fuzz(fuzz::Options),
    /// Install what the tests need: real Codex and atm releases, system packages
    Provision,
    /// Check which crate may depend on which, that the pure crates stay pure, and that no modules
    /// import each other in a circle
    Layers,
    /// Check licences, banned crates and sources against deny.toml
    Deny,
    /// Check the dependencies for known vulnerabilities, where a tool for that is installed
    Advisories,
    /// Check that no file speaks of a particular machine
    Words,
    /// Write the tables in docs/ that are generated from the code
    Docs,
    /// Build the packages of a release
    Dist(dist::Options),
    /// Draw the picture of the demo in docs/
    Picture(picture::Options),
    /// Take the pictures of the page in docs/
    Screenshots,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match &cli.verb {
        Verb::Test(options) => test::run(&workspace, options),
        Verb::Bench(options) => bench::run(&workspace, options),
        Verb::Chaos(options) => chaos::run(&workspace, options),
        Verb::Soak(options) => soak::run(&workspace, options),
        Verb::Matrix(options) => matrix::run(&workspace, options),
        Verb::Peers => peers::run(&workspace),
        Verb::Fuzz(options) => fuzz::run(&workspace, options),
        Verb::Provision => provision::run(&workspace),
        Verb::Layers => layers::run(&workspace),
        Verb::Deny => deny::run(&workspace),
        Verb::Advisories => advisories::run(&workspace),
        Verb::Words => words::run(&workspace),
        Verb::Docs => docs::write(&workspace),
        Verb::Dist(options) => dist::run(&workspace, options),
        Verb::Picture(options) => picture::run(&workspace, options),
        Verb::Screenshots => screenshots::run(&workspace),
    }
}
