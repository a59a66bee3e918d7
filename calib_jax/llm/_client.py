"""A client of servers with OpenAI's chat-completions interface."""

import datetime
import email.utils
import http.client
import ipaddress
import json
import os
import queue
import random
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

import tqdm

from calib_jax import __version__
from calib_jax.llm._logprobs import TopLogprobs, read_top_logprobs

JsonObject = dict[str, Any]

_PATH = "/chat/completions"
_MAX_BACKOFF = 60.0  # seconds between two tries
_MAX_RETRY_AFTER = 600.0  # seconds that a server may ask to wait
_MAX_BYTES = 1 << 20  # of a response
_RETRIED = (408, 409, 425, 429)  # and all from 500
_FATAL = (401, 403, 404, 405)  # the same for every request


class Reply(NamedTuple):
    """A server's reply.

    Attributes:
      content: Text of the message; `None` if it has none.
      finish: Reason for which the model stopped.
      model: Name of the model that answered, as the server reports it.
      tokens: Number of tokens of the prompt and of the answer, as far as the server reports them.
      top_logprobs: Most likely first tokens, if they were asked for and the server has returned them.
    """

    content: str | None
    finish: str
    model: str
    tokens: tuple[int, int]
    top_logprobs: TopLogprobs | None = None

    def to_json(self) -> JsonObject:
        """Return all fields, without `top_logprobs` if there are none."""
        fields = self._asdict()
        if self.top_logprobs is None:
            del fields["top_logprobs"]
        return fields


class NoAnswerError(Exception):
    """One request has failed for good; others may succeed."""


class UnreachableError(NoAnswerError):
    """No connection to the server in any of the tries."""


class RefusedError(ValueError):
    """The server refuses this request and would refuse every other."""


class _TryAgainError(Exception):
    def __init__(self, message: str, wait: float | None = None, *, connected: bool = True) -> None:
        super().__init__(message)
        self.wait, self.connected = wait, connected


def _log_to_stderr(line: str) -> None:
    tqdm.tqdm.write(line, file=sys.stderr)  # there may be a progress bar


