"""Talking to a server that has OpenAI's chat-completions interface."""

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

_PATH = "/chat/completions"
_LONGEST = 60.0  # seconds of our own patience between two tries
_LONGEST_ASKED = 600.0  # and of what a server may ask for
_MAX_BYTES = 1 << 20  # of a response
_RETRIED = (408, 409, 425, 429)  # and all from 500
_HOPELESS = (401, 403, 404, 405)  # for every request alike


class Reply(NamedTuple):
    """What a server answers.

    Attributes:
      content: of the message; `None` if it has none.
      finish: why the model stopped.
      model: that answered, in the server's words.
      tokens: of the prompt and of the answer, as far as the server tells.
    """

    content: str | None
    finish: str
    model: str
    tokens: tuple[int, int]


class NoAnswerError(Exception):
    """One request has failed for good; others may not."""


class UnreachableError(NoAnswerError):
    """There is no connection to the server, however often it is tried."""


class RefusedError(ValueError):
    """The server refuses, and would refuse every request."""


class _TryAgainError(Exception):
    def __init__(self, message: str, wait: float | None = None, *, connected: bool = True) -> None:
        super().__init__(message)
        self.wait, self.connected = wait, connected


def _tell_user(line: str) -> None:
    tqdm.tqdm.write(line, file=sys.stderr)  # a bar may be there


class Chat:
    """A server's chat interface, for several threads at once.

    Args:
      endpoint: `https://host/v1`, with or without `/chat/completions`. A query (`?api-version=1`) is
        sent with each request and appears in no message or file, as it may hold a secret.
      key: sent as bearer token; appears in no message. None is sent if it is empty.
      timeout: seconds for a response.
      retries: after the first try, of what may succeed later: no connection, timeouts, 429, 5xx.
      backoff: seconds before the first retry, doubled for each other one; a random part of it is left
        out, so that threads do not come back together. A server's Retry-After goes before.
      allow_http_key: whether the key may go over plain HTTP to another machine, to be read on the way.
      say: called with a line about each kind of trouble, once.

    Attributes:
      url: where requests go, without the query.
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
        say: Callable[[str], None] = _tell_user,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout={timeout}: expected a positive number of seconds")
        if retries < 0:
            raise ValueError(f"retries={retries}: expected 0 or more")
        self.url, self._query, local = _checked(endpoint, key, allow_http_key)
        self._key, self._timeout, self._retries, self._backoff = key, timeout, retries, backoff
        self._say, self._told = say, set[str]()
        self._lock, self._not_before = threading.Lock(), 0.0
        # Redirections could carry the key to another host.
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if local:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, body: dict[str, Any], halt: threading.Event) -> Reply:
        """The server's reply, however often it has to be asked.

        Raises:
          NoAnswerError: if there is none, or if `halt` is set before a retry.
          RefusedError: if there will be none to any request.
        """
        for attempt in range(self._retries + 1):
            self._wait_until(self._not_before, halt)
            try:
                return self._ask_once(body)
            except _TryAgainError as error:
                message, connected = str(error), error.connected
                if attempt == self._retries:
                    break
                self._tell(f"{message}; trying again")
                delay = min(self._backoff * 2**attempt, _LONGEST) * random.uniform(0.5, 1)
                if error.wait is not None:
                    if error.wait > _LONGEST_ASKED:
                        raise NoAnswerError(
                            f"{message}; it asks to wait {error.wait:.0f} s"
                        ) from error
                    # It is the server that has enough: all threads hold back.
                    with self._lock:
                        self._not_before = max(self._not_before, time.monotonic() + error.wait)
                    delay = error.wait + random.uniform(0, 0.1) * self._backoff
                self._wait_until(time.monotonic() + delay, halt)
        failure = NoAnswerError if connected else UnreachableError
        raise failure(f"{message}, {self._retries + 1} times")

    def _ask_once(self, body: dict[str, Any]) -> Reply:
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
            # What goes wrong before the request is sent comes as URLError, what does later as it is.
            connected = not isinstance(error, urllib.error.URLError)
            raise _TryAgainError(message, connected=connected) from None
        return self._reply(content)

    def _reply(self, content: bytes) -> Reply:
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            # As half a response of a server that stops.
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
        )

    def _failure(self, error: urllib.error.HTTPError) -> Exception:
        said = self._in_short(error)
        message = f"{self.url}: HTTP {error.code}" + (f", {said}" if said else "")
        if error.code in _RETRIED or error.code >= 500:
            return _TryAgainError(message, _retry_after(error.headers.get("Retry-After")))
        if error.code in (401, 403):
            key = (
                "is the key right?"
                if self._key
                else "it wants a key: name its variable by --key_env"
            )
            return RefusedError(f"{message}; {key}")
        if error.code in _HOPELESS or error.code < 400:
            return RefusedError(f"{message}; are endpoint and model right?")
        return NoAnswerError(message)

    def _in_short(self, error: urllib.error.HTTPError) -> str:
        """What the server says about its refusal, on a line, without the key and the query."""
        try:
            text = error.read(4096).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return ""
        try:
            said = json.loads(text)
            said = said.get("error", said)
            if isinstance(said, dict):
                said = said.get("message") or said.get("detail") or said or ""
            text = str(said)
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

    def _tell(self, line: str) -> None:
        kind = line.partition(",")[0]  # what a server adds may differ each time
        with self._lock:
            new = kind not in self._told
            self._told.add(kind)
        if new:
            self._say(line)


def ask_all(
    chat: Chat,
    bodies: Iterable[tuple[int, dict[str, Any]]],
    concurrency: int,
    halt: threading.Event,
) -> Generator[tuple[int, Reply | Exception] | None, None, None]:
    """Asks with so many threads; yields (number, reply or what went wrong) as they come.

    When `halt` is set, no other request begins, and those under way are waited for. While there is
    nothing to yield, `None` comes now and then.
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
                done.put((item[0], chat.ask(item[1], halt)))
            except Exception as error:
                if isinstance(error, RefusedError):
                    halt.set()  # at once: the next request would be refused too
                done.put((item[0], error))
        done.put(None)

    # Daemons: a second Ctrl-C does not wait for them.
    for _ in range(concurrency):
        threading.Thread(target=work, daemon=True).start()
    working = concurrency
    try:
        while working:
            try:
                found = done.get(timeout=0.1)
            except queue.Empty:
                yield None
                continue
            if found is None:
                working -= 1
            else:
                yield found
    finally:
        halt.set()  # nobody waits for answers any more


