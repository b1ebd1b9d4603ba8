//! `compat-report`: the features that a program for several such servers can rely on. The keys are
//! those of the npm package @leo000001/codex-mcp 2.1.0, with further keys for features that the
//! package does not have.

use serde_json::{Value, json};

use crate::server::{Server, VERSION};
use crate::tools;

/// The form of the report, which is the npm package's.
const SCHEMA_VERSION: &str = "1.0.0";

pub(super) fn show(server: &Server) -> Value {
    json!({
        "schemaVersion": SCHEMA_VERSION,
        "features": features(),
        "recommendedSettings": {
            "codexCheck": {
                "responseMode": "minimal",
                "maxEvents": 20,
                "waitMs": 50_000,
                "pollOptions": {
                    "includeEvents": true,
                    "includeActions": true,
                    "includeResult": true,
                },
            },
        },
        "toolCounts": { "core": tools::list(server.api).len() },
        "runtimeWarnings": server.stdio.warnings,
        "detectedMismatches": [],
        "runtime": {
            "codexMcpVersion": VERSION,
            "codexCliVersion": server.engine.codex_version(),
            "activeSessions": server.engine.active_sessions(),
        },
    })
}

fn features() -> Value {
    json!({
        "respondPermission": true,
        "respondApprovalAlias": true,
        "respondUserInput": true,
        "sessionInterrupt": true,
        "responseModeMinimal": true,
        "responseModeDeltaCompact": true,
        "responseModeFull": true,
        "pollOptionsBase": true,
        "maxBytesTruncation": true,
        // A stale cursor is moved on without a warning, as the contract requires.
        "compatWarnings": false,
        "diskResume": true,
        "dynamicTools": false,
        "toolPermissionControl": false,
        "waitMs": true,
        "steer": true,
        "resume": true,
        "waitAny": true,
    })
}
