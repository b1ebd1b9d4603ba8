"""A client on the official Python library of MCP, which checks results against the schemas that a
tool declares.

python-client.py ERA stdio SERVER [ARGUMENT...]
python-client.py ERA http URL TOKEN

ERA is `legacy`, for versions of MCP with a handshake, or `auto`, for those without one. SERVER is
the program that serves, with these arguments. Prints what the server offers as a line of JSON. Then
each line of stdin, {name, arguments}, is a call, and its {result, progress, asked} is printed as a
line. Questions are answered with yes. A problem ends the client, with a traceback on stderr.
"""

import json
import os
import sys
from contextlib import AsyncExitStack

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import ElicitResult

TIME_LIMIT = 60
QUICKSTART = "codex-mcp:///quickstart"


def show(value):
    print(json.dumps(value), flush=True)


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def transport(stack, kind, arguments):
    if kind == "stdio":
        command, *args = arguments
        return StdioServerParameters(command=command, args=args, env=dict(os.environ))
    url, token = arguments
    headers = {"Authorization": f"Bearer {token}"}
    http_client = await stack.enter_async_context(create_mcp_http_client(headers=headers))
    return streamable_http_client(url, http_client=http_client)


async def offers(client):
    quickstart = await client.read_resource(QUICKSTART)
    return {
        "version": client.protocol_version,
        "server": plain(client.server_info),
        "tools": [plain(tool) for tool in (await client.list_tools()).tools],
        "prompts": [plain(prompt) for prompt in (await client.list_prompts()).prompts],
        "resources": [plain(one) for one in (await client.list_resources()).resources],
        "quickstart": plain(quickstart),
    }


async def main(era, kind, *arguments):
    asked = []
    progress = []

    async def answer(_context, question):
        asked.append(plain(question))
        return ElicitResult(action="accept", content={"decision": "accept"})

    async def note(current, total, message):
        progress.append({"progress": current, "total": total, "message": message})

    async with AsyncExitStack() as stack:
        server = await transport(stack, kind, arguments)
        client = await stack.enter_async_context(
            Client(
                server,
                mode=era,
                elicitation_callback=answer,
                read_timeout_seconds=TIME_LIMIT,
            )
        )
        show(await offers(client))
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(
                call["name"], call["arguments"], progress_callback=note
            )
            show({"result": plain(result), "progress": progress, "asked": asked})
            asked.clear()
            progress.clear()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
