"""The former command `python -m submission.cost`: answers with its present call."""

from submission.cli import answer_renamed

if __name__ == "__main__":
    raise SystemExit(answer_renamed("cost"))
