class CodexMcp < Formula
  desc "MCP server for the OpenAI Codex CLI"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]
@SYSTEMS@
  def install
    bin.install "codex-mcp", "codex-eyes", "codex-eyes-mcp"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/codex-mcp.bash" => "codex-mcp"
    zsh_completion.install "completions/_codex-mcp"
    fish_completion.install "completions/codex-mcp.fish"
    doc.install "README.md", "THIRD-PARTY-LICENSES.txt"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/codex-mcp --version")
  end
end