def read_key(variable: str) -> str:
    """Return the API key that an environment variable holds; empty if no variable is named."""
    key = os.environ.get(variable, "").strip()
    if variable and not key:
        raise ValueError(f"key_env={variable!r}: expected a variable that is set")
    return key


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _checked(endpoint: str, key: str, allow_http_key: bool) -> tuple[str, str, bool]:
    """The URL to send requests to, its query with the ?, and whether it is on this machine."""
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
    local = _is_local(host)
    if key and parts.scheme == "http" and not local and not allow_http_key:
        raise ValueError(
            f"endpoint={shown!r}: expected https, as the key would go in clear text; "
            "--allow_http_key sends it all the same"
        )
    if not _is_plain(key):
        raise ValueError("the key holds characters that no key has, such as spaces")
    path = parts.path.rstrip("/").removesuffix(_PATH) + _PATH
    url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return url, f"?{parts.query}" if parts.query else "", local


def _is_plain(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and " " not in text


def _secrets(key: str, query: str) -> list[str]:
    """What no message may show, the longest first: the key, and the query as sent and as read."""
    raw = [part.partition("=")[2] for part in query[1:].split("&")]
    read = [value for _, value in urllib.parse.parse_qsl(query[1:])]
    return sorted({key, query[1:], *raw, *read} - {""}, key=len, reverse=True)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(response: Any, deadline: float) -> bytes:
    """The whole response; a server that sends it drop by drop does not get more time for that."""
    parts, size = [], 0
    while part := response.read1(65_536):
        parts.append(part)
        size += len(part)
        if size > _MAX_BYTES:
            raise OSError(f"the response is longer than {_MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _retry_after(value: str | None) -> float | None:
    """Seconds, of a header that has them or a date."""
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
