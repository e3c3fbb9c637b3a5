"""The float64 reference against transformers, from every form a checkpoint comes in."""

import numpy as np
import pytest

from oracles.build import ORACLES
from strata.checkpoint.locate import open_checkpoint
from strata.parity import reference as ref
from strata.parity.forward import expected_ops, forward, load
from strata.parity.settings import NgramShape
from strata.parity.weights import round_activation

FORMS = ("saved", "fused", "gguf")
BOUND = 1e-4


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ORACLES)
def test_logits_equal_the_oracle(files, name, form):
    if form == "fused" and name in ("llama", "mixtral"):
        pytest.skip("no multimodal form")
    oracle, path = files(name, form)
    with open_checkpoint(path) as checkpoint:
        model = load(checkpoint)
        taps, logits = forward(model, oracle.ids)
        wanted = oracle.logits().double().numpy()
        assert np.abs(logits - wanted).max() / np.abs(wanted).max() <= BOUND
        assert [op for op, _ in taps] == expected_ops(model.settings)


@pytest.mark.parametrize("name", ORACLES)
def test_one_wrong_token_shows(files, name):
    oracle, path = files(name, "gguf")
    with open_checkpoint(path) as checkpoint:
        _, logits = forward(load(checkpoint), [oracle.ids[0] + 1, *oracle.ids[1:]])
    wanted = oracle.logits().double().numpy()
    assert np.abs(logits - wanted).max() / np.abs(wanted).max() > 100 * BOUND


def test_selection_drops_blocks_and_no_scores_tie(files):
    """What makes the oracle's selection comparable at all: `topk` promises no order among equal scores."""
    oracle, path = files("qwen4_exp", "gguf")
    with open_checkpoint(path) as checkpoint:
        model = load(checkpoint)
        taps = dict(forward(model, oracle.ids)[0])
        s = model.settings
        layers = [i for i in range(s.layers) if s.selects(i)]
        assert layers == [3, 7]
        for i in layers:
            x, w = taps[f"blk.{i}.attention"]["x"], model.weights.layers[i].mixer
            scores = ref.select(x, w, s.index, s.rotary, s.eps).scores
            for t in range(len(x)):
                order = np.sort(scores[t, : (t + 1) // s.index.ratio])[::-1]
                if len(order) > s.index.blocks:
                    assert order[s.index.blocks - 1] - order[s.index.blocks] > 1e-4
            assert taps[f"blk.{i}.attention.selected"]["count"][-1] < len(x)


def test_activations_are_rounded_in_blocks_of_32():
    x = np.zeros((2, 64))
    x[0, 0], x[0, 1], x[0, 32] = 127.0, 1.4, 0.3
    rounded = round_activation(x)
    assert rounded[0, 0] == 127.0 and rounded[0, 1] == 1.0
    assert abs(rounded[0, 32] - 0.3) < 1e-7
    assert not rounded[1].any()


SHAPE = NgramShape(
    layers=(1,),
    size=3,
    heads=1,
    multipliers=(23703573157769, 20109073645365, 8052911324071),
    rows=(20000003, 20000023),
    offsets=(0, 20000003),
    end=248044,
)


def test_ngram_rows_cut_at_the_end_of_text_but_not_for_itself():
    rows = ref.ngram_rows([5, 7, 248044, 9], SHAPE)
    m0, m1, m2 = SHAPE.multipliers
    end = SHAPE.end
    assert rows[0].tolist() == [(5 * m0 ^ end * m1) % 20000003, (5 * m0 ^ end * m1 ^ end * m2) % 20000023 + 20000003]
    assert rows[2].tolist() == [(end * m0 ^ 7 * m1) % 20000003, (end * m0 ^ 7 * m1 ^ 5 * m2) % 20000023 + 20000003]
    assert rows[3].tolist() == [(9 * m0 ^ end * m1) % 20000003, (9 * m0 ^ end * m1 ^ end * m2) % 20000023 + 20000003]


def test_sigmoid_and_softplus_stay_finite():
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4])
    assert ref.sigmoid(x).tolist()[0] == 0.0 and ref.sigmoid(x).tolist()[-1] == 1.0
    assert np.isfinite(ref.softplus(x)).all() and ref.softplus(x)[-1] == 1e4
