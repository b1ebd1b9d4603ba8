//! The keys of settings that a flag or a variable can set too.

/// A key, with its flag and its variable.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) flag: &'static str,
    pub(super) variable: &'static str,
}

pub(super) const CODEX_BIN: Key = Key {
    name: "codex_bin",
    flag: "--codex-bin",
    variable: "CODEX_MCP_CODEX_BIN",
};

pub(super) const TIMEOUT: Key = Key {
    name: "request_timeout_secs",
    flag: "--timeout",
    variable: "CODEX_MCP_REQUEST_TIMEOUT_SECS",
};

/// The variable belongs to the `atm` program.
pub(super) const IDENTITY: Key = Key {
    name: "identity",
    flag: "--identity",
    variable: "ATM_IDENTITY",
};

/// The variable belongs to the `atm` program.
pub(super) const TEAM: Key = Key {
    name: "team",
    flag: "--team",
    variable: "ATM_TEAM",
};

pub(super) const ROLE: Key = Key {
    name: "role",
    flag: "--role",
    variable: "CODEX_MCP_ROLE",
};

pub(super) const TEAM_TOOLS: Key = Key {
    name: "team_tools",
    flag: "--no-team-tools",
    variable: "CODEX_MCP_TEAM_TOOLS",
};

pub(super) const SUMMARIES: Key = Key {
    name: "summaries",
    flag: "--no-summaries",
    variable: "CODEX_MCP_SUMMARIES",
};

pub(super) const HOST: Key = Key {
    name: "host",
    flag: "--host",
    variable: "CODEX_MCP_HOST",
};

pub(super) const MODEL: Key = Key {
    name: "model",
    flag: "--model",
    variable: "CODEX_MCP_MODEL",
};

pub(super) const EFFORT: Key = Key {
    name: "reasoning_effort",
    flag: "--effort",
    variable: "CODEX_MCP_REASONING_EFFORT",
};

pub(super) const SANDBOX: Key = Key {
    name: "sandbox",
    flag: "--sandbox",
    variable: "CODEX_MCP_SANDBOX",
};

pub(super) const APPROVAL_POLICY: Key = Key {
    name: "approval_policy",
    flag: "--approval-policy",
    variable: "CODEX_MCP_APPROVAL_POLICY",
};
