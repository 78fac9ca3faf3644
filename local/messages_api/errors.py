"""Errors as the API words them: a status, a type, a message, a code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCRIPT_ENDED = "script_ended"
"""The error code of a request that no rule of the script answers; the API has no such code."""

TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_MESSAGE_OF_TYPE = {
    "invalid_request_error": "The request is invalid.",
    "authentication_error": "invalid x-api-key",
    "billing_error": "Your credit balance is too low to access the Anthropic API.",
    "permission_error": "Your API key does not have permission to use the specified resource.",
    "not_found_error": "The requested resource could not be found.",
    "timeout_error": "The request timed out.",
    "conflict_error": "The request conflicts with another request in flight.",
    "request_too_large": "Request exceeds the maximum size",
    "rate_limit_error": "This request would exceed your organization's rate limit.",
    "api_error": "Internal server error",
    "overloaded_error": "Overloaded",
}


class ApiError(Exception):
    """The API refuses a request. `str()` is its message.

    status: HTTP status.
    type: error type.
    code: `error.details.error_code` or None.
    headers: extra response headers.
    """

    def __init__(
        self,
        status: int,
        message: str | None = None,
        *,
        type: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.type = type or TYPE_OF_STATUS.get(status, "api_error")
        self.code = code
        self.headers = dict(headers or {})
        super().__init__(message or _MESSAGE_OF_TYPE.get(self.type, "Error"))

    def body(self, request_id: str) -> dict[str, Any]:
        """The JSON body of the response, and of an `event: error`."""
        error: dict[str, Any] = {"type": self.type, "message": str(self)}
        if self.code is not None:
            error["details"] = {"error_code": self.code}
        return {"type": "error", "error": error, "request_id": request_id}


def invalid(message: str, code: str | None = None) -> ApiError:
    """The 400 for a request that breaks a rule."""
    return ApiError(400, message, code=code)
