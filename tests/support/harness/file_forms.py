"""All forms of files that the code declares, by their names."""

from __future__ import annotations

from importlib import import_module

from support.harness.source_tree import package_files

from rocketray.base.file_form import FileForm


def file_forms() -> dict[str, FileForm]:
    """Read them from the modules that make one; each is a constant there."""
    forms = [
        form
        for file in package_files()
        if " = FileForm(" in file.text
        for form in vars(import_module(file.module)).values()
        if isinstance(form, FileForm)
    ]
    found = {form.name: form for form in forms}
    assert len(found) == len(forms), "two forms have one name"
    return found
