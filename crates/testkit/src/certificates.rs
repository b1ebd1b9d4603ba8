//! Certificates for one test, made by openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// openssl's own configuration would make a CA of each certificate.
const CONFIGURATION: &str = "[req]\ndistinguished_name = name\n[name]\n";

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
}

/// A certificate and its key, as files in PEM. They are removed with their [`Authority`].
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of the key, which only its owner can read.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Panics
    /// If openssl is not installed or fails.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("openssl.cnf"), CONFIGURATION).unwrap();
        let authority = Self { directory };
        let extensions = ["basicConstraints=critical,CA:TRUE"];
        authority.request("ca", "Test CA", &extensions, &[]);
        authority
    }

    /// The file of the authority's certificate.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// Issues a certificate to a server or client. `names` is in the form of openssl:
    /// `DNS:a.test,IP:127.0.0.1`. PostgreSQL compares `common_name` with the role of a client.
    ///
    /// # Panics
    /// If openssl fails.
    #[must_use]
    pub fn issue(&self, common_name: &str, names: &str) -> Certificate {
        let number = fs::read_dir(self.directory.path()).unwrap().count();
        let name = format!("issued{number}");
        let names = format!("subjectAltName={names}");
        let extensions = ["basicConstraints=critical,CA:FALSE", &names];
        let authority = [("-CA", self.path()), ("-CAkey", self.file("ca.key"))];
        self.request(&name, common_name, &extensions, &authority)
    }

    fn request(
        &self,
        name: &str,
        common_name: &str,
        extensions: &[&str],
        files: &[(&str, PathBuf)],
    ) -> Certificate {
        let made = Certificate {
            certificate: self.file(&format!("{name}.crt")),
            key: self.file(&format!("{name}.key")),
        };
        let mut command = Command::new("openssl");
        command
            .args(["req", "-x509", "-days", "2", "-nodes", "-config"])
            .arg(self.file("openssl.cnf"))
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-subj", &format!("/CN={common_name}")])
            .args(extensions.iter().flat_map(|text| ["-addext", text]));
        for (option, path) in files {
            command.arg(option).arg(path);
        }
        command.arg("-keyout").arg(&made.key);
        command.arg("-out").arg(&made.certificate);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl: {said}");
        made
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificate {
    /// Copies the certificate and its key to a directory of a server, as files of this user.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn install(&self, directory: &Path, user: Option<(u32, u32)>) {
        for (from, name) in [(&self.certificate, "server.crt"), (&self.key, "server.key")] {
            let to = directory.join(name);
            fs::copy(from, &to).unwrap();
            if let Some((uid, gid)) = user {
                std::os::unix::fs::chown(&to, Some(uid), Some(gid)).unwrap();
            }
        }
    }
}
