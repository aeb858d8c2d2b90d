"""A local server that speaks OpenAI's chat API and answers with the scripted LLM's rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel

from workbook.scripted_llm import ScriptedLLM
from workbook.scripted_llm.memory_rules import RULES

MODELS = {model.__name__: model for model in RULES}


@dataclass(frozen=True)
class Refusal:
    """An error as the API answers it: the HTTP status, OpenAI's code and the message.

    Attributes:
        only_tools: Whether only requests that offer tools are refused.
    """

    status: int
    code: str
    message: str
    only_tools: bool = False

    def meets(self, request: dict[str, Any]) -> bool:
        return bool(request.get("tools")) or not self.only_tools

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.code, "code": self.code}}


# What OpenAI and OpenAI-compatible servers (Ollama the last one) say.
WRONG_KEY = Refusal(
    401, "invalid_api_key", "Incorrect API key provided: sk-wrong***-key. You can find your key ..."
)
RATE_LIMIT = Refusal(429, "rate_limit_exceeded", "Rate limit reached for requests per minute.")
NO_CREDIT = Refusal(429, "insufficient_quota", "You exceeded your current quota.")
NO_MODEL = Refusal(404, "model_not_found", "The model `local` does not exist.")
BROKEN = Refusal(500, "server_error", "The server had an error.")
NO_TOOLS = Refusal(400, "api_error", "registry/local does not support tools", only_tools=True)


def completion(request: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a chat completion request."""
    schema = (request.get("response_format") or {}).get("json_schema", {}).get("name", "")
    reply = ScriptedLLM().call(
        request["messages"], tools=request.get("tools"), response_model=MODELS.get(schema)
    )
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(reply, list):
        message["tool_calls"] = reply
    else:
        message["content"] = reply.model_dump_json() if isinstance(reply, BaseModel) else reply
    finish = "tool_calls" if isinstance(reply, list) else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


@contextmanager
def serving(
    refusal: Refusal | None = None,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve on 127.0.0.1; yield the base URL and the list of requests that came in.

    Args:
        refusal: What the server answers with instead, to the requests that it meets.
    """
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            refused = refusal is not None and refusal.meets(body)
            reply = refusal.body if refusal and refused else completion(body)
            payload = json.dumps(reply).encode()
            self.send_response(refusal.status if refusal and refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
