"""A port for processes that listen seconds after it was chosen."""

import random
import socket


def free_port() -> int:
    """Free now, and below the ports that a system hands out by itself (32768 and up): no other test's connection takes
    it before its own process listens, as happens to the one that Lightning or `bind(0)` chooses."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
