"""Know, don't guess: what the pipeline costs on this machine, what would help, and whether it did.

Imports go one way: any_loader, commands, live -> report -> remedies -> measure -> catalogue, model.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.advisor.any_loader import advise as advise


def __getattr__(name: str) -> Any:
    # Torch is imported with the function, not with the package.
    if name == "advise":
        from ocr.advisor.any_loader import advise

        return advise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
