"""A client of a schema registry. It looks up the id of a schema and the schema of an id.

It sends three kinds of requests to a Confluent-compatible registry. The schema of an id never
changes, so the client requests each id once per home directory. No error message contains the user
or the password, and redirects are not followed.

Responses are cached in `<home>/registry/<host>-<hash of the URL>/`, one file per response. The
cache may be deleted:
    ids/<id>.json                       the schema's fingerprint, and the schema
    written/<fingerprint>-<topic>.json  the id under which a type is written to a topic
"""

import base64
import http.client
import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote, urlsplit

from ..schemas.codec import MAGIC, fingerprint_of, shapes
from .errors import RegistryAway, SettingsError
from .settings import Settings

TIMEOUT_S = 3.0
"""How long one request may take; reading or writing a record waits for it."""

REST_S = 1.0
"""For how many seconds after a failure callers get the same error without a new request."""

_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_ABSENT_MAX = 10_000  # ids in records that are not foldlog's
_NO_SUCH_SCHEMA = 40403  # the registry's own error code, since any server may return 404
_AWAY = (*range(500, 600), 408, 429)
_HINTS = {
    401: "it does not accept our user; see FOLDLOG_REGISTRY_USER and FOLDLOG_REGISTRY_PASSWORD",
    403: "our user may not do this; see FOLDLOG_REGISTRY_USER",
    409: "it finds our schema incompatible with those of the subject; its compatibility level must "
    "be NONE, BACKWARD or BACKWARD_TRANSITIVE, and no other program may write that subject",
    422: "it rejects the schema",
    **dict.fromkeys(_AWAY, "it is unavailable"),
}
"""The meaning of each HTTP status.

The registry's own text is not shown, because it may contain anything.
"""

_FINGERPRINT = re.compile(r"([0-9a-f]{16})?")
_CONTENT = "application/vnd.schemaregistry.v1+json"
LOGGER = logging.getLogger("foldlog.log.client")


class _Absent(Exception):
    """The registry has no such schema."""


