"""The base of AgentRunner: a handle on an engine, an app and an agent.

With it, ids of tasks and steps as callers give them, and the roles of people in an app.
"""

from __future__ import annotations

import inspect
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self, cast

from temporalio.client import Client

from holdfast.activities.notices import Notifier
from holdfast.agents.agent import Agent
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import writing_for
from holdfast.archive.contents import store_images
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.task_client.task_client import Caller, TaskClient
from holdfast.engine.cluster import ensure_search_attributes
from holdfast.engine.connect import connect_client
from holdfast.errors import InvalidArgumentError, StepNotFoundError
from holdfast.models.choices import ToolChoice, choice_of
from holdfast.models.prices import Prices
from holdfast.reading.reader import Reader
from holdfast.serving.embedded import LocalEngine, running_server
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_process import default_archive
from holdfast.task.data.head import SessionRef, TaskHead
from holdfast.task.data.state import Described
from holdfast.task.data.wire import INLINE_BYTES
from holdfast.values.checks.gate import Seconds, check_arguments, check_known
from holdfast.values.checks.ids import (
    DEFAULT_APP,
    LONGEST_KNOWN,
    LONGEST_NAME,
    check_app,
    check_known_id,
    check_name,
    owned,
    queue_of,
)
from holdfast.values.code import user_calls
from holdfast.values.messages import Blob, ImagePart
from holdfast.values.parts.images import Image
from holdfast.values.runs.approval_rules import ROLE, person_key
from holdfast.values.steps import ListedTask, TaskStep, TaskStepOutput
from holdfast.values.text.shown import MOST_NAMED, named, shown

TaskLike = ListedTask | str

StepLike = TaskStepOutput | TaskStep | str


def id_of(task: TaskLike) -> str:
    """Return the id of a task given as a Task or as an id.

    Raises:
        InvalidArgumentError: It is neither, or an id that no task can have.
    """
    given = cast("object", task)
    if not isinstance(given, ListedTask | str):
        msg = f"A task is given as a Task or by its id; this is {shown(given)}."
        raise InvalidArgumentError(msg)
    return check_known_id(given if isinstance(given, str) else given.task_id)


def step_id_of(step: StepLike) -> str:
    """Return the id of a step given as its output, as a TaskStep or as an id.

    Raises:
        InvalidArgumentError: It is not one of these, or an id that no step can have.
    """
    match cast("object", step):
        case TaskStepOutput() as output:
            return output.task_step.step_id
        case TaskStep() as known:
            return known.step_id
        case str() as name:
            return check_name("The id of a step", name, LONGEST_KNOWN)
        case other:
            msg = f"A step is given as a TaskStep, its output or its id; this is {shown(other)}."
            raise InvalidArgumentError(msg)


def new_id(agent: str, end: str = "") -> str:
    """Make up a task id, which a shell takes without quotes.

    Args:
        agent: Name of the agent, with which the id begins.
        end: What the id ends with: 12 characters, random by default.
    """
    slug = re.sub(r"[^\w.-]+", "-", agent).strip("-") or "task"
    return f"{slug[: LONGEST_NAME - 13]}-{end or uuid.uuid4().hex[:12]}"


def no_completed_step(step_id: str, completed: Sequence[str]) -> StepNotFoundError:
    """Return the error of a step that is not among the completed ones; it names the newest."""
    known = named(completed[-MOST_NAMED:])
    return StepNotFoundError(
        f"Could not find step_id: {step_id}. The completed steps, the newest last, are: {known}."
    )


Roles = Mapping[str, Iterable[str]]
"""Role to the people who have it: {"finance": ["anna", "ben"]}."""


