//! The same functions for systems without support for adoption.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::process::ChildStderr;

use crate::exit::Exit;
use crate::spawn::Program;

/// A program that another process can take over: there is none on this system.
#[derive(Debug)]
pub struct AdoptableProcess(Infallible);

/// Stores values in a guard for the next owner: there is none on this system.
#[derive(Debug, Clone)]
pub struct Keeper(Infallible);

/// A program that was taken over: there is none on this system.
#[derive(Debug)]
pub struct Adopted {
    /// The program.
    pub process: AdoptableProcess,
    /// A new connection to the program's port.
    pub connection: TcpStream,
    /// The values that its earlier owners had the guard keep.
    pub kept: BTreeMap<String, String>,
}

/// Always `false`.
#[must_use]
pub fn is_supported() -> bool {
    false
}

/// Starts nothing.
///
/// # Errors
///
/// Always [`io::ErrorKind::Unsupported`].
pub fn spawn_adoptable(
    _program: &Program,
    _adoption: &Path,
    _wait: Duration,
) -> io::Result<(AdoptableProcess, ChildStderr)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Takes over nothing.
///
/// # Errors
///
/// Always [`io::ErrorKind::Unsupported`].
pub async fn adopt(_adoption: &Path) -> io::Result<Option<Adopted>> {
    Err(io::ErrorKind::Unsupported.into())
}

impl AdoptableProcess {
    /// Never called.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn connection(&mut self) -> io::Result<TcpStream> {
        match self.0 {}
    }

    /// Never called.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match self.0 {}
    }

    /// Never called.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn end_after(&mut self, _timeout: Duration) -> io::Result<Exit> {
        match self.0 {}
    }

    /// Never called.
    pub fn terminate(&self) {
        match self.0 {}
    }
}

impl Keeper {
    /// Never called.
    pub fn keep(&self, _key: &str, _value: String) {
        match self.0 {}
    }

    /// Never called.
    pub async fn flush(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn forget(&self, _key: &str) {
        match self.0 {}
    }

    /// Never called.
    pub fn be_last(&self) {
        match self.0 {}
    }
}
