"""Adds new shapes to schemas/history/: `python -m foldlog.tests.schemas.record_shape`.

Run it after you change an .avsc. It refuses a change that is incompatible with an older shape: give
the new field a default, or add an event type.
"""

import sys

from foldlog.schemas.codec import BY_NAME
from foldlog.tests.schemas.shapes import HISTORY, bare, current, incompatible, shapes, to_file


def main() -> int:
    """Write the missing files. Returns 1 if a shape was refused."""
    refused = 0
    known = shapes()
    for name in BY_NAME:
        shape, older = current(name), [old for old in known if old.type == name]
        if older and bare(older[-1].schema) == bare(shape.schema):
            continue
        reasons = [why for old in older for why in incompatible(old.schema, shape.schema)]
        if reasons:
            refused = 1
            print(f"{name}: refused, {' / '.join(reasons)}", file=sys.stderr)
            continue
        path = HISTORY / f"{name}.v{shape.version}.json"
        path.write_text(to_file(shape), "utf-8")
        print(f"{name}: {path.name} is new, commit it")
    return refused


if __name__ == "__main__":
    raise SystemExit(main())
