"""`make release-check`: wheel and sdist, each in a clean environment, in which the demo and the explorer's first page run.

Prints what each installation takes on disk. Needs an index for pip; nothing of the working tree is on the path.
"""

import re
import shutil
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "release"
TIMEOUT = 900


def run(*command: object) -> str:
    """The output of a command; what fails ends the check."""
    done = subprocess.run([*map(str, command)], cwd=WORK, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def environment(name: str) -> Path:
    """A new one; its folder of programs."""
    venv.create(WORK / name, with_pip=True)
    return WORK / name / "bin"


def first_page(provenformer: Path) -> None:
    """The explorer is started as a user would, and asked for its page and for what the page loads."""
    command = [str(provenformer), "explore", "--port", "0", "--no-open"]
    with subprocess.Popen(command, cwd=WORK, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
            if not found:
                sys.exit("the explorer did not say where it listens")
            page = urllib.request.urlopen(found[0], timeout=60).read().decode()
            linked = re.findall(r'(?:src|href)="/?([\w./-]+\.(?:js|css))"', page)
            sizes = [len(urllib.request.urlopen(found[0] + name, timeout=60).read()) for name in linked]
            if "provenformer" not in page or not sizes or not all(sizes):
                sys.exit("the explorer's first page is not complete")
        finally:
            server.terminate()


def main() -> None:
    """Both files of a release."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    tools = environment("tools")
    run(tools / "pip", "install", "--quiet", "build")
    print(run(tools / "python", "-m", "build", "--outdir", WORK / "dist", ROOT).strip().splitlines()[-1])
    for kind in ("*.whl", "*.tar.gz"):
        (archive,) = (WORK / "dist").glob(kind)
        programs = environment(f"clean{archive.suffix}")
        run(programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", archive)
        size = sum(path.stat().st_size for path in programs.parent.rglob("site-packages/**/*") if path.is_file())
        version = run(programs / "provenformer", "--version").strip()
        run(programs / "provenformer", "demo")
        run(programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{archive}[explore]")
        first_page(programs / "provenformer")
        taken = f"{archive.stat().st_size / 1e6:.1f} MB, installed with all it needs {size / 1e6:.0f} MB"
        print(f"{archive.name}: {version}, {taken}; demo and first page run")


if __name__ == "__main__":
    main()
