//! Releases of torch by their minor versions, the supported range, and the installed one.

use std::fmt;

/// A minor version: `2.12` stands for 2.12.0, 2.12.1...
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
}

impl Release {
    /// Reads `2.12`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: number(major)?, minor: number(minor)? })
    }

    /// Reads the minor version of `2.12.1`, `2.12.1+cpu` or `2.13.0a0`.
    pub fn of_version(version: &str) -> Option<Self> {
        let mut parts = version.split('.');
        Some(Self { major: number(parts.next()?)?, minor: number(parts.next()?)? })
    }
}

/// Parses digits only: `+12` is not a version.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The supported releases.
#[derive(Clone, Copy, Debug)]
pub struct Supported {
    pub oldest: Release,
    pub newest: Release,
}

impl Supported {
    /// Reads `oldest` and `newest` from `[package.metadata.torch]` of a Cargo.toml.
    pub fn parse(manifest: &str) -> Option<Self> {
        let section = manifest.split_once("\n[package.metadata.torch]\n")?.1;
        let value = |key: &str| {
            let mut lines = section.lines().take_while(|line| !line.starts_with('['));
            let value = lines.find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
            Release::parse(value.trim().trim_matches('"'))
        };
        Some(Self { oldest: value("oldest")?, newest: value("newest")? })
    }

    /// Returns true if a release is supported.
    pub fn contains(&self, release: Release) -> bool {
        (self.oldest..=self.newest).contains(&release)
    }
}
