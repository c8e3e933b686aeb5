#!/usr/bin/env python3
"""Puts public sets of texts with relevance judgements into .tools/memory-sets, for `make bench-memory`.

- Semanlink: papers with the tags that a reader gave them, in the source package of cherche, which a Python package index
  has. `semanlink` finds papers for a tag, `semanlink-tags` finds tags for a paper.
- Cranfield: 1,400 abstracts and 225 questions. No package carries it; it comes from its home at the University of Glasgow,
  or from a folder named by CRANFIELD that holds `cran.all.1400`, `cran.qry` and `cranqrel`.

Nothing of it is part of the repository.
"""

import collections
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request

TARGET = pathlib.Path(__file__).resolve().parent.parent / ".tools" / "memory-sets"
PACKAGE, ARCHIVE = "cherche", "cherche-2.2.1.tar.gz"
CHECKSUM = "7984a88f0bf9349cd08907baefc2527deaacea95d3acf5f4a1692896c507fe34"
GLASGOW = "http://ir.dcs.gla.ac.uk/resources/test_collections/cran/cran.tar.gz"
CRANFIELD_FILES = ("cran.all.1400", "cran.qry", "cranqrel")
TIMEOUT_SECONDS = 60


def download(address):
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
        return answer.read()


def write(name, documents, queries):
    """Writes a set: documents by id, queries as pairs of a text and the ids that are relevant."""
    content = {
        "documents": [{"id": key, "text": text} for key, text in documents.items()],
        "queries": [{"text": text, "relevant": sorted(ids)} for text, ids in queries if ids],
    }
    TARGET.mkdir(parents=True, exist_ok=True)
    # Renamed last, so that what was interrupted is begun anew.
    unfinished = TARGET / f"{name}.unfinished"
    unfinished.write_text(json.dumps(content), encoding="utf-8")
    unfinished.rename(TARGET / f"{name}.json")


def index_address():
    """The index that pip uses: of the environment, of its configuration, or its own."""
    named = os.environ.get("PIP_INDEX_URL")
    if not named:
        asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
        named = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not named:
        asked = [sys.executable, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"]
        named = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return named.rstrip("/")


def archive_of_package():
    """The source package, found as pip finds it, but without running anything of it."""
    page = f"{index_address()}/{PACKAGE}/"
    links = re.findall(r'href="([^"]+)"', download(page).decode())
    link = next(link for link in links if link.split("#")[0].endswith(ARCHIVE))
    content = download(urllib.parse.urljoin(page, link.split("#")[0]))
    if hashlib.sha256(content).hexdigest() != CHECKSUM:
        raise RuntimeError(f"{ARCHIVE} is not what it should be")
    return tarfile.open(fileobj=io.BytesIO(content))


def get_semanlink():
    with archive_of_package() as archive:
        folder = f"{ARCHIVE.removesuffix('.tar.gz')}/cherche/data/semanlink"
        papers, tags = (json.load(archive.extractfile(f"{folder}/{name}.json")) for name in ("arxiv", "tags"))
    of_tag = collections.defaultdict(set)
    for number, paper in enumerate(papers):
        for tag in paper["tag"]:
            of_tag[tag].add(f"{number:03}")
    texts = {f"{number:03}": f"{paper['arxiv_title']} {paper['arxiv_summary']}" for number, paper in enumerate(papers)}
    # Tags of one paper alone say more about that paper than about a subject.
    asked = [(" ".join(tags[tag]["prefLabel"]), ids) for tag, ids in sorted(of_tag.items()) if len(ids) > 1]
    write("semanlink", texts, asked)
    labels = ("prefLabel", "altLabel", "broader_prefLabel", "broader_altLabel")
    described = {tag: " ".join(" ".join(tags[tag].get(label, [])) for label in labels) for tag in sorted(of_tag)}
    write("semanlink-tags", described, [(texts[f"{number:03}"], set(paper["tag"])) for number, paper in enumerate(papers)])


def cranfield_files():
    folder = os.environ.get("CRANFIELD")
    if folder:
        return [(pathlib.Path(folder) / name).read_text(encoding="utf-8") for name in CRANFIELD_FILES]
    with tarfile.open(fileobj=io.BytesIO(download(GLASGOW))) as archive:
        files = {pathlib.PurePath(member.name).name: member for member in archive.getmembers()}
        return [archive.extractfile(files[name]).read().decode() for name in CRANFIELD_FILES]


def get_cranfield():
    abstracts, questions, judgements = cranfield_files()
    records = [record.split("\n", 1) for record in re.split(r"^\.I ", abstracts, flags=re.M)[1:]]
    # Of title, author, source and text, both that say what it is about.
    about = re.compile(r"^\.[TW]\n(.*?)(?=^\.[A-Z]$|\Z)", re.S | re.M)
    texts = {str(int(number)): " ".join(about.findall(rest)) for number, rest in records}
    asked = [question.split(".W\n", 1)[1] for question in re.split(r"^\.I ", questions, flags=re.M)[1:]]
    # Questions are judged by their place, not by their number. All that is judged is relevant to some degree.
    relevant = collections.defaultdict(set)
    for line in judgements.splitlines():
        if line.strip():
            relevant[int(line.split()[0])].add(line.split()[1])
    counts = (len(texts), len(asked), sum(map(len, relevant.values())))
    if counts != (1400, 225, 1837):
        raise RuntimeError(f"Cranfield has 1400 texts, 225 questions and 1837 judgements, not {counts}")
    write("cranfield", texts, [(text, relevant[place]) for place, text in enumerate(asked, start=1)])


def main():
    for names, get in ((("semanlink", "semanlink-tags"), get_semanlink), (("cranfield",), get_cranfield)):
        if all((TARGET / f"{name}.json").is_file() for name in names):
            continue
        print(f"getting {names[0]} ...", flush=True)
        try:
            get()
        except (OSError, RuntimeError, LookupError, StopIteration, subprocess.SubprocessError, tarfile.TarError) as error:
            print(f"{names[0]} could not be got, and is not measured: {error}", file=sys.stderr)
            if names[0] == "cranfield":
                print("No package carries it: put its files into a folder and run again with CRANFIELD=folder.",
                      file=sys.stderr)


if __name__ == "__main__":
    main()
