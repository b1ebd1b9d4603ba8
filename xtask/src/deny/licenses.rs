//! Checks that each crate is available under licences that `deny.toml` allows.

use anyhow::Context;
use spdx::{Expression, Licensee, ParseMode};

use super::Report;
use super::config::{Level, Licenses};
use crate::metadata::{Metadata, Package};

/// The leniency of cargo-deny: the `/` of old manifests for `OR`, old names of licences,
/// `GPL-2.0+`.
const LENIENT: ParseMode = ParseMode {
    allow_slash_as_or_operator: true,
    allow_imprecise_license_names: true,
    allow_postfix_plus_on_gpl: true,
    allow_deprecated: true,
    allow_unknown: false,
};

/// Adds an error for each crate whose licence is not agreed with or not known.
///
/// # Errors
/// When an entry of `allow` is no SPDX identifier.
pub(super) fn check(
    rules: &Licenses,
    metadata: &Metadata,
    report: &mut Report,
) -> anyhow::Result<()> {
    let allowed = rules
        .allow
        .iter()
        .map(|name| {
            Licensee::parse(name).with_context(|| format!("licenses.allow: `{name}` is no licence"))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for package in &metadata.packages {
        if let Err(complaint) = accepts(&allowed, package.license.as_deref()) {
            let Package { name, version, .. } = package;
            report.add(Level::Deny, format!("{name} {version}: {complaint}"));
        }
    }
    Ok(())
}

/// Whether the expression can be fulfilled with allowed licences alone.
fn accepts(allowed: &[Licensee], license: Option<&str>) -> Result<(), String> {
    let license = license.ok_or("names no licence in its manifest")?;
    let expression = Expression::parse_mode(license, LENIENT)
        .map_err(|error| format!("licence `{license}` cannot be read: {}", error.reason))?;
    let agreed = expression.evaluate(|wanted| allowed.iter().any(|have| have.satisfies(wanted)));
    if agreed {
        Ok(())
    } else {
        Err(format!("licence `{license}` is not allowed"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    fn accepted(allow: &[&str], license: &str) -> bool {
        let allowed: Vec<_> = allow
            .iter()
            .map(|name| Licensee::parse(name).unwrap())
            .collect();
        accepts(&allowed, Some(license)).is_ok()
    }

    #[test]
    fn or_needs_one_side_and_and_needs_both() {
        assert!(accepted(&["MIT"], "MIT OR GPL-3.0-only"));
        assert!(accepted(&["MIT"], "GPL-3.0-only OR MIT"));
        assert!(!accepted(&["MIT"], "MIT AND BSD-3-Clause"));
        assert!(accepted(&["MIT", "BSD-3-Clause"], "MIT AND BSD-3-Clause"));
        assert!(!accepted(&["MIT"], "GPL-3.0-only"));
    }

    #[test]
    fn and_binds_tighter_than_or_and_parentheses_bind_tightest() {
        assert!(accepted(&["MIT"], "MIT OR Apache-2.0 AND ISC"));
        assert!(!accepted(&["MIT"], "(MIT OR Apache-2.0) AND ISC"));
        assert!(accepted(&["MIT", "ISC"], "(MIT OR Apache-2.0) AND ISC"));
    }

    #[test]
    fn exception_makes_another_licence() {
        let with = "Apache-2.0 WITH LLVM-exception";
        assert!(!accepted(&["Apache-2.0"], with));
        assert!(accepted(&[with], with));
        assert!(!accepted(&[with], "Apache-2.0"));
        assert!(accepted(&["MIT"], &format!("{with} OR MIT")));
    }

    #[test]
    fn slash_means_or() {
        assert!(accepted(&["Apache-2.0"], "MIT/Apache-2.0"));
        assert!(accepted(&["Apache-2.0"], "MIT / Apache-2.0"));
        assert!(!accepted(&["ISC"], "MIT/Apache-2.0"));
    }

    #[test]
    fn unreadable_expression_is_refused() {
        for license in ["", "MIT OR", "(MIT", "Our-Own-Terms", "MIT Apache-2.0"] {
            assert!(!accepted(&["MIT"], license), "{license:?}");
        }
        assert!(accepts(&[], None).unwrap_err().contains("names no licence"));
    }
}
