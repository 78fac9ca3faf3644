"""Compares the gateway's answers with what its /openapi.json declares."""

import re
from typing import Any

import httpx2 as httpx
import jsonschema


class Declared:
    """The declared answers of a gateway."""

    def __init__(self, document: dict[str, Any]) -> None:
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            schema["additionalProperties"] = False  # each field of an answer is declared
        self._components = {"schemas": schemas}
        # In the order of the routes: the first that matches answers.
        self._paths = [
            (re.compile(re.sub(r"{\w+}", "[^/]+", path)), methods)
            for path, methods in document["paths"].items()
        ]

    def demand(self, response: httpx.Response) -> None:
        """Fail if a response in JSON, or its status, is not declared."""
        path, method = response.request.url.path, response.request.method.lower()
        if method == "head" or response.headers.get("content-type") != "application/json":
            return
        methods = next((found for route, found in self._paths if route.fullmatch(path)), {})
        if method not in methods:
            return
        answers = methods[method]["responses"]
        assert str(response.status_code) in answers, (method, path, response.status_code)
        schema = answers[str(response.status_code)]["content"]["application/json"]["schema"]
        response.read()
        check = jsonschema.Draft202012Validator({**schema, "components": self._components})
        check.validate(response.json())
