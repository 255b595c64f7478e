"""The size of classes and functions, and their names: what a reader has to keep in mind at once."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module

from support.harness.source_tree import SourceFile, package_files

MAX_METHODS = 15
MAX_PARAMETERS = 8

ONE_HEIR = {
    "PromptConductor": "the conductor of app transports, which Faust makes by its class",
    "_Undecoded": "slots of a dataclass that are none of its fields",
}

# Modules that share a name: what each pair has in common.
SAME_MODULE = {
    "app": "an app, and the class of apps",
    "clock": "the machine's, and the kit's",
    "command": "the commands of the bench and of the demo",
    "connection": "a client's, and its interface for an app",
    "consume": "the command, and its benchmark",
    "consume_queue": "a consume queue, and its kernels",
    "filter_choice": "what a user gave as a filter, and the options of commands for it",
    "hashing": "the hashes, and their kernels",
    "member": "a consumer, and the kit's",
    "node": "a node, the kit's, and the connection of a command to one",
    "property_crc": "the property, and its kernels",
    "reader": "of a queue, and of stdout",
    "recall": "handles, and the command",
    "report": "of a benchmark, and of the demo",
    "send": "the command, and its benchmark",
    "topics": "a node's topics, and the command",
}

# What may be larger, and why. An entry that is not needed any more fails too.
MANY_PARAMETERS = {
    "rocketray.topology.app.app.App.agent": "a decorator: each is an option that users name",
    "rocketray.topology.values.topic.Topic.send": "Faust's signature",
}
OPTIONS_OF_COMMANDS = ("rocketray.cli.", "rocketray_bench.command", "rocketray_demo.command")
COMPILED = "rocketray.kernels."  # compiled functions take arrays, one by one

Class = tuple[SourceFile, ast.ClassDef]


def classes() -> dict[str, list[Class]]:
    found = defaultdict(list)
    for file in package_files():
        for node in file.nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name].append((file, node))
    return found


def base_names(node: ast.ClassDef) -> list[str]:
    """The bases that a bare name calls, without their parameters."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [base.id for base in plain if isinstance(base, ast.Name)]


def functions(node: ast.ClassDef | ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each


def public_methods(node: ast.ClassDef, known: dict[str, list[Class]]) -> set[str]:
    """The methods and properties of a class and of its bases among *known*."""
    names = {each.name for each in functions(node) if not each.name.startswith("_")}
    for base in base_names(node):
        for _, other in known.get(base, []):
            if other is not node:
                names |= public_methods(other, known)
    return names


def of_name(module: str, name: str) -> type:
    found: type = getattr(import_module(module), name)
    return found


def of(file: SourceFile, node: ast.ClassDef) -> type:
    return of_name(file.module, node.name)


def of_a_library(file: SourceFile, node: ast.ClassDef) -> set[str]:
    """The names that the class has from bases outside of this project."""
    bases = of(file, node).__mro__
    return {
        name for base in bases if not base.__module__.startswith("rocketray") for name in vars(base)
    }


def is_protocol(node: ast.ClassDef) -> bool:
    return "Protocol" in base_names(node)


def test_a_class_has_few_public_methods() -> None:
    known = classes()
    too_large = {}
    for file, node in (each for named in known.values() for each in named):
        names = public_methods(node, known)
        if len(names) > MAX_METHODS:
            names -= of_a_library(file, node)
        if len(names) > MAX_METHODS and not is_protocol(node):
            too_large[node.name] = len(names)
    assert not too_large, f"at most {MAX_METHODS}; what is the second subject?"


def test_no_base_class_splits_one_class() -> None:
    """A base with one subclass, and without objects of its own, is one class in two places."""
    known = classes()
    heirs = defaultdict(list)
    for file, node in (each for named in known.values() for each in named):
        for base in set(base_names(node)) - {node.name}:
            heirs[base].append((file.module, node.name))
    used = {
        ast.unparse(node.func).rpartition(".")[2]
        for file in package_files()
        for node in file.nodes
        if isinstance(node, ast.Call)
    }
    split = {
        name
        for name, named in known.items()
        for file, node in named
        if len(heirs[name]) == 1 and name not in used and not is_protocol(node)
        if of(file, node) in of_name(*heirs[name][0]).__mro__
    }
    assert split == ONE_HEIR.keys(), "one class in two places; let one have the other"


def test_a_function_has_few_parameters() -> None:
    too_many = {}
    for file in package_files():
        if file.module.startswith((*OPTIONS_OF_COMMANDS, COMPILED)):
            continue
        for owner in file.nodes:
            if not isinstance(owner, ast.Module | ast.ClassDef):
                continue
            inside = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
            for each in functions(owner):
                given = each.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                if len([name for name in names if name not in {"self", "cls"}]) > MAX_PARAMETERS:
                    too_many[f"{file.module}.{inside}{each.name}"] = each.lineno
    assert too_many.keys() == MANY_PARAMETERS.keys(), (
        f"at most {MAX_PARAMETERS}; give a value object"
    )


def test_a_class_name_means_one_thing() -> None:
    twice = {name for name, named in classes().items() if len(named) > 1 and name[0] != "_"}
    assert not twice


def test_a_module_name_means_one_thing() -> None:
    counts = Counter(file.path.stem for file in package_files() if not file.is_package)
    twice = {name for name, count in counts.items() if count > 1}
    assert twice <= SAME_MODULE.keys(), "name a module after its class, or after its question"
