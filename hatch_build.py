"""What PyPI shows: README with links that lead somewhere from there, and the project's addresses.

`address` in pyproject.toml ([tool.hatch.metadata.hooks.custom]) is the one setting: with it links and the picture lead
to the repository; without it links are plain words and the picture is left out, so that nothing on PyPI is broken.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")  # within the repository
PAGES = {"Documentation": "docs", "Changes": "CHANGELOG.md", "Security": "SECURITY.md"}


def shown(readme: str, address: str) -> str:
    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(link, readme))


def urls(address: str) -> dict[str, str]:
    there = {name: f"{address}/blob/HEAD/{path}" for name, path in PAGES.items()}
    return {"Repository": address, **there} if address else {}


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = str(self.config.get("address", "")).rstrip("/")
        text = shown((Path(self.root) / "README.md").read_text(encoding="utf-8"), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address)
