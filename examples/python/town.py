"""For the tests: a queue of their own on a running server, a push provider and workers as processes, and the questions to ask.

Nothing here sleeps for a while and hopes: `eventually` asks until the answer is yes, or fails at a deadline.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import submit
from leasehold_worker import connect
from leasehold_worker.connection import duration
from leasehold_worker.stubs import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    queue_pb2,
    repair_service_pb2_grpc,
    retry_pb2,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
)

HERE = Path(__file__).resolve().parent
SERVER = os.environ.get("LEASEHOLD_SERVER", "127.0.0.1:7233")
LEASE_SECONDS = 2.0
DEADLINE_SECONDS = 30.0
CALL_SECONDS = 10.0

# Everything here is on this machine; a proxy from the environment would only be in the way.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"


class Town:
    """One test's world."""

    def __init__(self, test, name="n9", boundary="provider_accepted"):
        self.queue = f"{name}-{uuid.uuid4().hex[:12]}"
        self.channel = connect(SERVER)
        test.addCleanup(self.channel.close)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(self.channel)
        self.repairs = repair_service_pb2_grpc.RepairServiceStub(self.channel)
        self._test = test
        self._put_queue(boundary)

    def submit(self, kind="notify", device="d-b1", message="m-9", version=1):
        """Submits a notification as submit.py would; returns the name to ask about it."""
        given = argparse.Namespace(
            queue=self.queue, kind=kind, conversation="c-a", message=message, version=version, user="u-b", device=device
        )
        spec = submit.spec(given)
        self.tasks.Submit(task_service_pb2.SubmitRequest(spec=spec), timeout=CALL_SECONDS)
        return task_pb2.TaskRef(queue=self.queue, task_id=spec.task_id)

    def worker(self, provider, name, *flags):
        """Starts notify.py. One slot, so that a frozen worker holds no open claim that could be handed the next lease."""
        lease = str(LEASE_SECONDS)
        own = ["--queue", self.queue, "--worker-id", name, "--slots", "1", "--lease", lease, "--provider", provider.url]
        return Process(self._test, name, "notify.py", "--server", SERVER, *own, *map(str, flags))

    def task(self, ref):
        return self.tasks.GetTask(task_service_pb2.GetTaskRequest(task=ref), timeout=CALL_SECONDS).task

    def ended(self, ref):
        """The task once it is terminal."""
        task = submit.wait(self.tasks, ref, DEADLINE_SECONDS)
        self._test.assertTrue(task.terminal, f"{ref.task_id} did not end: {task_pb2.TaskState.Name(task.state)}")
        return task

    def attempts(self, ref):
        request = task_service_pb2.ListAttemptsRequest(task=ref)
        return self.tasks.ListAttempts(request, timeout=CALL_SECONDS).attempts

    def cancel(self, ref):
        request = task_service_pb2.CancelRequest(task=ref, reason="the member left")
        self.tasks.Cancel(request, timeout=CALL_SECONDS)

    def _put_queue(self, boundary):
        queue = queue_pb2.Queue(
            name=self.queue,
            boundary=boundary,
            retry=retry_pb2.RetryPolicy(max_attempts=5, initial_backoff=duration(0.05), max_backoff=duration(0.1)),
        )
        admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        request = admin_service_pb2.PutQueueRequest(queue=queue, reason="a test of its own")
        admin.PutQueue(request, timeout=CALL_SECONDS)


class Process:
    """A program of this folder, in a process group of its own, with what it says in a file."""

    def __init__(self, test, name, program, *flags):
        self._name = name
        self._log = tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".log")  # noqa: SIM115 - closed at cleanup
        command = [sys.executable, str(HERE / program), *flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        test.addCleanup(self._bury)

    def said(self, text):
        return text in self.log()

    def log(self):
        return Path(self._log.name).read_text()

    def running(self):
        return self._process.poll() is None

    def signal(self, number):
        self._process.send_signal(number)

    def ended(self):
        """Its exit code once it has ended; -9 for kill -9."""
        return self._process.wait(timeout=DEADLINE_SECONDS)

    def __str__(self):
        return f"--- {self._name} ---\n{self.log()}"

    def _bury(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._log.close()


class Provider(Process):
    """push_provider.py, and what it has seen."""

    def __init__(self, test):
        super().__init__(test, "provider", "push_provider.py", "--port", "0")
        eventually(lambda: self.said("ready port="), "the provider is ready", self)
        self.url = f"http://127.0.0.1:{self.log().split('port=')[1].strip()}"

    def arm(self, fault, **more):
        self._ask("POST", "/faults", {"fault": fault, **more})

    def clear(self):
        self._ask("DELETE", "/faults")

    def requests(self):
        return self._ask("GET", "/effects")["requests"]

    def effects(self):
        return self._ask("GET", "/effects")["effects"]

    def lookups(self):
        return self._ask("GET", "/effects")["lookups"]

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, method=method), timeout=10) as answer:
            return json.load(answer)


def eventually(question, what, *witnesses):
    """Asks until the answer is true, and returns it. At the deadline it fails with what the witnesses have to say."""
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > until:
            said = "\n".join(map(str, witnesses))
            raise AssertionError(f"not within {DEADLINE_SECONDS:.0f} s: {what}\n{said}")
        time.sleep(0.02)
