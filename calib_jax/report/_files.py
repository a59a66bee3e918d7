"""Files that others may be reading while they are written anew."""

import pathlib


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
    """Writes beside the file and moves: a reader sees all of the old content or of the new."""
    new = path.with_name(path.name + ".tmp")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(path)
