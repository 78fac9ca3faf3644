"""A client of a schema registry: the id of a schema, and the schema of an id, cached on disk.

It sends three kinds of requests to a Confluent-compatible registry. An id names one schema forever,
so each is requested once per home. User and password appear in no message; redirects are not
followed.

Cached in `<home>/registry/<host>-<hash of the URL>/`, one file per answer; it may be deleted:
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
"""How long one request may take; a caller waits for it, in front of a record."""

REST_S = 1.0
"""How long nothing is asked again after a failure: whoever asks meanwhile has the same answer."""

_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_ABSENT_MAX = 10_000  # ids in records that are no records of ours
_NO_SUCH_SCHEMA = 40403  # the registry's own code; any server says 404
_AWAY = (*range(500, 600), 408, 429)
_HINTS = {
    401: "it does not know our user; see FOLDLOG_REGISTRY_USER and FOLDLOG_REGISTRY_PASSWORD",
    403: "our user may not do this; see FOLDLOG_REGISTRY_USER",
    409: "it holds that ours is not compatible with what the subject has; its compatibility must "
    "be BACKWARD_TRANSITIVE at most, and nobody else may write that subject",
    422: "it takes no such schema",
    **dict.fromkeys(_AWAY, "it can not answer now"),
}
"""What a status means. What the registry says in words is not shown: it may repeat anything."""

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
        host = urlsplit(url).hostname or ""
        self.kept = folder / f"{host.replace(':', '_')}-{sha256(url.encode()).hexdigest()[:12]}"
        self._headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if user is not None:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, bytes], int] = {}
        self._heads: dict[int, bytes | None] = {}
        self._absent: set[int] = set()
        self._failed: dict[str, tuple[float, str]] = {}
        """By path, or "" for any: until when it is not asked again, and why."""

    def id_of(self, topic: str, head: bytes) -> int:
        """The id under which records with this head are written into a topic (its full name).

        A schema that the registry lacks is registered. Raises RegistryAway.
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
        said = f"the schema of {subject} could not be registered"
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self._ask("POST", path, said, {"schema": json.dumps(schema)}).get("id")
        if not _is_id(found):
            raise self._away(path, f"{said}: the answer holds no id")
        self._keep("written", name, {"subject": subject, "id": found})
        if found not in self._heads:
            kept = {"fingerprint": head.hex()[4:], "schema": json.dumps(schema)}
            self._keep("ids", str(found), kept)
            self._heads[found] = head
        return found

    def head_of(self, schema_id: int) -> bytes | None:
        """The head that records of this schema have in Avro's own framing; None: no Avro record.

        Raises RegistryAway, also where the registry does not say that it has no such schema.
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
        kept = self._read("ids", str(schema_id))
        if not _FINGERPRINT.fullmatch(str(kept.get("fingerprint"))):
            said = f"the schema with id {schema_id} could not be read"
            answer = self._ask("GET", f"/schemas/ids/{schema_id}", said)
            if not isinstance(answer.get("schema"), str):
                raise self._away(f"/schemas/ids/{schema_id}", f"{said}: the answer holds no schema")
            kept = _fingerprinted(answer)
            self._keep("ids", str(schema_id), kept)
        return MAGIC + bytes.fromhex(kept["fingerprint"]) if kept["fingerprint"] else None

    def check(self) -> None:
        """Ask something cheap. Raises RegistryAway."""
        with self._lock:
            self._ask("GET", "/schemas/types", "a first look at it failed")

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, said: str, body: Any = None) -> Any:
        """The answer's JSON. Raises _Absent, RegistryAway."""
        for key in ("", path):
            until, why = self._failed.get(key, (0.0, ""))
            if self._now() < until:
                raise self._error(why)
        try:
            status, answer = self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise self._away("", f"{said}: it does not answer ({_reason(error)})") from None
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if method == "GET" and status == 404 and code == _NO_SUCH_SCHEMA:
            raise _Absent
        if status != 200 or answer is None:
            why = f"HTTP {status}, error {code}" if isinstance(code, int) else f"HTTP {status}"
            hint = _HINTS.get(status, "this is no answer of a schema registry")
            raise self._away("" if status in _AWAY else path, f"{said}: {hint} ({why})")
        return answer

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        # Not urllib's opener: it takes proxies from the environment and carries the password along
        # a redirect.
        parts = urlsplit(self.url)
        kinds = {"https": http.client.HTTPSConnection}
        kind = kinds.get(parts.scheme, http.client.HTTPConnection)
        assert parts.hostname is not None
        line = kind(parts.hostname, parts.port, timeout=self._timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            line.request(method, parts.path + path, data, self._headers)
            answer = line.getresponse()
            held = answer.read(_ANSWER_BYTES_MAX)
        finally:
            line.close()
        try:
            found = json.loads(held)
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
            f"schema registry {self.url}: {why}. Nothing was written and nothing was skipped: "
            "bring the registry back or correct registry_url, then it goes on."
        )

    # -- keeping ---------------------------------------------------------------------------------

    def _read(self, kind: str, name: str) -> dict[str, Any]:
        try:
            held = json.loads((self.kept / kind / f"{name}.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):  # not there, or cut by a power failure
            return {}
        return held if isinstance(held, dict) else {}

    def _keep(self, kind: str, name: str, held: dict[str, Any]) -> None:
        folder = self.kept / kind
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=folder, delete=False
            ) as file:
                json.dump(held, file)
            os.replace(file.name, folder / f"{name}.json")
        except OSError as error:  # it is asked for again by the next process
            LOGGER.warning("%s %s is not kept: %s", "REGISTRY", folder / name, error)


def _is_id(found: object) -> TypeGuard[int]:
    return type(found) is int and 0 < found < 2**31


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _fingerprinted(answer: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a schema; without a fingerprint where no record of ours can have it."""
    text = answer["schema"]
    if answer.get("schemaType", "AVRO") == "AVRO" and not answer.get("references"):
        try:
            return {"fingerprint": fingerprint_of(json.loads(text)).hex(), "schema": text}
        except Exception as error:  # whatever fastavro makes of somebody else's schema
            LOGGER.info("%s no Avro schema: %s", "REGISTRY", type(error).__name__)
    return {"fingerprint": "", "schema": text}


def registry_of(settings: Settings) -> Registry | None:
    """The registry that `settings` name.

    Raises SettingsError where none is named and this home has used one: what is in the log may
    then be readable with it alone, and without it would be taken for damage.
    """
    folder = settings.home / "registry"
    if settings.registry_url is not None:
        user, password = settings.registry_user, settings.registry_password
        return Registry(settings.registry_url, folder, user, password)
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingsError(
            f"this home has used a schema registry ({folder}) and none is named now: records of "
            'the log may be readable with it alone. Set registry_url (with framing "avro" nothing '
            "new is registered); or delete that folder if no log that you read needs it."
        )
    return None