def check_roles(given: Roles | None) -> dict[str, tuple[str, ...]]:
    """Copy a map of roles.

    Raises:
        InvalidArgumentError: It is not one.
    """
    found: dict[str, tuple[str, ...]] = {}
    plain = cast("object", {} if given is None else given)
    if not isinstance(plain, Mapping):
        msg = f'roles must be a dict as {{"finance": ["anna"]}}; it was {shown(plain)}.'
        raise InvalidArgumentError(msg)
    for role, people in cast("Mapping[object, object]", plain).items():
        name = check_role(role)
        if isinstance(people, str) or not isinstance(people, Iterable):
            msg = f"roles[{name!r}] must be a list of people; it was {shown(people)}."
            raise InvalidArgumentError(msg)
        members = tuple(cast("Iterable[object]", people))
        odd = [each for each in members if not isinstance(each, str) or not each.strip()]
        if odd:
            msg = f"roles[{name!r}] must name people; {shown(odd[0])} is not a name."
            raise InvalidArgumentError(msg)
        found[name] = cast("tuple[str, ...]", members)
    return found


def check_own(given: Iterable[str]) -> list[str]:
    """Return the roles of one person, checked.

    Raises:
        InvalidArgumentError: They are no list of roles.
    """
    plain = cast("object", given)
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        was = shown(plain)  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise InvalidArgumentError(f"roles must be a list as ['finance']; it was {was}.")
    return [check_role(each) for each in cast("Iterable[object]", plain)]


def check_role(given: object) -> str:
    """Return the name of a role.

    Raises:
        InvalidArgumentError: It is not one, or begins with "role:", as only rules write it.
    """
    if not isinstance(given, str) or not given.strip() or given.startswith(ROLE):
        msg = f"A role is a name as 'finance', without {ROLE!r}; this is {shown(given)}."
        raise InvalidArgumentError(msg)
    return given


def roles_of(known: Mapping[str, tuple[str, ...]], person: str) -> list[str]:
    """List the roles of a person by a map, sorted."""
    key = person_key(person)
    return sorted(role for role, people in known.items() if key in map(person_key, people))


