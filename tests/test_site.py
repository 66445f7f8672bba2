"""The site of the documentation: built without a warning, with links that lead to pages and headings, all its own."""

import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from tests.problems import ROOT, run_process

pytestmark = pytest.mark.exhaustive


class Page(HTMLParser):
    """The links and anchors of a page. loads: what the browser fetches with it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = set(), set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        link = values.get("href") or values.get("src")
        if link and link != "#":
            (self.links if tag == "a" else self.loads).add(unquote(link))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nsite_dir: site\n")
    subprocess.run([sys.executable, ROOT / "bench/site_pages.py", folder / "pages"], check=True)
    words = ["-m", "mkdocs", "build", "--strict", "--config-file", folder / "mkdocs.yml"]
    done = run_process(sys.executable, *words, variables={"NO_MKDOCS_2_WARNING": "true"})
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert "excluded from the built site" not in done.stderr, done.stderr
    return folder / "site"


def test_links_of_the_site_lead_to_pages_and_headings(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loads:
            name, _, anchor = link.partition("#")
            if "://" in name or name.startswith("mailto:") or path.name == "404.html":
                continue
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 50 and broken == []


def test_the_site_loads_nothing_from_elsewhere(site):
    loads = {load for path in site.rglob("*.html") for load in Page(path).loads}
    assert [load for load in loads if "://" in load or load.startswith("//")] == []
    assert all("@import" not in path.read_text() and "url(http" not in path.read_text() for path in site.rglob("*.css"))
