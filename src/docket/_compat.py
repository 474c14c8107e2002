"""pydocket's names for the keys of a docket."""

from __future__ import annotations

from docket.storage.keys import Keys
from docket.storage.schema.keys import GROUP


class PydocketKeys:
    """The names of a docket's keys and channels."""

    keys: Keys

    @property
    def prefix(self) -> str:
        """The prefix of all keys of this docket."""
        return self.keys.prefix

    def key(self, suffix: str) -> str:
        """A key under the docket's prefix. Clients may
        store values of their own under such keys."""
        return self.keys.key(suffix)

    @property
    def queue_key(self) -> str:
        """The key of the tasks that wait for their due time."""
        return self.keys.schedule

    @property
    def stream_key(self) -> str:
        """The key of the stream of ready tasks."""
        return self.keys.stream

    def runs_key(self, task_key: str) -> str:
        """The key of the record of a task."""
        return self.keys.run(task_key)

    def cancel_channel(self, task_key: str) -> str:
        """The name that pydocket gives to the channel for cancel requests of a task."""
        return self.keys.task_channel(task_key).decode("utf-8", "surrogatepass")

    @property
    def results_collection(self) -> str:
        """The collection of `result_storage` that has the results of this docket."""
        return self.keys.results

    @property
    def worker_group_name(self) -> str:
        """The consumer group of the workers on the stream."""
        return GROUP

    @property
    def workers_set(self) -> str:
        """The name that pydocket gives to the key of the workers."""
        return self.keys.leases

    def worker_tasks_set(self, worker_name: str) -> str:
        """The name that pydocket gives to the key of the functions that a worker knows."""
        return self.keys.worker_tasks(worker_name)

    def task_workers_set(self, task_name: str) -> str:
        """The name that pydocket gives to the key of the workers that know a task function."""
        return self.keys.task_workers(task_name)
