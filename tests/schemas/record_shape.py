"""Adds the shapes that are new to schemas/history/: `python -m foldlog.tests.schemas.record_shape`.

For whoever changes an .avsc on purpose. Refuses a change that any older shape is incompatible with:
give the new field a default, or make a new event type.
"""

import sys

from foldlog.schemas.codec import BY_NAME
from foldlog.tests.schemas.shapes import HISTORY, bare, current, incompatible, shapes, to_file


def main() -> int:
    """Write what is missing; 1 if a shape was refused."""
    refused = 0
    known = shapes()
    for name in BY_NAME:
        shape, older = current(name), [old for old in known if old.type == name]
        if older and bare(older[-1].schema) == bare(shape.schema):
            continue
        why = [found for old in older for found in incompatible(old.schema, shape.schema)]
        if why:
            refused = 1
            print(f"{name}: refused, {' / '.join(why)}", file=sys.stderr)
            continue
        path = HISTORY / f"{name}.v{shape.version}.json"
        path.write_text(to_file(shape), "utf-8")
        print(f"{name}: {path.name} is new, commit it")
    return refused


if __name__ == "__main__":
    raise SystemExit(main())
