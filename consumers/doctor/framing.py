"""Checks which framing of records is written, and whether the schema registry responds."""

from collections.abc import Iterator

from ...log.errors import RegistryAway
from ...log.settings import Settings
from .checks import Finding


def framing(settings: Settings) -> Iterator[Finding]:
    """Yield one finding. Raises SettingsError for settings with which the log cannot be opened
    either.
    """
    if not settings.uses_registry:
        yield Finding("ok", "framing", "avro (single-object encoding), no schema registry is "
                      "configured")
        return
    from ...log.registry import registry_of  # only users of a registry need it

    registry = registry_of(settings)
    try:
        registry.check()
    except RegistryAway as error:
        needed = settings.framing == "confluent"
        yield Finding(
            "problem" if needed else "note",
            "framing",
            f"{settings.framing}: {error}",
            "start the registry: until then, new event types and unknown schema ids must wait; "
            f"the known ones are cached in {registry.cache_dir}",
        )
    else:
        yield Finding(
            "ok", "framing", f"{settings.framing}, schema registry {registry.url} responds"
        )
