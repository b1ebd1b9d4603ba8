//! The names by which users and clients give approval policies.

use codex_protocol::codex::ApprovalPolicy;
use serde::de::value::StringDeserializer;
use serde::{Deserialize, Deserializer};

/// The name of the policy that Codex no longer has.
pub(super) const DROPPED: &str = "on-failure";

/// The warning for users of the policy `on-failure`.
pub const REPLACED: &str = "Codex no longer has the approval policy on-failure; on-request \
                                   is used instead";

/// The names of approval policies, including the one that Codex no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PolicyName {
    /// Asks before each command that is not known to be harmless.
    Untrusted,
    /// Codex no longer has this policy, see [`REPLACED`].
    OnFailure,
    /// Asks when the model wants to leave the sandbox.
    OnRequest,
    /// Never asks.
    Never,
}

impl PolicyName {
    /// The policy that Codex has today.
    pub fn today(self) -> ApprovalPolicy {
        match self {
            Self::Untrusted => ApprovalPolicy::Untrusted,
            Self::OnFailure | Self::OnRequest => ApprovalPolicy::OnRequest,
            Self::Never => ApprovalPolicy::Never,
        }
    }
}

impl From<ApprovalPolicy> for PolicyName {
    fn from(policy: ApprovalPolicy) -> Self {
        match policy {
            ApprovalPolicy::Untrusted => Self::Untrusted,
            ApprovalPolicy::OnRequest => Self::OnRequest,
            ApprovalPolicy::Never => Self::Never,
        }
    }
}

/// The name of the dropped policy is understood, but the error of a wrong name does not list it.
impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == DROPPED {
            return Ok(Self::OnFailure);
        }
        let known = StringDeserializer::<D::Error>::new(name);
        ApprovalPolicy::deserialize(known).map(Self::from)
    }
}

/// Reads a policy by any of its names.
pub(super) fn by_any_name<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<ApprovalPolicy>, D::Error> {
    let named = Option::<PolicyName>::deserialize(from)?;
    Ok(named.map(PolicyName::today))
}
