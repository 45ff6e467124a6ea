"""A program that plays llama-server well enough to be timed: every token takes as long as its file is large."""

from __future__ import annotations

from pathlib import Path

from tests.tools.fake_engine import program

BYTES_PER_S = 20e9

_BODY = """
import json, time
from http.server import BaseHTTPRequestHandler, HTTPServer

words = sys.argv[1:]
value = lambda name, default=None: words[words.index(name) + 1] if name in words else default
if "--list-devices" in words:
    print("Available devices:")
    sys.exit(0)
with open({log!r}, "a") as file:
    file.write(json.dumps([os.getpid(), words, [n for n in os.environ if n.startswith("LLAMA_ARG_")]]) + "\\n")
{trouble}
path = value("-m")
size = os.path.getsize(path)
second = {slower!r} * size / {rate!r}
cache = []
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *rest): pass
    def answer(self, status, body, kind="application/json"):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        if self.path == "/health":
            self.answer(200, {{"status": "ok"}})
        elif self.path == "/props":
            self.answer(200, {{"default_generation_settings": {{"n_ctx": int(value("-c", "4096"))}}, "total_slots": 1,
                              "model_path": path, "build_info": {build!r}}})
        elif self.path == "/slots":
            self.answer(200, [{{"id": 0, "is_processing": {busy!r}}}])
        elif self.path == "/metrics" and {metrics!r}:
            self.answer(200, {metrics!r}, "text/plain")
        else:
            self.answer(501, {{"error": {{"code": 501, "message": "not supported"}}}})
    def do_POST(self):
        global cache
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, n = asked["prompt"], asked["n_predict"]
        known = 0
        while asked["cache_prompt"] and known < min(len(prompt) - 1, len(cache)) and prompt[known] == cache[known]:
            known += 1
        cache = prompt
        depth = 1 + len(prompt) / 1000
        self.answer(200, {{"content": "x", "timings": {{
            "cache_n": known, "prompt_n": len(prompt) - known, "prompt_ms": (len(prompt) - known) * second * 100,
            "predicted_n": n, "predicted_ms": (n - 1) * second * 1000 * depth}}}})
server = HTTPServer((value("--host", "127.0.0.1"), int(value("--port"))), Handler)
server.serve_forever()
"""


def fake_server(
    folder: Path, log: Path, *, trouble: str = "", slower: float = 1.0, build: str = "b11434-abc", busy: bool = False,
    metrics: str = "", name: str = "llama-server",
) -> Path:  # fmt: skip
    """The program. `trouble`: lines of Python that it runs before it listens. Each start is a line of JSON in `log`."""
    body = _BODY.format(
        log=str(log), trouble=trouble, slower=slower, rate=BYTES_PER_S, build=build, busy=busy, metrics=metrics
    )
    return program(folder, body, name)
