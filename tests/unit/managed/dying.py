"""A child process that dies of SIGKILL in the middle of its work, as a power cut or the kernel would have it."""

from __future__ import annotations

import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

STEPS = ("write", "replace", "link", "unlink", "fsync", "rename", "fchmod", "open", "close", "makedirs")


def fork(work: Callable[[], object]) -> int:
    """Do `work` in a child; its process id. The child ends with 0, or 1 when an exception came out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test runner; the child does not use them
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(pid: int) -> bool:
    """Whether the child was killed. Anything else than that and a good end fails the test."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def dies_at(step: int, work: Callable[[], object]) -> bool:
    """Do `work` in a child that dies just before its `step`-th call of the system; whether it came to that."""
    return wait(fork(lambda: _work_until(step, work)))


def dies_after(seconds: float, work: Callable[[], object]) -> bool:
    """Do `work` in a child and kill it after `seconds`."""
    pid = fork(work)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return wait(pid)


def _work_until(step: int, work: Callable[[], object]) -> None:
    left = step

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, counting(getattr(os, name)))
    work()