def people_of(known: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Return whom a name in a rule means: the people of a role that is known, else itself."""
    key = person_key(name.removeprefix(ROLE)) if name.startswith(ROLE) else ""
    return next((people for role, people in known.items() if person_key(role) == key), (name,))


if TYPE_CHECKING:
    from holdfast.archive import Keys
    from holdfast.serving.governor.providers import Limited
else:  # loaded where there are some
    Keys = Limited = object

LOCAL_OPTIONS = ("data_dir", "app", "prices", "notify", "keys", "providers")

Images = Sequence[Image | ImagePart]
"""Images of an input; a part of an earlier message may be given again as it is."""


class RunnerBase:
    """A handle on an engine, an app and an agent; it holds no state of any task.

    Attributes:
        app: Name of the app; "default" when none was given.
        agent: Agent that new tasks get by default.
    """

    _tenant = ""
    """The only tenant whose tasks it sees; empty for all."""

    def __init__(
        self,
        *,
        agent: str,
        app: str | None = None,
        queue: str | None = None,
        engine: LocalEngine | None = None,
        client: Client | None = None,
        archive: Archive | None = None,
        heartbeat: Seconds = 20.0,
        roll_events: int = 2000,
        default_tool_choice: ToolChoice = "auto",
        default_session: str | None = None,
        roles: Roles | None = None,
        verbose: bool = False,
    ) -> None:
        """Use an engine to be started, or a client made with `HoldfastPlugin` and its archive.

        Args:
            agent: Agent of new tasks; empty when the handle is only for existing tasks.
            app: Name of the app: its sessions, and the workers that serve its tasks. Without one,
                each agent has a queue of its own, and any worker that has the agent serves it.
            queue: Task queue of your own workers, if they serve the tasks.
            engine: The embedded engine.
            client: Temporal client.
            archive: The namespace's archive.
            heartbeat: Seconds without a sign of life after which a worker counts as lost.
            roll_events: History length at which a task continues as new.
            default_tool_choice: "auto", "none", "required", a tool's name or dict: tool choice of
                first steps when create_task gives none.
            default_session: Name of the session of chats that name none; `create_task` ignores it.
            roles: Role to the people who have it, as {"finance": ["anna", "ben"]}: decisions that
                this handle sends carry the roles of who decides, for the rules of tools.
            verbose: Whether run_step, run_task and chat print the events of the task.

        Raises:
            InvalidArgumentError: One of these cannot be used.
        """
        check_arguments(
            RunnerBase.__init__,
            queue=queue,
            engine=engine,
            client=client,
            archive=archive,
            heartbeat=heartbeat,
            roll_events=roll_events,
            default_session=default_session,
            verbose=verbose,
        )
        self.agent = "" if agent == "" else check_name("agent", agent)
        self.app = DEFAULT_APP if app is None else check_app(app)
        self._queue = queue
        self._engine = engine
        self._heartbeat = heartbeat
        self._roll_events = roll_events
        self._tool_choice = choice_of(default_tool_choice)
        self._default_session = (
            None if default_session is None else check_name("default_session", default_session)
        )
        self._roles = check_roles(roles)
        self._verbose = verbose
        self._resources = AsyncExitStack()
        self._pid = os.getpid()
        self._caller = Caller()
        self._sender: TaskClient | None = None
        self._reader: Reader | None = None
        if client is not None and archive is not None:
            self._reader = Reader(client, archive)

    @classmethod
    def local(
        cls,
        *agents: Agent,
        data_dir: str | Path | None = ".holdfast",
        app: str | None = None,
        prices: Prices | None = None,
        notify: Iterable[Notifier] | None = None,
        keys: Keys | None = None,
        providers: Iterable[Limited] | None = None,
        **options: Any,
    ) -> Self:
        """Run everything on this machine: the Temporal dev server and a worker in this process.

        Args:
            agents: The agents; the first is the default one.
            data_dir: Directory of the server's database and the archive, shared by all processes
                that name it; None keeps everything in memory until this process ends.
            app: Name of the app, as for `AgentRunner`.
            prices: What models cost, recorded with each call; the prices that `HOLDFAST_PRICES`
                names by default, else none.
            notify: What notifies people when a task waits for them, such as
                `Webhook`; what `HOLDFAST_NOTIFY` names by default, else nothing.
            keys: What encrypts the history and the archive; the keys that `HOLDFAST_KEYS` names by
                default, else none.
            providers: Limits of model providers and budgets of tenants; those of the file that
                `HOLDFAST_PROVIDERS` names by default, else none.
            options: As for `AgentRunner`.

        Raises:
            InvalidArgumentError: No agent was given, or a value that cannot be used.
            UserError: Two agents have one name, among these or the agents that they hand over to or
                call as tools.
        """
        _check_agents(agents)
        _check_options("local", options, own=LOCAL_OPTIONS)
        check_arguments(RunnerBase.local, data_dir=data_dir, prices=prices)
        name = DEFAULT_APP if app is None else check_app(app)
        where = None if data_dir is None else _directory(data_dir)
        engine = LocalEngine(where, prices=prices, notify=notify, keys=keys, providers=providers)
        engine.add(name, agents)
        return cls(agent=agents[0].name, app=name, engine=engine, **options)

    @classmethod
    async def connect(
        cls,
        address: str | None = None,
        *,
        agent: str,
        data_dir: str | Path | None = None,
        namespace: str | None = None,
        archive: str | None = None,
        app: str | None = None,
        tls: Any = None,
        api_key: str | None = None,
        keys: Keys | None = None,
        **options: Any,
    ) -> Self:
        """Use a cluster, or a running embedded server, whose worker processes run elsewhere.

        Args:
            address: host:port; Temporal's environment variables by default, as for the rest.
            agent: Agent of new tasks.
            data_dir: Directory of an embedded server that another process has started, as
                `AgentRunner.local` and `holdfast worker` do; in place of an address. Nothing is
                started, and the server stops when the processes that started it have ended.
            namespace: Temporal namespace.
            archive: URL of the archive; `HOLDFAST_ARCHIVE` by default.
            app: Name of the app, as for `AgentRunner`.
            tls: True, or a `temporalio.service.TLSConfig` for mTLS.
            api_key: API key of Temporal Cloud.
            keys: What encrypts the history and the archive; the keys that `HOLDFAST_KEYS` names by
                default, else none.
            options: As for `AgentRunner`.

        Raises:
            InvalidArgumentError: Both an address and a data_dir are given.
            ConnectError: The cluster cannot be used, or no server runs in the data_dir.
            ArchiveError: The archive cannot be used, or is not the namespace's.
        """
        own = ("data_dir", "namespace", "archive", "app", "tls", "api_key", "keys")
        _check_options("connect", options, own=own)
        check_arguments(
            RunnerBase.connect,
            address=address,
            data_dir=data_dir,
            namespace=namespace,
            archive=archive,
            api_key=api_key,
        )
        if data_dir is not None:
            if any((address, namespace, archive, tls, api_key)):
                raise InvalidArgumentError(
                    "Give a data_dir alone, or the address of a cluster: each has its own archive."
                )
            client, store = await running_server(_directory(data_dir), keys)
            return cls(agent=agent, app=app, client=client, archive=store, **options)
        store = Archive(archive or default_archive(), keys=keys)
        client = await connect_client(
            address,
            namespace=namespace,
            tls=tls,
            api_key=api_key,
            plugins=[HoldfastPlugin(archive=store)],
        )
        await ensure_search_attributes(client)
        await check_archive(client, store)
        return cls(agent=agent, app=app, client=client, archive=store, **options)

    @property
    def is_started(self) -> bool:
        """Whether it can be used: its embedded engine runs, or it has a client."""
        return self._reader is not None

    async def start(self) -> Self:
        """Start the embedded engine, if there is one; else check the archive of a given client.

        Raises:
            ServerStartError: The dev server did not start.
            ArchiveError: The archive cannot be used, lacks its keys, or is not the namespace's.
        """
        if self._engine is not None and self._reader is None:
            self._pid = os.getpid()
            self._reader = Reader(*await self._resources.enter_async_context(self._engine))
        elif self._engine is None:
            await check_archive(self.client, self.archive)
        return self

    async def close(self) -> None:
        """Stop the embedded engine; tasks stay and go on when it is started again."""
        if self._pid != os.getpid():  # a fork of the process leaves its parent's engine running
            return
        if self._reader is not None:
            with suppress(TimeoutError):
                await self._caller.close(self._reader.client)
        await self._resources.aclose()
        if self._engine is not None:
            self._reader = self._sender = None

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    if not TYPE_CHECKING:

        def __enter__(self) -> Never:
            """Say what to write.

            Raises:
                InvalidArgumentError: Always.
            """
            raise InvalidArgumentError(
                "Write `async with AgentRunner.local(...)`, in an `async def`. In a program without"
                " async, use `with` and the AgentRunner of holdfast.sync."
            )

        def __exit__(self, *_: object) -> None:
            """Be there, so that `__enter__` is called."""

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    @property
    def client(self) -> Client:
        """The Temporal client, for everything else; a task's id is its workflow id."""
        return self._read.client

    @property
    def archive(self) -> Archive:
        """The namespace's archive."""
        return self._read.archive

    @property
    def reader(self) -> Reader:
        """The reader of tasks from Temporal and the archive."""
        return self._read

    @property
    def _read(self) -> Reader:
        if self._reader is None:
            raise InvalidArgumentError(
                "This AgentRunner is not started, or was closed: use it in `async with runner:`, or"
                " after runner.start()."
            )
        return self._reader

    @property
    def tasks(self) -> TaskClient:
        """What sends requests to tasks."""
        return self._tasks

    @property
    def _tasks(self) -> TaskClient:
        # A copy of this runner that reads as somebody else sends as they do.
        if self._sender is None or self._sender.reader is not self._read:
            self._sender = TaskClient(self.client, self._read, self._caller)
        return self._sender

    @property
    def data_dir(self) -> Path | None:
        """Directory of the server that this process runs; None for one in memory or elsewhere."""
        return None if self._engine is None else self._engine.data_dir

    @property
    def is_embedded(self) -> bool:
        """Whether this process runs the server, and the agents that it is given."""
        return self._engine is not None

    async def ensure_agent(self, agent: Agent) -> None:
        """Serve the agent of a run, when the engine is embedded.

        Raises:
            UserError: The engine was made with a different agent of this name.
        """
        if self._engine is not None:
            await self._engine.ensure(self.app, agent)

    def session(self, name: str | Session) -> Session:
        """Name a session of this app.

        Raises:
            InvalidArgumentError: The name is empty, longer than 160 characters, or not a string.
        """
        if isinstance(name, Session):
            return name
        queue = self._queue or queue_of(self.app)
        if self._tenant and isinstance(cast("object", name), str):
            name = owned(self._tenant, name)
        return Session(name, app=self.app, client=self.client, archive=self.archive, queue=queue)

    def _queue_for(self, agent: str) -> str:
        """Return the task queue of an agent's tasks."""
        return self._queue or queue_of(self.app, agent)

    async def _described(self, head: TaskHead) -> Described | None:
        """Return what a new task must know of its agent, if this process serves it."""
        return None if self._engine is None else await self._engine.described(self.app, head)

    def _worker_client(self, queue: str) -> Client | None:
        """Return the client of the worker of this process that serves a queue, if there is one."""
        return None if self._engine is None else self._engine.client_of(queue)

    def _called_from_here(self, task_id: str) -> None:
        """Have tools and hooks of a task that this process runs itself run in the caller's loop."""
        if self._engine is not None:
            user_calls.carry_loop(task_id)

    def _require_agent(self, agent: str) -> None:
        if self._engine is not None:
            self._engine.require(self.app, agent)

    async def _input(
        self, text: str | None, images: Images = (), *, task: str
    ) -> tuple[str | None, Blob | None, tuple[ImagePart, ...]]:
        """Return a text, inline or by reference, and references to images; images may be alone.

        Args:
            text: The text.
            images: The images.
            task: Id of the task for which they are stored.

        Raises:
            InvalidArgumentError: The text is empty, or an image is not one. Nothing was stored.
        """
        if text is None or (text == "" and images):
            return text, None, await self._images(images, task) if images else ()
        if not isinstance(cast("object", text), str) or not text.strip():
            msg = f"The input must be a text that says something; it was {shown(text)}."
            raise InvalidArgumentError(msg)
        try:
            data = text.encode()
        except UnicodeEncodeError as cause:
            msg = f"The input holds lone surrogates, which are no text: {cause}"
            raise InvalidArgumentError(msg) from cause
        parts = await self._images(images, task) if images else ()
        if len(data) <= INLINE_BYTES:
            return text, None, parts
        with writing_for(task):
            return None, Blob(sha256=await self.archive.aput(data), size=len(data)), parts

    async def _images(self, images: Images, task: str) -> tuple[ImagePart, ...]:
        with writing_for(task):
            return await store_images(images, self.archive)

    def _session_ref(self, session: str | Session | None) -> SessionRef | None:
        if session is None:
            return None
        named = self.session(session)
        return SessionRef(id=named.id, name=named.name, queue=named.queue)


def _check_options(of: str, given: Mapping[str, Any], *, own: tuple[str, ...]) -> None:
    """Refuse what neither `local` or `connect` nor AgentRunner takes.

    Raises:
        WrongTypeError: There is no such argument.
    """
    known = [*inspect.signature(RunnerBase.__init__).parameters][2:]
    others = {"app", "engine", "client", "archive"}
    passed = (name for name in known if name not in others)
    check_known(f"arguments of AgentRunner.{of}", given, (*own, *passed))


def _directory(given: str | Path) -> Path:
    """Return a data directory.

    Raises:
        InvalidArgumentError: No file system has such a name.
    """
    try:
        os.fsencode(given)
    except UnicodeEncodeError as cause:
        msg = f"data_dir={shown(str(given))} cannot name a directory: {cause}."
        raise InvalidArgumentError(msg) from None
    if "\0" in str(given):
        msg = f"data_dir={shown(str(given))} cannot name a directory: it holds a null character."
        raise InvalidArgumentError(msg)
    return Path(given)


def _check_agents(agents: tuple[object, ...]) -> None:
    odd = [each for each in agents if not isinstance(each, Agent)]
    if agents and not odd:
        return
    was = f"it was given {shown(odd[0])}" if odd else "none was given"
    msg = f"AgentRunner.local takes agents one by one, as local(first, second, *others); {was}."
    raise InvalidArgumentError(msg)
