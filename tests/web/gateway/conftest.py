"""The fixtures of the gateway's tests."""

from foldlog.tests.web.gateway.fixtures import ana, bob, gateway, log, place, settings

__all__ = ["ana", "bob", "gateway", "log", "place", "settings"]
