// A client on the official TypeScript library of MCP, which many clients are
// built on and which checks results against the schemas that a tool declares.
//
// node typescript-client.mjs LIBRARY SERVER [ARGUMENT...]
//
// LIBRARY is the library's directory, SERVER the program that serves, with these
// arguments. Prints {tools} as a line of JSON. Then each line of stdin, {name,
// arguments}, is a call, and its result is printed as a line. Questions are
// answered with yes.
import { argv, env, stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [library, command, ...args] = argv.slice(2);
const load = (path) => import(pathToFileURL(`${library}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { ElicitRequestSchema } = await load("types.js");

const client = new Client(
  { name: "typescript", version: "1" },
  { capabilities: { elicitation: {} } },
);
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: {} }));
await client.connect(new StdioClientTransport({ command, args, env }));

const print = (value) => stdout.write(`${JSON.stringify(value)}\n`);
print(await client.listTools());
for await (const line of createInterface({ input: stdin })) {
  print(await client.callTool(JSON.parse(line)));
}
await client.close();
