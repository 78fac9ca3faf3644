"""Adds new shapes to schemas/history/ and schemas/history_facts/:
`python -m foldlog.tests.schemas.record_shape`.

Run it after you change an .avsc. It refuses a change that is incompatible with an older shape: give
the new field a default, or add a type.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from foldlog.schemas import codec, facts
from foldlog.tests.schemas.shapes import (
    FACT_HISTORY,
    HISTORY,
    Shape,
    bare,
    current,
    current_fact,
    incompatible,
    shapes,
    to_file,
)


def main() -> int:
    """Write the missing files. Returns 1 if a shape was refused."""
    refused = _record(codec.BY_NAME, current, HISTORY)
    return _record(facts.BY_NAME, current_fact, FACT_HISTORY) or refused


def _record(names: Iterable[str], current_of: Callable[[str], Shape], directory: Path) -> int:
    refused = 0
    known = shapes(directory)
    for name in names:
        shape, older = current_of(name), [old for old in known if old.type == name]
        if older and bare(older[-1].schema) == bare(shape.schema):
            continue
        reasons = [why for old in older for why in incompatible(old.schema, shape.schema)]
        if reasons:
            refused = 1
            print(f"{name}: refused, {' / '.join(reasons)}", file=sys.stderr)
            continue
        path = directory / f"{name}.v{shape.version}.json"
        path.write_text(to_file(shape), "utf-8")
        print(f"{name}: {path.name} is new, commit it")
    return refused


if __name__ == "__main__":
    raise SystemExit(main())
