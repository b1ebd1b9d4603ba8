// Adds a token to all requests of a program that cannot be given one: node --import with-bearer.mjs.
// MCP_ORIGIN is the origin of the server, and MCP_TOKEN the token.
import { createRequire } from "node:module";

const origin = process.env.MCP_ORIGIN;
const bearer = `Bearer ${process.env.MCP_TOKEN}`;

const plainFetch = globalThis.fetch;
globalThis.fetch = (input, init = {}) => {
  const url = new URL(input instanceof Request ? input.url : input);
  if (url.origin !== origin) return plainFetch(input, init);
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("authorization", bearer);
  return plainFetch(input, { ...init, headers });
};

// The package of that name has a client of its own beside `fetch`.
const undici = createRequire(process.argv[1])("undici");
const addToken = (dispatch) => (options, handler) => {
  if (String(options.origin) !== origin) return dispatch(options, handler);
  const headers = Array.isArray(options.headers)
    ? [...options.headers, "authorization", bearer]
    : { ...options.headers, authorization: bearer };
  return dispatch({ ...options, headers }, handler);
};
undici.setGlobalDispatcher(undici.getGlobalDispatcher().compose(addToken));
