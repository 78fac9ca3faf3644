"""The layers of a prompt: the texts of instruction files and memory, as values.

worker/instruction_files.py reads them; prefix.py lays them out.
"""

from typing import NamedTuple

FILE = "FOLDLOG.md"
OTHERWISE = "AGENTS.md"  # which many repositories have already
LOCAL = "FOLDLOG.local.md"

WHERE = {
    "managed": "the file that the setting `managed_instructions` names: the operator's, for every "
    "agent and user",
    "user": f"`{FILE}` in the setting `config_dir`: for all sessions of this worker",
    "project": f"`{FILE}` in the agent's working directory, or `{OTHERWISE}` where there is none",
    "local": f"`{LOCAL}` in the same directory, for instructions outside of version control",
}
"""The location of each layer's file; later layers are closer to the work. Each is optional."""

FILES = tuple(WHERE)
MEMORY = ("core", "index")

class Layer(NamedTuple):
    """One text. `name`: of FILES or MEMORY; `source`: the file's name, equal on every machine."""

    name: str
    source: str
    text: str


class Layers(NamedTuple):
    """All texts in order, and notices for people about them."""

    texts: tuple[Layer, ...] = ()
    notices: tuple[str, ...] = ()


NO_LAYERS = Layers()
