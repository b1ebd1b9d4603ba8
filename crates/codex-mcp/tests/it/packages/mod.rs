//! The packages of a release, installed and used as users do it.

mod npm;
mod npm_script;
