"""`--bundle FILE`: reads an exported bundle instead of the log, and verifies it.

This file makes the process use the bundle instead of its log and its blob store.
`reports/exports` reads the bundle's format.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..edge import Edge
from ..terminal.printing import emit, line, note

if TYPE_CHECKING:
    from ...log.bundle_file import Bundle

F = TypeVar("F", bound=Callable[..., Any])


def bundle_option(command: F) -> F:
    """`--bundle`: the command reads this file and needs no broker."""

    def use(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
        if value is not None:
            edge = context.find_object(Edge)
            assert edge is not None, "every command has an Edge"
            use_bundle(edge, value)

    return click.option(
        "--bundle",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        callback=use,
        expose_value=False,
        help="Read this bundle instead of the log.",
    )(command)


def use_bundle(edge: Edge, path: Path) -> "Bundle":
    """Make this process use the bundle's log and blobs. Raises BadBundle."""
    from ...log.blobs import BlobStore
    from ...log.bundle_file import read_bundle
    from ...reports.exports.bundle_log import BundleLog

    bundle = read_bundle(path)
    directory = tempfile.TemporaryDirectory(prefix="foldlog-bundle-")
    store = BlobStore(Path(directory.name))
    for name, data in bundle.blobs():
        assert store.put(data).sha256 == name, "a blob was checked when it was read"
    edge.use(BundleLog(bundle), replace(edge.settings, blobs=None, blobs_dir=store.directory),
             directory.cleanup)
    return bundle


def replay_bundle(edge: Edge, path: Path, as_json: bool) -> int | None:
    """Replay a bundle and compare the result with its manifest; exit code 1 if they differ."""
    from ...processors.request.build import BUILDER
    from ...processors.store.store import fold_version
    from ...reports.exports.bundle import verify

    bundle = use_bundle(edge, path)
    manifest = bundle.manifest
    replayed, differences = verify(bundle, edge.client().read_blob)
    missing = [blob.sha256 for blob in manifest.blobs if not blob.held]
    if as_json:
        emit({
            "session": manifest.session_id,
            "sha256": replayed.hashes,
            "requests": replayed.requests,
            "same": not differences,
            "differences": [difference._asdict() for difference in differences],
            "missing": missing,
            "bundle_sha256": bundle.sha256,
        })
        return 1 if differences else None
    line(f"session {manifest.session_id}: {manifest.records} records, "
         f"{len(manifest.blobs) - len(missing)} blobs, bundle sha256 {bundle.sha256}")
    for view, sha in replayed.hashes.items():
        line(f"  {view:13} {sha}")
    for difference in differences:
        line(f"  DIFFERENT {difference.what}: here {difference.here}, there {difference.there}")
    if missing:
        note(f"{len(missing)} blobs were missing when it was exported: {', '.join(missing[:5])}")
    if not differences:
        built = sum(sha is not None for sha in replayed.requests.values())
        line(f"every view and {built} of {len(replayed.requests)} requests match its manifest, "
             "byte for byte")
        return None
    if (manifest.folds, manifest.builder) != (fold_version(), BUILDER):
        note(f"it was exported by another version (folds {manifest.folds}, builder "
             f"{manifest.builder}; here {fold_version()}, {BUILDER}): views may differ where a "
             "fold has changed")
    return 1
