"""The pages of ``benchmarks/`` as pages of the site."""

from pathlib import Path

from site_proofs import write

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGES = sorted((BENCHMARKS / "pages").glob("*.md"))


def toctree(names):
    """A table of contents of pages beside this one, which is not shown."""
    listed = "\n".join(names)
    return f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def setup(app):
    """Copy the pages before they are read. Links lead out of docs/benchmarks/ and not further."""
    folder = Path(app.srcdir) / "benchmarks"
    folder.mkdir(exist_ok=True)
    for path in PAGES:
        text = path.read_text(encoding="utf-8").replace("](../README.md", "](index.md")
        write(folder / path.name, text.replace("](../../docs/", "](../"))
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    text = text.replace("](pages/", "](").replace("](../docs/", "](../")
    write(folder / "index.md", text + toctree(path.stem for path in PAGES))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
