"""Prints one line for each JSON Schema in a file, a JSON array, that xgrammar or llguidance refuses.

    .tools/grammars/bin/python scripts/check_grammars.py FILE

xgrammar imports what models run on, which reading schemas does not need: empty modules take its place here.
"""

import json
import sys
import types

import tvm_ffi  # noqa: F401  Before the empty modules, of which it would use one.


class Empty(types.ModuleType):
    """A module in which every name is there and does nothing."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


for module in ("torch", "transformers", "triton", "triton.language"):
    sys.modules[module] = Empty(module)

from llguidance import LLMatcher  # noqa: E402
from xgrammar import Grammar  # noqa: E402


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schemas = json.load(file)
    for schema in map(json.dumps, schemas):
        try:
            Grammar.from_json_schema(schema)
        except RuntimeError as error:
            print("xgrammar:", " ".join(str(error).split()), "in", schema)
        refused = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
        if refused:
            print("llguidance:", " ".join(refused.split()), "in", schema)


if __name__ == "__main__":
    main()
