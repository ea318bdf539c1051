"""cua-spacesd from PyPI's `cua`, on loopback with a token, as a peer of benchmarks/space.py. Where it is not installed it is named.

Its client library and its command send usage data unless told not to; here both are told not to, and get a home of their own.
"""

import asyncio
import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

START_SECS = 20.0


class CuaPeer:
    """The daemon, its client, and an event loop to ask it by; every method is one request, waited for."""

    def __init__(self, daemon: "subprocess.Popen[bytes]", url: str, token: str) -> None:
        import cua  # a peer is imported where it is measured, so that its absence is only named

        self._cua: Any = cua
        self._daemon = daemon
        self._loop = asyncio.new_event_loop()
        self._space: Any = self._loop.run_until_complete(self._connect(url, token))
        self._count = 0
        self._epoch = 1
        self.advance()
        self._key = self._new_key()
        self._wait(self._space.run(self._command(self._key)))
        self._running = self._wait(self._space.spawn(self._command(self._new_key(), "/bin/sh", ["-c", "echo begun; sleep 600"], "running")))

    async def _connect(self, url: str, token: str) -> Any:
        box = await self._cua.embedded().sandboxes().connect_url(url, token, "bench")
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                space = await box.spacesd(None)
                await space.health()
                return space
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)

    def _wait(self, asked: Any) -> Any:
        return self._loop.run_until_complete(asked)

    def _new_key(self) -> str:
        self._count += 1
        return f"log/bench/{self._count}/1/1"

    def _command(self, key: str, program: str = "/bin/true", arguments: list[str] | None = None, tag: str | None = None) -> Any:
        return self._cua.SpacesdCommand(program=program, args=arguments or [], request_id=key, epoch=self._epoch, tag=tag)

    def run(self) -> None:
        self._wait(self._space.run(self._command(self._new_key())))

    def replay(self) -> None:
        self._wait(self._space.run(self._command(self._key)))

    def attach(self) -> None:
        self._wait(self._space.attach(None, "running", self._cua.ReplayMode.NONE()))

    def advance(self) -> None:
        self._epoch += 1
        self._wait(self._space.call_json("ProcessService/AdvanceEpoch", f'{{"epoch":"{self._epoch}"}}'))

    def run_many(self, count: int, clients: int) -> float:
        """Commands per second."""

        async def one(number: int) -> None:
            for _ in range(number):
                await self._space.run(self._command(self._new_key()))

        async def all_of_them() -> None:
            await asyncio.gather(*(one(count // clients) for _ in range(clients)))

        began = time.perf_counter()
        self._wait(all_of_them())
        return count / (time.perf_counter() - began)

    def close(self) -> None:
        self._daemon.terminate()
        self._daemon.wait(START_SECS)
        self._loop.close()


def open_cua(directory: str) -> tuple[CuaPeer | None, str]:
    """The peer and a word about it; None with the reason where it cannot be had."""
    os.environ |= {"DO_NOT_TRACK": "1", "CUA_TELEMETRY": "0"}
    try:
        import cua
    except ImportError as error:
        return None, f"unavailable: {error}; `make bench-space` installs it"
    found = sorted((Path(cua.__file__).parent / "bin").glob("cua-spacesd-*"))
    if not found:
        return None, "unavailable: this wheel of cua carries no cua-spacesd"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": directory, "CUA_ENV_TOKEN": token, "DO_NOT_TRACK": "1", "CUA_TELEMETRY": "0"}
    options = ["--quic-port", "0", "--no-desktop", "--no-driver", "--no-mcp", "--no-access-log", "--data-dir", directory]
    with open(os.path.join(directory, "said"), "wb") as said:
        daemon = subprocess.Popen(
            [str(found[0]), "serve", "--listen", f"127.0.0.1:{port}", *options], env=environment, stdout=said, stderr=said
        )
    try:
        return CuaPeer(daemon, f"http://127.0.0.1:{port}", token), f"{found[0].name} beside it, on loopback"
    except Exception as error:  # noqa: BLE001 - a peer that fails is told, and ends nothing
        daemon.kill()
        daemon.wait()
        return None, f"unavailable: {type(error).__name__}: {error}"
