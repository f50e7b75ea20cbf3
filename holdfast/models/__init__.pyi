# The public names, and their modules: `__init__.py` loads each at its first use.

from holdfast.models.base import (
    Model as Model,
    ModelAnswer as ModelAnswer,
    ModelRequest as ModelRequest,
    OutputSpec as OutputSpec,
    ToolSpec as ToolSpec,
)
from holdfast.models.libraries.any_llm import AnyLLMModel as AnyLLMModel
from holdfast.models.libraries.litellm import LitellmModel as LitellmModel
from holdfast.models.offline import OfflineModel as OfflineModel
from holdfast.models.openai.chat import ChatCompletionsModel as ChatCompletionsModel
from holdfast.models.openai.items import (
    from_response_items as from_response_items,
    to_response_items as to_response_items,
)
from holdfast.models.openai.responses import ResponsesModel as ResponsesModel
from holdfast.models.resolve import (
    DEFAULT_MODEL as DEFAULT_MODEL,
    close_models as close_models,
    resolve_model as resolve_model,
)
from holdfast.values.messages import (
    assistant as assistant,
    user as user,
)
