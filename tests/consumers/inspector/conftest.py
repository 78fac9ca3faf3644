"""The fixtures of this folder."""

from foldlog.tests.consumers.gateway.fixtures import ana, gateway, log, place, settings

__all__ = ["ana", "gateway", "log", "place", "settings"]
