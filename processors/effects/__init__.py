"""Actions on the outside world: model calls, deliveries and background work, each under a claim."""
