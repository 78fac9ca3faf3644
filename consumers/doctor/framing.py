"""Doctor's look at the framing of records: which one is written, and whether the registry answers.

It must not know how anything is printed.
"""

from collections.abc import Iterator

from ...log.errors import RegistryAway
from ...log.registry import registry_of
from ...log.settings import Settings
from .checks import Finding


def framing(settings: Settings) -> Iterator[Finding]:
    """One finding. Raises SettingsError as opening the log does."""

    registry = registry_of(settings)
    if registry is None:
        yield Finding("ok", "framing", "avro (single-object encoding), no schema registry is named")
        return
    try:
        registry.check()
    except RegistryAway as error:
        needed = settings.framing == "confluent"
        yield Finding(
            "problem" if needed else "note",
            "framing",
            f"{settings.framing}: {error}",
            "until then types not written before, and schema ids not met before, have to wait; "
            f"those that are known are in {registry.kept}",
        )
    else:
        yield Finding(
            "ok", "framing", f"{settings.framing}, schema registry {registry.url} answers"
        )
