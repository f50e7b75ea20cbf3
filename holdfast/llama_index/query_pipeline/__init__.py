"""QueryPipeline by LlamaIndex's names: a graph of components, and agents around one."""

from holdfast.llama_index.query_pipeline.pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    ArgPackComponent,
    CustomAgentComponent,
    CustomQueryComponent,
    FnComponent,
    InputComponent,
    KwargPackComponent,
    Link,
    QueryComponent,
    QueryPipeline,
    StatefulFnComponent,
    ToolRunnerComponent,
)

__all__ = [
    "AgentFnComponent",
    "AgentInputComponent",
    "ArgPackComponent",
    "CustomAgentComponent",
    "CustomQueryComponent",
    "FnComponent",
    "InputComponent",
    "KwargPackComponent",
    "Link",
    "QueryComponent",
    "QueryPipeline",
    "StatefulFnComponent",
    "ToolRunnerComponent",
]
