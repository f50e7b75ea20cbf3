"""Reading the artifacts of tasks: the files that their tools have kept."""

from __future__ import annotations

from holdfast.client.agent_runner.base import RunnerBase, TaskLike, id_of
from holdfast.reading.artifacts import KeptArtifact, artifacts_in, newest, read_artifact
from holdfast.values.checks.gate import check_arguments


class TaskArtifacts(RunnerBase):
    """The part of AgentRunner that reads artifacts."""

    async def artifacts(self, task: TaskLike, *, versions: bool = False) -> list[KeptArtifact]:
        """List the artifacts of a task, oldest first: of its active steps, of each name the newest.

        Args:
            task: The task, open or closed.
            versions: Whether to list older versions as well.

        Raises:
            TaskNotFoundError: No task has this id.
        """
        check_arguments(TaskArtifacts.artifacts, versions=versions)
        found = artifacts_in(*await self._read.ledger(id_of(task)))
        return found if versions else newest(found)

    async def read_artifact(
        self, task: TaskLike, name: str, *, version: int | None = None
    ) -> bytes:
        """Return the bytes of an artifact.

        Args:
            task: The task, open or closed.
            name: Its name, or its reference.
            version: Which of its name; the newest by default.

        Raises:
            TaskNotFoundError: No task has this id.
            NotFoundError: The task has no such artifact.
            ArchiveError: The archive does not have the bytes, or they were erased.
        """
        check_arguments(TaskArtifacts.read_artifact, name=name, version=version)
        return (await read_artifact(self._read, id_of(task), name, version))[1]
