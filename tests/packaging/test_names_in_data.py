"""Every place where a name may lead to an import or to code, and what bounds the name."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CALLS = {
    *("import_module", "__import__", "find_spec", "spec_from_file_location", "entry_points"),
    *("eval", "exec", "run_path", "run_module", "loads_pickle", "attrgetter", "methodcaller"),
}
LISTED = """
# a recorded run's hooks, filters and handlers: what a module of the served agents defines under
# that name
holdfast/values/code/code_refs.py
# recorded data's class: imports nothing. A loaded module's own dataclass or pydantic model; its
# data must be the same again
holdfast/values/code/typed_data.py
# recorded state's class: imports nothing. A loaded class of the recorded kind, only in a state
# with the mark of step logic (OBJECTS), which no extra_state of a client, command or request
# may have
holdfast/llama_index/step_code/state.py
# a failure's type: an attribute of holdfast.errors, a verdict or one of a fixed set
holdfast/task/refusals.py holdfast/reading/queries.py
# an operation's, a hook's: one of a few literals, a method of the user's editor, of their hooks
holdfast/agents/local/base.py holdfast/reading/run_hooks.py
# a method of the same class, by the name with which it is declared
holdfast/archive/archive.py
# a field of a dataclass of the program: the class's own list
holdfast/agents/tools/functions/function_schema.py
# an annotation in the program's code, as its author wrote it
holdfast/values/code/checker_imports.py
# a command's: a literal where the command is declared
holdfast/cli/options.py
# the command line's: the person who starts the process
holdfast/serving/worker_process.py holdfast/testing/conformance/process.py
# a file that has changed: compiled to find errors, never run
holdfast/cli/commands/start/reload.py
# a public name's, a model's: a table in that file
holdfast/values/code/stub_names.py holdfast/models/providers.py holdfast/agents_sdk/absent_names.py
# a constant, a class at hand: a loaded module
holdfast/llama_index/llms/openai.py holdfast/testing/conformance/lab.py
"""
"""The modules that take a name; above them: whose name, and what bounds it."""
UNSAFE = {"compile", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load", "shelve.open"}


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def leads_to_code(node: ast.AST) -> bool:
    """Whether an expression imports, runs code, looks a module up, or an attribute by a field."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="modules"), slice=name):
            return not is_constant(name)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="modules"), attr="get")):
            return not is_constant(node.args[0])
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Attribute(), *_]):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            is_fixed = all(map(is_constant, node.args))
            return (name in CALLS and not is_fixed) or ast.unparse(node.func) in UNSAFE
        case _:
            return False


def found() -> Iterator[str]:
    for top in ("holdfast", "workflows", "activities"):
        for file in sorted((ROOT / top).rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            if any(map(leads_to_code, ast.walk(tree))):
                yield str(file.resolve().relative_to(ROOT))


def test_each_place_where_a_name_leads_to_code_is_listed_with_its_rule() -> None:
    lines = (line for line in LISTED.splitlines() if not line.startswith("#"))
    assert sorted(" ".join(lines).split()) == sorted(set(found()))
