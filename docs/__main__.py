"""Writes the generated tables into their pages: `make docs`."""

from foldlog.docs.tables import PAGES, ROOT, regenerated


def main() -> None:
    """Rewrite every page whose generated parts differ from the code."""
    for name in PAGES:
        page = ROOT / name
        before = page.read_text("utf-8")
        after = regenerated(before)
        if after != before:
            page.write_text(after, "utf-8")
        print(f"{name}: {'written' if after != before else 'up to date'}")


if __name__ == "__main__":
    main()
