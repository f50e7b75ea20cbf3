# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.workers.base import (
    AgentWorker as AgentWorker,
    CustomAgentWorker as CustomAgentWorker,
    FunctionAgentWorker as FunctionAgentWorker,
)
from holdfast.workers.chain import ChainOfAbstractionAgentWorker as ChainOfAbstractionAgentWorker
from holdfast.workers.compiler.worker import LLMCompilerAgentWorker as LLMCompilerAgentWorker
from holdfast.workers.context.context import StepContext as StepContext
from holdfast.workers.context.offer import ToolResult as ToolResult
from holdfast.workers.folding import FoldingAgentWorker as FoldingAgentWorker
from holdfast.workers.function_calling import (
    FunctionCallingAgentWorker as FunctionCallingAgentWorker,
    OpenAIAgentWorker as OpenAIAgentWorker,
)
from holdfast.workers.pipeline.components import (
    FunctionComponent as FunctionComponent,
    Link as Link,
    ModelComponent as ModelComponent,
    PromptComponent as PromptComponent,
    ToolComponent as ToolComponent,
    link as link,
)
from holdfast.workers.pipeline.run import PipelineAgentWorker as PipelineAgentWorker
from holdfast.workers.plan_and_solve.worker import (
    PlanAndSolveAgentWorker as PlanAndSolveAgentWorker,
)
from holdfast.workers.react.parser import AnswerFilter as AnswerFilter
from holdfast.workers.react.worker import (
    MultimodalReActAgentWorker as MultimodalReActAgentWorker,
    ReActAgentWorker as ReActAgentWorker,
)
