"""Two workers, one of them stopped past its session timeout. The tests and the soak use this."""

import signal

from foldlog.tests.crash import witnesses
from foldlog.tests.crash.agents import HASTY
from foldlog.tests.crash.rounds import Play
from foldlog.tests.crash.stage import Stage

# Points right after a worker's own record, which it has not read back yet.
STOPS = ("tools.wrote", "models.wrote", "sessions.wrote", "background.wrote")


def hasty(play: Play) -> Play:
    """Give the people of a play an agent whose deadlines are short, and return the play. Takeovers
    wait for deadlines (law 6), so the play then takes less time."""
    for person in play.people:
        person.scene = person.scene._replace(agent=HASTY)
    return play


def are_done(play: Play) -> bool:
    """Whether everybody has an answer, from either of the workers."""
    return all(person.is_done() for person in play.people)


def shared(stage: Stage, owners: int) -> bool:
    """Whether the partitions are divided among this many workers, each partition with one worker
    for all roles."""
    held = [{holder.owner for holder in view.holders} for view in stage.holders.values()]
    return all(len(names) == 1 for names in held) and len(set().union(*held)) == owners


def stopped_behind(stage: Stage, at: str) -> list[str]:
    """Stop a worker at a point, let another take over, and resume the first. Returns all
    violations."""
    zombie, heir = stage.handle("w1"), stage.handle("w2")
    zombie.start()
    compacts = ("returns",) if at.startswith("background") else ()
    play = hasty(Play(stage, zombie, cast=("slow", "talk", *compacts)))
    play.await_taken("")
    zombie.arm(f"{at} stop")
    for person in play.people:
        stage.ledger.release(person.session_id)
    play.begin()
    play.until("it has stopped", zombie.is_stopped)
    heir.start()
    play.until("the other holds every partition", lambda: stage.owner().startswith("w2."))
    play.until("everybody is done", lambda: are_done(play))
    zombie.signal(signal.SIGCONT)
    play.until("the zombie holds its share again", lambda: shared(stage, 2))
    play.until("everybody is still done", lambda: are_done(play))
    wrong = witnesses.violations(stage, play.people)
    if at.startswith("tools"):  # it had read back no claim when it was stopped
        runs = stage.ledger.lines("slow_charge", pid=zombie.pid)
        wrong += [f"the zombie began {run} long after its claim" for run in runs]
    return wrong