class Registry:
    """One registry. May be used from several threads."""

    def __init__(
        self,
        url: str,
        folder: Path,
        user: str | None = None,
        password: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url, self._timeout_s, self._now = url, timeout_s, monotonic_s
        host = (urlsplit(url).hostname or "").replace(":", "_")
        self.cache_dir = folder / f"{host}-{sha256(url.encode()).hexdigest()[:12]}"
        self._headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if user is not None:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, bytes], int] = {}
        self._heads: dict[int, bytes | None] = {}
        self._absent: set[int] = set()
        self._failed: dict[str, tuple[float, str]] = {}
        """Recent failures by the path of the request, with the key "" for a failure that concerns
        every path. Each entry has the time before which no request is sent, and the reason."""

    def id_of(self, topic: str, head: bytes) -> int:
        """The schema id with which records of one event type are written to a topic.

        `head`: the first 10 bytes of such a record's value in Avro single-object encoding. `topic`:
        the topic's full name.

        Registers the schema if the registry does not have it. Raises RegistryAway.
        """
        found = self._ids.get((topic, head))
        if found is None:
            with self._lock:
                found = self._ids.get((topic, head)) or self._register(topic, head)
                self._ids[topic, head] = found
        return found

    def _register(self, topic: str, head: bytes) -> int:
        name = f"{head.hex()[4:]}-{sha256(topic.encode()).hexdigest()[:16]}"
        found: object = self._read("written", name).get("id")
        if _is_id(found):
            return found
        schema = shapes()[head]
        subject = f"{topic}-{schema['namespace']}.{schema['name']}"
        failure = f"the schema of {subject} could not be registered"
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self._ask("POST", path, failure, {"schema": json.dumps(schema)}).get("id")
        if not _is_id(found):
            raise self._away(path, f"{failure}: the response has no id")
        self._cache("written", name, {"subject": subject, "id": found})
        if found not in self._heads:
            cached = {"fingerprint": head.hex()[4:], "schema": json.dumps(schema)}
            self._cache("ids", str(found), cached)
            self._heads[found] = head
        return found

    def head_of(self, schema_id: int) -> bytes | None:
        """The head of this schema's records in Avro single-object encoding; None if it is not an
        Avro schema, or if the registry has no such schema.

        Raises RegistryAway.
        """
        if schema_id in self._heads:
            return self._heads[schema_id]
        if schema_id in self._absent:
            return None
        with self._lock:
            try:
                self._heads[schema_id] = self._find(schema_id)
            except _Absent:
                if len(self._absent) >= _ABSENT_MAX:
                    self._absent.clear()
                self._absent.add(schema_id)
                return None
        return self._heads[schema_id]

    def _find(self, schema_id: int) -> bytes | None:
        cached = self._read("ids", str(schema_id))
        if not _FINGERPRINT.fullmatch(str(cached.get("fingerprint"))):
            failure = f"the schema with id {schema_id} could not be read"
            path = f"/schemas/ids/{schema_id}"
            answer = self._ask("GET", path, failure)
            if not isinstance(answer.get("schema"), str):
                raise self._away(path, f"{failure}: the response has no schema")
            cached = _fingerprinted(answer)
            self._cache("ids", str(schema_id), cached)
        return MAGIC + bytes.fromhex(cached["fingerprint"]) if cached["fingerprint"] else None

    def check(self) -> None:
        """Send one cheap request. Raises RegistryAway."""
        with self._lock:
            self._ask("GET", "/schemas/types", "the first request failed")

    # -- requests ----------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, failure: str, body: Any = None) -> Any:
        """The response's JSON.

        `failure`: the beginning of an error message. Raises _Absent, RegistryAway.
        """
        for key in ("", path):
            until, why = self._failed.get(key, (0.0, ""))
            if self._now() < until:
                raise self._error(why)
        try:
            status, answer = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise self._away("", f"{failure}: it does not respond ({_reason(error)})") from None
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if method == "GET" and status == 404 and code == _NO_SUCH_SCHEMA:
            raise _Absent
        if status != 200 or answer is None:
            why = f"HTTP {status}, error {code}" if isinstance(code, int) else f"HTTP {status}"
            hint = _HINTS.get(status, "this is not the response of a schema registry")
            raise self._away("" if status in _AWAY else path, f"{failure}: {hint} ({why})")
        return answer

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        # Do not use urllib's default opener, which takes proxies from the environment and sends the
        # password along a redirect.
        parts = urlsplit(self.url)
        kinds = {"https": http.client.HTTPSConnection}
        kind = kinds.get(parts.scheme, http.client.HTTPConnection)
        assert parts.hostname is not None
        line = kind(parts.hostname, parts.port, timeout=self._timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            line.request(method, parts.path + path, data, self._headers)
            answer = line.getresponse()
            content = answer.read(_ANSWER_BYTES_MAX)
        finally:
            line.close()
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        return answer.status, found if isinstance(found, dict | list) else None

    def _away(self, key: str, why: str) -> RegistryAway:
        if len(self._failed) >= _ABSENT_MAX:
            self._failed.clear()
        self._failed[key] = (self._now() + REST_S, why)
        return self._error(why)

    def _error(self, why: str) -> RegistryAway:
        return RegistryAway(
            f"schema registry {self.url}: {why}. Nothing was written and nothing was skipped. "
            "Restart the registry or correct registry_url; the work then continues."
        )

    # -- the cache ---------------------------------------------------------------------------------

    def _read(self, kind: str, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.cache_dir / kind / f"{name}.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):  # missing, or truncated by a power failure
            return {}
        return content if isinstance(content, dict) else {}

    def _cache(self, kind: str, name: str, content: dict[str, Any]) -> None:
        folder = self.cache_dir / kind
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=folder, delete=False
            ) as file:
                json.dump(content, file)
            os.replace(file.name, folder / f"{name}.json")
        except OSError as error:  # the next process requests it again
            LOGGER.warning("%s %s is not cached: %s", "REGISTRY", folder / name, error)


def _is_id(found: object) -> TypeGuard[int]:
    return type(found) is int and 0 < found < 2**31


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _fingerprinted(answer: dict[str, Any]) -> dict[str, Any]:
    """The cache entry for a schema from the registry. The entry's fingerprint is empty if the
    schema cannot be that of a foldlog record."""
    text = answer["schema"]
    if answer.get("schemaType", "AVRO") == "AVRO" and not answer.get("references"):
        try:
            return {"fingerprint": fingerprint_of(json.loads(text)).hex(), "schema": text}
        except Exception as error:  # fastavro raises many kinds for a third-party schema
            LOGGER.info("%s no Avro schema: %s", "REGISTRY", type(error).__name__)
    return {"fingerprint": "", "schema": text}


def registry_of(settings: Settings) -> Registry:
    """The registry that the settings describe. Call it only if `settings.uses_registry`.

    Raises SettingsError if the settings name no registry. In that case the home directory has used
    a registry before, and the log may have records that look corrupt without that registry.
    """
    folder = settings.registry_dir
    if settings.registry_url is None:
        raise SettingsError(
            f"registry_url is not set, but {folder} shows that this installation has used a schema "
            "registry. Records of the log may be readable only with that registry, so nothing was "
            "read. Set registry_url, or delete that directory if no log that you read needs it. "
            'With framing "avro", foldlog only reads from the registry.'
        )
    user, password = settings.registry_user, settings.registry_password
    return Registry(settings.registry_url, folder, user, password)
