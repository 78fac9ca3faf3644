"""The layers of a prompt: the texts of instruction files and memory, as values.

worker/instruction_files.py reads the files; prefix.py puts the texts into the prefix.
"""

from typing import NamedTuple

FILE = "FOLDLOG.md"
OTHERWISE = "AGENTS.md"  # a file that many repositories have
LOCAL = "FOLDLOG.local.md"

WHERE = {
    "managed": "the file that the setting `managed_instructions` names: the operator's, for every "
    "agent and user",
    "user": f"`{FILE}` in the setting `config_dir`: for the sessions of the worker's own user, "
    "whom the setting `user` names",
    "project": f"`{FILE}` in the agent's working directory, or `{OTHERWISE}` where there is none",
    "local": f"`{LOCAL}` in the same directory, for instructions outside of version control",
}
"""The location of each layer's file. Every file is optional; later layers are more specific."""

FILES = tuple(WHERE)
MEMORY = ("core", "index")
USER = "user"
"""The layer of files that differs by user, like memory."""


class Layer(NamedTuple):
    """One text.

    `name`: one of FILES or MEMORY.
    `source`: the name of the file, without directories that differ between machines.
    """

    name: str
    source: str
    text: str


class Layers(NamedTuple):
    """All texts in order, and notices about them for people."""

    texts: tuple[Layer, ...] = ()
    notices: tuple[str, ...] = ()


NO_LAYERS = Layers()
