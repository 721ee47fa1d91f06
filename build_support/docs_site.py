"""A MkDocs hook: adds pages of the root folder and the examples to the site, and rewrites links to them.

On a code host these links lead to the files.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# Roles of Sphinx in docstrings: :class:`Stream`.
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=<code>)")
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from outside the docs folder."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for example in sorted((ROOT / "examples").iterdir()):
        if example.suffix not in {".py", ".cpp"}:
            continue
        files.append(File.generated(config, f"examples/{example.name}", abs_src_path=str(example)))
    titles = {path.name: path.read_text().partition("\n")[0] for path in (ROOT / "docs/decisions").glob("*.md")}
    index = [f"- [{title.lstrip('# ')}]({name})\n" for name, title in sorted(titles.items())]
    files.append(File.generated(config, "decisions/index.md", content="# Decisions\n\n" + "".join(index)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files of the repository as links to pages."""
    names = {uri: name for name, uri in PAGES.items()}
    source = names.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewritten(link: re.Match[str]) -> str:
        path, heading = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target == "docs/decisions":
            target = "docs/decisions/index.md"
        uri = PAGES.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None:
            return link[0]
        return f"]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{heading})"

    return LINK.sub(rewritten, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show names in Sphinx roles as plain code."""
    return ROLE.sub("", html)
