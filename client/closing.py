"""A base class that makes an object with a `close` method a context manager."""

from typing import Self


class Closing:
    """`with` closes the object at the end of the block."""

    def close(self) -> None:
        """Close the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
