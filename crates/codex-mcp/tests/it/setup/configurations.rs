//! A configuration of each client, as its documentation or the client itself writes it, with what
//! people add: comments where the format has them, an order of their own, and other servers.

/// A client, and its configuration before.
pub(crate) struct Client {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The user's file, below the root of the test.
    pub(crate) file: &'static str,
    /// The file of a repository, from its top.
    pub(crate) project: Option<&'static str>,
    pub(crate) before: &'static str,
    /// What a person adds later, and after which words.
    pub(crate) edit: (&'static str, &'static str),
}

pub(crate) const CLIENTS: [Client; 12] = [
    Client {
        name: "claude-code",
        file: "home/.claude.json",
        project: Some(".mcp.json"),
        before: "{\n  \"numStartups\": 12,\n  \"projects\": {\n    \"/src\": {\n      \"mcpServers\": {}\n    }\n  },\n  \
                 \"mcpServers\": {\n    \"time\": {\n      \"type\": \"http\",\n      \"url\": \"https://example.com/mcp\"\n    }\n  \
                 },\n  \"userID\": \"0a\"\n}",
        edit: ("\"numStartups\": 1", "3, \"seen\": 1"),
    },
    Client {
        name: "codex",
        file: "codex/config.toml",
        project: Some(".codex/config.toml"),
        before: "# Mine.\nmodel   = \"gpt-5\" # odd\n\n[mcp_servers.time]\ncommand = \"uvx\"\nargs = [\n  \
                 \"time\", # first\n]\n\n[tui]\ntheme = 'dark'\n",
        edit: ("# Mine.", " Edited."),
    },
    Client {
        name: "cursor",
        file: "home/.cursor/mcp.json",
        project: Some(".cursor/mcp.json"),
        before: "{\n\t\"mcpServers\": {\n\t\t\"time\": { \"command\": \"uvx\", \"args\": [\"time\"] }\n\t}\n}\n",
        edit: ("\"args\": [\"time\"", ", \"--utc\""),
    },
    Client {
        name: "vscode",
        file: "config/Code/User/mcp.json",
        project: Some(".vscode/mcp.json"),
        before: "{\n    // The token is asked for.\n    \"inputs\": [ { \"id\": \"token\", \"type\": \"promptString\" } ],\n    \
                 \"servers\": {\n        /* not used */\n    }\n}\n",
        edit: ("// The token", " of mine"),
    },
    Client {
        name: "claude-desktop",
        file: "config/Claude/claude_desktop_config.json",
        project: None,
        before: "{\"globalShortcut\": \"\", \"mcpServers\": {}}",
        edit: ("\"globalShortcut\": \"", "F9"),
    },
    Client {
        name: "zed",
        file: "config/zed/settings.json",
        project: Some(".zed/settings.json"),
        before: "// Zed settings\n//\n// For information, see the documentation.\n{\n  \"theme\": \"One Dark\",\n  \
                 \"buffer_font_size\": 15,\n}\n",
        edit: ("\"One Dark", " Pro"),
    },
    Client {
        name: "windsurf",
        file: "home/.codeium/windsurf/mcp_config.json",
        project: None,
        before: "{ \"mcpServers\": { \"time\": { \"serverUrl\": \"https://example.com\" } } }\n",
        edit: ("https://example.com", "/sse"),
    },
    Client {
        name: "opencode",
        file: "config/opencode/opencode.json",
        project: Some("opencode.json"),
        before: "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"theme\": \"system\", // light at noon\n  \
                 \"mcp\": {\n    \"time\": { \"type\": \"remote\", \"url\": \"https://example.com\" }\n  }\n}\n",
        edit: ("// light at noon", ", dark at night"),
    },
    Client {
        name: "gemini",
        file: "home/.gemini/settings.json",
        project: Some(".gemini/settings.json"),
        before: "{\n  // Colours.\n  \"ui\": { \"theme\": \"GitHub\" }\n}\n",
        edit: ("// Colours.", " Bright ones."),
    },
    Client {
        name: "copilot",
        file: "home/.copilot/mcp-config.json",
        project: Some(".mcp.json"),
        before: "{\n  \"mcpServers\": {\n  }\n}\n",
        edit: ("{\n", "  \"a\": 1,\n"),
    },
    Client {
        name: "goose",
        file: "config/goose/config.yaml",
        project: None,
        before: "# Mine.\nGOOSE_PROVIDER: openai # for now\nextensions:\n  developer: # built in\n    bundled: true\n    \
                 enabled: true\n    name: developer\n    timeout: 300\n    type: builtin\n\nGOOSE_MODE: smart_approve\n",
        edit: ("# for now", ", perhaps"),
    },
    Client {
        name: "cline",
        file: "home/.cline/data/settings/cline_mcp_settings.json",
        project: None,
        before: "{\n  \"mcpServers\": {\n    \"time\": {\n      \"command\": \"uvx\",\n      \"disabled\": true\n    }\n  }\n}",
        edit: ("\"disabled\": true", ",\n      \"timeout\": 90"),
    },
];
