"""A server with OpenAI's chat-completions interface that answers as a test tells it to."""

import contextlib
import http.server
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """A response that is no answer."""

    status: int
    body: str = "{}"
    headers: tuple[tuple[str, str], ...] = ()


class Stub:
    """What the server was asked.

    Attributes:
      endpoint: to give to the client.
      asked: how often each text was asked about.
      requests: bodies, in the order they came.
      headers: likewise.
      paths: likewise, with the query.
      times: likewise, when.
      most: requests that were under way at the same time.
    """

    def __init__(self, answer: Callable[[str, int], Any]) -> None:
        self.endpoint = ""
        self.asked: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.most = 0
        self._answer, self._under_way, self._lock = answer, 0, threading.Lock()

    def handle(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        text = json.loads(re.findall(r"^Text: (.*)$", body["messages"][-1]["content"], re.M)[-1])
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self.asked[text] += 1
            self.requests.append(body)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            self.times.append(time.monotonic())
            number = self.asked[text]
        try:
            answer = self._answer(text, number)
        finally:
            with self._lock:
                self._under_way -= 1
        if isinstance(answer, bytes):  # as it is, and then the line goes dead
            handler.wfile.write(answer)
            handler.close_connection = True
            return
        status, content, headers = 200, "", ()
        if isinstance(answer, Refusal):
            status, content, headers = answer
        else:
            content = json.dumps(answer if isinstance(answer, dict) else completion(answer))
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content.encode())))
        handler.end_headers()
        handler.wfile.write(content.encode())


def completion(
    content: str | None, finish: str = "stop", first_token: dict[str, float] | None = None
) -> dict[str, Any]:
    """A response; with `first_token`, log-probabilities of the tokens that may come first."""
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish}
    if first_token is not None:
        top = [{"token": token, "logprob": value} for token, value in first_token.items()]
        choice["logprobs"] = {"content": [{"token": content, "top_logprobs": top}]}
    return {
        "model": "stub-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5},
    }


def said(prediction: Any, confidence: Any) -> str:
    return json.dumps({"prediction": prediction, "confidence": confidence})


@contextlib.contextmanager
def serving(answer: Callable[[str, int], Any]) -> Iterator[Stub]:
    """A server on this machine; `answer(text, how often it was asked)` gives what it says.

    That is a message's text, a whole response, a `Refusal`, or bytes that break off.
    """
    stub = Stub(answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with contextlib.suppress(OSError):  # the client may have gone
                stub.handle(self)

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.endpoint = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
