"""Read the documentation: its pages, listings, commands, links and headings."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [page for page in PAGES if REFERENCE not in page.parents]
"""Pages that are not generated."""


def name(page: Path) -> str:
    """Return the path of a page within the repository."""
    return page.relative_to(ROOT).as_posix()


def text(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language in all written pages."""
    pattern = rf"^```{language}\n(.+?)^```"
    return [block for page in WRITTEN for block in re.findall(pattern, text(page), re.MULTILINE | re.DOTALL)]


def commands() -> list[str]:
    """Return every command of the shell listings, without comments."""
    lines = "\n".join(blocks("sh")).replace("\\\n", "").splitlines()
    return [command for line in lines if (command := re.split(r" +# ", line.strip())[0].strip())]


def listings() -> dict[str, str]:
    """Return the Python listings by the file name in their first line."""
    return {block.split()[1]: block for block in blocks("python")}


def configs() -> dict[str, str]:
    """Return the YAML listings that have a file name in their first line, by that name."""
    named = (block for block in blocks("yaml") if re.match(r"# \w+\.yaml\n", block))
    return {block.split()[1]: block for block in named}


def shortened(listing: str) -> str:
    """Return a listing that trains for two iterations, each of which is evaluated."""
    return listing.replace("100_000", "512").replace("val_check_interval=50", "val_check_interval=1")


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.+?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """Return the targets of a page's relative links."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
