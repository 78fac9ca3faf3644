from typing import Any

FORMAT: int

class Decoder:
    def add(self, fingerprint: bytes, program: tuple[Any, ...], /) -> None: ...
    def decode(self, value: bytes, /) -> Any: ...
