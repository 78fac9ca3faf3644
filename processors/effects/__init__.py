"""Effects, the actions on the outside world: model calls, deliveries and background work. Each runs
under a claim."""
