"""Whole universes go to one split, by a hash that nothing else changes."""

from cosmoflow.data.splits import HashSplit


def test_universes_are_in_one_split_and_stay_there_when_others_come_or_go():
    names = [f"1_univ_a{i}" for i in range(2000)]
    split = HashSplit(seed=3)
    found = split(names)
    assert not set(found["train"]) & set(found["validation"])
    assert set(found["train"]) | set(found["validation"]) == set(names)
    assert 0.08 < len(found["validation"]) / len(names) < 0.14
    fewer = split(names[::2])
    assert set(fewer["validation"]) == set(found["validation"]) & set(names[::2])
    assert HashSplit(seed=4)(names) != found

    exact = HashSplit(train=1600, validation=200)(names)
    assert (len(exact["train"]), len(exact["validation"])) == (1600, 200)
    without = HashSplit(train=1600, validation=200)([name for name in names if name != exact["validation"][0]])
    assert set(without["train"]) == set(exact["train"])
