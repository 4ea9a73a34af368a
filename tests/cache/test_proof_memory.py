"""The proof of hits takes memory for the samples that are used, not for all there are."""

from pathlib import Path

from ocr.cache.proof import Proof


class ManyPages:
    """All that is asked of a source here."""

    def __len__(self) -> int:
        return 4_000_000


def shared_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))


def test_a_proof_of_millions_of_samples_takes_room_only_where_it_is_written():
    before = shared_kilobytes()
    proof = Proof(ManyPages())
    assert not proof.was_written(3_999_999)
    proof.mark_written(2_000_000)
    assert proof.was_written(2_000_000)
    assert shared_kilobytes() - before < 1000
