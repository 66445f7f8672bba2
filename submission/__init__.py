"""Make, summarise and report submission packages; compliance judges them."""

from common.extras import explain_missing

explain_missing(__name__)
