// A client on the official TypeScript library of MCP, which many clients are
// built on and which checks results against the schemas that a tool declares.
//
// node typescript-client.mjs LIBRARY SERVER CALLS
//
// LIBRARY is the library's directory, SERVER the program that serves, CALLS a JSON
// list of {name, arguments}. "$THREAD" in an argument stands for the thread of
// the call before. Questions are answered with yes. Prints {tools, results} as
// JSON.
import { argv, env, stdout } from "node:process";
import { pathToFileURL } from "node:url";

const [library, server, calls] = argv.slice(2);
const load = (path) => import(pathToFileURL(`${library}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { ElicitRequestSchema } = await load("types.js");

const client = new Client(
  { name: "typescript", version: "1" },
  { capabilities: { elicitation: {} } },
);
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: {} }));
await client.connect(new StdioClientTransport({ command: server, args: ["serve"], env }));

const { tools } = await client.listTools();
const results = [];
for (const { name, arguments: given } of JSON.parse(calls)) {
  const thread = results.at(-1)?.structuredContent?.threadId;
  const filled = Object.entries(given).map(([key, value]) => [
    key,
    value === "$THREAD" ? thread : value,
  ]);
  results.push(await client.callTool({ name, arguments: Object.fromEntries(filled) }));
}
await client.close();
stdout.write(JSON.stringify({ tools, results }));
