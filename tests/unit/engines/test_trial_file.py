"""Files of trials: whole models that readers accept, of ordinary numbers."""

from __future__ import annotations

import os

import gguf
import numpy
import pytest

from advisor.app import App
from advisor.engines.trial_file import write_trial
from advisor.ggml_types import BY_NAME, GGML_TYPES
from advisor.speed.trials import Trial, trials

SMALL = Trial("type", "q8_0", "q8_0", 2, 256, 512, 4, 2, 64, 512)


@pytest.mark.parametrize("kind", sorted({trial.kind for trial in trials(32 << 20)}))
def test_every_type_holds_ordinary_numbers(tmp_path, kind):
    path = tmp_path / "trial.gguf"
    write_trial(SMALL._replace(kind=kind, output=kind), str(path), 256)
    reader = gguf.GGUFReader(path)
    assert [tensor.name for tensor in reader.tensors] == [
        name for name, _, _ in SMALL._replace(kind=kind, output=kind).tensors
    ]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert numpy.isfinite(values).all(), tensor.name
        assert numpy.abs(values).max() < 1e4
        if len(tensor.shape) > 1:
            assert tensor.tensor_type == BY_NAME[kind.lower()].id
            assert len(numpy.unique(values)) > 10
            ordinary = numpy.abs(values[values != 0])
            assert ordinary.min() > 1e-30  # denormal numbers are slow
        else:
            assert (values == 1).all()
    reader.data._mmap.close()


@pytest.mark.parametrize("trial", [SMALL, SMALL._replace(output=""), SMALL._replace(n_head_kv=1, head_size=128)])
def test_advisor_reads_it_as_it_was_meant(tmp_path, trial):
    path = tmp_path / "trial.gguf"
    write_trial(trial, str(path), 1024)
    app = App()
    spec = app.model(app.header(str(path)))
    assert (spec.n_layer, spec.n_embd, spec.n_vocab, spec.n_ctx_train) == (2, 256, 512, 1024)
    assert spec.tied_output is (trial.output == "")
    layer = spec.layers[0]
    assert (layer.n_head, layer.n_head_kv, layer.head_size_k) == (trial.n_head, trial.n_head_kv, trial.head_size)
    read = {GGML_TYPES[tensor.ggml_type].name: 0 for tensor in spec.tensors if len(tensor.shape) > 1}
    for tensor in spec.tensors:
        if len(tensor.shape) > 1 and (tensor.place != "input" or spec.tied_output):
            read[GGML_TYPES[tensor.ggml_type].name] += tensor.n_bytes
    assert read == trial.weights_read()
    blocks = sum(
        tensor.shape[0] * tensor.shape[1]
        for tensor in spec.tensors
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1
    )
    assert trial.block_parameters == blocks


def test_two_files_differ_and_take_their_space(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    write_trial(SMALL, str(first), 256)
    write_trial(SMALL, str(second), 256)
    assert first.stat().st_size == second.stat().st_size
    assert first.read_bytes() != second.read_bytes()
    assert os.stat(first).st_blocks * 512 >= os.stat(first).st_size


def test_a_folder_without_room(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        write_trial(SMALL, str(tmp_path / "none" / "trial.gguf"), 256)
