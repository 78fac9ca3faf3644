"""token_estimate_error: the worst error of the token estimate over labelled samples.

The samples (token_samples.json) are prose in several languages, code, JSON, logs, tables and noise.
They were not used to fit the estimate. The file has the counts of ctok 1.3.0 for both families; if
ctok is installed, the bench counts with it again, so that stale counts are noticed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from foldlog.bench.measure import Ratio
from foldlog.processors.token_count import EXACT, count
from foldlog.schemas.tokens import FAMILIES, NEW, OLD, estimate

SAMPLES = Path(__file__).parent / "token_samples.json"
MODELS = {OLD: "claude-opus-4-6", NEW: "claude-sonnet-5-5"}  # one model of each family
AIM = "at most 0.25"


class SampleError(NamedTuple):
    """The token counts of one sample for one family of models. exact: the true count; ours: the
    estimate; plain: a plain estimate, at four characters per token."""

    kind: str
    family: str
    exact: int
    ours: int
    plain: int

    @property
    def error(self) -> float:
        """The relative error of the estimate. It is negative if the estimate is too low."""
        return self.ours / self.exact - 1


def sample_errors() -> Iterator[SampleError]:
    """Every sample for every family."""
    for sample in json.loads(SAMPLES.read_text("utf-8"))["samples"]:
        for family in FAMILIES:
            counted = count(sample["text"], MODELS[family])
            exact = counted.tokens if counted.by == EXACT else sample[family]
            ours = estimate(sample["text"], family)
            yield SampleError(sample["kind"], family, exact, ours, len(sample["text"]) // 4)


def token_estimate_error(_runs: int = 1) -> Ratio:
    """`ratio`: the worst relative error; `ours` and `baseline`: the tokens of that sample."""
    found = list(sample_errors())
    worst = max(found, key=lambda one: abs(one.error))
    fewest = min(found, key=lambda one: one.error)
    mean = sum(abs(one.error) for one in found) / len(found)
    plain = max(abs(one.plain / one.exact - 1) for one in found)
    by = count("", MODELS[NEW]).by
    counted = "counted by ctok now" if by == EXACT else "counts of ctok 1.3.0 as recorded"
    note = (
        f"worst: {worst.kind} ({worst.family} family) {worst.error:+.1%}; lowest: "
        f"{fewest.kind} {fewest.error:+.1%}; mean {mean:.1%} of {len(found)}, {counted}; "
        f"four characters per token: {plain:.0%} at worst"
    )
    tokens = float(worst.ours), float(worst.exact)
    return Ratio("token_estimate_error", *tokens, "tokens", abs(worst.error), 1, AIM, note)


if __name__ == "__main__":
    for one in sample_errors():
        print(f"{one.kind:<20}{one.family:>4}{one.exact:>6}{one.ours:>6}  {one.error:+.1%}")
