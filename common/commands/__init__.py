"""The commands of every benchmark: train, evaluate, predict, measure, prepare and so on; each a parser and its work."""
