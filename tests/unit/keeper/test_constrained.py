"""What a program does anyway is not chosen for it."""

from __future__ import annotations

import pytest

from advisor.keeper.constrain import constrained
from advisor.memory.extras import Beside
from advisor.model.beside import read_projector
from advisor.outputs.registry import OUTPUTS, load
from advisor.recommend.search import Wishes
from advisor.settings import RequestedSettings
from advisor.stores.resolve import load_header
from advisor.together.placing import placings
from tests.tools.cells import engine
from tests.tools.projectors import write_projector
from tests.unit.outputs.cases import model


@pytest.mark.parametrize("name", [name for name in OUTPUTS if "beside" in load(name).expresses()])
def test_every_place_of_a_projector_that_is_chosen_can_be_written(tmp_path, name):
    """Where a format has no word for a projector in system memory, that is no choice."""
    beside = Beside(projector=read_projector(load_header(str(write_projector(tmp_path / "eye.gguf", "gemma3")))))
    output = load(name)
    for wishes in placings(Wishes(constrained(RequestedSettings(), output, engine())), beside):
        request = "-c 4096 -ngl 99 -np 1 -b 512 -ub 512"
        request += " --no-mmproj-offload" if wishes.pinned.mmproj_offload is False else ""
        one = model(request)
        options = (*one.options[:-1], ("mmproj", "/srv/models/eye.gguf"), one.options[-1])
        assert output.one(one._replace(options=options), None)
