"""What the container installs: the versions that are tested, and no torch."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def pins(file: str) -> dict[str, str]:
    return dict(line.split("==") for line in (ROOT / file).read_text().splitlines())


def test_the_list_of_the_container_is_a_part_of_the_lock_without_torch():
    wanted = pins("docker/requirements.txt")
    assert wanted.items() <= pins("requirements.lock").items()
    assert {"onnxruntime", "fastapi", "uvicorn", "pypdfium2"} <= wanted.keys()
    assert not {"torch", "timm", "lightning"} & wanted.keys()


def test_what_the_dockerfile_copies_is_there_and_it_runs_without_rights():
    text = (ROOT / "docker/Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied.pop() == "${MODEL}"
    assert all((ROOT / name).exists() for name in copied)
    assert text.index("USER serve") < text.index("ENTRYPOINT")
