"""Execute the tutorials and store their outputs: `python docs/notebooks.py [NAME …]`.

Each runs in an empty folder, and takes less than a minute where nothing else runs. The hash of its code
is stored beside the outputs, so that the tests notice outputs of other code.
"""

import hashlib
import pathlib
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).parent / "tutorials"


def code_hash(cells: list[str]) -> str:
    """Return the SHA-256 of the code of a notebook."""
    return hashlib.sha256("\n".join(cells).encode()).hexdigest()


def execute(path: pathlib.Path) -> float:
    """Run a notebook, store its outputs and return the seconds that it took."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ in every run
        if cell.cell_type == "code":
            # Progress, and warnings about the machine, go to the standard error.
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "code_hash": code_hash(code),
    }
    nbformat.write(notebook, path)
    return time.monotonic() - start


def main() -> None:
    """Execute the notebooks that the arguments name, or all."""
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        print(f"{name}: {execute(FOLDER / f'{name}.ipynb'):.0f} s", flush=True)


if __name__ == "__main__":
    main()
