"""Know, don't guess: what an epoch takes on this machine, and what would help. What can be run is run, not computed.

Imports go one way: job, any_loader -> remedies -> advice -> measure. (A module `advise` would hide the function.)
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