class ChatClient:
    """Ask a server's chat interface; safe to use from several threads.

    Args:
      endpoint: `https://host/v1`, with or without `/chat/completions`. A query (`?api-version=1`) is
        sent with each request and appears in no message or file, as it may hold a secret.
      key: API key, sent as bearer token unless it is empty; appears in no message.
      timeout: Seconds to wait for a response.
      retries: Number of retries of what may succeed later: no connection, timeouts, 429, 5xx.
      backoff: Seconds before the first retry, doubled for each later one and reduced by a random
        fraction, so that threads do not retry together. A server's Retry-After takes precedence.
      allow_http_key: Whether the key may be sent over plain HTTP, readable by others, to another
        machine.
      log: Function called with one line about each kind of failure, once.

    Attributes:
      url: URL of the requests, without the query.
    """

    def __init__(
        self,
        endpoint: str,
        key: str = "",
        *,
        timeout: float = 60.0,
        retries: int = 6,
        backoff: float = 1.0,
        allow_http_key: bool = False,
        log: Callable[[str], None] = _log_to_stderr,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout={timeout}: expected a positive number of seconds")
        if retries < 0:
            raise ValueError(f"retries={retries}: expected 0 or more")
        self.url, self._query, is_local = _parse_endpoint(endpoint, key, allow_http_key)
        self._key, self._timeout, self._retries, self._backoff = key, timeout, retries, backoff
        self._log, self._logged = log, set[str]()
        self._lock, self._not_before = threading.Lock(), 0.0
        # Redirections could carry the key to another host.
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if is_local:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, body: JsonObject, halt: threading.Event) -> Reply:
        """Return the server's reply, with retries if they are needed.

        Args:
          body: Body of the request.
          halt: Event that ends the retries.

        Raises:
          NoAnswerError: If there is none, or if `halt` is set before a retry.
          RefusedError: If there will be none to any request.
        """
        for attempt in range(self._retries + 1):
            self._wait_until(self._not_before, halt)
            try:
                return self._ask_once(body)
            except _TryAgainError as error:
                message, connected = str(error), error.connected
                if attempt == self._retries:
                    break
                self._log_once(f"{message}; trying again")
                delay = min(self._backoff * 2**attempt, _MAX_BACKOFF) * random.uniform(0.5, 1)
                if error.wait is not None:
                    if error.wait > _MAX_RETRY_AFTER:
                        raise NoAnswerError(
                            f"{message}; it asks to wait {error.wait:.0f} s"
                        ) from error
                    # The server is overloaded: all threads wait.
                    with self._lock:
                        self._not_before = max(self._not_before, time.monotonic() + error.wait)
                    delay = error.wait + random.uniform(0, 0.1) * self._backoff
                self._wait_until(time.monotonic() + delay, halt)
        failure = NoAnswerError if connected else UnreachableError
        raise failure(f"{message}, {self._retries + 1} times")

    def _ask_once(self, body: JsonObject) -> Reply:
        headers = {"Content-Type": "application/json", "User-Agent": f"calib_jax/{__version__}"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url + self._query, json.dumps(body).encode(), headers)
        deadline = time.monotonic() + self._timeout
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                content = _read(response, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RefusedError(f"{self.url}: {reason}") from None
            if isinstance(reason, TimeoutError):
                reason = f"no answer within {self._timeout:g} s"
            message = f"{self.url}: {reason or type(reason).__name__}"
            # Failures before the request is sent come as URLError, later ones unwrapped.
            connected = not isinstance(error, urllib.error.URLError)
            raise _TryAgainError(message, connected=connected) from None
        return self._reply(content)

    def _reply(self, content: bytes) -> Reply:
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            # Such as half a response of a server that shuts down.
            raise _TryAgainError(f"{self.url}: the response is no JSON") from None
        try:
            choice = record["choices"][0]
            text = choice["message"].get("content")
            usage = record.get("usage") or {}
            tokens = tuple(int(usage.get(f"{k}_tokens") or 0) for k in ("prompt", "completion"))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise NoAnswerError(f"{self.url}: the response is no chat completion") from None
        model = record.get("model")
        return Reply(
            text if isinstance(text, str) else None,
            str(choice.get("finish_reason") or ""),
            model if isinstance(model, str) else "",
            (tokens[0], tokens[1]),
            read_top_logprobs(choice),
        )

    def _failure(self, error: urllib.error.HTTPError) -> Exception:
        reason = self._reason(error)
        message = f"{self.url}: HTTP {error.code}" + (f", {reason}" if reason else "")
        if error.code in _RETRIED or error.code >= 500:
            return _TryAgainError(message, _retry_after(error.headers.get("Retry-After")))
        if error.code in (401, 403):
            if self._key:
                return RefusedError(f"{message}; is the key right?")
            return RefusedError(f"{message}; it wants a key: name its variable by --key_env")
        if error.code in _FATAL or error.code < 400:
            return RefusedError(f"{message}; are endpoint and model right?")
        return NoAnswerError(message)

    def _reason(self, error: urllib.error.HTTPError) -> str:
        """Return the server's reason for an error, on one line, without the key and the query."""
        try:
            text = error.read(4096).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return ""
        try:
            record = json.loads(text)
            reason = record.get("error", record)
            if isinstance(reason, dict):
                reason = reason.get("message") or reason.get("detail") or reason or ""
            text = str(reason)
        except (ValueError, AttributeError, RecursionError):
            pass
        for secret in _secrets(self._key, self._query):
            text = text.replace(secret, "…")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line[:200]

    def _wait_until(self, moment: float, halt: threading.Event) -> None:
        while (left := moment - time.monotonic()) > 0:
            if halt.wait(left):
                break
        if halt.is_set():
            raise NoAnswerError("stopped")

    def _log_once(self, line: str) -> None:
        kind = line.partition(",")[0]  # the server's reason may differ each time
        with self._lock:
            is_new = kind not in self._logged
            self._logged.add(kind)
        if is_new:
            self._log(line)


def ask_all(
    client: ChatClient,
    bodies: Iterable[tuple[int, JsonObject]],
    concurrency: int,
    halt: threading.Event,
) -> Generator[tuple[int, Reply | Exception] | None, None, None]:
    """Send requests from several threads and yield `(id, reply or exception)` as they complete.

    When `halt` is set, no other request begins, and those in flight are waited for. While there is
    nothing to yield, `None` is yielded about ten times a second.

    Args:
      client: Client of the server.
      bodies: Ids and bodies of the requests.
      concurrency: Number of threads.
      halt: Event that stops the threads.
    """
    done: queue.SimpleQueue[tuple[int, Reply | Exception] | None] = queue.SimpleQueue()
    todo, lock = iter(bodies), threading.Lock()

    def work() -> None:
        while not halt.is_set():
            with lock:
                item = next(todo, None)
            if item is None:
                break
            try:
                done.put((item[0], client.ask(item[1], halt)))
            except Exception as error:
                if isinstance(error, RefusedError):
                    halt.set()  # at once: the next request would be refused too
                done.put((item[0], error))
        done.put(None)

    # Daemon threads: a second Ctrl-C does not wait for them.
    for _ in range(concurrency):
        threading.Thread(target=work, daemon=True).start()
    working = concurrency
    try:
        while working:
            try:
                result = done.get(timeout=0.1)
            except queue.Empty:
                yield None
                continue
            if result is None:
                working -= 1
            else:
                yield result
    finally:
        halt.set()  # the caller may have left early


def read_key(variable: str) -> str:
    """Return the API key that an environment variable holds; empty if no variable is named.

    >>> read_key("")
    ''
    """
    key = os.environ.get(variable, "").strip()
    if variable and not key:
        raise ValueError(f"key_env={variable!r}: expected a variable that is set")
    return key


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _parse_endpoint(endpoint: str, key: str, allow_http_key: bool) -> tuple[str, str, bool]:
    """Return the URL of the requests, its query with the ?, and whether it is on this machine."""
    expected = "expected something like https://host/v1"
    try:
        parts = urllib.parse.urlsplit(endpoint.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"endpoint: {expected}; its host or port cannot be read") from None
    if "@" in parts.netloc or parts.fragment:
        # Not shown: it may be a secret.
        raise ValueError(f"endpoint: {expected}, without password and #; keys by --key_env")
    if not _is_plain(parts.query):
        raise ValueError(f"endpoint: {expected}, after a ? without spaces and other than ASCII")
    shown = urllib.parse.urlunsplit(parts._replace(query=""))
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"endpoint={shown!r}: {expected}")
    is_local = _is_local(host)
    if key and parts.scheme == "http" and not is_local and not allow_http_key:
        raise ValueError(
            f"endpoint={shown!r}: expected https, as the key would go in clear text; "
            "--allow_http_key sends it all the same"
        )
    if not _is_plain(key):
        raise ValueError("the key holds characters that no key has, such as spaces")
    path = parts.path.rstrip("/").removesuffix(_PATH) + _PATH
    url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return url, f"?{parts.query}" if parts.query else "", is_local


def _is_plain(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and " " not in text


def _secrets(key: str, query: str) -> list[str]:
    """Return what no message may show, longest first: the key, and the query, raw and decoded."""
    raw = [field.partition("=")[2] for field in query[1:].split("&")]
    decoded = [value for _, value in urllib.parse.parse_qsl(query[1:])]
    return sorted({key, query[1:], *raw, *decoded} - {""}, key=len, reverse=True)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Return the whole response; one that arrives in small pieces gets no more time."""
    chunks, size = [], 0
    while chunk := response.read1(65_536):
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BYTES:
            raise OSError(f"the response is longer than {_MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(chunks)


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which holds a number or a date."""
    if not value:
        return None
    if value.strip().replace(".", "", 1).isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date.replace(tzinfo=date.tzinfo or datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
