"""A study in several processes of one machine, which share its trainings."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

from provenformer.base.errors import ProvenformerError
from provenformer.bert.study.run import run_study


def run_jobs(jobs: int, *arguments: Any, **options: Any) -> None:
    """`run_study` in so many processes at once. The first error stops them all and is raised."""
    if jobs < 1:
        raise ProvenformerError(f"--jobs {jobs} must be at least 1; give the number of cores to use")
    context = multiprocessing.get_context("spawn")
    errors = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(errors, arguments, options), daemon=True, name=f"study-{number}")
        for number in range(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        while running := [worker.sentinel for worker in workers if worker.exitcode is None]:
            wait(running)
            if failed := [worker.exitcode for worker in workers if worker.exitcode]:
                remedy = "run the same command again: what was finished is kept"
                ended = ProvenformerError(f"a process of the study ended with exit code {failed[0]}; {remedy}")
                raise ended if errors.empty() else errors.get()
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(errors: Any, arguments: Any, options: Any) -> None:
    os.environ["TTY_INTERACTIVE"] = "0"  # progress bars of several processes would overwrite each other
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends its workers
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        run_study(*arguments, **options)
    except (ProvenformerError, MemoryError, RecursionError) as error:  # what the command line makes one line of
        errors.put(error)
        sys.exit(2)


def _end_with_parent() -> None:
    """However it ends: nobody would know of a worker that trains on."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
