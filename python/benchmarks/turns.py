"""Subjects of a benchmark in processes of their own: many are made ready at a time, one at a time is measured.

Compiling takes cores and leaves a GPU mostly idle; measuring must be alone. A wave of processes compiles at the same
time; then one after the other measures, as often as it is asked. What breaks in a process costs its own subject.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator


class Worker:
    """A forked process that makes a subject and waits for its turn. The parent must not have touched the GPU."""

    def __init__(self, name: str, make: Callable[[], Callable]):
        """`make` runs in the process and returns what measures: a function of requests."""
        self.name = name
        self.pipe, there = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()  # what it starts ends with it
            try:
                measure = make()
                there.send(("ready", None))
                while (request := self.next(there)) is not None:
                    there.send(("measured", measure(request[0])))
            except BaseException as e:  # noqa: BLE001  one subject
                traceback.print_exc()
                there.send(("failed", f"{type(e).__name__}: {e}"[:400]))
            os._exit(0)
        there.close()

    @staticmethod
    def next(there) -> tuple | None:
        """The next request; None once the parent has ended."""
        try:
            return there.recv()
        except EOFError:
            return None

    def ask(self, request, seconds: float) -> tuple[str, object]:
        """Sends a request and returns what receive() gives."""
        try:
            self.pipe.send((request,))
        except OSError:
            return "failed", self.death()
        return self.receive(seconds)

    def receive(self, seconds: float) -> tuple[str, object]:
        """("ready", None), ("measured", what the subject returned) or ("failed", why)."""
        try:
            return self.pipe.recv() if self.pipe.poll(max(seconds, 0)) else ("failed", "out of time")
        except (EOFError, OSError):
            return "failed", self.death()

    def death(self) -> str:
        """How the process ended. It closed its end of the pipe, so that it is about to."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return f"the process died: {'exit status' if ended.si_code == os.CLD_EXITED else 'signal'} {ended.si_status}"

    def end(self) -> None:
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(self.pid, 0)
        self.pipe.close()


def waves(subjects: list[tuple[str, Callable]], jobs: int, end: float) -> Iterator[tuple[str, Callable | str]]:
    """Each subject (name, make) in turn, alone on the device: its name, and how it is measured (a function of a request and of
    seconds that gives receive()'s pair) or why it cannot be. `jobs` at a time are made ready; after `end` (time.time()) no more."""
    for at in range(0, len(subjects), jobs):
        if time.time() > end:
            for name, _ in subjects[at:]:
                yield name, "out of time"
            return
        wave = [Worker(name, make) for name, make in subjects[at : at + jobs]]
        try:
            states = [w.receive(end - time.time()) for w in wave]
            for w, (state, why) in zip(wave, states):
                yield w.name, w.ask if state == "ready" else str(why)
                w.end()
                w.pid = 0
        finally:
            for w in wave:
                if w.pid:
                    w.end()
