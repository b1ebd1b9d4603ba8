// Serves MCP over HTTP, and passes every message on to a server on stdio and back, one process of it
// for each session. So programs that speak only HTTP can test it.
//
// node stdio-bridge.mjs LIBRARY SERVER [ARGUMENT...]
//
// LIBRARY is the directory of the official TypeScript library of MCP, SERVER the program that serves,
// with these arguments. Prints {port} as a line of JSON, and ends with stdin.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { argv, env, exit, stdin, stdout } from "node:process";
import { pathToFileURL } from "node:url";

const [library, command, ...args] = argv.slice(2);
const load = (path) => import(pathToFileURL(`${library}/dist/esm/${path}`).href);
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPServerTransport } = await load("server/streamableHttp.js");

const sessions = new Map();
let ending = false;

async function open() {
  const client = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, { client, server }),
  });
  const server = new StdioClientTransport({ command, args, env });
  client.onmessage = (message) => server.send(message);
  server.onmessage = (message) => client.send(message);
  // Whoever waits for an answer learns at once that there is none.
  server.onclose = () => ending || exit(1);
  await Promise.all([client.start(), server.start()]);
  return { client, server };
}

const http = createServer(async (request, response) => {
  const { client } = sessions.get(request.headers["mcp-session-id"]) ?? (await open());
  await client.handleRequest(request, response);
});
http.listen(0, "127.0.0.1", () => stdout.write(`${JSON.stringify({ port: http.address().port })}\n`));
for await (const _ of stdin);
ending = true;
await Promise.all([...sessions.values()].map(({ server }) => server.close()));
exit(0);
