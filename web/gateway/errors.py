"""Maps errors to responses, in tables: a status, a code for machines, a sentence for people.

Every error response has the body {"code", "detail"}. The body reveals nothing about the brokers,
and nothing of a session that the user may not see.
"""

from collections.abc import Callable
from time import monotonic

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from ...client.branching import CanNotFork
from ...client.calls import AlreadyResolved, UnknownCall
from ...client.commands import NobodyAnswers
from ...client.outcomes import CommandRefused, UnknownMessage
from ...client.show import UnknownSession, UnknownStep
from ...log.blobs import BlobError
from ...log.errors import (
    FoldlogError,
    LogUnreachable,
    RecordTooLarge,
    Refused,
    Retry,
    TopicMismatch,
)
from ...producers.checks import Invalid
from ...producers.sessions import Unacknowledged
from ...reports.search.search_file import IndexUnusable
from ..inspector.timeline import TooManyTimelines
from .access import Foreign, NotYours, Unauthenticated
from .bodies import TooManyBodies
from .cursors import BadCursor
from .hub import NotDecidedYet, TooManyViewers
from .looks import LookNotRecorded
from .tail import NotReady

STATUS: tuple[tuple[type[FoldlogError], int, str], ...] = (
    (Unauthenticated, 401, "unauthenticated"),
    (Foreign, 403, "foreign"),
    (NotYours, 403, "not_yours"),
    (UnknownSession, 404, "unknown_session"),
    (UnknownCall, 409, "unknown_call"),
    (AlreadyResolved, 409, "already_resolved"),
    (UnknownStep, 404, "unknown_step"),
    (UnknownMessage, 404, "unknown_message"),
    (BadCursor, 400, "bad_cursor"),
    (CanNotFork, 409, "can_not_fork"),
    (Invalid, 400, "invalid"),
    (CommandRefused, 409, "refused"),
    (TooManyViewers, 429, "too_many_viewers"),
    (TooManyBodies, 429, "too_many_bodies"),
    (NobodyAnswers, 409, "nobody_answers"),
    (TooManyTimelines, 429, "too_many_timelines"),
    (IndexUnusable, 503, "no_search"),
    (LookNotRecorded, 503, "look_not_recorded"),
    (NotReady, 503, "not_ready"),
    (NotDecidedYet, 504, "not_decided_yet"),
    (BlobError, 503, "blob"),
    (LogUnreachable, 503, "log_unreachable"),
    (RecordTooLarge, 413, "too_large"),
    (TopicMismatch, 503, "topic"),
    (Retry, 503, "try_again"),
    (Refused, 409, "refused"),
    (FoldlogError, 500, "failed"),
)
"""The first class that matches the error decides, so specific classes come before general classes.
"""

ROUTED = {
    404: ("http_404", "there is no route at this address. Nothing was done. /openapi.json lists "
          "the routes."),
    405: ("http_405", "this address does not accept this method. Nothing was done. "
          "/openapi.json lists the methods."),
    413: ("too_large", "the body is larger than this gateway accepts: nothing was done. Send a "
          "smaller one"),
}
"""Details for errors of the framework's router, whose own texts are only two words long."""

OPERATORS = {
    "log_unreachable": "the log does not respond at present: everything acknowledged is "
    "kept. Try again in a moment",
    "topic": "the log's topics do not match this gateway: nothing was changed. The gateway's "
    "output has the reason, for its operator",
    "try_again": "the log did not accept this write at present: everything acknowledged is kept. "
    "Try again in a moment",
    "look_not_recorded": "operators see other users' sessions only with a record, which could not "
    "be written at present: nothing was shown. Try again in a moment",
    "no_search": "search does not work at present; everything else does. The gateway's output has "
    "the reason, for its operator",
    "failed": "this gateway failed: everything acknowledged is kept. The gateway's output has the "
    "reason, for its operator",
}
"""Details for clients, by code, of errors whose own text is for the operator, because it names
brokers, topics and settings.
"""

REPEATED_S = 60.0
"""How often the same text is printed at most, in seconds."""


def answer_to(error: FoldlogError) -> tuple[int, dict[str, str]]:
    """The status and the body for an error."""
    status, code = next((s, c) for cls, s, c in STATUS if isinstance(error, cls))
    if isinstance(error, CommandRefused):
        code = error.decision.code or code
    elif isinstance(error, Invalid | CanNotFork):
        code = error.code
    return status, {"code": code, "detail": _detail(error, code)}


def _detail(error: FoldlogError, code: str) -> str:
    if isinstance(error, Unacknowledged):
        again = f" with the id {error.id}" if error.id else ""
        return (
            "the log did not acknowledge this request: it may or may not have been written. Send "
            f"it again{again}: it takes effect once"
        )
    return str(error) if isinstance(error, Refused) else OPERATORS.get(code, str(error))


def response_to(error: FoldlogError) -> JSONResponse:
    """The response to an error."""
    status, body = answer_to(error)
    return JSONResponse(body, status, {"www-authenticate": "Bearer"} if status == 401 else None)


class ErrorPrinter:
    """Prints, for the operator, the error texts that are not sent to clients."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print, self._last, self._at = print_line, "", 0.0

    def response_to(self, error: FoldlogError) -> JSONResponse:
        """The response to an error. Prints the error's text if the response does not contain it."""
        status, body = answer_to(error)
        text = f"answered {status} {body['code']}: {type(error).__name__}: {error}"
        is_news = text != self._last or monotonic() - self._at > REPEATED_S
        if body["detail"] != str(error) and is_news:
            self._print(text)
            self._last, self._at = text, monotonic()
        return response_to(error)


def install(app: FastAPI, print_line: Callable[[str], None]) -> None:
    """Install the error responses in an app. `print_line` prints an error's text for the operator.
    """
    printer = ErrorPrinter(print_line)

    @app.exception_handler(FoldlogError)
    async def on_foldlog_error(_request: Request, error: FoldlogError) -> JSONResponse:
        return printer.response_to(error)

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        # No client reads this response: the client disconnected before its request was complete.
        return JSONResponse({"code": "gone", "detail": "the connection ended before the body was "
                             "complete: nothing was done"}, 400)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        detail = f"{where}: {first['msg']}"
        if first["loc"] == ("body",) or first["type"] == "json_invalid":
            detail = "the body must be a JSON object, sent with `content-type: application/json`"
        return JSONResponse({"code": "invalid", "detail": detail}, 400)

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> JSONResponse:
        status = error.status_code
        if isinstance(error.__cause__, FoldlogError):  # raised while the framework read the body
            return printer.response_to(error.__cause__)
        code, detail = ROUTED.get(status, (f"http_{status}", str(error.detail)))
        body = {"code": code, "detail": detail}
        return JSONResponse(body, error.status_code, error.headers)
