"""The most confident errors: which, in what order, and in whose words."""

import numpy as np

from calib_jax.evaluation import Predictions, confident_errors, num_kept


def test_the_most_confident_first() -> None:
    ids, names = np.array([50, 51, 52, 53, 54], np.int32), ("a", "b", "c")
    labels = np.array([0, 1, 2, 0, 1])
    probs = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.1, 0.3, 0.6],
                      [0.04, 0.95, 0.01], [0.5, 0.3, 0.2]])  # fmt: skip
    predictions = Predictions(np.log(probs), labels)
    texts = np.array(["right", "wrong at 80 %", "right", "x" * 400, "wrong at 50 %"], object)
    found = confident_errors(predictions, ids, names, texts)
    assert [error["id"] for error in found] == [53, 51, 54]
    assert found[1] == {
        "id": 51, "label": "b", "predicted": "a", "confidence": 0.8, "text": "wrong at 80 %",
    }  # fmt: skip
    assert len(found[0]["text"]) == 300
    assert found[0]["text"].endswith("x…")
    assert [e["id"] for e in confident_errors(predictions, ids, names, texts, 1)] == [53]


def test_of_the_test_set_more_are_kept_than_are_listed() -> None:
    # What all seeds get wrong need not be among the most confident errors of any of them.
    assert (num_kept("test"), num_kept("dailydialog")) == (2000, 20)
