"""pydocket's names for the keys of a docket."""

from __future__ import annotations

from docket.storage.keys import GROUP, Keys


class PydocketKeys:
    """The names of a docket's keys and channels."""

    keys: Keys

    @property
    def prefix(self) -> str:
        return self.keys.prefix

    def key(self, suffix: str) -> str:
        """A key under the docket's prefix. Clients may
        store values of their own under such keys."""
        return self.keys.key(suffix)

    @property
    def queue_key(self) -> str:
        return self.keys.schedule

    @property
    def stream_key(self) -> str:
        return self.keys.stream

    def runs_key(self, task_key: str) -> str:
        return self.keys.run(task_key)

    def cancel_channel(self, task_key: str) -> str:
        return self.keys.task_channel(task_key).decode("utf-8", "surrogatepass")

    @property
    def results_collection(self) -> str:
        return self.keys.results

    @property
    def worker_group_name(self) -> str:
        return GROUP

    @property
    def workers_set(self) -> str:
        return self.keys.leases

    def worker_tasks_set(self, worker_name: str) -> str:
        return self.keys.worker_tasks(worker_name)

    def task_workers_set(self, task_name: str) -> str:
        return self.keys.task_workers(task_name)
