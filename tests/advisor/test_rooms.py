"""The rooms of the advisor: each may import those after it, never one before it."""

import ast
from pathlib import Path

import ocr.advisor

FOLDER = Path(ocr.advisor.__file__).parent
RANKS = [
    {"__init__"},
    {"any_loader", "commands", "live"},
    {"report"},
    {"remedies"},
    {"measure"},
    {"catalogue", "model"},
]


def rank(room: str) -> int:
    (found,) = [level for level, rooms in enumerate(RANKS) if room in rooms]
    return found


def test_imports_between_rooms_go_one_way():
    wrong = []
    for file in sorted(FOLDER.rglob("*.py")):
        room = file.relative_to(FOLDER).parts[0].removesuffix(".py")
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        modules = [node.module.split(".") for node in nodes if node.module]
        imported = {parts[2] for parts in modules if parts[:2] == ["ocr", "advisor"] and len(parts) > 2}
        wrong += [f"{file.name}: {other}" for other in imported - {room} if rank(other) <= rank(room)]
    assert wrong == []
